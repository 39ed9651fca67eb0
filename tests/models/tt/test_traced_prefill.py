# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Whole chunks of prompts replay a trace, whatever their start and user; caches and logits are the eager ones, bit for
bit."""

from dataclasses import dataclass, replace
from itertools import accumulate
from unittest.mock import patch

import pytest
import torch

from models.llama31_8b.tt.precision import precision_config
from models.llama31_8b.tt.prefill import BANKED_PRODUCT_ROWS
from tests.support.tt_programs import TINY, build, of_chips, prompt


@dataclass(frozen=True)
class Case:
    """prompts: user, tokens and how many chunks replay a trace. few: rows beyond which they are coarse."""

    layers: int
    chunk: int
    prompts: tuple[tuple[int, int, int], ...]
    few: int = BANKED_PRODUCT_ROWS


# The ends of the first prompts have new programs: traces are made anew.
SMALL = Case(1, 32, ((0, 96, 1), (1, 64, 1)))
COARSE = replace(SMALL, few=0)
LARGE = Case(2, 64, ((0, 148, 1), (1, 128, 0), (1, 192, 3), (0, 123, 2)))


def caches_and_logits(mesh, case: Case) -> dict:
    """In the worker: by prompt the replays so far; by way the logits after each and, at the end, all caches."""
    import ttnn

    from models.llama31_8b.tt.model import cache_prompt
    from models.llama31_8b.tt.trace import TracedPrefill

    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = replace(TINY.with_layers(case.layers), intermediate_size=64, **heads)
    formats = replace(precision_config("bfloat16", case.layers), long_rows="bfloat8_b")
    model, _ = build(mesh, config, formats, users=2, capacity=3 * case.chunk)

    told: dict = {"replays": []}
    for way in ("traced", "eager"):
        run = TracedPrefill(model, case.chunk, eager=way == "eager")
        logits = []
        for user, count, _ in case.prompts:
            with patch("models.llama31_8b.tt.prefill.BANKED_PRODUCT_ROWS", case.few):
                last = cache_prompt(model, prompt(count, count), user, case.chunk, logits=True, prefill=run)
            logits.append(of_chips(last))
            told["replays"].append(run.replays)
        run.close()
        told[way] = logits, [of_chips(tensor) for tensor in (*model.cache.keys, *model.cache.values)]
        if way == "traced":
            for tensor in (*model.cache.keys, *model.cache.values):
                ttnn.copy(ttnn.zeros_like(tensor), tensor)
    return told


@pytest.mark.sim
@pytest.mark.parametrize(
    "shape, grid, case",
    [
        ((1, 1), "2x1", SMALL),
        pytest.param((1, 1), "2x1", LARGE, marks=pytest.mark.slow),
        ((1, 2), "4x2", COARSE),
    ],
    ids=["1x1", "1x1 two layers", "1x2, coarse rows"],
)
def test_traced_chunks_are_the_eager_ones(sim_device, sim_mesh, shape, grid, case):
    worker = sim_device(grid, dispatch="fast") if shape == (1, 1) else sim_mesh(shape, grid, dispatch="fast")
    told = worker.run(caches_and_logits, case, timeout=1400)
    assert told["replays"] == [*accumulate(replays for *_, replays in case.prompts), *[0] * len(case.prompts)]
    (traced, ours), (eager, theirs) = told["traced"], told["eager"]
    for (_, count, _), first, second in zip(case.prompts, traced, eager, strict=True):
        row = (count - 1) % 32
        assert all(torch.equal(chip[0, 0, row], first[0][0, 0, row]) for chip in (*first, *second)), count
    assert len(ours) == len(theirs) == 2 * case.layers
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.abs().max() > 0 and torch.equal(a, b)
