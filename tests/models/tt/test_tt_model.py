# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A small Llama in TT-NN on the simulated chip against the reference: modules, logits, caches, users, lengths of
prompts; and the cache of weights."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.tiny import TINY
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.settings import ModelSettings
from models.llama31_8b.tt.sharding import ShardingError
from models.llama31_8b.tt.weights import WeightStore
from tests.models.tt.pair_programs import load_cache
from tests.support.tt_programs import (
    GRID,
    MIN_PCC,
    NEAR_TIE,
    build,
    cache_figures,
    check_rows,
    compared,
    figures,
    half_split,
    modules,
    prefill_and_decode,
    prompt,
    put,
    read,
)

pytestmark = pytest.mark.sim


def test_prefill_of_40_tokens_and_two_decode_steps(sim_device):
    """Chunks of 32 and 8 (padded) tokens, then two steps; PCC of logits at each and of the whole cache."""
    told = sim_device(GRID).run(prefill_and_decode, prompt(40, 3), 2, 32, timeout=1200)
    assert len(told["steps"]) == 3
    check_rows("step", told["steps"])
    for row in told["steps"]:
        assert row["token"] == row["reference_token"] or row["gap"] < NEAR_TIE
    assert len(told["cache"]) == 4
    check_rows("cache", told["cache"])


def norms_of_4096_columns(device) -> dict[int, dict[str, float]]:
    """In the worker: relative error of norms of rows, and by how much they are too long."""
    from models.llama31_8b.tt.modules import RMSNorm

    def normal(rows: int) -> torch.Tensor:
        return torch.randn(1, 1, rows, 4096, generator=torch.Generator().manual_seed(rows)).bfloat16()

    weight, found = normal(1), {}
    norm = RMSNorm(put(device, weight), 1e-5)
    for rows in (40, 96):  # two rows of four cores, a core for a tile of rows
        given = normal(rows)
        wanted = torch.nn.functional.rms_norm(given.double(), (4096,), eps=1e-5) * weight.double()
        difference = read(norm(put(device, given))).double() - wanted
        length = (wanted * wanted).sum()
        found[rows] = {
            "error": float(difference.norm() / length.sqrt()),
            "longer": float((difference * wanted).sum() / length),
        }
    return found


def test_norms_of_4096_columns_keep_the_length_of_rows(sim_device):
    """Of rows of cores and of a core each: sums of squares in bfloat16 make them 2.5 % shorter."""
    told = sim_device("4x2").run(norms_of_4096_columns, timeout=900)
    logger.info(f"norms: {told}")
    for rows, found in told.items():
        assert found["error"] < 0.004 and abs(found["longer"]) < 0.002, (rows, found)


def refused_model(mesh) -> tuple[str | None, int]:
    """In the worker: what TtLlama says of the tiny model with six heads, and how many weights were asked for."""
    from models.llama31_8b.tt.model import TtLlama

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


def weight_cache(mesh, folder: str) -> dict:
    """Put three weights through a cache on disk, again, and without one of its files: counts, and if contents held."""
    generator = torch.Generator().manual_seed(0)
    host = {name: torch.randn(64, 64, generator=generator).bfloat16().float() for name in ("a", "b", "c")}

    def put_all() -> dict:
        store = WeightStore(mesh, MeshShape(*mesh.shape), Path(folder))
        equal = True
        for name, tensor in host.items():
            got = read(store.put(name, lambda tensor=tensor: tensor, "bfloat16", -1)).float()
            equal &= torch.equal(got[0, 0], tensor)
        return {"converted": store.converted, "reused": store.reused, "equal": equal}

    told = {"first": put_all(), "second": put_all()}
    (Path(folder) / "a.tensorbin").unlink()
    return told | {"one gone": put_all()}


def test_weight_cache_is_reused(sim_device, tmp_path):
    told = sim_device(GRID).run(weight_cache, str(tmp_path / "entry"))
    counts = {name: (found["converted"], found["reused"]) for name, found in told.items()}
    assert all(found["equal"] for found in told.values()), told
    assert counts == {"first": (3, 0), "second": (0, 3), "one gone": (1, 2)}


def test_every_module_agrees_with_the_reference(sim_device):
    found = sim_device("2x1").run(modules, TINY, "bfloat16", timeout=1200)
    for name, row in found.items():
        logger.info("{}: {}", name, row)
    assert len(found) == 10
    assert {name: row["pcc"] for name, row in found.items() if not row["pcc"] >= MIN_PCC} == {}


ONE_LAYER = TINY.with_layers(1)
LONG, START, END = replace(ONE_LAYER, max_position_embeddings=2304), 1792, 2048


def end_of_a_long_prompt(mesh) -> dict:
    """In the worker: the last logits of a chunk that attends to random keys and values before it, behind which
    everything is NaN, compared."""
    model, reference = build(mesh, LONG, capacity=2304)
    generator = torch.Generator().manual_seed(0)
    shape = LONG.num_key_value_heads, model.capacity, LONG.head_dim
    keys, values = torch.randn(2, *shape, generator=generator).bfloat16().float()
    for content in (keys, values):
        content[:, END:] = torch.nan
    load_cache(model, [keys], [values])
    cache = reference.new_cache(1, END)
    cache.keys[0][:, :, :START], cache.values[0][:, :, :START] = keys[:, :START], values[:, :START]
    cache.reserve(START)
    cache.commit(START)
    tokens = prompt(END - START, 3)
    chunk = model.chunk(tokens, 0, START)
    got = read(model.cache_chunk(chunk, last=True))[0, 0, -1, : LONG.vocab_size].float()
    return compared(got, reference.forward(torch.tensor([tokens]), cache)[0, -1])


def test_the_end_of_a_long_prompt(sim_device):
    row = sim_device("2x1").run(end_of_a_long_prompt, timeout=1200)
    check_rows("last token", [row])
    assert row["token"] == row["reference_token"]


def one_step(mesh, positions: list[int]) -> dict:
    """A decode step of users behind random caches, -1 for a user to skip: figures of every active user's
    logits and of what it wrote, and for each user how many numbers of its cache changed outside the row of
    its new token."""
    users, capacity = len(positions), 256  # two chunks of keys
    model, reference = build(mesh, ONE_LAYER, users=users, capacity=capacity)
    cache = reference.new_cache(users, capacity)
    generator = torch.Generator().manual_seed(11)
    active = [user for user, position in enumerate(positions) if position >= 0]
    for user in active:
        one = cache.user(user)
        one.reserve(positions[user])
        one.commit(positions[user])
    for content in (cache.keys[0], cache.values[0]):
        content.copy_(torch.randn(content.shape, generator=generator).bfloat16())
    load_cache(model, cache.keys, cache.values)

    def contents():
        keys, values = read(model.cache.keys[0]).float(), read(model.cache.values[0]).float()
        return torch.cat((half_split(keys), values), 1)

    before = contents()
    tokens = torch.randint(0, TINY.vocab_size, (users,), generator=generator)
    got = read(model.decode(model.step_inputs(tokens.tolist(), positions)))[0, 0].float()
    expected = reference.forward(tokens[active, None], cache.view(active))[:, 0]
    after = contents()
    changed = (before != after).any(1).any(-1)  # [users, capacity]
    wanted = torch.cat((cache.keys[0], cache.values[0]), 1)
    return {
        "logits": [figures(got[user], row) for user, row in zip(active, expected, strict=True)],
        "written": [figures(after[user, :, positions[user]], wanted[user, :, positions[user]]) for user in active],
        "changed": [row.nonzero().flatten().tolist() for row in changed],
    }


STEPS = {
    # The first position, both sides of a tile and of a chunk of keys, the last; a core a user.
    "eight users, two skipped": ("8x1", [0, 31, -1, 32, 127, 128, -1, 255]),
    # On two rows of two cores, as nine are on a board: heads are joined by another program of the stock op.
    "cores that are no rectangle": ("2x2", [31, 128, 5]),
}


def prompts(mesh, chunks: dict[int, int]) -> list[dict]:
    """Prefill one user with prompts of each length in chunks of that many tokens, one over the other: figures
    of the last logits and the cache, and the rows that the layer finished."""
    from models.llama31_8b.tt.model import cache_prompt

    model, reference = build(mesh, ONE_LAYER)
    found = []
    for length, chunk in chunks.items():
        text, cache = prompt(length, length), reference.new_cache(1, model.capacity)
        expected = reference.prefill([text], cache)[0]
        layer = model.layers[0]
        with mock.patch.object(layer, "after_attention", wraps=layer.after_attention) as finish:
            tile = cache_prompt(model, text, 0, chunk, logits=True)
        found.append(
            {
                "length": length,
                "finished": [call.args[1].shape[2] for call in finish.call_args_list],
                "logits": figures(read(tile)[0, 0, (length - 1) % 32].float(), expected),
                "cache": cache_figures(model, cache, [length]),
            }
        )
    return found


@pytest.mark.parametrize("grid, positions", STEPS.values(), ids=STEPS)
def test_a_step_of_users_at_their_own_positions(sim_device, grid, positions):
    """A skipped user's cache, and of the others all but the new row, keep every bit."""
    told = sim_device(grid).run(one_step, positions, timeout=1200)
    logger.info("{}", told)
    active = [position for position in positions if position >= 0]
    assert len(told["logits"]) == len(told["written"]) == len(active)
    assert all(row["pcc"] >= MIN_PCC for row in told["logits"] + told["written"])
    assert told["changed"] == [[] if position < 0 else [position] for position in positions]


def test_prompts_around_a_tile_and_a_chunk(sim_device):
    """A tile and one more, a second chunk; one token; and a whole chunk of four tiles, which attention takes at once as
    it does on boards. Of the last layer the last token's tile alone is finished."""
    chunks = {33: 32, 1: 32, 128: 128}
    told = sim_device("2x1").run(prompts, chunks, timeout=1200)
    assert [row["length"] for row in told] == list(chunks)
    for row in told:
        logger.info("{}", row)
        assert row["finished"] == [32] and row["logits"]["pcc"] >= MIN_PCC
        assert len(row["cache"]) == 2 and all(part["pcc"] >= MIN_PCC for part in row["cache"])
