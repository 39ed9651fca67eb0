# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""One step over token trees on the chips: decode, verify, commit (FlashSpecInfer, section 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import ttnn

from tt_kernels.speculative_sampling.checks import nearest_temperature
from tt_kernels.speculative_sampling.op import (
    Verified,
    greedy_verification,
    lossy_sigmoid_sampling,
    speculative_sampling,
    uniform_words,
)
from tt_kernels.speculative_sampling.program import RESULT_HEAD

from ...generation.sampling import Draws, SamplingParams, SigmoidApproximation
from ...spec_decode.tree import ROOT, TokenTree, TokenTreeBatch
from ..model import StepInputs, TtLlama, overwrite
from ..sampling.top_k import greedy

# Some users' trees and their tokens, by user.
Forest = Mapping[int, tuple[TokenTree, Sequence[int]]]


def forest_inputs(
    model: TtLlama,
    nodes: int,
    forest: Forest,
    cached: Mapping[int, int] | Sequence[int],
    on_device: bool = True,
) -> tuple[StepInputs, TokenTreeBatch, torch.Tensor]:
    """Make the inputs of a step over trees of up to `nodes` nodes, which skips all other users. cached: tokens before
    each tree, by user. Returns the trees and tokens, int64 [users, nodes], besides. Raises ValueError, see tree_inputs.
    """
    users = range(model.users)
    batch = TokenTreeBatch.stack([forest[user][0] if user in forest else ROOT for user in users], nodes)
    tokens = torch.zeros(len(users), nodes, dtype=torch.int64)
    for user, (tree, given) in forest.items():
        tokens[user, : len(tree)] = torch.tensor(list(given))
    prefixes = [cached[user] if user in forest else -1 for user in users]
    return model.tree_inputs(tokens, prefixes, batch.enter, batch.leave, on_device), batch, tokens


class TreeStep:
    """A step over trees of `nodes` nodes per user, with its inputs on the device; returns each user's accepted path and
    the token after it.

    sampling: greedy verification compares arg-maxima; at a temperature, or the nearest that the op takes, drafts are
    verified exactly, or by `lossy`.
    inputs, tokens: what the model and verification read. draft_logits: the logits that each node's children were drawn
    from, bfloat16 [users, 1, vocab], ROW_MAJOR; None for drafts that are point masses. logits: all nodes' in the last
    step, bfloat16 [1, 1, users * nodes, vocab] on every chip. after: runs at the end of a step, on its verification.
    """

    def __init__(
        self, model: TtLlama, nodes: int, sampling: SamplingParams, lossy: SigmoidApproximation | None = None
    ) -> None:
        self.model, self.nodes, self.sampling, self.lossy = model, nodes, sampling, lossy
        self.draft_logits: Sequence[ttnn.Tensor] | None = None
        self.after: Callable[[Verified], None] | None = None
        self.inputs, nobody, blank = forest_inputs(model, nodes, {}, {})
        self._parents = model.put_integers(nobody.parents, "int32")
        self.tokens = model.put_integers(blank, "uint32")
        self.logits: ttnn.Tensor | None = None
        self._words = None if sampling.greedy else self._put_words(blank, on_device=True)

    def load(self, drafts: Forest, lengths: Mapping[int, int] | Sequence[int]) -> None:
        """Write some users' trees and tokens to the device; the others are skipped. lengths: their cached tokens.
        Raises ValueError (tree_inputs) if a tree does not fit."""
        inputs, batch, tokens = forest_inputs(self.model, self.nodes, drafts, lengths, on_device=False)
        overwrite(self.inputs, inputs)
        rows = (batch.parents, "int32"), (tokens, "uint32")
        overwrite((self._parents, self.tokens), (self.model.put_integers(*row, on_device=False) for row in rows))

    def load_parents(self, trees: Mapping[int, TokenTree]) -> None:
        """Cut the loaded trees short: change which nodes verification knows, but neither the nodes' places in the cache
        nor what they see."""
        cut = [trees.get(user, ROOT) for user in range(self.model.users)]
        parents = TokenTreeBatch.stack(cut, self.nodes).parents
        overwrite([self._parents], [self.model.put_integers(parents, "int32", on_device=False)])

    def draw(self, nodes: Mapping[int, int], draws: Draws) -> None:
        """Write the random numbers that decide so many nodes of some users, each from its own generator; none if
        sampling is greedy."""
        if self._words is None:
            return
        uniforms = torch.zeros(self.model.users, self.nodes, dtype=torch.float64)
        for user, count in nodes.items():
            uniforms[user, :count] = draws.uniforms([user], count)[0]
        overwrite([self._words], [self._put_words(uniform_words(uniforms), on_device=False)])

    def __call__(self) -> Verified:
        """Run the step. Nothing is read by the host and no address changes, so it can be captured."""
        model, nodes = self.model, self.nodes
        self.logits = logits = model.decode(self.inputs)
        shape = (model.users, nodes)
        if self.sampling.greedy:
            choices = ttnn.reshape(greedy(logits), shape)
            verified = greedy_verification(self.tokens, self._parents, choices, model.config.vocab_size)
        else:
            by_row = ttnn.to_layout(logits, ttnn.ROW_MAJOR_LAYOUT)
            drafted: tuple[Any, ...] = (
                self.tokens,
                self._parents,
                ttnn.reshape(by_row, (*shape, by_row.shape[3])),
                None if self.draft_logits is None else ttnn.concat(list(self.draft_logits), dim=1),
                self._words,
            )
            temperature = nearest_temperature(self.sampling.temperature)
            if self.lossy is None:
                verified = speculative_sampling(*drafted, temperature=temperature)
            else:
                alpha, beta = self.lossy.alpha, self.lossy.beta
                verified = lossy_sigmoid_sampling(*drafted, alpha=alpha, beta=beta, temperature=temperature)
        model.cache.commit(self.inputs.positions, verified.result, nodes, first_column=RESULT_HEAD)
        model.guard_result(verified.result)
        if self.after is not None:
            self.after(verified)
        return verified

    def _put_words(self, words: torch.Tensor, on_device: bool) -> ttnn.Tensor:
        model, words = self.model, (words & 0xFFFFFFFF).to(torch.uint32)
        return model.mesh_shape.put(model.mesh, words, "uint32", "ROW_MAJOR_LAYOUT", on_device=on_device)
