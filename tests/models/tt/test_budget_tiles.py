# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Guesses by a budget on two simulated chips, and on two rows of two: decisions, chosen tiles, masses, tokens and
caches are those of the reference, in which each rank knows its own exact passes."""

from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.reference.alspec.budget import TILE
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.attention import Segments
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.tiny import TINY, tiny_for
from tests.models.tt.pair_programs import Part, decode_parts
from tests.support.alspec_reference import bits_of, chosen_tiles, own_masses, poison, put_known, wrap_sums
from tests.support.tt_programs import check_close, figures
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, YIELDED
from tt_kernels.speculative_flash_decode.guess_range import MASS_UNIT

CAPACITY, GUESS = 256, {"chunk_size": 64, "budget": 0.7}
RANGE = GuessRange.by_budget(*GUESS.values())
PROMPT_TOKENS = 231  # of all users, so that the reference decides on them at once
MASS_ERROR = 0.02


@dataclass(frozen=True)
class Case:
    """tp: chips of each of the two rows. seed, prompt_seed: of weights and prompts, searched for, as random texts have
    near ties. parts: users, number of steps, threshold, whether a turn begins, and a fault before. workers: as of
    `decode_parts`. text: the tokens of all users by step, where they are not the likeliest ones."""

    config: LlamaConfig
    tp: int
    seed: int
    prompt_seed: int
    users: int
    parts: tuple
    workers: int | None = None
    text: tuple[tuple[int, ...], ...] = ()


# No decision is within 6 % of the threshold, no best logit leads by less than 0.09, and no choice of tiles turns on
# less than 1 % of a mass.
THRESHOLD, STEPS = 0.3, 8
TEXT = (
    *((8, 32), (13, 40), (13, 20), (51, 65), (93, 0), (55, 75), (21, 21), (43, 29)),
    *((64, 41), (85, 22), (26, 22), (55, 50), (56, 16), (79, 62)),
)
POISON = poison(CAPACITY // TILE)
LOST, LATE = 0, 1  # users
SHORT = Case(
    TINY, 1, 0, 47, 2,
    (
        ([0, 1], 2, THRESHOLD, False, None),
        ([0], 1, 0.0, False, None),
    ),
    workers=1,
    text=TEXT,
)  # fmt: skip
WHOLE = Case(
    TINY, 1, 0, 47, 2,
    (
        ([0, 1], STEPS, THRESHOLD, False, None),
        ([0, 1], 1, THRESHOLD, False, {(0, LOST): [0] * (CAPACITY // TILE), (0, LATE): 0}),
        ([0, 1], 2, THRESHOLD, False, POISON),
        ([0], 2, 0.0, True, None),
        ([0], 1, 0.0, False, POISON),
    ),
    workers=1,
    text=TEXT,
)  # fmt: skip
# Each chip of a row chooses the tiles of its own head, and the row decides over both. No decision is within a fifth of
# the threshold, and no choice of tiles turns on less than 2 % of a mass.
ROWS = Case(tiny_for(2, vocab_size=64, hidden_size=128), 2, 1, 12, 1, (([0], 4, 0.2, False, None),))


class OneRankForAll(ALSpecAttention):
    """The whole residual is that of one rank: where a user misses, all users go on with the sender's exact result."""

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        out = super().attend(layer, segments)
        return out if self._accepted[layer, segments.rows, segments.tokens].all() else segments.exact()


class Step(NamedTuple):
    """One step of the reference. known: of each layer, rank and user before it, the masses [kv_heads, tiles]; after:
    likewise after it. hits: of each layer and user that took part; unharmed: likewise, had there been no fault."""

    users: list[int]
    logits: torch.Tensor
    known: list
    after: list
    hits: list[list[bool]]
    unharmed: list[list[bool]]


class Expected(NamedTuple):
    case: Case
    prefilled: list
    parts: list[Part]
    steps: list[Step]
    cache: KVCache


@pytest.fixture(
    scope="module",
    params=[SHORT, *(pytest.param(case, marks=pytest.mark.slow) for case in (WHOLE, ROWS))],
    ids=["short", "whole", "rows"],
)
def expected(request) -> Expected:
    return on_the_reference(request.param)


@torch.inference_mode()
def on_the_reference(case: Case) -> Expected:
    generator = torch.Generator().manual_seed(case.prompt_seed)
    prompts = torch.randint(0, case.config.vocab_size, (case.users, PROMPT_TOKENS), generator=generator).tolist()
    model = ReferenceLlama.from_state_dict(case.config, random_state_dict(case.config, case.seed))
    cache = model.new_cache(case.users, CAPACITY)
    chosen = [int(row.argmax()) for row in model.prefill(prompts, cache)]
    prefilled = [[layer[:].clone() for layer in part] for part in (cache.keys, cache.values)]

    def step(users: list[int], policy: ALSpecAttention, cache: KVCache) -> tuple[torch.Tensor, list]:
        tokens = torch.tensor([[chosen[user]] for user in users])
        logits = model.forward(tokens, cache.view(users), policy=policy)[:, 0]
        return logits.float(), policy.statistics.steps[-1].accepted[:, :, 0].tolist()

    parts, steps, sizes = [], [], (case.config.num_hidden_layers, case.users)
    policy = OneRankForAll(0.0, RANGE)
    for users, count, threshold, anew, fault in case.parts:
        policy.threshold = threshold
        whole = None if fault is None else deepcopy((policy, cache))
        if anew:
            policy.by_budget.reset()
        if fault is not None:
            put_known(policy.by_budget, fault, [step.after for step in steps])
        tokens, positions = [], []
        for _ in range(count):
            known = own_masses(policy.by_budget, *sizes)
            if case.text:
                chosen = list(case.text[len(steps)])
            tokens.append(list(chosen))
            positions.append([int(cache.lengths[user]) if user in users else -1 for user in range(case.users)])
            unharmed = None if whole is None else step(users, *whole)[1]
            logits, hits = step(users, policy, cache)
            wrap_sums(policy.by_budget, known)
            for user, row in zip(users, logits, strict=True):
                chosen[user] = int(row.argmax())
            after = own_masses(policy.by_budget, *sizes)
            steps.append(Step(users, logits, known, after, hits, unharmed or hits))
        parts.append(Part(threshold, tokens, positions, anew, fault))
    return Expected(case, prefilled, parts, steps, cache)


@pytest.mark.parametrize("case", [SHORT, WHOLE, ROWS], ids=["short", "whole", "rows"])
def test_the_case_has_hits_and_misses_and_faults_cost_hits(case):
    def hits_of(steps: list[list[list[bool]]]) -> list[bool]:
        return [hit for step in steps for layer in step for hit in layer]

    steps = on_the_reference(case).steps
    hits = hits_of([step.hits for step in steps[: case.parts[0][1]]])
    assert hits.count(False) >= 3 and hits.count(True) >= 3
    harmed = [step for step in steps if step.unharmed is not step.hits]
    assert len(harmed) == sum(part[1] for part in case.parts if part[4] is not None)
    assert not harmed or sum(hits_of([step.hits for step in harmed])) < sum(hits_of([step.unharmed for step in harmed]))


@pytest.fixture(scope="module")
def found(sim_mesh, expected) -> dict:
    case = expected.case
    given = random_state_dict(case.config, case.seed), expected.prefilled, GUESS, CAPACITY, expected.parts, case.workers
    grid = "2x2" if case.tp == 1 else "4x2"  # a reduction over the chips of a row wants eight cores
    return sim_mesh((2, case.tp), grid).run(decode_parts, case.config, *given, timeout=3000)


def heads_of(case: Case) -> list[tuple[int, int, int]]:
    """Chips, of which each has one key/value head, their ranks and heads."""
    return [(chip, *divmod(chip, case.tp)) for chip in range(2 * case.tp)]


@pytest.mark.sim
@pytest.mark.timeout(3100)
def test_tokens_and_decisions_are_the_references_on_both_ranks(found, expected):
    names = {YIELDED: True, HOLDS_EXACT: False}
    for ours, wanted in zip(found["steps"], expected.steps, strict=True):
        logits = ours["logits"]
        assert all(torch.equal(chip, logits[0]) for chip in logits), "the chips must end a step with the same residual"
        for index, user in enumerate(wanted.users):
            row = logits[0][user]
            check_close(f"logits of user {user}", row, wanted.logits[index])
            assert int(row.argmax()) == int(wanted.logits[index].argmax())
        sender = 0
        for layer, hits in enumerate(wanted.hits):
            for index, user in enumerate(wanted.users):
                sent, received = (ours["priorities"][rank][layer][user] for rank in (sender, 1 - sender))
                assert names[sent] is hits[index] and received == HOLDS_GUESS, (layer, user)
            sender ^= all(hits)


@pytest.mark.sim
@pytest.mark.timeout(3100)
def test_chosen_tiles_and_masses_are_the_references(found, expected):
    """Tile for tile, of each rank. Where two tiles are as heavy as each other but for the chips' rounding, either will
    do; the case has none."""
    positions = [each for part in expected.parts for each in part.positions]
    chosen = largest = 0.0
    for ours, wanted, at in zip(found["steps"], expected.steps, positions, strict=True):
        for layer in range(expected.case.config.num_hidden_layers):
            for chip, rank, head in heads_of(expected.case):
                for user in wanted.users:
                    known, row = wanted.known[layer][rank][user], ours["chosen"][layer][chip][user, 0]
                    if known is None:
                        assert not row.any()
                        continue
                    assert bits_of(row) == chosen_tiles(known[head], RANGE, at[user] + 1)
                    chosen += 1
                    after = wanted.after[layer][rank][user][head]
                    masses = ours["masses"][layer][chip][user, 0, : len(after)].double() * MASS_UNIT
                    wrong = (masses - after).abs()
                    assert (wrong <= MASS_ERROR * after).all()
                    largest = max(largest, float((wrong / after).nan_to_num().max()))
    logger.info("largest relative error of a mass: {:.2%}", largest)
    assert chosen >= 2 * (len(expected.steps) - 1)


@pytest.mark.sim
@pytest.mark.timeout(3100)
def test_at_threshold_zero_a_pair_has_the_bits_of_one_chips_exact_attention(found, expected):
    """Over the same chosen tiles, which order the sums, poison's too; rank 0, whose tiles count, is the sender of both
    layers."""
    if expected.case is ROWS:
        pytest.skip("decides at its threshold alone")
    assert expected.steps[-1].hits == [[False], [False]]
    assert all(tensor is not None for tensor in (layer[0][0] for layer in expected.steps[-1].known)), "tiles to follow"
    for user in expected.steps[-1].users:
        assert torch.equal(found["steps"][-1]["logits"][0][user], found["alone"][0][user])


@pytest.mark.sim
@pytest.mark.timeout(3100)
def test_a_new_prompt_or_turn_forgets_all_masses(found):
    for before, after in zip(found["steps"][-1]["masses"], found["forgotten"], strict=True):
        assert before[0].any() and not any(rank.any() for rank in after)


@pytest.mark.sim
@pytest.mark.timeout(3100)
def test_caches_are_the_references_on_both_ranks(found, expected):
    for layer, chips in enumerate(found["caches"][-1]):
        for user, length in enumerate(expected.cache.lengths.tolist()):
            for chip, _, head in heads_of(expected.case):
                for part, wanted in zip(chips[chip], (expected.cache.keys, expected.cache.values), strict=True):
                    pcc = figures(part[user, 0, :length], wanted[layer][user, head, :length])["pcc"]
                    assert pcc >= 0.999, (layer, user, chip)
