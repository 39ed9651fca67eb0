# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode shardings: what sharded steps choose and refuse, their programs at 8B shapes, and their numbers."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loguru import logger

from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.tiny import BANKED
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.precision import precision_config
from models.llama31_8b.tt.prefill import BANKED_PRODUCT_ROWS, all_cores_read, padded_rows, row_blocks
from models.llama31_8b.tt.sharding import (
    DECODE_SHARDINGS,
    GRID,
    ShardedDecodeConfig,
    ShardingError,
    check_decode_sharding,
    check_sharding_of_rows,
)
from perf.footprint.graph import CAPACITY
from tests.models.tt.pair_programs import load_cache
from tests.support.attention_cases import random_tokens
from tests.support.tt_programs import build, check_close, half_split, of_chips, put, read
from tt_kernels.banked_product.op import Split, buffers_of
from tt_kernels.common.circular_buffers import l1_bytes

LLAMA = preset("llama-3.1-8b")
SHAPES = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (2, 4), (1, 8)]
# At 8B shapes: cores of the norm, the heads, the joined heads and the MLP; and of the four products the
# tiles a bank, which tt-metal's own rule gives too (columns in whole rounds over 12 banks).
CHOSEN = {
    1: ([32, 48, 32, 64], [16, 11, 75, 11]),
    2: ([8, 24, 16, 56], [8, 11, 38, 11]),
    4: ([8, 12, 8, 56], [4, 11, 19, 11]),
    8: ([8, 6, 4, 56], [2, 11, 10, 11]),
}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")
def test_what_sharded_steps_choose_at_8b_shapes(shape):
    mesh = MeshShape(*shape)
    plan, precision = ShardedDecodeConfig.of(LLAMA, mesh, users=32), precision_config("performance", 32)
    products = plan.layer(precision.of_layer(0))
    parts = [plan.normed, plan.fused, plan.merged, plan.hidden]
    assert ([part.cores for part in parts], [p.bank_columns // 32 for p in products]) == CHOSEN[mesh.tp]
    for product in products + [plan.lm_head(n, "bfloat8_b") for n in plan.head_blocks()]:
        assert product.source.cores * product.source.columns == product.inputs
        assert 0 <= product.result.cores * product.result.columns - product.outputs < product.result.columns
        assert product.source.tiles % product.block == 0
        assert product.laid_bytes % (12 * product.inputs // 32) == 0
        assert product.weight_bytes <= product.laid_bytes < product.weight_bytes * 1.08
    assert sum(plan.head_blocks()) == mesh.padded_vocab(LLAMA) // mesh.tp


@given(
    rows=st.integers(2, 128),
    inputs=st.integers(1, 448),
    outputs=st.integers(1, 448),
    grid=st.sampled_from([(1, 1), (2, 2), (4, 2), (8, 8)]),
    dtype=st.sampled_from(["bfloat16", "bfloat8_b", "bfloat4_b"]),
)
def test_blocks_of_a_product_of_rows_share_it_evenly(rows, inputs, outputs, grid, dtype):
    blocks = row_blocks(32 * rows, 32 * inputs, 32 * outputs, grid, dtype)
    for tiles, cores, size in ((outputs, grid[0], blocks.columns), (rows, grid[1], blocks.rows)):
        own = -(-tiles // cores)
        assert 1 <= size <= 8
        assert -(-own // size) == -(-own // 8)
        assert -(-own // size) * size - own < -(-own // 8)
    assert blocks.inner == min(16 if dtype == "bfloat4_b" else 8, inputs)
    (high, wide), registers = blocks.piece, 4 if dtype == "bfloat16" else 8
    assert blocks.rows % high == blocks.columns % wide == 0 and high * wide <= registers
    assert high * wide > 1 or blocks.rows * blocks.columns == 1 or {blocks.rows, blocks.columns} <= {1, 5, 7}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")
def test_short_prompts_read_block_formats_by_all_cores_within_l1(shape):
    """Of a core's 1,202 KB, with the rows and the weight's formats that the model gives it."""
    rows = BANKED_PRODUCT_ROWS
    assert all_cores_read(rows, "bfloat8_b") and all_cores_read(64, "bfloat4_b")
    assert not all_cores_read(rows + 32, "bfloat8_b") and not all_cores_read(64, "bfloat16")
    plan = ShardedDecodeConfig.of(LLAMA, MeshShape(*shape), 1)
    for product in plan.layer(precision_config("accuracy", 32).layer):
        split = Split.of(rows // 32, product.inputs // 32, product.outputs // 32, GRID, "BFLOAT8_B")
        assert max(l1_bytes(buffers_of(split, "BFLOAT8_B")).values()) < 1_100_000, product


def test_prompts_are_padded_by_less_than_a_chunk_of_attention():
    sizes = {count: padded_rows(count) for count in range(1, 2049)}
    assert set(sizes.values()) == {32, 64, *range(128, 2049, 128)}
    assert all(0 <= size - count < min(128, max(32, count)) for count, size in sizes.items())


def test_what_sharded_steps_refuse():
    with pytest.raises(ShardingError, match=r"llama-3.1-8b has 32 \+ 2 x 32 on 1x1, a chip 64 cores"):
        ShardedDecodeConfig.of(replace(LLAMA, num_key_value_heads=32), MeshShape(), 1)
    with pytest.raises(ShardingError, match="33 users, 64 cores"):
        ShardedDecodeConfig.of(LLAMA, MeshShape(), 33)
    with pytest.raises(ShardingError, match="no decode sharding 'fastest'; shardings: interleaved, sharded"):
        check_decode_sharding("fastest")
    with pytest.raises(ShardingError, match="trees of 33 nodes in all .* 32 rows"):
        check_sharding_of_rows("sharded", 33)
    check_sharding_of_rows("interleaved", 256)
    check_sharding_of_rows("sharded", 32)


def decoded(mesh, plan: str, users: int) -> tuple[str, list[int]]:
    """In the worker: build three layers and launch a step at the last position, which ttnn refuses where it does not
    fit; return what attends, and the shape of a chip's logits."""
    from perf.footprint.mesh_build import build_model

    model = build_model(mesh, "performance", users, CAPACITY, 3, decode_sharding=plan)
    logits = model.decode(model.step_inputs([0] * users, [CAPACITY - 1] * users), gather_logits=False)
    return type(model.attention).__name__, list(logits.shape)


@pytest.mark.mock_mesh
@pytest.mark.parametrize(
    "shape",
    [(1, 1), *(pytest.param(shape, marks=pytest.mark.slow) for shape in [(1, 2), (1, 4), (1, 8), (2, 4)])],
    ids=lambda shape: f"{shape[0]}x{shape[1]}",
)
def test_steps_of_both_shardings_build_at_8b_shapes(mock_mesh, shape):
    """Also of nine users, whose cores are no rectangle, which joining heads must be told."""
    for plan in DECODE_SHARDINGS:
        for users in (1, 9):
            attends, logits = mock_mesh(shape).run(decoded, plan, users, timeout=1700)
            assert attends == ("FlashAttention" if plan == "sharded" and users == 1 else "StockAttention")
            assert logits == [1, 1, users, LLAMA.vocab_size // shape[1]]


# Steps that run. Sharded ones need a whole chip, where a program costs seconds; interleaved ones run on a small grid.
# As much on each of two chips, but for the residual, of which a chip has half.
BANKED_ROW = replace(
    BANKED,
    vocab_size=2 * BANKED.vocab_size,
    intermediate_size=2 * BANKED.intermediate_size,
    num_attention_heads=2 * BANKED.num_attention_heads,
    num_key_value_heads=2 * BANKED.num_key_value_heads,
    name="banked-row",
)
SHORT = 64  # positions of what runs
PROMPT_CAPACITY = 128  # of prefilled prompts
CACHED = 40  # positions with random keys and values before the first step


def made(mesh, decode_sharding: str, users: int, config: LlamaConfig):
    """The model with random keys and values of all users at the first positions; all else is zero."""
    model, _ = build(mesh, config, users=users, capacity=SHORT, decode_sharding=decode_sharding)
    shape = users, config.num_key_value_heads, SHORT, config.head_dim
    keys, values = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1))[..., :CACHED, :]
    load_cache(model, [half_split(keys)], [values])
    return model


def modules(mesh, decode_sharding: str, users: int) -> dict:
    """float32 results by module from the same inputs, of users at different positions: norm, fused product, attention
    (heads, rotation, cache, output projection), what it wrote into the cache, MLP, LM head."""
    import ttnn

    from models.llama31_8b.tt.layer import Pass

    model, found = made(mesh, decode_sharding, users, BANKED), {}
    layer = model.layers[0]
    x = torch.randn(1, 1, users, BANKED.hidden_size, generator=torch.Generator().manual_seed(7)).bfloat16()
    rows = put(mesh, x, "L1")
    positions = [CACHED + 3 * user for user in range(users)]

    def keep(name: str, tensor) -> None:
        found[name] = read(tensor).float()
        logger.info("{}: {}", name, tuple(found[name].shape))

    normed = model.layout.norm(layer.attention_norm, model.layout.residual(rows))
    keep("norm", normed)
    keep("fused product", model.layout.multiply(layer.attention.qkv, normed))
    inputs = model.step_inputs([0] * users, positions)
    step = Pass(model.cache, model.layout, model.layout.angles(model.rope, inputs.angles), model.attention, inputs)
    output = layer.attention.attend(model.layout.multiply(layer.attention.qkv, normed), step)
    keep("attention", model.layout.multiply_heads(layer.attention.wo, output))
    for name in ("keys", "values"):
        cached = read(getattr(model.cache, name)[0]).float()
        found[f"new {name}"] = torch.stack([cached[user, :, at] for user, at in enumerate(positions)])
        for user, at in enumerate(positions):
            cached[user, :, at] = 0
        found[f"other {name}"] = cached
    # The output projection of rows as trees and prefill have them, interleaved.
    wo, generator = layer.attention.wo, torch.Generator().manual_seed(9)
    for name, count in (("rows of a tree", 20), ("rows of a prefill", 160)):
        x = torch.randn(1, 1, count, wo.weight.shape[2], generator=generator).bfloat16()
        keep(name, wo.rows(put(mesh, x), ttnn.DRAM_MEMORY_CONFIG))
    keep("mlp", layer.mlp(normed, model.layout))
    keep("head", model.head(normed, model.layout))
    return found


def prompts(mesh, decode_sharding: str, chunks: list[list[int]], tokens: list[int]) -> dict:
    """Prefill a prompt of two layers in `performance` precision once per list of chunk sizes: float32 logits of the
    last token, cached keys and values of both layers, and how often all cores read a weight in the banks."""
    from models.llama31_8b.tt import modules as products

    config = replace(BANKED, num_hidden_layers=2, max_position_embeddings=PROMPT_CAPACITY)
    model, _ = build(
        mesh, config, "performance", users=len(chunks), capacity=PROMPT_CAPACITY, decode_sharding=decode_sharding
    )
    logits = []
    with mock.patch.object(products, "banked_product", wraps=products.banked_product) as banked:
        for user, sizes in enumerate(chunks):
            start = 0
            for size in sizes:
                out = model.prefill(tokens[start : start + size], user, start, last=start + size == len(tokens))
                start += size
            logits.append(read(out)[0, 0, (sizes[-1] - 1) % 32, : config.vocab_size].float())
    found = {"logits": torch.stack(logits), "banked": banked.call_count}
    for name in ("keys", "values"):
        cached = torch.stack([read(layer).float() for layer in getattr(model.cache, name)])
        found[name] = cached[..., : len(tokens), :]
    return found


def steps_of_row(mesh, decode_sharding: str, tokens: list[int]) -> dict:
    """Decode one user over a TP group: float32 logits of each step, the token that each chip chooses from them, and at
    the end each chip's cached keys and values."""

    from models.llama31_8b.tt.layouts import gather
    from models.llama31_8b.tt.sampling.top_k import Sampler

    model = made(mesh, decode_sharding, 1, BANKED_ROW)
    sampler = Sampler(model.site, SamplingParams(0.0))
    logits, chosen = [], []
    for step, token in enumerate(tokens):
        part = model.decode(model.step_inputs([token], [CACHED + step]), gather_logits=False)
        chosen.append([int(chip[0, 0]) for chip in of_chips(sampler(part, None))])
        logits.append(read(gather(part, model.mesh_shape)).float()[0, 0, 0, : BANKED_ROW.vocab_size])
        logger.info("step {}: tokens {}", step, chosen[-1])
    cached = [torch.stack(of_chips(tensor)).float() for tensor in (model.cache.keys[0], model.cache.values[0])]
    return {"logits": logits, "chosen": chosen, "keys": cached[0], "values": cached[1]}


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_sharded_module_gives_what_the_interleaved_one_does(sim_device):
    """PCC 0.999 of every module from the same inputs, two users; keys and values land where they should and nowhere
    else. About 10 minutes: every product runs on the 64 cores that the readers beside the banks span."""
    theirs = sim_device("2x1").run(modules, "interleaved", 2, timeout=1200)
    ours = sim_device("8x8", dispatch="fast").run(modules, "sharded", 2, timeout=3000)
    assert set(ours) == set(theirs) and len(ours) == 11
    for name, got in ours.items():
        if name.startswith("other"):
            assert torch.equal(got, theirs[name]), f"{name} of the cache were not to be touched"
        else:
            check_close(name, got, theirs[name], 0.999)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_prompt_by_weights_in_the_banks_is_that_by_interleaved_ones(sim_device):
    """Whole and in chunks of 64 and 36 tokens, through two layers in 8 and 4 bits: logits and caches to PCC 0.999."""
    prompt = random_tokens(100, 4, BANKED.vocab_size)
    chunks = [[100], [64, 36]]
    theirs = sim_device("2x1").run(prompts, "interleaved", chunks, prompt, timeout=1800)
    ours = sim_device("8x8").run(prompts, "sharded", chunks, prompt, timeout=3000)
    assert theirs.pop("banked") == 0 < ours.pop("banked")
    for name, got in ours.items():
        check_close(name, got, theirs[name], 0.999)


@pytest.mark.sim
def test_steps_of_a_row_of_two_are_those_of_interleaved_steps(sim_mesh):
    """Two steps of one layer over two whole chips: sharded activations through the row's own collectives."""
    fed = [5, 700]
    theirs = sim_mesh((1, 2), "4x2").run(steps_of_row, "interleaved", fed, timeout=1800)
    ours = sim_mesh((1, 2), "8x8", dispatch="fast").run(steps_of_row, "sharded", fed, timeout=1700)
    for step, (got, wanted) in enumerate(zip(ours["logits"], theirs["logits"], strict=True)):
        check_close(f"step {step}", got, wanted, 0.999)
        best = wanted.topk(2)
        assert best.values[0] - best.values[1] > 0.02, "no two best logits lie close"
        assert ours["chosen"][step] == theirs["chosen"][step] == [int(best.indices[0])] * 2
    for name in ("keys", "values"):
        check_close(name, ours[name], theirs[name], 0.999)
