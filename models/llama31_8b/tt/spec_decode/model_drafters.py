# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Models that draft on the target's chips: a smaller one, or the target itself over part of its cache."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch
import ttnn

from tt_kernels.speculative_flash_decode.checks import MAX_USERS as MAX_GUESSED_USERS

from ...generation.sampling import SamplingParams
from ...spec_decode.draft_length import self_step_cost, weights_read
from ...spec_decode.draft_shape import DraftShape
from ...spec_decode.tree import TokenTree, TokenTreeBatch
from ...spec_decode.tree_shapes import fixed_shape
from ..attention_policies import GuessAttention
from ..model import PREFILL_CHUNK, TreeInputs, TtLlama, cache_prompt, kept_prefix, overwrite, read
from ..sampling.top_k import CANDIDATES, ORIGIN, Sampler
from ..settings import check_chunk_size
from ..trace import TracedStep
from .draft_limits import check_draft_shape
from .draft_loop import ChainSteps, OnDeviceDraftLoop
from .drafters import DraftLoop, Drafts, TreeDrafter
from .tree_step import TreeStep

GREEDY = SamplingParams(0.0)


class ModelDrafter(TreeDrafter):
    """Draft with a model on the target's mesh: chains of the likeliest tokens, one step per token, layer-parallel if
    the model has a LayerAssignment; or trees of the `shape.width` likeliest tokens after each node, one pass per level
    over all nodes with children. Trees are the reference's with as many nodes (fixed_shape).

    A round begins with one exact pass over the tokens decided since the last (EasySpec's bonus calibration, section
    3.2). It overwrites the keys and values that drafting left there, so that the draft's cache equals a plain pass's,
    and its last node yields the first drafted tokens. draft: with as many users and positions as the target.

    Chains stay on the chips (OnDeviceDraftLoop) and are drawn if the text is, as in the reference; trees go through the
    host and hold the likeliest tokens.
    """

    name = "model"

    def __init__(self, draft: TtLlama, *, prefill_chunk: int = PREFILL_CHUNK) -> None:
        self.model, self.prefill_chunk = draft, prefill_chunk
        self._sampler = Sampler(draft.mesh, draft.mesh_shape, draft.config, GREEDY)
        self._lengths = [0] * draft.users
        self._nodes, self._width = 0, 1
        self._exact: ExactPass | None = None

    @property
    def lengths(self) -> list[int]:
        """Return each user's decided tokens in the draft's cache."""
        return list(self._lengths)

    def has_logits(self, shape: DraftShape) -> bool:
        return shape.width == 1

    def draft_loop(self, step: TreeStep, shape: DraftShape, eager: bool) -> DraftLoop:
        if shape.width == 1:
            return OnDeviceDraftLoop(self.model, step, self._lengths, eager)
        self._exact = ExactPass(self.model, self._nodes, self._sampler, self._width, eager)
        return super().draft_loop(step, shape, eager)

    def check(self, shape: DraftShape, target: TtLlama) -> None:
        draft = self.model
        self.step_cost = weights_read(draft.config) / weights_read(target.config)
        if draft.config.vocab_size != target.config.vocab_size:
            raise ValueError(
                f"the draft model {draft.config.name} has {draft.config.vocab_size} token ids and the target "
                f"{target.config.name} has {target.config.vocab_size}: they must share a tokenizer"
            )
        if (draft.users, draft.capacity) != (target.users, target.capacity):
            raise ValueError(
                f"the draft model has {draft.users} users of {draft.capacity} positions, the target {target.users} of "
                f"{target.capacity}"
            )
        parallel = 1 if draft.groups is None else draft.groups.assignment.size
        if parallel > 1 and (shape.length < 2 or shape.width > 1):
            raise ValueError(
                f"{shape} comes from exact passes alone: {parallel} layers in parallel would change nothing"
            )
        self._nodes, self._width = check_draft_shape(shape, draft.users), shape.width
        if shape.width > min(CANDIDATES, draft.config.vocab_size):
            raise ValueError(
                f"chips rank {min(CANDIDATES, draft.config.vocab_size)} candidates per node, {shape} has {shape.width}"
            )
        draft.decode_attention.check_trees()

    def start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        for user, (text, same) in enumerate(zip(texts, cached, strict=True)):
            start = kept_prefix(self.model, min(same, self._lengths[user]))
            cache_prompt(self.model, text, user, self.prefill_chunk, start=start)
            self._lengths[user] = len(text)

    def draft(self, undrafted: Mapping[int, Sequence[int]], shape: DraftShape) -> Drafts:
        if self._exact is None:
            raise RuntimeError("trees need texts and their rounds: call start and draft_loop first")
        began = time.perf_counter()
        found = self._calibrate(self._exact, undrafted)
        self.calibration_seconds = time.perf_counter() - began
        roots = {user: tokens[-1] for user, tokens in undrafted.items()}
        return self._trees(self._exact, roots, found, shape)

    def release(self) -> None:
        if self._exact is not None:
            self._exact.traced_step.release()

    def _calibrate(self, exact: ExactPass, undrafted: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
        """Run exact passes over the decided tokens, one unless a round was skipped -> the likeliest next tokens by
        user."""
        found: dict[int, list[int]] = {}
        left = {user: list(tokens) for user, tokens in undrafted.items()}
        while left:
            part = {user: tokens[: self._nodes] for user, tokens in left.items()}
            ranked = exact.follow({user: _chain_of(tokens) for user, tokens in part.items()}, self._lengths)
            for user, tokens in part.items():
                self._lengths[user] += len(tokens)
                found[user] = ranked[user][len(tokens) - 1]
            left = {user: tokens[self._nodes :] for user, tokens in left.items() if tokens[self._nodes :]}
        return found

    def _trees(
        self,
        exact: ExactPass,
        roots: Mapping[int, int],
        behind_root: Mapping[int, list[int]],
        shape: DraftShape,
    ) -> Drafts:
        """Draft level by level: after each pass over the inner nodes so far, the last level's rank the next one's
        tokens. Nodes without a token yet are in the pass too, seen by none that has one."""
        form = fixed_shape(shape.length, shape.width, shape.budget)
        parents, column = form.tree.parents.tolist(), {node: slot for slot, node in enumerate(form.inner)}
        tokens = {user: [root] + [0] * (len(form.tree) - 1) for user, root in roots.items()}
        ranked = {user: {0: behind_root[user]} for user in roots}
        for level in form.levels[1:]:
            for user, given in tokens.items():
                for node in level:
                    given[node] = ranked[user][parents[node]][int(form.rank[node])]
            if form.forest is None or not any(node in column for node in level):
                continue
            inner = {user: (form.forest, [given[node] for node in form.inner]) for user, given in tokens.items()}
            for user, rows in exact.follow(inner, self._lengths).items():
                ranked[user] |= {node: rows[column[node]] for node in level if node in column}
        return {user: (form.tree, given) for user, given in tokens.items()}


class SelfDrafter(TreeDrafter):
    """Let the target draft chains for itself, by attention to the first and last `window` cached tokens (the guess of
    attention-level speculation, whose last tile may add up to 31 tokens to the tail).

    There is no second model and no second cache: the target's step over the tree overwrites what a draft wrote after
    the decided tokens. window: a multiple of 32 up to the cache's capacity. Raises ValueError for another window, for
    layer groups, and for more than 8 users.
    """

    name = "self"

    def __init__(self, target: TtLlama, window: int) -> None:
        check_chunk_size(window, target.capacity, "window")
        if target.users > MAX_GUESSED_USERS:
            raise ValueError(f"1 to {MAX_GUESSED_USERS} users draft for themselves, got {target.users}")
        self.target = target
        self.model = target.with_attention(GuessAttention(target.config, window, target.decode_attention))
        self._sampler = Sampler(target.mesh, target.mesh_shape, target.config, GREEDY)
        self._lengths = [0] * target.users
        self._chain: ChainSteps | None = None
        self.window = window

    def check(self, shape: DraftShape, target: TtLlama) -> None:
        if target is not self.target:
            raise ValueError("a model drafts for itself, not for another")
        if shape.width > 1 or shape.grown:
            raise ValueError(f"a model that drafts for itself drafts chains, not {shape}")

    def start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        self._lengths = [len(text) for text in texts]
        self.step_cost = self_step_cost(self.target.config, self.window, max(self._lengths, default=1))

    def draft_loop(self, step: TreeStep, shape: DraftShape, eager: bool) -> DraftLoop:
        self._chain = ChainSteps(self.model, self._sampler, eager)
        return super().draft_loop(step, shape, eager)

    def draft(self, undrafted: Mapping[int, Sequence[int]], shape: DraftShape) -> Drafts:
        if self._chain is None:
            raise RuntimeError("drafts need texts and their rounds: call start and draft_loop first")
        roots = {user: tokens[-1] for user, tokens in undrafted.items()}
        for user, tokens in undrafted.items():
            self._lengths[user] += len(tokens)
        before = [length - 1 for length in self._lengths]  # the root is not cached yet
        chains = self._chain.follow(roots, before, shape.length)
        return {user: _chain_of([root, *chains[user]]) for user, root in roots.items()}

    def release(self) -> None:
        if self._chain is not None:
            self._chain.traced_step.release()


def _chain_of(tokens: Sequence[int]) -> tuple[TokenTree, list[int]]:
    return TokenTree.chain(len(tokens)), list(tokens)


class ExactPass:
    """An exact pass over forests of up to `nodes` nodes per user. traced_step: runs it and returns the likeliest tokens
    after each node, float32 [1, 1, users * nodes, 32], as ORIGIN - id, likeliest first."""

    def __init__(self, model: TtLlama, nodes: int, sampler: Sampler, width: int, eager: bool) -> None:
        self.model, self.nodes, self.width, self._sampler = model, nodes, width, sampler
        self._inputs = self._made({}, [], on_device=True)
        self.traced_step = TracedStep(model.mesh, self._step, eager)

    def follow(
        self, forests: Mapping[int, tuple[TokenTree, Sequence[int]]], lengths: Sequence[int]
    ) -> dict[int, list[list[int]]]:
        """Return the `width` likeliest tokens after each node for the users in `forests`, likeliest first. lengths: all
        users' cached tokens; other users are skipped."""
        overwrite(self._inputs, self._made(forests, lengths, on_device=False))
        told = ORIGIN - read(self.traced_step())[..., : self.width]
        rows = told.reshape(self.model.users, self.nodes, self.width).long().tolist()
        return {user: rows[user][: len(tree)] for user, (tree, _) in forests.items()}

    def _step(self) -> ttnn.Tensor:
        return self._sampler.candidates(self.model.decode_tree(self._inputs, gather_logits=False))[1]

    def _made(
        self,
        forests: Mapping[int, tuple[TokenTree, Sequence[int]]],
        lengths: Sequence[int],
        on_device: bool,
    ) -> TreeInputs:
        users = range(self.model.users)
        rows = torch.zeros(len(users), self.nodes, dtype=torch.int64)
        trees = [TokenTree.chain(1)] * len(users)
        for user, (tree, given) in forests.items():
            trees[user], rows[user, : len(tree)] = tree, torch.tensor(list(given))
        batch = TokenTreeBatch.stack(trees, self.nodes)
        prefixes = [lengths[user] if user in forests else -1 for user in users]
        return self.model.tree_inputs(rows, prefixes, batch.enter, batch.leave, on_device)
