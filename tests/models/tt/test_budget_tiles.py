# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation between two simulated chips, and two rows of two, with guesses by a budget: decisions,
counts, chosen tiles, masses, tokens and caches are those of the reference, in which each rank knows its own exact
passes. Lost, stale and poisoned masses cost hits, never a wrong result."""

from copy import deepcopy
from dataclasses import dataclass, replace
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
from tests.models.tt import pair_programs as pairs
from tests.support.tt_programs import check_close, figures, of_chips
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED
from tt_kernels.speculative_flash_decode.guess_range import MASS_UNIT
from tt_kernels.token_guard.op import FAILED

CAPACITY, GUESS = 256, {"chunk_size": 64, "budget": 0.7}
RANGE = GuessRange.by_budget(*GUESS.values())
PROMPT_TOKENS = 231  # of all users, so that the reference decides on them at once
BYPASSED_AT = 126  # the last position with fewer than two chunks cached
MASS_ERROR = 0.02


@dataclass(frozen=True)
class Case:
    """tp: chips of each of the two rows. seed, prompt_seed: of weights and prompts, searched for, as random texts have
    near ties. parts: users, number of steps, threshold, whether a turn begins, and a fault before. workers: per head,
    by shapes for None. text: the tokens of all users by step, where they are not the likeliest ones."""

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
POISON = pairs.poison(CAPACITY // TILE)
LOST, LATE = 0, 1  # users
SHORT = Case(
    *(TINY, 1, 0, 47, 2, (([0, 1], 2, THRESHOLD, True, None), ([0], 1, 0.0, False, None))),
    workers=1,
    text=TEXT,
)
PARTS = (
    ([0, 1], STEPS, THRESHOLD, True, None),
    ([0, 1], 1, THRESHOLD, False, {(0, LOST): [0] * (CAPACITY // TILE), (0, LATE): 1}),
    ([0, 1], 2, THRESHOLD, False, POISON),
    ([0], 2, 0.0, True, None),
    ([0], 1, 0.0, False, POISON),
)
WHOLE = replace(SHORT, parts=PARTS)
# Each chip of a row chooses the tiles of its own head, and the row decides over both. No decision is within a fifth of
# the threshold, and no choice of tiles turns on less than 2 % of a mass.
ROWS = Case(tiny_for(2, vocab_size=64, hidden_size=128), 2, 1, 12, 1, (([0], 4, 0.2, True, None),))


class OneRankForAll(ALSpecAttention):
    """The whole residual is that of one rank: where a user misses, all users go on with the sender's exact result."""

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        out = super().attend(layer, segments)
        return out if self._accepted[layer, segments.rows, segments.tokens].all() else segments.exact()


class Step(NamedTuple):
    """One decode step of the reference. anew: counts and attention weights are forgotten before, as for a new prompt or
    a conversation turn. fault: before it. tokens, positions: of each user; position -1 skips a user. users: the others.
    known: of each layer, rank and user before it, the masses [kv_heads, tiles]; after: likewise after it. hits: of each
    layer and user that took part, None where bypassed; unharmed: likewise, had there been no fault."""

    threshold: float
    anew: bool
    fault: pairs.Fault | None
    users: list[int]
    tokens: list[int]
    positions: list[int]
    logits: torch.Tensor
    known: list
    after: list
    hits: list[list[bool | None]]
    unharmed: list[list[bool | None]]


class Expected(NamedTuple):
    """The first of the steps is bypassed, of a token that the prompt has there."""

    case: Case
    prefilled: list
    steps: list[Step]
    cache: KVCache


def decode(mesh, expected: Expected) -> dict:
    """Run steps behind prompts; a simulated prefill takes as long as six. Returns

    - "steps": of each the logits of all chips, float32 [users, vocab], the priorities of both ranks after each layer,
      "chosen" and "masses" as of `words_of`, and what is "counted" since the last one that began anew;
    - "caches", as of `caches_of`, at the end; "forgotten": the masses after a reset then;
    - of two chips "alone": the logits of the last step by every chip alone, with exact attention over the same tiles;
      and "guarded", as of `guarded`.
    """
    from tt_kernels.speculative_flash_decode.op import ProgramConfig

    case, chunk_size = expected.case, GUESS["chunk_size"]
    state = random_state_dict(case.config, case.seed)
    # By shapes a chip alone has more cores, and other sums.
    program = None if case.workers is None else ProgramConfig(workers_per_head=case.workers, key_chunk=chunk_size)
    how = {"users": case.users, "capacity": CAPACITY, "program": program}
    model, pair = pairs.build_pair(mesh, case.config, state, **how, **GUESS)
    pairs.load_cache(model, *expected.prefilled)

    told: dict = {"steps": []}
    for number, step in enumerate(expected.steps):
        pair.threshold = step.threshold
        if step.anew:
            pair.reset()
        if step.fault is not None:
            pairs.put_masses(pair, step.fault, [earlier["masses"] for earlier in told["steps"]])
        out = model.decode(model.step_inputs(step.tokens, step.positions))
        model.check()
        logits = [chip[0, 0, : case.users].float() for chip in of_chips(out)]
        found = {"logits": logits, "priorities": pair.last_priorities(), "counted": pair.statistics()}
        logger.info("step {}: {}", number, found["priorities"])
        found |= {name: pairs.words_of(getattr(pair.by_budget, name)) for name in ("chosen", "masses")}
        told["steps"].append(found)
    told["caches"] = pairs.caches_of(model)
    if case.tp == 1:
        exact = pairs.attention_alone()(chunk_size, False, pair.guess_range, pair.by_budget.chosen, program)
        alone = model.with_attention(exact).decode(model.step_inputs(step.tokens, step.positions))
        told["alone"] = [chip[0, 0, : case.users].float() for chip in of_chips(alone)]
        told["guarded"] = pairs.guarded(model, pair.attention_pairs, 8)
    pair.reset()
    return told | {"forgotten": pairs.words_of(pair.by_budget.masses)}


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

    sizes = (case.config.num_hidden_layers, case.users)
    nobody = [-1] * (case.users - 1)
    before = model.prefill([prompts[0][: BYPASSED_AT + 1]], model.new_cache(1, CAPACITY))
    given, none = ([prompts[0][BYPASSED_AT], *[0] * len(nobody)], [BYPASSED_AT, *nobody]), [[None]] * sizes[0]
    steps = [Step(case.parts[0][2], False, None, [0], *given, before, [], [], none, none)]
    policy = OneRankForAll(0.0, RANGE)
    for users, count, threshold, anew, fault in case.parts:
        policy.threshold = threshold
        whole = None if fault is None else deepcopy((policy, cache))
        if anew:
            policy.by_budget.reset()
        if fault is not None:
            pairs.put_known(policy.by_budget, fault, [step.after for step in steps])
        for number in range(count):
            known = pairs.own_masses(policy.by_budget, *sizes)
            if case.text:
                chosen = list(case.text[len(steps) - 1])
            tokens = list(chosen)
            positions = [int(cache.lengths[user]) if user in users else -1 for user in range(case.users)]
            unharmed = None if whole is None else step(users, *whole)[1]
            logits, hits = step(users, policy, cache)
            pairs.wrap_sums(policy.by_budget, known)
            for user, row in zip(users, logits, strict=True):
                chosen[user] = int(row.argmax())
            after = pairs.own_masses(policy.by_budget, *sizes)
            how = (threshold, False, None) if number else (threshold, anew, fault)
            steps.append(Step(*how, users, tokens, positions, logits, known, after, hits, unharmed or hits))
    return Expected(case, prefilled, steps, cache)


@pytest.mark.parametrize("case", [SHORT, WHOLE, ROWS], ids=["short", "whole", "rows"])
def test_the_case_has_hits_and_misses_and_faults_cost_hits(case):
    def hits_of(steps: list[list[list[bool | None]]]) -> list[bool | None]:
        return [hit for step in steps for layer in step for hit in layer]

    steps = on_the_reference(case).steps[1:]
    hits = hits_of([step.hits for step in steps[: case.parts[0][1]]])
    assert hits.count(False) >= 3 and hits.count(True) >= 3
    harmed = [step for step in steps if step.unharmed is not step.hits]
    assert len(harmed) == sum(part[1] for part in case.parts if part[4] is not None)
    found, unharmed = (hits_of([getattr(step, name) for step in harmed]).count(True) for name in ("hits", "unharmed"))
    assert not harmed or found < unharmed


@pytest.mark.sim
@pytest.mark.timeout(3100)
@pytest.mark.parametrize(
    "case",
    [SHORT, *(pytest.param(case, marks=pytest.mark.slow) for case in (WHOLE, ROWS))],
    ids=["short", "whole", "rows"],
)
def test_two_rows_do_what_the_reference_does(sim_mesh, case):
    expected = on_the_reference(case)
    grid = "2x2" if case.tp == 1 else "4x2"  # a reduction over the chips of a row wants eight cores
    found = sim_mesh((2, case.tp), grid).run(decode, expected, timeout=3000)
    check_tokens_and_decisions(found, expected)
    check_outcomes(found, expected)
    check_tiles_and_masses(found, expected)
    check_caches(found, expected)
    for before, after in zip(found["steps"][-1]["masses"], found["forgotten"], strict=True):
        assert before[0].any() and not any(rank.any() for rank in after), "a new prompt or turn forgets all masses"
    if case.tp == 1:
        check_bits_of_exact_attention(found, expected)
        # The failure of the second chip is told by its tokens alone; its state says why.
        well, failed = found["guarded"]
        assert well == ([7, 7], [[7]]) and failed[0] == [7, FAILED]
        assert failed[1] == "attention: chip (1, 0) gave up in call 0: the peer did not acknowledge the data"


def heads_of(case: Case) -> list[tuple[int, int, int]]:
    """Chips, of which each has one key/value head, their ranks and heads."""
    return [(chip, *divmod(chip, case.tp)) for chip in range(2 * case.tp)]


def check_tokens_and_decisions(found: dict, expected: Expected) -> None:
    """They are the reference's on both ranks."""
    names = {YIELDED: True, HOLDS_EXACT: False, HOLDS_EXACT_UNVERIFIED: None}
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


def check_outcomes(found: dict, expected: Expected) -> None:
    """They count hits, misses and bypassed positions."""
    (_, steps, *_), *_ = expected.case.parts
    bypassed, counted = (found["steps"][step]["counted"] for step in (0, steps))
    assert [(c.hits, c.misses, c.bypassed) for c in bypassed.layers] == [(0, 0, 1)] * len(bypassed.layers)
    assert bypassed.bypassed_positions == 1
    for layer, counts in enumerate(counted.layers):
        hits = [hit for step in expected.steps[1 : 1 + steps] for hit in step.hits[layer]]
        assert (counts.hits, counts.misses, counts.bypassed) == (hits.count(True), hits.count(False), 0)
    assert sum(counted.sent) == steps * (len(counted.layers) + 1) and counted.ties == 0, "an exchange after the last"
    assert not counted.failures


def check_tiles_and_masses(found: dict, expected: Expected) -> None:
    """They are the reference's, tile for tile, of each rank. Where two tiles are as heavy as each other but for the
    chips' rounding, either will do; the cases have none."""
    chosen = largest = 0.0
    for ours, wanted in list(zip(found["steps"], expected.steps, strict=True))[1:]:
        for layer in range(expected.case.config.num_hidden_layers):
            for chip, rank, head in heads_of(expected.case):
                for user in wanted.users:
                    known, row = wanted.known[layer][rank][user], ours["chosen"][layer][chip][user, 0]
                    if known is None:
                        assert not row.any()
                        continue
                    assert pairs.bits_of(row) == pairs.chosen_tiles(known[head], RANGE, wanted.positions[user] + 1)
                    chosen += 1
                    after = wanted.after[layer][rank][user][head]
                    masses = ours["masses"][layer][chip][user, 0, : len(after)].double() * MASS_UNIT
                    wrong = (masses - after).abs()
                    assert (wrong <= MASS_ERROR * after).all()
                    largest = max(largest, float((wrong / after).nan_to_num().max()))
    logger.info("largest relative error of a mass: {:.2%}", largest)
    assert chosen >= 2 * (len(expected.steps) - 2)


def check_bits_of_exact_attention(found: dict, expected: Expected) -> None:
    """At threshold 0 a pair has those of one chip over the same chosen tiles, which order the sums, poison's too; rank
    0, whose tiles count, is the sender of both layers."""
    assert expected.steps[-1].hits == [[False], [False]]
    assert all(tensor is not None for tensor in (layer[0][0] for layer in expected.steps[-1].known)), "tiles to follow"
    for user in expected.steps[-1].users:
        assert torch.equal(found["steps"][-1]["logits"][0][user], found["alone"][0][user])


def check_caches(found: dict, expected: Expected) -> None:
    """They are the reference's on both ranks."""
    for layer, chips in enumerate(found["caches"]):
        for user, length in enumerate(expected.cache.lengths.tolist()):
            for chip, _, head in heads_of(expected.case):
                for part, wanted in zip(chips[chip], (expected.cache.keys, expected.cache.values), strict=True):
                    pcc = figures(part[user, 0, :length], wanted[layer][user, head, :length])["pcc"]
                    assert pcc >= 0.999, (layer, user, chip)
