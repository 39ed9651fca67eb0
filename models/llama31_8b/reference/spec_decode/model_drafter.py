# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Drafting with a model: a separate draft model, or the target itself over a sink-and-window cache.

Every draft starts with one exact, token-parallel pass over the tokens decided since the last one; its last
logits are the first candidate's distribution. Under fuzzy drafting this is EasySpec's bonus calibration
(section 3.2): all entries written by the fuzzy passes are discarded, accepted or not, and refilled exactly,
so errors never outlive one iteration. Without fuzzy drafting the entries of accepted tokens are exact
already, are kept, and only what is missing is passed.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Sequence

import torch

from ...checkpoint.errors import ContextLengthError
from ...config import LlamaConfig
from ...generation.sampling import (
    SamplingParams,
    draw_uniforms,
    inverse_cdf,
    sample_without_replacement,
    warp_logits,
)
from ...spec_decode import layer_groups as strategies
from ...spec_decode.draft_length import self_step_cost, weights_read
from ...spec_decode.draft_shape import SELF_WINDOW, DraftShape
from ...spec_decode.tree import TokenTree, TokenTreeBatch
from ...spec_decode.tree_shapes import ConfidenceTree, fixed_shape
from ...spec_decode.vocabulary import check_vocabularies
from ..alspec.policies import AttentionPolicy, SinkAttention
from ..model.kv_cache import KVCache
from ..model.model import ReferenceLlama
from .draft_verification import DraftVerification
from .drafter import Draft, Drafter


class _Intervals(NamedTuple):
    """The first nodes of trees, as the model's forward takes them."""

    enter: torch.Tensor
    leave: torch.Tensor
    depth: torch.Tensor


class _Recorder:
    """Fills the parts of a Draft that verification needs: per-node draft distributions, and logits on
    request."""

    def __init__(self, batch: int, width: int, vocab: int, probabilities: bool, logits: bool) -> None:
        self.probabilities = torch.zeros(batch, width, vocab) if probabilities else None
        self.logits = torch.zeros(batch, width, vocab) if logits else None

    def add(self, nodes: Sequence[int], probabilities: torch.Tensor | None, logits: torch.Tensor) -> None:
        """Fill the columns `nodes`. probabilities, logits: [batch, len(nodes), vocab]."""
        if self.probabilities is not None:
            self.probabilities[:, nodes] = probabilities
        if self.logits is not None:
            self.logits[:, nodes] = logits


class ModelDrafter(Drafter):
    """A separate draft model: any Llama-architecture checkpoint with the target's vocabulary.

    fuzzy: None for sequential layers, a layer-parallel size, or a list of layer groups. calibrate=False keeps
    the entries of fuzzy passes instead of refilling them (for studying the drift; never better). sampled:
    whether children are drawn from the draft's distribution or are its most probable tokens; default: drawn
    for chains, most probable for trees. Both are exact (see verification), and grown trees allow the latter
    only. Raises ValueError, VocabularyMismatchError.
    """

    name = "model"
    has_logits = True

    def __init__(
        self,
        model: ReferenceLlama,
        shape: DraftShape = DraftShape(),
        *,
        fuzzy: int | Sequence[Sequence[int]] | None = None,
        calibrate: bool = True,
        sampled: bool | None = None,
        policy: AttentionPolicy | None = None,
        fingerprint: str | None = None,
        target_fingerprint: str | None = None,
    ) -> None:
        if sampled and shape.grown:
            raise ValueError("a tree grown by confidence picks its tokens; it cannot draw them (sampled=True)")
        self.model, self.shape, self.policy = model, shape, policy
        self.layer_groups = strategies.resolve(model.config.num_hidden_layers, fuzzy)
        self.discard = self.layer_groups is not None and calibrate
        self.sampled = (shape.width == 1) if sampled is None else sampled
        self.fingerprint, self.target_fingerprint = fingerprint, target_fingerprint
        self.step_cost = 0.0
        self._cache: KVCache | None = None
        self._history: list[list[int]] = []  # of each user, the tokens whose entries the draft cache holds

    @property
    def cache(self) -> KVCache:
        """The draft's cache, since `start`. Raises RuntimeError before."""
        if self._cache is None:
            raise RuntimeError("a drafter has a cache once it has started")
        return self._cache

    def check(self, target: LlamaConfig, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
        super().check(target, prompts, max_new_tokens)
        check_vocabularies(target, self.model.config, self.target_fingerprint, self.fingerprint)
        longest, context = max(map(len, prompts)), self.model.config.max_position_embeddings
        wanted = min(longest + max_new_tokens, target.max_position_embeddings)
        if wanted > context:
            raise ContextLengthError(
                f"the draft model {self.model.config.name} has a context of {context} tokens; the longest "
                f"prompt ({longest}) and {max_new_tokens} new tokens need {wanted}"
            )
        if self.shape.length + longest > context:
            raise ContextLengthError(
                f"draft length {self.shape.length} after a prompt of {longest} tokens exceeds the draft "
                f"model's context of {context}"
            )
        self.step_cost = weights_read(self.model.config) / weights_read(target)

    def start(
        self,
        prompts: Sequence[Sequence[int]],
        target_cache: KVCache,
        sampling: SamplingParams,
        generators: Sequence[torch.Generator],
        capacity: int,
        keep_logits: bool = False,
    ) -> None:
        self.sampling, self.generators, self.keep_logits = sampling, list(generators), keep_logits
        self._kept = [0] * len(prompts)
        self._base = [0] * len(prompts)  # draft cache lengths, roots included, when drafting began
        # [batch, N] cache offset of each drafted node, -1 for none.
        self._slots = torch.empty(0, dtype=torch.int64)
        self._is_chain = True  # entries of a chain are committed while drafting, those of a tree are not
        self._open_cache(prompts, target_cache, capacity)

    def _open_cache(self, prompts: Sequence[Sequence[int]], target_cache: KVCache, capacity: int) -> None:
        """Make a new cache, or cut that of an earlier text to what both begin with (the turns of a chat)."""
        capacity = min(capacity, self.model.config.max_position_embeddings)
        held = self._cache
        if held is None or held.batch != len(prompts) or held.capacity < capacity:
            self._cache = self.model.new_cache(len(prompts), capacity)
            self._history = [[] for _ in prompts]
        # Prefill needs at least one token per user.
        shared = [min(_common_prefix(old, new), len(new) - 1) for old, new in zip(self._history, prompts)]
        self.cache.truncate(shared)
        self._history = [list(prompt[:n]) for prompt, n in zip(prompts, shared)]
        self.model.prefill([list(prompt[n:]) for prompt, n in zip(prompts, shared)], self.cache)
        self._history = [list(prompt) for prompt in prompts]

    def draft(self, users: Sequence[int], committed: Sequence[Sequence[int]], shape: DraftShape) -> Draft:
        view = self.cache.view(users)
        began = time.perf_counter()
        logits = self._catch_up(view, users, committed)
        self.calibration_seconds = time.perf_counter() - began
        self._base = view.lengths.tolist()
        roots = torch.tensor([tokens[-1] for tokens in committed])
        # The draft's own cache may be nearer its end than the target's.
        room = min(self.cache.capacity - length for length in self._base) + 1
        shape = shape.within(shape.length, max(2, room))
        if shape.grown:
            return self._grown(view, users, roots, logits, shape)
        if shape.width == 1:
            return self._chain(view, users, roots, logits, shape)
        return self._fixed(view, users, roots, logits, shape)

    def accept(self, users: Sequence[int], verified: DraftVerification) -> None:
        for row, user in enumerate(users):
            slots = [] if self.discard else self._slots[row, verified.nodes(row)].tolist()
            while slots and slots[-1] < 0:
                slots.pop()
            single = self.cache.user(user)
            if self._is_chain:
                single.truncate(self._base[row] + len(slots))
            else:
                single.keep(0, slots)
            self._kept[user] = len(slots)

    def _catch_up(self, view: KVCache, users: Sequence[int], committed: Sequence[Sequence[int]]) -> torch.Tensor:
        """Run an exact pass over what the draft cache lacks; return logits [batch, vocab] after each user's root."""
        missing = [list(tokens[self._kept[user] :]) for user, tokens in zip(users, committed)]
        longest = max(map(len, missing))
        same = all(len(tokens) == longest for tokens in missing)
        lengths = view.lengths
        if same:
            logits = self.model.forward(torch.tensor(missing), view, policy=self.policy)[:, 0]
        elif int(lengths.max()) + longest <= view.capacity:
            padded = torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens in missing])
            every = self.model.forward(padded, view, policy=self.policy, commit=False, logits="all")
            last = torch.tensor([len(tokens) - 1 for tokens in missing])
            logits = every[torch.arange(len(users)), last]
            for row, tokens in enumerate(missing):
                view.keep(row, range(len(tokens)))
        else:  # padding would not fit after the longest text
            logits = torch.cat(
                [
                    self.model.forward(torch.tensor([given]), view.user(row), policy=self.policy)[:, 0]
                    for row, given in enumerate(missing)
                ]
            )
        for user, decided in zip(users, committed):
            self._kept[user] = 0
            self._history[user] += decided
        return logits

    def _open_draft(
        self, users: Sequence[int], roots: torch.Tensor, nodes: int, draws: int
    ) -> tuple[torch.Tensor, _Recorder, torch.Tensor | None]:
        """Return token ids [batch, nodes], all of them still the root's; what verification needs; uniforms [batch,
        draws], or None where nodes are picked and not drawn."""
        sampled = self.sampled and not self.sampling.greedy
        uniforms = draw_uniforms([self.generators[user] for user in users], draws) if sampled else None
        vocab = self.model.config.vocab_size
        recorder = _Recorder(len(users), nodes, vocab, sampled, self.keep_logits)
        return roots.repeat(nodes, 1).T.contiguous(), recorder, uniforms

    def _close_draft(
        self, tree: TokenTree, tokens: torch.Tensor, recorder: _Recorder, slots: Sequence[int], depth: int
    ) -> Draft:
        """Return a draft of one tree for all users. slots: cache offset of each node, -1 for none."""
        batch = len(tokens)
        self._slots = torch.tensor(slots).expand(batch, -1)
        trees = TokenTreeBatch.shared(tree, batch)
        return Draft(trees, tokens, recorder.probabilities, recorder.logits, depth)

    def _chain(
        self,
        view: KVCache,
        users: Sequence[int],
        roots: torch.Tensor,
        logits: torch.Tensor,
        shape: DraftShape,
    ) -> Draft:
        length = shape.length
        tokens, recorder, uniforms = self._open_draft(users, roots, length + 1, length)
        for step in range(length):
            probabilities = None if uniforms is None else warp_logits(logits, self.sampling)
            recorder.add([step], None if probabilities is None else probabilities.unsqueeze(1), logits.unsqueeze(1))
            if probabilities is None or uniforms is None:
                tokens[:, step + 1] = logits.argmax(-1)
            else:
                tokens[:, step + 1] = inverse_cdf(probabilities, uniforms[:, step])
            if step + 1 < length:
                following = tokens[:, step + 1 : step + 2]
                logits = self.model.forward(following, view, policy=self.policy, layer_groups=self.layer_groups)[:, 0]
        self._is_chain = True
        slots = [-1, *range(length - 1), -1]
        return self._close_draft(TokenTree.chain(length + 1), tokens, recorder, slots, length)

    def _fixed(
        self,
        view: KVCache,
        users: Sequence[int],
        roots: torch.Tensor,
        logits: torch.Tensor,
        shape: DraftShape,
    ) -> Draft:
        form, batch = fixed_shape(shape.length, shape.width, shape.budget), len(users)
        nodes = len(form.tree)
        tokens, recorder, uniforms = self._open_draft(users, roots, nodes, nodes * shape.width)
        parents = form.tree.parents.tolist()
        slot_of = {node: slot for slot, node in enumerate(form.inner)}
        levels = [[node for node in level if node in slot_of or node == 0] for level in form.levels]
        logits = logits.unsqueeze(1)
        for depth, level in enumerate(levels[:-1]):
            probabilities = None if uniforms is None else warp_logits(logits, self.sampling)
            recorder.add(level, probabilities, logits)
            width = min(shape.width, logits.shape[-1])
            if probabilities is None or uniforms is None:
                picked = logits.topk(width, dim=-1).indices
            else:
                own = uniforms.view(batch, nodes, -1)[:, level, :width].flatten(0, 1)
                drawn = sample_without_replacement(probabilities.flatten(0, 1), own)
                picked = drawn.view(batch, len(level), width).clamp(min=0)
            column = {node: i for i, node in enumerate(level)}
            for child in form.levels[depth + 1]:
                tokens[:, child] = picked[:, column[parents[child]], int(form.rank[child])]
            # The greedy path has full depth, so no inner level is empty.
            if depth + 1 < shape.length and form.forest is not None:
                following = levels[depth + 1]
                logits = self._tree_pass(view, tokens[:, following], form.forest, slot_of[following[-1]] + 1)
        self._is_chain = False
        slots = [slot_of.get(node, -1) for node in range(nodes)]
        return self._close_draft(form.tree, tokens, recorder, slots, shape.length)

    def _grown(
        self,
        view: KVCache,
        users: Sequence[int],
        roots: torch.Tensor,
        logits: torch.Tensor,
        shape: DraftShape,
    ) -> Draft:
        batch = len(users)
        growing = ConfidenceTree(roots, shape.length, shape.width, shape.budget)
        logits = logits.unsqueeze(1)
        passed = torch.zeros(batch, 1, dtype=torch.int64)  # nodes the model has seen, root first
        by_node: list[tuple[torch.Tensor, torch.Tensor]] = []
        for depth in range(shape.length):
            if self.keep_logits:
                by_node.append((growing.frontier, logits))
            growing.expand(torch.log_softmax(logits.float(), dim=-1))
            # The last level is a leaf level, and the draft cache may be nearer its end than the tree's depth.
            full = passed.shape[1] - 1 + growing.frontier.shape[1] + max(self._base) > self.cache.capacity
            if depth + 1 == shape.length or full:
                break
            passed = torch.cat([passed, growing.frontier], dim=1)
            # Parents as columns of `passed`, the root being -1: its entry is committed.
            above = growing.parents.gather(1, passed[:, 1:])
            columns = (above.unsqueeze(-1) == passed.unsqueeze(1)).int().argmax(-1) - 1
            forests = TokenTreeBatch.stack([TokenTree.from_parents(row) for row in columns.tolist()])
            tokens = growing.tokens.gather(1, growing.frontier)
            logits = self._tree_pass(view, tokens, forests, forests.width)
        trees, tokens, kept = growing.finish()
        hits = kept.unsqueeze(-1) == passed.unsqueeze(1)
        self._slots = torch.where(hits.any(-1), hits.int().argmax(-1) - 1, -1)
        self._is_chain = False
        raw = None
        if self.keep_logits:
            nodes, values = (torch.cat(parts, dim=1) for parts in zip(*by_node))
            # Leaves match nothing and get row 0, which no verifier reads.
            rows = (kept.unsqueeze(-1) == nodes.unsqueeze(1)).int().argmax(-1)
            raw = values[torch.arange(batch).unsqueeze(1), rows]
        return Draft(trees, tokens, None, raw, shape.length)

    def _tree_pass(
        self, view: KVCache, tokens: torch.Tensor, forest: TokenTree | TokenTreeBatch, nodes: int
    ) -> torch.Tensor:
        """Pass the next nodes of the forest through the model; return logits [batch, T, vocab]. nodes: how many there
        are so far."""
        seen = _Intervals(*(values[..., :nodes] for values in (forest.enter, forest.leave, forest.depth)))
        return self.model.forward(
            tokens,
            view,
            policy=self.policy,
            tree=seen,
            layer_groups=self.layer_groups,
            commit=False,
            logits="all",
        )


class SelfDrafter(ModelDrafter):
    """The target drafting for itself over the first and last `window` cached tokens: no second model or
    cache.

    It reads the target's cache through sink attention, which decides as well as the whole context does most of the time
    (StreamingLLM; the effect ALSpec rests on); on contexts below twice the window it is the target itself. What it
    writes after the committed tokens is overwritten by the verification pass, which thereby is its calibration. A draft
    step reads all weights: this pays only where reading the cache dominates a step.
    """

    name = "self"

    def __init__(
        self,
        model: ReferenceLlama,
        shape: DraftShape = DraftShape(),
        *,
        window: int = SELF_WINDOW,
        fuzzy: int | Sequence[Sequence[int]] | None = None,
        sampled: bool | None = None,
    ) -> None:
        super().__init__(model, shape, fuzzy=fuzzy, sampled=sampled, policy=SinkAttention(window))
        self.window = window

    def check(self, target: LlamaConfig, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
        super().check(target, prompts, max_new_tokens)
        self.step_cost = self_step_cost(target, self.window, max(map(len, prompts)))

    def _open_cache(self, prompts: Sequence[Sequence[int]], target_cache: KVCache, capacity: int) -> None:
        self._cache = target_cache

    def _catch_up(self, view: KVCache, users: Sequence[int], committed: Sequence[Sequence[int]]) -> torch.Tensor:
        roots = torch.tensor([[tokens[-1]] for tokens in committed])
        return self.model.forward(roots, view, policy=self.policy)[:, 0]

    def draft(self, users: Sequence[int], committed: Sequence[Sequence[int]], shape: DraftShape) -> Draft:
        view = self.cache.view(users)
        before = view.lengths.tolist()
        try:
            return super().draft(users, committed, shape)
        finally:  # also when interrupted: the target's cache must never keep a guess
            view.truncate(before)

    def accept(self, users: Sequence[int], verified: DraftVerification) -> None:
        """Do nothing: the verification pass has written and kept the entries."""


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
