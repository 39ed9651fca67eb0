# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What drafts, written once for all backends: n-gram look-up, a smaller model, and the target itself.

A round of a model begins with one exact pass over the tokens decided since its last (EasySpec's bonus calibration,
section 3.2). It overwrites the keys and values that drafting left there, fuzzy ones of layer-parallel steps too, so
that errors never outlive a round, and its last row yields the first drafted token.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Protocol

import torch
from loguru import logger

from ..config import LlamaConfig
from ..generation.sampling import Draws, inverse_cdf, warp_logits
from .draft_settings import DraftShape, check_vocabularies
from .loop import Drafter, Drafts, Engine
from .tree import ConfidenceTree, TokenTree, UserNumbers, UserTokens, UserTrees, fixed_shape, merge_sequences


class NGramDrafter(Drafter):
    """Draft what followed the text's last tokens where they occurred in it before (prompt look-up decoding).

    Drafts are a function of the text so far, hence point masses to a verifier. With several candidates per node the
    continuations of several occurrences are merged. smallest, largest: sizes of the n-grams looked up, longest first.
    """

    name = "ngram"

    def __init__(self, smallest: int = 2, largest: int = 4) -> None:
        self.sizes = range(largest, smallest - 1, -1)

    def check(self, shape: DraftShape, engine: Engine) -> None:
        if shape.grown:
            raise ValueError("an n-gram draft has no confidence to grow a tree by: use a chain or DEPTHxWIDTH")

    def draft(self, texts: UserTokens, starts: UserNumbers, shape: DraftShape, draws: Draws) -> Drafts:
        drafts = Drafts({}, {})
        for user, text in texts.items():
            found = continuations(text, self.sizes, shape.width, shape.length)
            drafts.trees[user], drafts.tokens[user] = merge_sequences(text[-1], found, shape.budget)
        return drafts


def continuations(text: Sequence[int], sizes: Sequence[int], count: int, length: int) -> list[list[int]]:
    """Return up to `count` different continuations of the text's end, of up to `length` tokens: longer matches before
    shorter ones, later occurrences before earlier ones."""
    packed, found = array("i", text), []
    width, data = packed.itemsize, packed.tobytes()
    for size in (size for size in sizes if size <= len(text)):
        last, end = data[-size * width :], len(data) - 1
        while (at := data.rfind(last, 0, end)) >= 0:
            end = at + len(last) - 1
            if at % width:
                continue
            following = list(text[at // width + size :][:length])
            if following not in found:
                found.append(following)
                if len(found) == count:
                    return found
    return found


class Scores(Protocol):
    """What a draft model gives after some nodes of each user."""

    @property
    def logits(self) -> torch.Tensor | None:
        """Float [users, nodes, vocab]; None where they stay on a device, which then ranks the likeliest tokens."""

    def top(self, width: int) -> dict[int, list[list[int]]]:
        """Return the `width` likeliest tokens after each node, likeliest first, by user."""


class DraftModel(Protocol):
    """A model that drafts. Callers name positions; what a call caches there replaces what an earlier one has.
    gives_logits: whether scores have logits."""

    config: LlamaConfig
    gives_logits: bool

    @property
    def capacity(self) -> int:
        """Cached positions per user."""

    def check(self, shape: DraftShape, engine: Engine) -> None:
        """Raise ValueError for a shape or a target that it cannot serve."""

    def prefill(self, texts: Sequence[Sequence[int]], known: Sequence[int], positions: int) -> None:
        """See Drafter.prefill."""

    def begin(self, engine: Engine, shape: DraftShape) -> None:
        """See Drafter.begin."""

    def exact(self, decided: UserTokens, starts: UserNumbers) -> Scores:
        """Cache decided tokens at positions from `starts`, exactly; return what follows the last of each user's."""

    def follow(self, tokens: UserNumbers, positions: UserNumbers) -> Scores:
        """Run a draft step of one token per user, layer-parallel if the model is; return what follows it."""

    def level(self, forests: UserTrees, tokens: UserTokens, positions: UserNumbers, span: slice) -> Scores:
        """Pass a level of trees whose roots' children are a forest's roots; return what follows its nodes.

        Args:
            forests: the trees' inner nodes without the root, those of later levels perhaps with them.
            tokens: of the forests' nodes; those after the level mean nothing yet.
            positions: where each forest's first node goes.
            span: the level's nodes; those before them have been passed at the same positions.
        """

    def end(self) -> None:
        """See Drafter.end."""


class ModelDrafter(Drafter):
    """Draft with a model: chains, trees of the `width` likeliest tokens after each node, or trees that grow where the
    model is most confident. Chains are drawn if texts are and the model's logits are at hand; otherwise, and in trees,
    tokens are picked, and drafts are point masses to an exact verifier."""

    name = "model"

    def __init__(self, model: DraftModel) -> None:
        self.model = model

    def check(self, shape: DraftShape, engine: Engine) -> None:
        check_vocabularies(engine.config, self.model.config)
        if shape.width > engine.config.vocab_size:
            raise ValueError(f"draft width {shape.width} exceeds the vocabulary of {engine.config.vocab_size} ids")
        self.model.check(shape, engine)
        self.context = self.model.config.max_position_embeddings

    def check_texts(self, texts: Sequence[Sequence[int]], max_new_tokens: int, engine: Engine) -> None:
        """Log where drafting ends before the texts may."""
        longest, context = max(map(len, texts)), self.model.config.max_position_embeddings
        wanted = min(longest + max_new_tokens, engine.config.max_position_embeddings)
        if wanted > context:
            logger.info(
                "the draft model {} has a context of {} tokens: without drafts while a text is longer",
                *(self.model.config.name, context),
            )

    def has_logits(self, shape: DraftShape) -> bool:
        return self.model.gives_logits

    def prefill(self, texts: Sequence[Sequence[int]], known: Sequence[int], positions: int) -> None:
        self.model.prefill(texts, known, positions)

    def begin(self, engine: Engine, shape: DraftShape) -> None:
        self.model.begin(engine, shape)

    def end(self) -> None:
        self.model.end()

    def draft(self, texts: UserTokens, starts: UserNumbers, shape: DraftShape, draws: Draws) -> Drafts:
        began = time.perf_counter()
        scores = self._calibrate(texts, starts)
        self.calibration_seconds = time.perf_counter() - began
        ends = {user: len(text) for user, text in texts.items()}
        # The draft's own cache may be nearer its end than the target's.
        shape = shape.within(shape.length, max(2, self.model.capacity - max(ends.values()) + 1))
        roots = {user: text[-1] for user, text in texts.items()}
        draft = self._grown if shape.grown else self._chain if shape.width == 1 else self._fixed
        return draft(roots, ends, scores, shape, draws)

    def _calibrate(self, texts: UserTokens, starts: UserNumbers) -> Scores:
        return self.model.exact({user: texts[user][start:] for user, start in starts.items()}, starts)

    def _chain(self, roots: UserNumbers, ends: UserNumbers, scores: Scores, shape: DraftShape, draws: Draws) -> Drafts:
        tokens, logits = {user: [root] for user, root in roots.items()}, []
        drawn = scores.logits is not None and not draws.sampling.greedy
        uniforms = draws.uniforms(list(roots), shape.length) if drawn else None
        for step in range(shape.length):
            if step:
                last = {user: chain[-1] for user, chain in tokens.items()}
                scores = self.model.follow(last, {user: end + step - 1 for user, end in ends.items()})
            if uniforms is None or scores.logits is None:
                picked = [ranked[0][0] for ranked in scores.top(1).values()]
            else:
                logits.append(scores.logits)
                picked = inverse_cdf(warp_logits(scores.logits[:, 0], draws.sampling), uniforms[:, step]).tolist()
            for chain, token in zip(tokens.values(), picked, strict=True):
                chain.append(token)
        trees = dict.fromkeys(roots, TokenTree.chain(shape.length + 1))
        if not drawn:
            return Drafts(trees, tokens)
        return Drafts(trees, tokens, torch.cat([*logits, logits[-1]], 1), drawn=True)  # a leaf's logits mean nothing

    def _fixed(self, roots: UserNumbers, ends: UserNumbers, scores: Scores, shape: DraftShape, draws: Draws) -> Drafts:
        """Draft level by level: what a pass over a level's inner nodes ranks is the next level."""
        form = fixed_shape(shape.length, shape.width, shape.budget)
        parents, rank = form.tree.parents.tolist(), form.rank.tolist()
        slots = {node: slot for slot, node in enumerate(form.inner)}
        tokens = {user: [root] + [0] * (len(parents) - 1) for user, root in roots.items()}
        logits, nodes = None, [0]
        if scores.logits is not None and not draws.sampling.greedy:
            logits = torch.zeros(len(roots), len(parents), scores.logits.shape[-1])
        for level in form.levels[1:]:
            if logits is not None and scores.logits is not None:
                logits[:, nodes] = scores.logits
            ranked = scores.top(shape.width)
            for user, given in tokens.items():
                for node in level:
                    given[node] = ranked[user][nodes.index(parents[node])][rank[node]]
            nodes = [node for node in level if node in slots]
            if nodes and form.forest is not None:
                inner = {user: [given[node] for node in form.inner] for user, given in tokens.items()}
                span = slice(slots[nodes[0]], slots[nodes[-1]] + 1)
                scores = self.model.level(dict.fromkeys(roots, form.forest), inner, ends, span)
        return Drafts(dict.fromkeys(roots, form.tree), tokens, logits)

    def _grown(self, roots: UserNumbers, ends: UserNumbers, scores: Scores, shape: DraftShape, draws: Draws) -> Drafts:
        users, batch = list(roots), len(roots)
        growing = ConfidenceTree(torch.tensor(list(roots.values())), shape.width, shape.budget)
        passed = torch.zeros(batch, 1, dtype=torch.int64)  # nodes the model has seen, root first
        by_node: list[tuple[torch.Tensor, torch.Tensor]] = []
        for depth in range(shape.length):
            logits = scores.logits
            if logits is None:
                raise ValueError("a model without logits has no confidence to grow a tree by")
            by_node.append((growing.frontier, logits))
            growing.expand(torch.log_softmax(logits.float(), dim=-1))
            seen = passed.shape[1] - 1
            # The last level is a leaf level, and the draft's cache may be nearer its end than the tree's depth.
            full = seen + growing.frontier.shape[1] + max(ends.values()) > self.model.capacity
            if depth + 1 == shape.length or full:
                break
            passed = torch.cat([passed, growing.frontier], dim=1)
            # Parents as columns of `passed`, the root being -1: its entry is committed.
            above = growing.parents.gather(1, passed[:, 1:])
            columns = (above.unsqueeze(-1) == passed.unsqueeze(1)).int().argmax(-1) - 1
            forests = {user: TokenTree.from_parents(row) for user, row in zip(users, columns.tolist())}
            tokens = dict(zip(users, growing.tokens.gather(1, passed[:, 1:]).tolist()))
            scores = self.model.level(forests, tokens, ends, slice(seen, passed.shape[1] - 1))
        trees, ids, kept = growing.finish()
        drafts = Drafts(dict(zip(users, trees)), dict(zip(users, ids.tolist())))
        if not draws.sampling.greedy:
            nodes, values = (torch.cat(parts, dim=1) for parts in zip(*by_node))
            # Leaves match nothing and get row 0, which no verifier reads.
            rows = (kept.unsqueeze(-1) == nodes.unsqueeze(1)).int().argmax(-1)
            drafts.logits = values[torch.arange(batch).unsqueeze(1), rows]
        return drafts


class SelfDrafter(ModelDrafter):
    """The target drafts for itself over the first and last `window` cached tokens: no second model or cache.

    It decides as well as with the whole context most of the time (StreamingLLM; the effect ALSpec rests on); on
    contexts below twice the window it is the target itself. What it writes after the decided tokens is overwritten by
    the verification, which thereby is its calibration. A draft step reads all weights: this pays only where reading the
    cache dominates a step. model: the target with that attention, over the target's cache.
    """

    name = "self"

    def prefill(self, texts: Sequence[Sequence[int]], known: Sequence[int], positions: int) -> None:
        """Do nothing: the target's cache holds the texts."""

    def _calibrate(self, texts: UserTokens, starts: UserNumbers) -> Scores:
        roots = {user: texts[user][-1] for user in starts}
        return self.model.exact({user: [root] for user, root in roots.items()}, {u: len(texts[u]) - 1 for u in starts})
