# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Rounds of token trees under attention-level speculation by the reference, as a chip pair runs them: the decision of
each user is its own, and a layer goes on with the guess if all users accept."""

from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import torch

from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.spec_decode.draft_verification import verify_greedy
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
from tests.support.alspec_reference import own_masses
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, YIELDED

# A decoy and its child come first, so that accepted rows move; then the path 3, 5, 6.
PARENTS = [-1, 0, 1, 0, 3, 3, 5]
PATH = {1: 3, 2: 5, 3: 6}  # node by depth
NODES = 8  # a step's, one of them padding


class RoundPlan(NamedTuple):
    """threshold: of the round. hits: by user, how many drafted tokens of the path are right; None skips the user."""

    threshold: float
    hits: list[int | None]


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


@torch.inference_mode()
def plan_rounds(model: ReferenceLlama, cache, roots: list[int], plans: list[RoundPlan], guess_range):
    """Return the rounds and how clear they are: the least relative distance of a ratio from its threshold, and the
    least lead of a best logit that decides. roots: the users' tokens after the cached ones; updates `cache`."""
    layers, users = model.config.num_hidden_layers, len(roots)
    policy = _Together(0.0, guess_range)
    rounds, margin, gap = [], float("inf"), float("inf")
    for plan in plans:
        active = [user for user in range(users) if plan.hits[user] is not None]
        view, before, known = cache.view(active), cache.lengths.tolist(), policy.by_budget
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
                    tokens[row, node] = (best[row, parent] + (0 if right else node + 1)) % model.config.vocab_size
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
        masses = [None if each is None else own_masses(each, layers, users) for each in (known, policy.by_budget)]
        rounds.append(Round(plan.threshold, drafts, before, accepted, new, told, priorities, *masses))
    return rounds, margin, gap


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
