# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the op in torch and Python integers: the reference of its kernels, and a model fast enough for
distribution tests.

Weights of tokens are whole numbers, in units of 2^-31 of the largest possible weight. So every sum over the vocabulary
is exact, whatever its order or split, and accepting and drawing are comparisons of whole numbers. What is rounded: the
float32 exponential of each logit (relative error below EXP_ERROR), and the weight to the grid (half a unit).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

UNIT = 2.0**-31
UNIFORM_BITS = 32
EXP_ERROR = 2.0**-21
# Tokens whose logit, over the temperature, is further than this below the largest have no weight.
DEEPEST = -86.0
# Scaled for the sigmoid, no logit counts as further from 0 than this.
FURTHEST = 40.0
COARSE, FINE = 2.0**15, 2.0**16

FINE_STATUS, BAD_TREE, BAD_TARGET, BAD_DRAFT, GROUP_BROKEN = range(5)


@dataclass(frozen=True)
class VerificationResult:
    """path: the accepted nodes in order, without the root; bonus: the token after the last of them. With a status other
    than FINE_STATUS the path is empty and the bonus is 0."""

    status: int
    path: tuple[int, ...] = ()
    bonus: int = 0


def on_grid(weights: torch.Tensor) -> torch.Tensor:
    """Convert float32 weights up to 1 to int64 multiples of UNIT, in two steps as the vector unit rounds."""
    scaled = weights.float() * COARSE
    high = scaled.round()
    low = ((scaled - high) * FINE).round()
    return (high.to(torch.int64) << 16) + low.to(torch.int64)


def exponentials(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return float32 exp((logit - largest) / temperature) of logits [vocab], 0 below exp(DEEPEST)."""
    sharpness = torch.tensor(1.0 / temperature, dtype=torch.float32)
    exponent = (logits.float() - logits.float().max()) * sharpness
    return torch.where(exponent < DEEPEST, 0.0, exponent.double().exp().float())


def bad(logits: torch.Tensor) -> bool:
    """Return whether a row of logits holds a NaN or +infinity, or no finite number."""
    return bool(logits.isnan().any() or (logits == math.inf).any() or not logits.isfinite().any())


def bad_tree(parents: Sequence[int], tokens: Sequence[int], vocab: int) -> bool:
    """Return whether a parent does not come before its child, or a token that has a parent is not in the vocabulary."""
    ordered = parents[0] == -1 and all(-1 <= parent < i for i, parent in enumerate(parents))
    return not ordered or any(
        not 0 <= token < vocab for token, parent in zip(tokens, parents, strict=True) if parent >= 0
    )


@dataclass(frozen=True, eq=False)
class Weights:
    """of: the weight of each token; sums: the cumulative sums, inclusive."""

    of: list[int]
    sums: list[int]

    @classmethod
    def on_grid(cls, weights: torch.Tensor) -> Weights:
        grid = on_grid(weights)
        return cls(grid.tolist(), grid.cumsum(0).tolist())

    def draw(self, uniform: int) -> int:
        """Return the first token at which the sum exceeds uniform / 2^32 of the whole. Never one of weight 0."""
        return bisect_right(self.sums, uniform * self.sums[-1] >> UNIFORM_BITS)


@dataclass(frozen=True, eq=False)
class Drafted:
    """What a node's children were drawn from. exponentials: [vocab] float32; impossible[token]: whether it cannot have
    been drawn."""

    exponentials: torch.Tensor
    weights: Weights
    impossible: list[bool]


@dataclass(eq=False)
class Node:
    """What the walk needs to know about one visited node. target: [vocab] float32 exponentials; residuals: by the
    scales of each rejection so far that left one, and the tokens without weight."""

    target: torch.Tensor
    draft: Drafted | None
    residuals: dict[tuple[tuple[Any, ...], tuple[int, ...]], Weights] = field(default_factory=dict)


class UserModel:
    """The op for one user. parents: [nodes]; target, draft: logits [nodes, vocab], draft None for point masses.

    Rows of logits are treated once, so that many verifications of the same rows are cheap. Errors of the op are results
    here too.
    """

    def __init__(
        self,
        parents: Sequence[int],
        target: torch.Tensor,
        draft: torch.Tensor | None,
        temperature: float = 1.0,
        draft_temperature: float | None = None,
        with_replacement: bool = False,
    ):
        self.parents = [int(parent) for parent in parents]
        self.target, self.draft = target, draft
        self.temperature = temperature
        self.draft_temperature = temperature if draft_temperature is None else draft_temperature
        self.with_replacement = with_replacement
        self.children = [
            [child for child, parent in enumerate(self.parents) if parent == node] for node in range(len(self.parents))
        ]
        self._nodes: dict[int, Node | int] = {}

    def verify(self, tokens: Sequence[int], uniforms: Sequence[int]) -> VerificationResult:
        """Verify tokens [nodes]. uniforms: [nodes] words (uniforms.uniform_words); that of the root draws the bonus
        token."""
        if bad_tree(self.parents, tokens, self.target.shape[-1]):
            return VerificationResult(BAD_TREE)
        path: list[int] = []
        current = 0
        while True:
            node = self._node(current)
            if isinstance(node, int):
                return VerificationResult(node)
            accepted, weights = self._try_children(node, current, tokens, uniforms)
            if accepted is None:
                return VerificationResult(FINE_STATUS, tuple(path), weights.draw(uniforms[0]))
            path.append(accepted)
            current = accepted

    def accepts(self, uniform: int, q: int, q_sum: int, p: int, p_sum: int) -> bool:
        """Return whether u q / q_sum < p / p_sum, exactly."""
        return uniform * q * p_sum < p * q_sum << UNIFORM_BITS

    def residual(self, node: Node, scales: tuple[Any, ...], tried: tuple[int, ...]) -> Weights:
        """Return the weights max(0, p - q) after each rejection in turn. scales: (of p, of q) for each; tried: tokens
        without weight."""
        key = (scales, tried)
        if key not in node.residuals:
            weights = node.target.clone()
            weights[list(tried)] = 0.0
            if node.draft is not None:
                for p_scale, q_scale in scales:
                    kept = (weights * p_scale).double() - node.draft.exponentials.double() * float(q_scale)
                    weights = kept.float().clamp(min=0.0)
            node.residuals[key] = Weights.on_grid(weights)
        return node.residuals[key]

    def _node(self, index: int) -> Node | int:
        if index not in self._nodes:
            self._nodes[index] = self._load(index)
        return self._nodes[index]

    def _load(self, index: int) -> Node | int:
        if bad(self.target[index]):
            return BAD_TARGET
        target = exponentials(self.target[index], self.temperature)
        if self.draft is None or not self.children[index]:
            return Node(target, None)
        if bad(self.draft[index]):
            return BAD_DRAFT
        draft = exponentials(self.draft[index], self.draft_temperature)
        impossible = (self.draft[index] == -math.inf).tolist()
        return Node(target, Drafted(draft, Weights.on_grid(draft), impossible))

    def _try_children(self, node: Node, current: int, tokens: Sequence[int], uniforms: Sequence[int]) -> Any:
        """Return the accepted child, or None and the weights [vocab] to draw from."""
        scales: tuple[Any, ...] = ()
        tried: tuple[int, ...] = ()
        seen: set[int] = set()
        p_sum = self.residual(node, scales, tried).sums[-1]
        q_sum = 0 if node.draft is None else node.draft.weights.sums[-1]
        for child in self.children[current]:
            token = int(tokens[child])
            p = self.residual(node, scales, tried).of[token]
            if node.draft is None:
                if self.accepts(uniforms[child], 1, 1, p, p_sum):
                    return child, None
                if p and p_sum - p:
                    p_sum, tried = p_sum - p, (*tried, token)
                continue
            dropped = token in seen and not self.with_replacement
            if node.draft.impossible[token] or dropped or q_sum == 0:
                continue
            q = node.draft.weights.of[token]
            if self.accepts(uniforms[child], q, q_sum, p, p_sum):
                return child, None
            seen.add(token)
            after = (*scales, (scale_of(p_sum), scale_of(q_sum)))
            left = self.residual(node, after, (*tried, token)).sums[-1]
            if left:
                scales, tried, p_sum = after, (*tried, token), left
            if not self.with_replacement:
                q_sum -= q
        return None, self.residual(node, scales, tried)


class SigmoidModel:
    """The lossy op for one user (see op.lossy_sigmoid_sampling), as UserModel is the exact one. Equation 5 of the
    paper, in float32 where the kernel's rounding may show."""

    def __init__(
        self,
        parents: Sequence[int],
        target: torch.Tensor,
        draft: torch.Tensor,
        temperature: float = 1.0,
        alpha: float = -1e3,
        beta: float = 1e3,
    ):
        self.parents = [int(parent) for parent in parents]
        self.target, self.draft, self.temperature = target, draft, temperature
        single = partial(torch.tensor, dtype=torch.float32)
        self.slope, self.center = single(1 / temperature / (beta - alpha)), single(-alpha / (beta - alpha))
        self._drawn: dict[tuple[int, bool], Weights | int] = {}

    def verify(self, tokens: Sequence[int], uniforms: Sequence[int]) -> VerificationResult:
        """Verify as UserModel.verify does."""
        if bad_tree(self.parents, tokens, self.target.shape[-1]):
            return VerificationResult(BAD_TREE)
        path: list[int] = []
        current = 0
        while True:
            children = [child for child, parent in enumerate(self.parents) if parent == current]
            drafted = [int(tokens[child]) for child in children]
            for rows, status in ((self.target, BAD_TARGET), (self.draft, BAD_DRAFT)):
                logits = rows[current, drafted]
                if bool((logits.isnan() | (logits == math.inf)).any()):
                    return VerificationResult(status)
            p, q = (on_grid(self.sigmoids(rows[current, drafted])) for rows in (self.target, self.draft))
            accepted = [
                child
                for child, p_child, q_child in zip(children, p.tolist(), q.tolist(), strict=True)
                if uniforms[child] * q_child <= p_child << UNIFORM_BITS
            ]
            if not accepted:
                weights = self._weights(current, not children)
                if isinstance(weights, int):
                    return VerificationResult(weights)
                return VerificationResult(FINE_STATUS, tuple(path), weights.draw(uniforms[0]))
            current = accepted[0]
            path.append(current)

    def scaled(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the sigmoid's argument without the center."""
        return (logits.float() * self.slope).clamp(-FURTHEST, FURTHEST)

    def sigmoids(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the float32 sigmoids of equation 5."""
        return torch.sigmoid((self.scaled(logits) + self.center).double()).float()

    def above(self, node: int) -> torch.Tensor:
        """Return max(0, p^ - q^), [vocab] float32, without cancellation."""
        a, b = self.scaled(self.target[node]).double(), self.scaled(self.draft[node]).double()
        center = self.center.double()
        gap = -torch.expm1(b - a)
        return (gap * torch.sigmoid(a + center) * torch.sigmoid(-b - center)).clamp(min=0.0).float()

    def _weights(self, node: int, leaf: bool) -> Weights | int:
        """Return what a token after the node is drawn from, or a status."""
        if (node, leaf) not in self._drawn:
            self._drawn[node, leaf] = self._find_weights(node, leaf)
        return self._drawn[node, leaf]

    def _find_weights(self, node: int, leaf: bool) -> Weights | int:
        if bad(self.target[node]):
            return BAD_TARGET
        if not leaf:
            if bad(self.draft[node]):
                return BAD_DRAFT
            weights = Weights.on_grid(self.above(node))
            if weights.sums[-1]:
                return weights
        return Weights.on_grid(exponentials(self.target[node], self.temperature))


def scale_of(total: int) -> float:
    """Return what makes weights of that sum probabilities: the largest float32 not above 1 / (total * UNIT)."""
    length = total.bit_length()
    return math.ldexp((1 << length + 23) // total, 8 - length)


def speculative_sampling_reference(
    tokens: torch.Tensor,
    parents: torch.Tensor,
    target: torch.Tensor,
    draft: torch.Tensor | None,
    uniforms: torch.Tensor,
    **options: Any,
) -> list[VerificationResult]:
    """Return the results of all users. tokens, parents: [users, nodes]; target, draft: [users, nodes, vocab]; uniforms:
    [users, nodes] words."""
    return [
        UserModel(parents[user].tolist(), target[user], None if draft is None else draft[user], **options).verify(
            tokens[user].tolist(), uniforms[user].tolist()
        )
        for user in range(tokens.shape[0])
    ]


def sigmoid_reference(
    tokens: torch.Tensor,
    parents: torch.Tensor,
    target: torch.Tensor,
    draft: torch.Tensor,
    uniforms: torch.Tensor,
    **options: Any,
) -> list[VerificationResult]:
    """Return the results of the lossy approximation; see speculative_sampling_reference."""
    return [
        SigmoidModel(parents[user].tolist(), target[user], draft[user], **options).verify(
            tokens[user].tolist(), uniforms[user].tolist()
        )
        for user in range(tokens.shape[0])
    ]


def greedy_reference(tokens: torch.Tensor, parents: torch.Tensor, argmax: torch.Tensor) -> list[VerificationResult]:
    """Return the results of all users if a token is accepted when it is the target's choice. All [users, nodes]."""
    results = []
    for user_tokens, user_parents, choices in zip(tokens.tolist(), parents.tolist(), argmax.tolist(), strict=True):
        path, current, child = [], 0, 1
        while child < len(user_tokens):
            if user_parents[child] == current and user_tokens[child] == choices[current]:
                path.append(child)
                current = child
            child += 1
        results.append(VerificationResult(FINE_STATUS, tuple(path), choices[current]))
    return results
