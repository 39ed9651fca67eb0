# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A cache in pages gives the logits of a plain one bit for bit. Steps of Llama 3.1 8B with pages are built in
tests/models/serving."""

from contextlib import suppress

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.tiny import TINY
from models.llama31_8b.tt.settings import ModelSettings
from tests.support.tt_programs import prompt

USERS, CAPACITY, BLOCK, BLOCKS = 2, 96, 32, 9


# Blocks in a random order; none of them is block 0.
TABLE = 1 + torch.randperm(BLOCKS - 1, generator=torch.Generator().manual_seed(1))
TABLE = TABLE[: USERS * CAPACITY // BLOCK].view(USERS, -1)


def plain_and_paged(mesh, prompts: list[list[int]], sharding: str, trees: bool) -> dict[str, list[torch.Tensor]]:
    """The logits of a model with either cache: of the prompts in chunks of 32, of two decode steps (the first
    compiled, the second traced where the mesh replays traces; after the first the page table changes to other blocks
    for positions that nobody has cached yet), and of a tree step, a commit, and the step after it."""
    import ttnn

    from models.llama31_8b.tt.model import TtLlama, cache_prompt, overwrite, read
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace

    found = {}
    how = {"users": USERS, "capacity": CAPACITY, "precision": "accuracy", "decode_sharding": sharding}
    for name, blocks in (("plain", 0), ("paged", BLOCKS)):
        settings = ModelSettings(**how, cache_blocks=blocks, block_size=BLOCK)
        model = TtLlama.from_state_dict(TINY, random_state_dict(TINY, 0), mesh, settings)
        cache = model.cache
        if blocks:
            cache.set_page_table(TABLE)
        logits = []
        for user, text in enumerate(prompts):
            last = cache_prompt(model, text, user, BLOCK, logits=True)
            logits.append(read(last)[0, 0, (len(text) - 1) % 32].float())
        lengths = [len(prompt) for prompt in prompts]
        tokens = [3] * USERS
        inputs = model.step_inputs(tokens, lengths)
        step = TracedStep(mesh, lambda m=model, i=inputs: m.decode(i), why_no_trace(mesh) is not None)
        for number in range(2):
            if number == 1 and blocks:
                moved = TABLE.clone()
                moved[:, -1] = TABLE[:, -1].flip(0)
                cache.set_page_table(moved)
            overwrite(inputs, model.step_inputs(tokens, lengths, on_device=False))
            logits.append(read(step()).float())
            tokens, lengths = [int(t) for t in logits[-1][0, 0].argmax(-1)], [n + 1 for n in lengths]
        step.release()
        if trees:
            nodes = torch.tensor([[tokens[0], 5, 6, 7], [tokens[1], 8, 9, 10]])
            enter, leave = torch.tensor([[0, 1, 2, 3]] * 2), torch.tensor([[3, 1, 3, 3]] * 2)
            tree = model.tree_inputs(nodes, lengths, enter, leave)
            logits.append(read(model.decode(tree)).float())
            path = model.put_integers(torch.tensor([[2, 3, -1, -1], [-1] * 4]), "int32")
            cache.commit(tree.positions, path, 4)
            lengths = [lengths[0] + 3, lengths[1] + 1]
            logits.append(read(model.decode(model.step_inputs([11, 12], lengths))).float())
        found[name] = logits
        with suppress(Exception):
            for tensor in (*cache.keys, *cache.values):
                ttnn.deallocate(tensor)
    return found


@pytest.mark.sim
@pytest.mark.parametrize(
    "grid, sharding, trees",
    [("2x1", "interleaved", True), pytest.param("8x8", "sharded", False, marks=pytest.mark.slow)],
)
def test_logits_are_those_of_a_plain_cache(sim_device, grid, sharding, trees):
    """Two users whose texts cross the border of a block in prefill, in decode steps and in a tree."""
    prompts = [prompt(62, 3), prompt(29, 4)]
    found = sim_device(grid).run(plain_and_paged, prompts, sharding, trees, timeout=1200)
    assert len(found["plain"]) == len(found["paged"]) == (6 if trees else 4)
    for number, (plain, paged) in enumerate(zip(found["plain"], found["paged"], strict=True)):
        assert torch.isfinite(plain).all() and torch.equal(plain, paged), number
