# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A two-layer Llama in TT-NN on the simulated chip against the reference: logits, caches, weight cache.

The chip has two cores: joining heads takes one for each of the two query heads.
"""

from dataclasses import replace

import pytest
from loguru import logger

from models.llama31_8b.tiny import TINY
from tests.support.tt_programs import prefill_and_decode, weight_cache
from tests.support.tt_tolerances import GRID, MIN_PCC, NEAR_TIE, prompt

pytestmark = [pytest.mark.sim, pytest.mark.timeout(1500)]


def test_prefill_of_40_tokens_and_two_decode_steps(sim_device):
    """Chunks of 32 and 8 (padded) tokens, then two steps; PCC of logits at each and of the whole cache."""
    told = sim_device(GRID).run(prefill_and_decode, prompt(40, 3), 2, 32, timeout=1200)
    assert len(told["steps"]) == 3
    for number, row in enumerate(told["steps"]):
        logger.info("step {}: {}", number, row)
        assert row["pcc"] >= MIN_PCC
        assert row["token"] == row["reference_token"] or row["gap"] < NEAR_TIE
    assert len(told["cache"]) == 4
    for row in told["cache"]:
        logger.info("cache: {}", row)
        assert row["pcc"] >= MIN_PCC


def refused_model(mesh) -> tuple[str | None, int]:
    """In the worker: what TtLlama says of the tiny model with six heads, and how many weights were asked for."""
    from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import ModelSettings
    from models.llama31_8b.tt.sharding import ShardingError
    from models.llama31_8b.tt.weights import WeightStore

    config, store = replace(TINY, hidden_size=384, num_attention_heads=6), WeightStore(mesh, MeshShape())
    settings = ModelSettings(capacity=128, precision="bfloat16")
    try:
        TtLlama.from_state_dict(config, random_state_dict(config, 0), mesh, settings, store)
    except ShardingError as error:
        return str(error), store.converted
    return None, store.converted


def test_more_heads_than_cores_are_refused_before_weights(sim_device):
    """They would be joined in the first decode step, behind a whole prefill."""
    said, converted = sim_device("2x2").run(refused_model, timeout=600)
    assert said is not None and "6 query heads per chip on 1x1, a chip 2 x 2 cores" in said
    assert converted == 0


def test_weight_cache_is_reused(sim_device, tmp_path):
    told = sim_device(GRID).run(weight_cache, str(tmp_path / "entry"))
    counts = {name: (found["converted"], found["reused"]) for name, found in told.items()}
    assert all(found["equal"] for found in told.values()), told
    assert counts == {
        "first": (3, 0),
        "second": (0, 3),
        "one gone": (1, 2),
    }
