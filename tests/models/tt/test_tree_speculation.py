# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps over token trees that speculate between two simulated chips, against the reference."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.tiny import TINY
from tests.models.tt.budget_programs import bits_of
from tests.models.tt.speculation_programs import ROWS, build_pair, end_second_chip_in, load_cache
from tests.models.tt.trace_programs import SMALLEST
from tests.models.tt.tree_rounds import NODES, PARENTS, Round, RoundPlan, plan_rounds
from tests.support.alspec_reference import chosen_tiles
from tests.support.tt_programs import figures, half_split
from tests.support.tt_tolerances import MIN_PCC
from tt_kernels.speculative_flash_decode.guess_range import MASS_UNIT


def tree_rounds(mesh, config, state, prefilled, guess: dict, capacity: int, rounds: list[Round]) -> dict:
    """Run `rounds` after the users' prompts, the threshold of each where this dispatch has no traces. By round: the
    logits of both rows, float32 [users, nodes, vocab]; both rows' priorities by layer; accepted paths and tokens as
    each row's chip tells them; of a guess by a budget by layer all chips' chosen tiles before and masses after it,
    int64 [users, kv_heads, words]. Then what was counted, how often a trace was replayed, both rows' caches, keys in
    Hugging Face's order, and of a pair `guarded_results`.

    prefilled: keys and values as of `load_cache`. guess: what `build_pair` takes of it.
    """
    import ttnn
    from loguru import logger

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace

    users = len(rounds[0].lengths)
    model, pair = build_pair(mesh, config, state, users=users, capacity=capacity, **guess)
    load_cache(model, *prefilled)
    step = TreeStep(model, NODES, SamplingParams(0.0))
    traced = TracedStep(mesh, step, why_no_trace(mesh) is not None)
    told: dict = {"rounds": []}

    def words(tensors) -> list:
        return [[ttnn.to_torch(chip).long() for chip in ttnn.get_device_tensors(layer)] for layer in tensors]

    for number, planned in enumerate(rounds):
        pair.threshold = planned.threshold
        step.load(planned.drafts, planned.lengths)
        verified = traced()
        model.check()
        parts = ttnn.get_device_tensors(step.logits)
        chips = range(0, model.mesh_shape.chips, model.mesh_shape.tp)
        found = [[(outcome.path, outcome.tokens) for outcome in verified.read(chip)] for chip in chips]
        decided = pair.last_priorities()
        logger.info("round {}: priorities {}, verified {}", number, decided, found[0])
        told["rounds"].append(
            {
                "logits": [ttnn.to_torch(parts[chip])[0, 0].float().view(users, NODES, -1) for chip in chips],
                "priorities": [[row[layer] for row in decided] for layer in range(len(decided[0]))],
                "verified": found,
            }
        )
        if pair.by_budget is not None:
            tiles = {"chosen": words(pair.by_budget.chosen), "masses": words(pair.by_budget.masses)}
            told["rounds"][-1] |= tiles
    counted = pair.statistics()
    told["counts"] = [(layer.hits, layer.misses, layer.bypassed) for layer in counted.layers]
    told["failures"], told["replays"] = counted.failures, traced.replays
    traced.release()
    told["cache"] = [
        [
            (half_split(_of_row(model, model.cache.keys[layer], chip)), _of_row(model, model.cache.values[layer], chip))
            for layer in range(config.num_hidden_layers)
        ]
        for chip in chips
    ]
    return told | ({"guarded": guarded_results(model)} if model.mesh_shape.chips == 2 else {})


def tree_texts(
    mesh, config, state, prompt: list[int], new_tokens: int, guess: dict, guess_range, capacity: int, runs: list
) -> dict:
    """Greedy texts of one user, a run for each (drafter, threshold) of `runs`: chains of two tokens by "model", the
    same model under exact attention, whose rounds stay on the chips, or by "self", over its windows. By run the tokens
    of the chips and of the reference's loop under the same rule, and the hits and misses of both; then the plain text.
    guess: what `build_pair` takes of it; guess_range: the same of the reference.
    """
    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.reference import generate as by_reference
    from models.llama31_8b.reference.alspec.policies import ALSpecAttention
    from models.llama31_8b.reference.model.model import ReferenceLlama
    from models.llama31_8b.spec_decode.draft_settings import DraftShape
    from models.llama31_8b.tt.generator import Generator
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import ModelSettings
    from models.llama31_8b.tt.spec_decode.drafters import ModelDrafter, self_drafter

    model, pair = build_pair(mesh, config, state, capacity=capacity, **guess)
    reference = ReferenceLlama.from_state_dict(config, state)
    request = {"max_new_tokens": new_tokens, "sampling": SamplingParams(0.0), "eos_token_ids": ()}
    told: dict = {"runs": []}
    for name, threshold in runs:
        pair.threshold, shape = threshold, DraftShape(2)
        if name == "self":
            window = guess["chunk_size"]
            drafters = self_drafter(model, window), by_reference.self_drafter(reference, window)
        else:
            draft = TtLlama.from_state_dict(config, state, mesh, ModelSettings(1, capacity, "bfloat16"))
            drafters = ModelDrafter(draft, prefill_chunk=32), by_reference.model_drafter(reference)
        found = Generator(model, shape, drafters[0], prefill_chunk=32).generate([prompt], **request)
        policy = ALSpecAttention(threshold, guess_range)
        drafted = {"drafter": drafters[1], "shape": shape, "policy": policy}
        wanted = by_reference.generate(reference, [prompt], **drafted, **request)
        hits = [int(step.accepted[:, 0, 0].sum()) for step in policy.statistics.steps]
        counted = found.statistics
        told["runs"].append(
            {
                "texts": (found.token_ids[0], wanted.token_ids[0]),
                "decisions": ((counted.hits, counted.misses + counted.bypassed), (sum(hits), len(hits) - sum(hits))),
                "accepted": [result.speculation.num_accepted_tokens for result in (found, wanted)],
                "failures": counted.failures,
            }
        )
    told["plain"] = by_reference.generate(reference, [prompt], **request).token_ids[0]
    return told


def guarded_results(model) -> list:
    """What the guard leaves of a verification that accepted a token of two users, while all is well and when the second
    chip's attention has given up on its peer, as of `as_told`."""
    import torch

    from tt_kernels.speculative_sampling.op import Verified

    told = []
    for status in (0, 8):
        end_second_chip_in(model, model.pair.attention_pairs, status)
        rows = torch.tensor([[0, 1, 7, 2, 1, -1, 5, 7], [0, 0, 9, 1, -1, -1, 9, -1]])
        verified = Verified(model.put_integers(rows, "int32"), nodes=2)
        model.guard_result(verified.result)
        told.append(as_told(model, verified))
    model.reset()
    return told


def step_with_a_cut_cable(mesh, config, state, ends: tuple[int, int], capacity: int, timeout_s: float) -> list:
    """Two steps over a chain of three nodes behind a cache of zeros, the second after the cable was cut, as of
    `as_told`."""
    import os

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.spec_decode.tree import TokenTree
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from runtime_patches.simulated_n150.links import Links

    model, _ = build_pair(mesh, config, state, capacity=capacity, chunk_size=ends[0], ends=ends, timeout_s=timeout_s)
    step, told = TreeStep(model, 3, SamplingParams(0.0)), []
    for cut in (False, True):
        step.load({0: (TokenTree.chain(3), [1, 2, 3])}, [capacity - 3])
        if cut:
            Links(os.getpid()).cut()
        told.append(as_told(model, step()))
    return told


def as_told(model, verified) -> tuple:
    """What both chips say of a verification, (status, tokens) of each user; and what the generator makes of it, tokens
    or an error."""
    from models.llama31_8b.tt.generator import agreed_outcomes
    from tt_kernels.common.peer import PeerError

    seen = [[(outcome.status, outcome.tokens) for outcome in verified.read(chip)] for chip in (0, 1)]
    try:
        return seen, [found.tokens for found in agreed_outcomes(model, verified)]
    except PeerError as error:
        return seen, str(error)


def _of_row(model, tensor, first: int):
    """All heads of a cache on a row of the mesh, whose first chip is `first`."""
    import torch
    import ttnn

    parts = ttnn.get_device_tensors(tensor)[first : first + model.mesh_shape.tp]
    return torch.cat([ttnn.to_torch(part).float() for part in parts], 1)


LIMIT_S = 1700
CHUNK_SIZE, BUDGET, CAPACITY = 32, 0.75, 256
RANGE, ENDS = GuessRange.by_budget(CHUNK_SIZE, BUDGET), (CHUNK_SIZE, CHUNK_SIZE)
BY_BUDGET, BY_ENDS = ({"chunk_size": CHUNK_SIZE, **guess} for guess in ({"budget": BUDGET}, {"ends": ENDS}))
# Prompts for which outcomes differ and nothing is near a border: while a row knows nothing of a layer, guesses miss.
SEED, THRESHOLD, PROMPTS = 354, 0.5, (231, 226)
LEAST_MARGIN, LEAST_GAP, MAX_ERROR, MASS_ERROR = 0.05, 0.08, 0.15, 0.02
# Right tokens of the trees of two users by round; one skips a round.
HITS = [[3, 1], [None, 2], [2, 0]]
TAKEN = [[False, False], [True, False], [True, True]]  # by round and layer


class Planned(NamedTuple):
    """rounds: of the reference; cache: after the last; prefilled: keys and values before the first."""

    state: dict[str, torch.Tensor]
    rounds: list[Round]
    cache: KVCache
    prefilled: tuple[list[torch.Tensor], list[torch.Tensor]]


@pytest.fixture(scope="module")
def planned() -> Planned:
    found, taken = plan(TINY, 0, SEED, PROMPTS, CAPACITY, [RoundPlan(THRESHOLD, row) for row in HITS], RANGE)
    assert taken == TAKEN
    return found


def plan(
    config, weights: int, seed: int, lengths, capacity: int, plans, guess_range: GuessRange
) -> tuple[Planned, list[list[bool]]]:
    """Return what the reference does after prompts of these lengths, drawn by `seed`, and which guesses are taken by
    round and layer. weights: the seed of the model's."""
    state = random_state_dict(config, weights)
    model = ReferenceLlama.from_state_dict(config, state)
    generator = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, config.vocab_size, (length,), generator=generator).tolist() for length in lengths]
    cache = model.new_cache(len(prompts), capacity)
    roots = model.prefill(prompts, cache).argmax(-1).tolist()
    prefilled = (
        [tensor[:, :, : max(lengths)].clone() for tensor in cache.keys],
        [tensor[:, :, : max(lengths)].clone() for tensor in cache.values],
    )
    rounds, margin, gap = plan_rounds(model, cache, roots, plans, guess_range)
    assert margin > LEAST_MARGIN and gap > LEAST_GAP, f"the prompts were chosen so, not by {margin} and {gap}"
    taken = [[all(row[user] for user in planned.drafts) for row in planned.accepted] for planned in rounds]
    return Planned(state, rounds, cache, prefilled), taken


@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_one_trace_serves_all_trees_and_outcomes(sim_mesh, planned):
    """Decisions, accepted tokens, counts, chosen tiles, attention weights and the caches of both rows: the first round
    runs eagerly, the others replay one trace."""
    told = sim_mesh((2, 1), "2x2", dispatch="fast").run(
        tree_rounds, TINY, planned.state, planned.prefilled, BY_BUDGET, CAPACITY, planned.rounds, timeout=LIMIT_S
    )
    check_rounds(planned, told)
    check_tiles(planned, told, RANGE)
    assert told["replays"] == len(HITS) - 1
    whole = [(0, [5, 7]), (0, [9])]
    assert told["guarded"] == [
        ([whole, whole], [[5, 7], [9]]),
        (
            [whole, [(-1, []), (-1, [])]],
            "attention: chip (1, 0) gave up in call 0: the peer did not acknowledge the data",
        ),
    ], "no token is emitted from a broken step"


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_a_target_that_drafts_for_itself_writes_the_references_text(sim_mesh):
    """A tree's guess is accepted, and changes the text."""
    told = texts_on_a_pair(sim_mesh, 166, 4, [("self", 0.58)], 66, BY_ENDS, GuessRange(*ENDS))
    (guessed,) = told["runs"]
    assert guessed["texts"][0] != told["plain"] and guessed["decisions"][0] == (1, 0)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_texts_by_drafters_are_plain_at_threshold_0_and_the_references_above(sim_mesh):
    """A model drafts on both rows, its rounds stay on the chips, and nothing is accepted: the plain text; then the
    target drafts for itself, and hits after the first step, by its attention weights, change the text."""
    told = texts_on_a_pair(sim_mesh, 11, 7, [("model", 0.0), ("self", 0.5)], 130, BY_BUDGET, RANGE)
    exact, guessed = told["runs"]
    assert exact["texts"][0] == told["plain"] != guessed["texts"][0]
    assert [found["decisions"][0][0] for found in told["runs"]] == [0, 3]


def texts_on_a_pair(
    sim_mesh, seed: int, new_tokens: int, runs: list[tuple[str, float]], length: int, guess: dict, guess_range
) -> dict:
    """Return `tree_texts` after a prompt of `length` drawn tokens, those of the reference with its decisions."""
    state = random_state_dict(SMALLEST, 0)
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(0, SMALLEST.vocab_size, (length,), generator=generator).tolist()
    given = SMALLEST, state, prompt, new_tokens, guess, guess_range, length + 62, runs
    told = sim_mesh((2, 1), "2x2").run(tree_texts, *given, timeout=LIMIT_S)
    logger.info("{}", told)
    for found in told["runs"]:
        assert found["texts"][0] == found["texts"][1]
        assert found["decisions"][0] == found["decisions"][1] and not found["failures"]
        assert found["accepted"][0] == found["accepted"][1] > 0
    return told


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(2400)
def test_rows_of_two_chips_take_one_decision_per_tree(sim_mesh):
    """On 2x2 a guess is rejected, then taken: decisions, accepted tokens, counts and the caches of both rows are the
    reference's, as on a pair, and each chip's tiles those of its own heads."""
    plans = [RoundPlan(0.5, [2, 1]), RoundPlan(0.5, [None, 3])]
    planned, taken = plan(ROWS, 2, 9, PROMPTS, CAPACITY, plans, RANGE)
    assert taken == [[False], [True]]
    told = sim_mesh((2, 2), "4x2").run(  # reduce_scatter over two links wants eight cores
        tree_rounds, ROWS, planned.state, planned.prefilled, BY_BUDGET, CAPACITY, planned.rounds, timeout=2300
    )
    check_rounds(planned, told)
    check_tiles(planned, told, RANGE)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_a_step_whose_cable_is_cut_emits_no_token(sim_mesh):
    """Both chips say so, and the generator raises what went wrong."""
    worker = sim_mesh((2, 1), "2x2", dispatch="fast")
    state = random_state_dict(SMALLEST, 0)
    try:
        (whole, outcome), (broken, message) = worker.run(
            step_with_a_cut_cable, SMALLEST, state, ENDS, 96, 1e-3, timeout=LIMIT_S
        )
    finally:
        worker.kill()  # routers do not recover
    assert whole[0] == whole[1] and [tokens for _, tokens in whole[0]] == outcome and outcome[0]
    assert broken == [[(-1, [])], [(-1, [])]]
    assert message.startswith("exchange: chip (") and "gave up in call" in message


def check_rounds(planned: Planned, told: dict) -> None:
    for number, (wanted, found) in enumerate(zip(planned.rounds, told["rounds"], strict=True)):
        assert found["priorities"] == wanted.priorities, f"round {number}"
        first, second = found["logits"]
        assert torch.equal(first, second), "both rows end with the same residual"
        for user, logits in wanted.logits.items():
            seen = figures(first[user, : len(PARENTS)], logits)
            logger.info("round {} user {}: {}", number, user, seen)
            assert seen["pcc"] >= MIN_PCC and seen["absolute"] < MAX_ERROR
            for row in found["verified"]:
                path, tokens = row[user]
                assert tokens == wanted.tokens[user] and len(path) == len(tokens) - 1
    layers = range(len(told["counts"]))
    decisions = [[row for planned in planned.rounds for row in planned.accepted[layer]] for layer in layers]
    assert told["counts"] == [(row.count(True), row.count(False), 0) for row in decisions]
    assert not told["failures"]
    check_caches(planned, told["cache"])


def check_tiles(planned: Planned, told: dict, guess_range: GuessRange) -> None:
    """Of each chip, which has one key/value head: the tiles that it chose for a round, and the masses after it."""
    chosen, largest = 0, 0.0
    for wanted, found in zip(planned.rounds, told["rounds"], strict=True):
        for layer, chips in enumerate(found["chosen"]):
            for chip, words in enumerate(chips):
                row, head = divmod(chip, len(chips) // 2)
                for user, length in enumerate(wanted.lengths):
                    known, after = (each[layer][row][user] for each in (wanted.known, wanted.after))
                    if user in wanted.drafts:
                        tiles = [] if known is None else chosen_tiles(known[head], guess_range, length + 1)
                        assert bits_of(words[user, 0]) == tiles
                        chosen += bool(tiles)
                    masses = found["masses"][layer][chip][user, 0].double() * MASS_UNIT
                    if after is None:
                        assert not masses.any()
                        continue
                    wrong = (masses[: after.shape[-1]] - after[head]).abs()
                    assert (wrong <= MASS_ERROR * after[head]).all() and not masses[after.shape[-1] :].any()
                    largest = max(largest, float((wrong / after[head]).nan_to_num().max()))
    logger.info("{} heads with chosen tiles, largest relative error of a mass {:.2%}", chosen, largest)
    assert chosen >= len(planned.rounds)


def check_caches(planned: Planned, rows: list) -> None:
    for layer, (ours, theirs) in enumerate(zip(*rows, strict=True)):
        for name, mine, other in zip(("keys", "values"), ours, theirs, strict=True):
            for user, cached in enumerate(planned.cache.lengths.tolist()):
                assert torch.equal(mine[user, :, :cached], other[user, :, :cached]), f"{name} of layer {layer}"
                wanted = getattr(planned.cache, name)[layer][user, :, :cached]
                assert figures(mine[user, :, :cached], wanted)["pcc"] >= MIN_PCC
