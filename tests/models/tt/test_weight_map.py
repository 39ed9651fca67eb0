# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From a checkpoint's names, shapes and RoPE order to the matrices of the chips, at Llama 3.1 8B's widths."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict, tensor_shapes
from models.llama31_8b.config import LlamaConfig, ModelLoadError, preset
from models.llama31_8b.reference.model.model import RotaryTable, rotate
from models.llama31_8b.tt.mesh import MeshError, MeshShape
from models.llama31_8b.tt.weights import WeightMap, adjacent_pairs
from tt_kernels.gated_product.reference import gated_product_reference

LLAMA = preset("llama-3.1-8b").with_layers(2)
SMALL = LlamaConfig(
    vocab_size=100,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=64,
    max_position_embeddings=128,
    name="small",
)


def meta(config):
    return {name: torch.empty(shape, device="meta") for name, shape in tensor_shapes(config).items()}


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_shapes_at_8b_widths(tp):
    weights = WeightMap(LLAMA, meta(LLAMA), MeshShape(1, tp))
    assert weights.qkv(1).shape == (4096, 6144) and weights.wo(1).shape == (4096, 4096)
    assert weights.gate_up(0).shape == (4096, 2 * 14336) and weights.down(0).shape == (14336, 4096)
    assert weights.embedding().shape == (128256, 4096) and weights.lm_head(0, 128).shape == (4096, tp * 128)
    assert weights.norm(1, "attention").shape == weights.norm(0, "mlp").shape == weights.final_norm().shape == (4096,)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_each_chip_gets_its_heads(tp):
    """Column block c of the fused matrix computes query heads c * 8 / tp onwards, then its keys, then its
    values."""
    state = random_state_dict(SMALL, 1)
    weights = WeightMap(SMALL, state, MeshShape(1, tp))
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(0))
    heads, kv_heads = 8 // tp, 4 // tp
    for chip, block in enumerate(weights.qkv(1).chunk(tp, dim=1)):
        parts = (x @ block).view(3, -1, 64).split([heads, kv_heads, kv_heads], dim=1)
        for name, part, count in zip("qkv", parts, (heads, kv_heads, kv_heads), strict=True):
            own = state[f"model.layers.1.self_attn.{name}_proj.weight"].view(-1, 64, 256)
            expected = torch.einsum("ri,hdi->rhd", x, own[chip * count : (chip + 1) * count])
            if name != "v":
                expected = expected.view(3, count, 2, 32).transpose(2, 3).flatten(2)
            torch.testing.assert_close(part, expected)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_each_chip_gets_gate_and_up_of_its_part_of_the_mlp(tp):
    state, mesh = random_state_dict(SMALL, 1), MeshShape(1, tp)
    weights = WeightMap(SMALL, state, mesh)
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(0))
    gate, up, down = (state[f"model.layers.1.mlp.{name}_proj.weight"].t() for name in ("gate", "up", "down"))
    expected = torch.nn.functional.silu(x @ gate) * (x @ up)
    chips = [gated_product_reference(x @ part, weights.gate_block) for part in weights.gate_up(1).chunk(tp, dim=1)]
    torch.testing.assert_close(torch.cat(chips, dim=1).float(), expected)
    assert torch.equal(weights.down(1), down)


def test_adjacent_rotation_is_the_checkpoints():
    """Scores of queries and keys rotated as neighbours equal those of the half-split layout."""
    config = replace(SMALL, num_attention_heads=1, num_key_value_heads=1)
    q, k = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0))
    cos, sin = RotaryTable(config, torch.float32).rows(torch.arange(5), 5)
    expected = [rotate(x[:, None], cos, sin)[:, 0] for x in (q, k)]
    half = cos[:, 0, :32].repeat_interleave(2, 1), sin[:, 0, 32:].repeat_interleave(2, 1)
    turned = []
    for x in (q, k):
        pairs = adjacent_pairs(x.t(), 1).t()
        crossed = torch.stack((-pairs[:, 1::2], pairs[:, 0::2]), -1).flatten(1)
        turned.append(pairs * half[0] + crossed * half[1])
    torch.testing.assert_close(turned[0] @ turned[1].t(), expected[0] @ expected[1].t())
    torch.testing.assert_close(turned[1], adjacent_pairs(expected[1].t(), 1).t())


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("tied", [False, True])
def test_blocks_of_the_head_rebuild_its_vocabulary(tp, tied):
    config = replace(SMALL, tie_word_embeddings=tied)
    state, plan = random_state_dict(config), MeshShape(1, tp)
    weights, part = WeightMap(config, state, plan), plan.padded_vocab(config) // tp
    blocks = [weights.lm_head(start, 32).chunk(tp, dim=1) for start in range(0, part, 32)]
    rebuilt = torch.cat([block[chip] for chip in range(tp) for block in blocks], dim=1)
    head = state["model.embed_tokens.weight" if tied else "lm_head.weight"]
    assert torch.equal(rebuilt[:, :100], head.t()) and not rebuilt[:, 100:].any()


def test_a_checkpoint_that_does_not_fit_is_refused():
    state = random_state_dict(SMALL)
    del state["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ModelLoadError, match="model.layers.1.mlp.up_proj.weight is missing"):
        WeightMap(SMALL, state, MeshShape())
    with pytest.raises(MeshError, match="num_key_value_heads = 4, which 8 chips"):
        WeightMap(SMALL, random_state_dict(SMALL), MeshShape(1, 8))
