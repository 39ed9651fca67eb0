# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Speculative sampling on the device: drafted chains and trees are accepted, rejected and resampled on the chip, and
the host reads only the accepted tokens ("Optimized Speculative Sampling for GPU Hardware Accelerators")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tt_kernels.common.cores import check_on_device, grid_cores, l1_free, noc_core_of
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import UnsupportedError, check_words, facts
from tt_kernels.speculative_sampling.checks import check_limits, check_problem, check_sigmoid, check_temperature
from tt_kernels.speculative_sampling.program import RESULT_HEAD, Rule, build_program, choose_work_split, greedy_program

__all__ = [
    "UnsupportedError",
    "VerificationError",
    "Verified",
    "greedy_verification",
    "lossy_sigmoid_sampling",
    "speculative_sampling",
]

_REASONS = {
    1: "the tree or its tokens: a parent does not come before its child, or a token is not below the vocabulary's size",
    2: "target logits with NaN, infinity or nothing finite at a visited node",
    3: "draft logits with NaN, infinity or nothing finite at a visited node",
    -1: "a chip gave up on another in the step",  # token_guard's FAILED
}


class VerificationError(RuntimeError):
    """A user's verification ended with an error status."""


@dataclass(frozen=True)
class VerificationResult:
    """status: 0, or a reason of VerificationError. path: the accepted nodes in order, without the root; tokens: theirs
    and the bonus token."""

    status: int
    path: list[int]
    tokens: list[int]


@dataclass(frozen=True)
class Verified:
    """result: int32 [users, 4 + 2 * nodes], ROW_MAJOR on the device. Each user's row holds the status, the number of
    accepted nodes, the bonus token and the number of new tokens; then the path, padded with -1, and the new tokens,
    padded with -1. With a status other than 0 nothing is accepted and the bonus word is 0."""

    result: ttnn.Tensor
    nodes: int

    def read(self, chip: int = 0) -> list[VerificationResult]:
        """Return each user's result from `chip` of a mesh, counted in row-major order. Waits for the device."""
        rows = ttnn.to_torch(ttnn.get_device_tensors(self.result)[chip]).tolist()
        path = slice(RESULT_HEAD, RESULT_HEAD + self.nodes)
        return [
            VerificationResult(row[0], row[path][: row[1]], row[RESULT_HEAD + self.nodes :][: row[3]]) for row in rows
        ]

    def check(self) -> list[VerificationResult]:
        """Return `read()`. Errors: VerificationError that names the users and reasons."""
        results = self.read()
        failed = [
            f"user {user}: {_REASONS.get(result.status, f'unknown status {result.status}')}"
            for user, result in enumerate(results)
            if result.status
        ]
        if failed:
            raise VerificationError("; ".join(failed))
        return results


def speculative_sampling(
    tokens: ttnn.Tensor,
    parents: ttnn.Tensor,
    target_logits: ttnn.Tensor,
    draft_logits: ttnn.Tensor | None,
    uniforms: ttnn.Tensor,
    *,
    temperature: float = 1.0,
    cores_per_user: int | None = None,
) -> Verified:
    """Verify drafted tokens exactly: whatever the draft, the tokens have the target's distribution.

    tokens: uint32 [users, nodes], parents: int32 [users, nodes], ROW_MAJOR: one tree per user, parents before children;
        node 0 is the root, already decided, with parent -1; padding nodes have parent -1 too.
    target_logits: bfloat16 [users, nodes, vocab], ROW_MAJOR or TILE: row i is the target's after node i.
    draft_logits: likewise, row i is what the children of node i were drawn from at `temperature`, one by one without
        replacement; None for children that were chosen, not drawn (point masses). A logit of -inf is no chance.
    uniforms: uint32 [users, nodes], ROW_MAJOR, in units of 2^-32 (uniforms.uniform_words): one per node, in column 0
        that of the bonus token.
    cores_per_user: how many cores a user's vocabulary is split over; by default as many as there are, each with at
        least four tiles of 1024 ids.

    Errors: UnsupportedError before any launch. Logits with NaN or +inf at a visited node, and trees and tokens out of
    range, end in a status: `Verified.check()`.
    """
    rule = Rule(1.0 / check_temperature(temperature))
    drafted = {"tokens": tokens, "parents": parents, "target_logits": target_logits, "uniforms": uniforms}
    drafted |= {} if draft_logits is None else {"draft_logits": draft_logits}
    return _verify(drafted, rule, cores_per_user)


def lossy_sigmoid_sampling(
    tokens: ttnn.Tensor,
    parents: ttnn.Tensor,
    target_logits: ttnn.Tensor,
    draft_logits: ttnn.Tensor,
    uniforms: ttnn.Tensor,
    *,
    alpha: float = -1e3,
    beta: float = 1e3,
    temperature: float = 1.0,
    cores_per_user: int | None = None,
) -> Verified:
    """Verify LOSSILY: the tokens do not have the target's distribution (section 3.2.2 of the paper, equation 5).

    A token is accepted if uniform * q^ <= p^, with p^ and q^ the sigmoids of (logit / temperature - alpha) / (beta -
    alpha): no reduction over the vocabulary, and only the logits of drafted tokens are read. The replacement of a
    rejected token is drawn from max(0, p^ - q^), or from the target's softmax if that is nothing; so is the token after
    a leaf.

    alpha < 0 < beta, within 1e5 of 0: the paper's are -1e3 and 1e3, and -1e4 and 1e4. draft_logits: required, since a
    chosen token has none. temperature: of target and draft. The other arguments and the errors are those of
    `speculative_sampling`.
    """
    sharpness = 1.0 / check_temperature(temperature)
    scaling = check_sigmoid(alpha, beta)
    if draft_logits is None:
        raise UnsupportedError("draft_logits are None: the sigmoid approximation compares logits with the draft's")
    drafted = {"tokens": tokens, "parents": parents, "target_logits": target_logits, "uniforms": uniforms}
    return _verify(drafted | {"draft_logits": draft_logits}, Rule(sharpness, scaling), cores_per_user)


def _verify(named: dict[str, Any], rule: Rule, cores_per_user: int | None) -> Verified:
    """Run a verification. named: the tensors of `speculative_sampling`."""
    checked: dict[str, Any] = {name: facts(name, tensor) for name, tensor in named.items()}
    problem = check_problem(**{"draft_logits": None} | checked)
    device = named["target_logits"].device()
    for name, tensor in named.items():
        check_on_device(name, tensor, device)
    split = choose_work_split(grid_cores(device), problem.users, problem.vocab, cores_per_user)
    result = _empty_result(device, problem.users, problem.nodes)
    tensors = {
        "target": named["target_logits"],
        "draft": named.get("draft_logits"),
        **{name: named[name] for name in ("parents", "tokens", "uniforms")},
        "result": result,
    }

    program = build_program(problem, tensors, split, l1_free(device), rule, noc_core_of(device))
    ttnn.generic_op([*named.values(), result], program)
    return Verified(result, problem.nodes)


def greedy_verification(tokens: ttnn.Tensor, parents: ttnn.Tensor, target_argmax: ttnn.Tensor, vocab: int) -> Verified:
    """Verify at temperature 0, from the target's choices alone: a child is accepted if its token is the choice of its
    parent's row, and the bonus token is the choice after the last accepted node.

    tokens: uint32, parents: int32, as for `speculative_sampling`; target_argmax: uint32 [users, nodes], ROW_MAJOR.
        vocab: all tokens and choices must be below it, or a status says so. Errors: UnsupportedError.
    """
    named = {"tokens": tokens, "parents": parents, "target_argmax": target_argmax}
    checked = {name: facts(name, tensor) for name, tensor in named.items()}
    shape = checked["tokens"].shape
    if len(shape) != 2:
        raise UnsupportedError(f"tokens must be [users, nodes], their shape is {shape}")
    check_limits(*shape, vocab)
    for name, dtype in (("tokens", "UINT32"), ("parents", "INT32"), ("target_argmax", "UINT32")):
        check_words(name, checked[name], dtype, shape)
    device = tokens.device()
    for name, tensor in named.items():
        check_on_device(name, tensor, device)
    result = _empty_result(device, *shape)
    tensors = {"parents": parents, "tokens": tokens, "choices": target_argmax, "result": result}
    ttnn.generic_op([*named.values(), result], greedy_program(*shape, vocab, tensors))
    return Verified(result, shape[1])


def _empty_result(device: ttnn.MeshDevice, users: int, nodes: int) -> Any:
    shape = [users, RESULT_HEAD + 2 * nodes]
    return ttnn.empty(shape, ttnn.int32, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


UNIFORM_BITS = 32


def uniform_words(uniforms: torch.Tensor) -> torch.Tensor:
    """Convert uniforms, float64 in [0, 1), to int64 words in [0, 2^32), rounded down."""
    return (uniforms.double() * 2.0**UNIFORM_BITS).floor().to(torch.int64)
