# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Several users and prompt lengths of a small TT-NN Llama on the simulated chip."""

from __future__ import annotations

from unittest import mock

import pytest
from loguru import logger

from tests.support.tt_programs import TINY, build, cache_figures, figures, half_split

ONE_LAYER = TINY.with_layers(1)


def adjacent(keys):
    """The inverse of half_split: RoPE pairs side by side."""
    import torch

    half = keys.shape[-1] // 2
    return torch.stack((keys[..., :half], keys[..., half:]), -1).flatten(-2)


def one_step(mesh, positions: list[int]) -> dict:
    """A decode step of users behind random caches, -1 for a user to skip: figures of every active user's
    logits and of what it wrote, and for each user how many numbers of its cache changed outside the row of
    its new token."""
    import torch
    import ttnn

    from models.llama31_8b.tt.model import read

    users, capacity = len(positions), 256  # two chunks of keys
    model, reference = build(mesh, ONE_LAYER, users=users, capacity=capacity)
    cache = reference.new_cache(users, capacity)
    generator = torch.Generator().manual_seed(11)
    active = [user for user, position in enumerate(positions) if position >= 0]
    for user in active:
        one = cache.user(user)
        one.reserve(positions[user])
        one.commit(positions[user])
    for ours, theirs, change in (
        (model.cache.keys, cache.keys, adjacent),
        (model.cache.values, cache.values, lambda values: values),
    ):
        theirs[0].copy_(torch.randn(theirs[0].shape, generator=generator).bfloat16())
        ours[0] = ttnn.from_torch(
            change(theirs[0]),
            dtype=ttnn.bfloat16,
            layout=ttnn.TILE_LAYOUT,
            device=mesh,
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
        )

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


def prompts(mesh, chunks: dict[int, int]) -> list[dict]:
    """Prefill one user with prompts of each length in chunks of that many tokens, one over the other: figures
    of the last logits and the cache, and the rows that the layer finished."""
    import torch

    from models.llama31_8b.tt.generator import Generator

    model, reference = build(mesh, ONE_LAYER)
    found = []
    for length, chunk in chunks.items():
        seed = torch.Generator().manual_seed(length)
        prompt = torch.randint(0, TINY.vocab_size, (length,), generator=seed).tolist()
        cache = reference.new_cache(1, model.capacity)
        expected = reference.prefill([prompt], cache)[0]
        layer = model.layers[0]
        with mock.patch.object(layer, "after_attention", wraps=layer.after_attention) as finish:
            got = Generator(model, sample_on="host", prefill_chunk=chunk).prefill(prompt, 0)
        found.append(
            {
                "length": length,
                "finished": [call.args[1].shape[2] for call in finish.call_args_list],
                "logits": figures(got, expected),
                "cache": cache_figures(model, cache, [length]),
            }
        )
    return found


pytestmark = [pytest.mark.sim, pytest.mark.timeout(1500)]
MIN_PCC = 0.99


def test_eight_users_at_their_own_positions_and_two_skipped(sim_device):
    """The first position, both sides of a tile and of a chunk of keys, the last; a core a user. A skipped
    user's cache, and of the others all but the new row, keep every bit."""
    positions = [0, 31, -1, 32, 127, 128, -1, 255]
    told = sim_device("8x1").run(one_step, positions, timeout=1200)
    logger.info("{}", told)
    assert [len(told[name]) for name in ("logits", "written")] == [6, 6]
    assert all(row["pcc"] >= MIN_PCC for row in told["logits"] + told["written"])
    assert told["changed"] == [[] if position < 0 else [position] for position in positions]


def test_users_on_cores_that_are_no_rectangle(sim_device):
    """Three on two rows of two cores, as nine are on a board: heads are joined by another program of the stock op."""
    positions = [31, 128, 5]
    told = sim_device("2x2").run(one_step, positions, timeout=1200)
    logger.info("{}", told)
    assert all(row["pcc"] >= MIN_PCC for row in told["logits"] + told["written"])
    assert told["changed"] == [[position] for position in positions]


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
