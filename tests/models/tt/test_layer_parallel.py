# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Plans of layer-parallel drafting: which chip holds what, what it takes, what is refused; no device."""

from dataclasses import replace

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import preset
from models.llama31_8b.tt.layer_parallel import LayerAssignment, Stage
from models.llama31_8b.tt.mesh import MeshError, MeshShape
from models.llama31_8b.tt.precision import LayerPrecision, PrecisionError, precision_config
from models.llama31_8b.tt.settings import ModelSettings
from models.llama31_8b.tt.weights import WeightMap
from tests.support import tt_programs

DRAFT = preset("llama-3.2-1b")  # 16 layers
SMALL = tt_programs.SMALL.with_layers(6)


def plan(tp: int, size, config=DRAFT) -> LayerAssignment:
    return LayerAssignment.make(config, MeshShape(1, tp), size)


@pytest.mark.parametrize(
    "tp, size, expected",
    [
        (4, 4, "0 | 1,2,3 | 4,5,6,7 | 8,9,10,11 | 12,13,14 | 15"),  # table 6's rule, as of 28 layers
        (8, 4, "0 | 1,2,3 | 4,5,6,7 | 8,9,10,11 | 12,13,14 | 15"),
        (2, 4, "0 | 1,2 3 | 4,5 6,7 | 8,9 10,11 | 12,13 14 | 15"),  # stages of two
        (1, 4, "0 | 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 14 | 15"),
        (4, 1, " | ".join(map(str, range(16)))),
        (2, [[0, 1, 2], list(range(3, 16))], "0,1 2 | 3,4 5,6 7,8 9,10 11,12 13,14 15"),
    ],
)
def test_groups_run_in_stages_of_at_most_the_rows_chips(tp, size, expected):
    made = plan(tp, size)
    stages = [[",".join(map(str, stage.layers)) for stage in made.stages(group)] for group in made.groups]
    assert " | ".join(" ".join(group) for group in stages) == expected


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 14])
def test_every_part_of_a_parallel_layer_lies_on_one_chip(tp, size):
    for stage in plan(tp, size).parallel_stages:
        places = [stage.place(chip) for chip in range(tp)]
        found = [place for place in places if place is not None]
        assert found == [(layer, part) for layer in stage.layers for part in range(stage.share)]
        assert places[len(found) :] == [None] * (tp - len(found)) and tp - len(found) < len(stage.layers)


def test_bytes_of_the_chips_own_layers_by_hand():
    """Four stages on 1x4: a whole attention each; bfloat8_b takes 1088 bytes for 1024 numbers."""
    formats, made = precision_config("performance", 16), plan(4, 4)
    extra = made.extra(formats, context=4096, users=2)
    matrices = 2048 * (32 + 2 * 8) * 64 + 2048 * 2048
    assert extra.weights == 4 * matrices * 1088 // 1024
    assert extra.kv_cache == 4 * 2 * 2 * 8 * 4096 * 64 * 1088 // 1024
    assert extra.norms == 4 * 32 * 2048 * 2 + 2 * 14 * 2048, "a norm a stage, and two masks a layer"
    # A chip reads whole attentions of four layers for quarters of fourteen.
    assert extra.read_per_step == (extra.weights + extra.kv_cache) * (16 - 14) // 16
    assert plan(1, 4).extra(formats, 4096).held == plan(4, 1).extra(formats, 4096).held == 0


def test_layers_of_one_program_have_one_format():
    formats = precision_config("accuracy", 16)
    mixed = replace(formats, layers={5: LayerPrecision(wo="bfloat16")})
    with pytest.raises(PrecisionError, match="4 bfloat8_b and bfloat8_b, 5 bfloat8_b and bfloat16"):
        plan(4, 4).extra(mixed, 4096)
    assert plan(4, 1).extra(mixed, 4096).held == 0, "layers alone may have their own"


def test_an_assignment_for_another_model_is_refused_before_any_work():
    settings = ModelSettings(layer_assignment=plan(4, 4))
    settings.check(DRAFT, MeshShape(1, 4))
    with pytest.raises(ValueError, match="for llama-3.2-1b with 16 layers on 1x4, the model is .* with 8 on 1x4"):
        settings.check(DRAFT.with_layers(8), MeshShape(1, 4))


@pytest.mark.parametrize(
    "stage", [Stage((1, 2), 4), Stage((3, 4, 5), 4), Stage((1, 2, 3, 4), 4)], ids=lambda s: str(s.layers)
)
def test_each_chip_gets_its_own_layer(stage):
    """Its columns are those of a row of as many chips as share the layer; the parts of a layer sum up to it."""
    state = random_state_dict(SMALL, 1)
    weights, alike = (WeightMap(SMALL, state, MeshShape(1, chips)) for chips in (4, stage.share))
    qkv, wo, norms = weights.own_qkv(stage), weights.own_wo(stage), weights.own_norms(stage)
    x = torch.randn(3, SMALL.num_attention_heads * 64, generator=torch.Generator().manual_seed(0))
    sums = {layer: torch.zeros(3, 256) for layer in stage.layers}
    for chip, parts in enumerate(zip(qkv.chunk(4, 1), wo.chunk(4), norms.chunk(4), strict=True)):
        place = stage.place(chip)
        if place is None:
            assert not any(part.any() for part in parts)
            continue
        layer, part = place
        assert torch.equal(parts[0], alike.qkv(layer).chunk(stage.share, 1)[part])
        assert torch.equal(parts[2], weights.norm(layer, "attention"))
        sums[layer] += x.chunk(stage.share, 1)[part] @ parts[1]
    for layer, found in sums.items():
        torch.testing.assert_close(found, x @ weights.wo(layer))


@pytest.mark.parametrize(
    "tp, size, config, words",
    [
        (4, 15, DRAFT, "from 1 to 14 for a model of 16 layers, got 15"),
        (4, 0, DRAFT, "from 1 to 14 for a model of 16 layers, got 0"),
        (4, [[0, 1]], DRAFT, "layers 0 to 15 once, in order"),
        (8, 2, SMALL, "num_key_value_heads = 4, which 8 chips"),
        (4, 4, replace(DRAFT, num_attention_heads=64), "leaves 64 query heads per chip on 1x1"),
    ],
)
def test_what_cannot_be_is_refused(tp, size, config, words):
    with pytest.raises(ValueError, match=words) as raised:
        plan(tp, size, config)
    assert isinstance(raised.value, MeshError) == ("heads" in words)
