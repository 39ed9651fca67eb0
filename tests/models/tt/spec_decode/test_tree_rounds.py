# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Rounds of token trees on simulated chips, against the reference: exact attention, and two rows that speculate, where
the decision of each user is its own, and a layer goes on with the guess if all users accept."""

from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.reference.alspec.budget import TILE
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.reference.spec_decode.draft_verification import verify_greedy
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from models.llama31_8b.tiny import TINY, tiny_for
from tests.models.tt import pair_programs as pairs
from tests.support.tt_programs import GRID, SMALLEST, build, check_close, of_chips
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED
from tt_kernels.speculative_flash_decode.guess_range import MASS_UNIT

# A decoy and its child come first, so that accepted rows move; then the path 3, 5, 6.
PARENTS = [-1, 0, 1, 0, 3, 3, 5]
PATH = {1: 3, 2: 5, 3: 6}  # node by depth
NODES = 8  # a step's, one of them padding


class RoundPlan(NamedTuple):
    """threshold: of the round. hits: by user, how many drafted tokens of the path are right; None skips the user.
    fault: before it."""

    threshold: float
    hits: list[int | None]
    fault: pairs.Fault | None = None


@dataclass
class Round:
    """What a round must give. drafts: by user. lengths: all users' cached tokens before it. accepted: by layer, of each
    user, None if bypassed or skipped. tokens: of each user, [] if skipped. logits: by user, float32 [nodes, vocab].
    priorities: by layer, of both ranks, of all users. known, after: of a guess by a budget, as of `own_masses`, what
    the ranks know before and after it."""

    threshold: float
    drafts: dict[int, tuple[TokenTree, list[int]]]
    lengths: list[int]
    accepted: list[list[bool | None]]
    tokens: list[list[int]]
    logits: dict[int, torch.Tensor]
    priorities: list[list[list[int]]]
    known: list | None = None
    after: list | None = None
    fault: pairs.Fault | None = None


class _Together(ALSpecAttention):
    """Take the guess for all users in the layers of `go`. ratios: by layer, of each row; None where bypassed."""

    go: list[bool] = []

    def begin_step(self, step, layers):
        super().begin_step(step, layers)
        self.ratios: list[dict[int, float | None]] = [{} for _ in range(layers)]

    def attend(self, layer, segments):
        row = segments.rows.start
        exact, tiles = segments.exact(), self.by_budget
        guess, nodes = segments.guess() if tiles is None else tiles.guess(layer, segments), self._step.nodes(row)
        if segments.eligible is False:
            self.ratios[layer][row] = None
            return exact
        if tiles is not None:
            tiles.decided(segments, torch.tensor([[self.go[layer]]]))
        self.ratios[layer][row] = float((guess - exact)[nodes].norm() / exact[nodes].norm())
        return guess if self.go[layer] else exact


def _priorities(accepted: list[list[bool | None]], active: list[bool]) -> list[list[list[int]]]:
    """Return both ranks' priorities after each layer."""
    held, found = [2, 0], []
    for row in accepted:
        sender = 0 if held[0] >= held[1] else 1
        mine = [
            YIELDED if not here or yes else HOLDS_EXACT_UNVERIFIED if yes is None else HOLDS_EXACT
            for yes, here in zip(row, active, strict=True)
        ]
        other = [HOLDS_GUESS if here else YIELDED for here in active]
        both = [mine, other] if sender == 0 else [other, mine]
        held = [max(both[0]), max(both[1])]
        found.append(both)
    return found


GREEDY = SamplingParams(0.0)
# Of rows of two chips, each of which has half of the heads.
ROWS = LlamaConfig(64, 128, 128, 1, 4, 2, 64, 256, name="rows")


def tree_rounds(mesh, config, prefilled, guess: dict | None, capacity: int, rounds: list[Round], seed: int) -> dict:
    """Run `rounds` after the users' prompts, the threshold of each where this dispatch has no traces. By round: the
    logits of all rows, float32 [users, nodes, vocab]; accepted paths and tokens as each row's chip tells them. Then how
    often a trace was replayed, and the caches as of `caches_of`.

    Of a pair also both rows' priorities by layer; of a guess by a budget all chips' chosen tiles before and masses
    after each round as of `words_of`; what was counted, and of two chips `guarded_results`.

    prefilled: keys and values as of `load_cache`. guess: what `build_pair` takes of it; None for exact attention. seed:
    of the model's weights.
    """
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace

    users, pair = len(rounds[0].lengths), None
    if guess is None:
        model, _ = build(mesh, config, users=users, capacity=capacity, seed=seed)
    else:
        state = random_state_dict(config, seed)
        model, pair = pairs.build_pair(mesh, config, state, users=users, capacity=capacity, **guess)
    pairs.load_cache(model, *prefilled)
    step = TreeStep(model, NODES, GREEDY)
    traced = TracedStep(mesh, step, why_no_trace(mesh) is not None)
    rows = range(0, model.mesh_shape.chips, model.mesh_shape.tp)  # the first chip of each
    told: dict = {"rounds": []}
    for number, planned in enumerate(rounds):
        if pair is not None:
            pair.threshold = planned.threshold
        if planned.fault is not None:
            pairs.put_masses(pair, planned.fault, [])
        step.load(planned.drafts, planned.lengths)
        verified = traced()
        model.check()
        logits = of_chips(step.logits)
        found = {
            "logits": [logits[chip][0, 0].float().view(users, NODES, -1) for chip in rows],
            "verified": [[(outcome.path, outcome.tokens) for outcome in verified.read(chip)] for chip in rows],
        }
        logger.info("round {}: verified {}", number, found["verified"][0])
        if pair is not None:
            decided = pair.last_priorities()
            found["priorities"] = [[row[layer] for row in decided] for layer in range(len(decided[0]))]
            if pair.by_budget is not None:
                found |= {name: pairs.words_of(getattr(pair.by_budget, name)) for name in ("chosen", "masses")}
        told["rounds"].append(found)
    told["replays"] = traced.replays
    traced.release()
    told["caches"] = pairs.caches_of(model)
    if pair is not None:
        counted = pair.statistics()
        told["counts"] = [(layer.hits, layer.misses, layer.bypassed) for layer in counted.layers]
        told["failures"] = counted.failures
        if model.mesh_shape.chips == 2:
            told["guarded"] = guarded_results(model)
    return told


def guarded_results(model) -> list:
    """What the guard leaves of a verification that accepted a token of two users, while all is well and when the second
    chip's attention has given up on its peer, as of `as_told`."""
    from tt_kernels.speculative_sampling.op import Verified

    told = []
    for status in (0, 8):
        pairs.end_second_chip_in(model, model.pair.attention_pairs, status)
        rows = torch.tensor([[0, 1, 7, 2, 1, -1, 5, 7], [0, 0, 9, 1, -1, -1, 9, -1]])
        verified = Verified(model.put_integers(rows, "int32"), nodes=2)
        model.guard_result(verified.result)
        told.append(as_told(model, verified))
    model.reset()
    return told


def step_with_a_cut_cable(mesh, capacity: int) -> list:
    """Two steps over a chain of three nodes behind a cache of zeros, the second after the cable was cut, as of
    `as_told`."""
    import os

    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from runtime_patches.simulated_n150.links import Links

    model, _ = pairs.build_pair(mesh, SMALLEST, random_state_dict(SMALLEST, 0), capacity=capacity, timeout_s=1e-3)
    step, told = TreeStep(model, 3, GREEDY), []
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


CHUNK_SIZE, BUDGET, CAPACITY = 32, 0.75, 256
RANGE, BY_BUDGET = GuessRange.by_budget(CHUNK_SIZE, BUDGET), {"chunk_size": CHUNK_SIZE, "budget": BUDGET}
# Prompts for which outcomes differ and nothing is near a border: while a row knows nothing of a layer, guesses miss.
SEED, THRESHOLD, PROMPTS = 354, 0.5, (231, 226)
LEAST_MARGIN, LEAST_GAP, MAX_ERROR, MASS_ERROR = 0.05, 0.08, 0.15, 0.02
# Right tokens of the trees of two users by round, of which one may skip; searched for.
HITS = [[3, 1], [None, 2], [2, 0], [None, 0], [3, 1], [0, None], [0, None], [3, None]]
TAKEN = [[False, False], [True, False], [True, True], [True, True]]  # by round and layer
TAKEN += [[False, True], [True, True], [True, True], [True, True]]
POISONED = 4  # a round; unharmed, its guess is taken in both layers


class Planned(NamedTuple):
    """rounds: of the reference; cache: after the last; prefilled: keys and values before the first."""

    rounds: list[Round]
    cache: KVCache
    prefilled: list[list[torch.Tensor]]


@torch.inference_mode()
def plan(config, weights: int, seed: int, lengths, capacity: int, plans) -> tuple[Planned, list[list[bool]]]:
    """Return what the reference does after prompts of these lengths, drawn by `seed`, and which guesses by RANGE are
    taken by round and layer. weights: the seed of the model's.

    It is clear: the least relative distance of a ratio from its threshold, and the least lead of a best logit that
    decides, are not small.
    """
    model = ReferenceLlama.from_state_dict(config, random_state_dict(config, weights))
    generator = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, config.vocab_size, (length,), generator=generator).tolist() for length in lengths]
    cache = model.new_cache(len(prompts), capacity)
    roots = model.prefill(prompts, cache).argmax(-1).tolist()
    prefilled = [[layer[:, :, : max(lengths)].clone() for layer in part] for part in (cache.keys, cache.values)]
    layers, users, policy = config.num_hidden_layers, len(lengths), _Together(0.0, RANGE)
    rounds, margin, gap = [], float("inf"), float("inf")
    for plan in plans:
        active = [user for user in range(users) if plan.hits[user] is not None]
        view, before, known = cache.view(active), cache.lengths.tolist(), policy.by_budget
        if plan.fault is not None:
            pairs.put_known(known, plan.fault, [])
        batch = TokenTreeBatch.shared(TokenTree.from_parents(PARENTS), len(active))
        tokens = torch.zeros(len(active), len(PARENTS), dtype=torch.int64)
        tokens[:, 0] = torch.tensor([roots[user] for user in active])

        def forward(logits, view=view, batch=batch, tokens=tokens, known=known):
            policy.by_budget = deepcopy(known)
            return model.forward(tokens, view, policy=policy, tree=batch, commit=False, logits=logits)

        def step(forward=forward, threshold=plan.threshold):
            """Each layer's decision depends on those before."""
            policy.go = [False] * layers
            for layer in range(layers):
                forward("none")
                ratios = policy.ratios[layer].values()
                policy.go[layer] = all(ratio is not None and ratio < threshold for ratio in ratios)
            return forward("all")

        logits = step()
        for _ in range(2 * len(PATH)):  # what a drafted token is changes decisions, and these the tokens
            best, was = logits.argmax(-1), tokens.clone()
            for row, user in enumerate(active):
                for node, parent in enumerate(PARENTS[1:], 1):
                    depth = next((depth for depth, at in PATH.items() if at == node), None)
                    right = depth is not None and depth <= plan.hits[user]
                    tokens[row, node] = (best[row, parent] + (0 if right else node + 1)) % config.vocab_size
            if torch.equal(tokens, was):
                break
            logits = step()
        verified = verify_greedy(batch, tokens, logits.argmax(-1))
        accepted: list[list[bool | None]] = [[None] * users for _ in range(layers)]
        new: list[list[int]] = [[] for _ in range(users)]
        for row, user in enumerate(active):
            path = verified.nodes(row)
            for node in (0, *path):
                first, second = logits[row, node].topk(2).values.tolist()
                gap = min(gap, first - second)
            new[user] = [*tokens[row, path].tolist(), int(verified.bonus[row])]
            for layer in range(layers):
                ratio = policy.ratios[layer][row]
                if ratio is not None:
                    accepted[layer][user] = ratio < plan.threshold
                    margin = min(margin, abs(ratio - plan.threshold) / max(ratio, plan.threshold))
            view.keep(row, [0, *path])
            roots[user] = new[user][-1]
        tree = TokenTree.from_parents(PARENTS)
        drafts = {user: (tree, tokens[row].tolist()) for row, user in enumerate(active)}
        told = {user: logits[row] for row, user in enumerate(active)}
        priorities = _priorities(accepted, [user in active for user in range(users)])
        masses = [None, None]
        if known is not None:
            masses[0] = pairs.own_masses(known, layers, users)
            pairs.wrap_sums(policy.by_budget, masses[0])
            masses[1] = pairs.own_masses(policy.by_budget, layers, users)
        rounds.append(Round(plan.threshold, drafts, before, accepted, new, told, priorities, *masses, plan.fault))
    assert margin > LEAST_MARGIN and gap > LEAST_GAP, f"the prompts were chosen so, not by {margin} and {gap}"
    taken = [[all(row[user] for user in planned.drafts) for row in planned.accepted] for planned in rounds]
    return Planned(rounds, cache, prefilled), taken


def checked(
    worker, config, seed: int, lengths, capacity: int, plans, guess: dict | None = None, weights: int = 0
) -> tuple[list[list[bool]], dict]:
    """Compare rounds on chips with the reference's, see `plan` and `tree_rounds`; return which guesses are taken, and
    what the chips told."""
    planned, taken = plan(config, weights, seed, lengths, capacity, plans)
    told = worker.run(tree_rounds, config, planned.prefilled, guess, capacity, planned.rounds, weights, timeout=2900)
    check_rounds(planned, told)
    if guess is not None:
        check_tiles(planned, told)
    return taken, told


@pytest.mark.sim
def test_accepted_paths_move_in_caches_of_two_users(sim_device):
    """With prefixes of 30 and 12 tokens: the first's trees cross a tile; accepted paths are no prefix of the tree, so
    keys and values move."""
    rounds = [RoundPlan(0.0, [3, 1]), RoundPlan(0.0, [0, 2])]
    _, told = checked(sim_device(GRID), TINY, 14, (30, 12), 96, rounds)
    paths = {tuple(path) for found in told["rounds"] for row in found["verified"] for path, _ in row}
    assert paths == {(), (3,), (3, 5), (3, 5, 6)}


@pytest.mark.sim
@pytest.mark.timeout(3000)
def test_two_chips_of_a_row_share_the_heads_of_a_tree(sim_mesh):
    checked(sim_mesh((1, 2), "4x2"), tiny_for(2), 10, (20,), 96, [RoundPlan(0.0, [2])])


@pytest.mark.sim
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("rounds", [3, pytest.param(len(HITS), marks=pytest.mark.slow)])
def test_one_trace_serves_all_trees_and_outcomes(sim_mesh, rounds):
    """Decisions, accepted tokens, counts, chosen tiles, attention weights and the caches of both rows: the first round
    runs eagerly, the others replay one trace. Poisoned weights cost guesses alone."""
    plans = [RoundPlan(THRESHOLD, row) for row in HITS[:rounds]]
    if rounds > POISONED:
        plans[POISONED] = plans[POISONED]._replace(fault=pairs.poison(CAPACITY // TILE))
    worker = sim_mesh((2, 1), "2x2", dispatch="fast")
    taken, told = checked(worker, TINY, SEED, PROMPTS, CAPACITY, plans, BY_BUDGET)
    assert taken == TAKEN[:rounds] and told["replays"] == rounds - 1
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
@pytest.mark.timeout(3000)
def test_rows_of_two_chips_take_one_decision_per_tree(sim_mesh):
    """On 2x2 a guess is rejected, then taken: decisions, accepted tokens, counts and the caches of both rows are the
    reference's, as on a pair, and each chip's tiles those of its own heads."""
    plans = [RoundPlan(0.5, [2, 1]), RoundPlan(0.5, [None, 3])]
    worker = sim_mesh((2, 2), "4x2")  # reduce_scatter over two links wants eight cores
    taken, _ = checked(worker, ROWS, 9, PROMPTS, CAPACITY, plans, BY_BUDGET, weights=2)
    assert taken == [[False], [True]]


@pytest.mark.slow
@pytest.mark.sim
def test_a_step_whose_cable_is_cut_emits_no_token(sim_mesh):
    """Both chips say so, and the generator raises what went wrong."""
    worker = sim_mesh((2, 1), "2x2", dispatch="fast")
    try:
        (whole, outcome), (broken, message) = worker.run(step_with_a_cut_cable, 96, timeout=1700)
    finally:
        worker.kill()  # routers do not recover
    assert whole[0] == whole[1] and [tokens for _, tokens in whole[0]] == outcome and outcome[0]
    assert broken == [[(-1, [])], [(-1, [])]]
    assert message.startswith("exchange: chip (") and "gave up in call" in message


def check_rounds(planned: Planned, told: dict) -> None:
    for number, (wanted, found) in enumerate(zip(planned.rounds, told["rounds"], strict=True)):
        assert "counts" not in told or found["priorities"] == wanted.priorities, f"round {number}"
        first, *others = found["logits"]
        assert all(torch.equal(first, other) for other in others), "the rows end with the same residual"
        for user, logits in wanted.logits.items():
            seen = check_close(f"round {number} user {user}", first[user, : len(PARENTS)], logits)
            assert seen["absolute"] < MAX_ERROR
            for row in found["verified"]:
                path, tokens = row[user]
                assert tokens == wanted.tokens[user] and len(path) == len(tokens) - 1
    if "counts" in told:
        layers = range(len(told["counts"]))
        decisions = [[row for planned in planned.rounds for row in planned.accepted[layer]] for layer in layers]
        assert told["counts"] == [(row.count(True), row.count(False), 0) for row in decisions]
        assert not told["failures"]
    check_caches(planned, told["caches"])


def check_tiles(planned: Planned, told: dict) -> None:
    """Of each chip, which has one key/value head: the tiles that it chose for a round, and the masses after it."""
    chosen, largest = 0, 0.0
    for wanted, found in zip(planned.rounds, told["rounds"], strict=True):
        for layer, chips in enumerate(found["chosen"]):
            for chip, words in enumerate(chips):
                row, head = divmod(chip, len(chips) // 2)
                for user, length in enumerate(wanted.lengths):
                    known, after = (each[layer][row][user] for each in (wanted.known, wanted.after))
                    if user in wanted.drafts:
                        tiles = [] if known is None else pairs.chosen_tiles(known[head], RANGE, length + 1)
                        assert pairs.bits_of(words[user, 0]) == tiles
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


def check_caches(planned: Planned, layers: list) -> None:
    """Of each chip, whose heads are a part of its row's."""
    for layer, chips in enumerate(layers):
        for part, name in enumerate(("keys", "values")):
            rows = torch.cat([chip[part] for chip in chips], 1)
            for user, cached in enumerate(planned.cache.lengths.tolist()):
                wanted = getattr(planned.cache, name)[layer][user, :, :cached]
                first, *others = rows[user, :, :cached].split(len(wanted))
                assert all(torch.equal(first, other) for other in others), f"{name} of layer {layer}"
                check_close(f"{name} of layer {layer}", first, wanted)
