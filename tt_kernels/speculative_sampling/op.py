# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Speculative sampling on the device: drafted chains and trees are accepted, rejected and resampled on the chip, and
the host reads accepted tokens and nothing else ("Optimized Speculative Sampling for GPU Hardware Accelerators")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tt_kernels.common.cores import check_on_device
from tt_kernels.common.tensor_facts import UnsupportedError, facts
from tt_kernels.speculative_sampling.checks import (
    check_limits,
    check_problem,
    check_rows,
    check_temperature,
    check_warpers,
)
from tt_kernels.speculative_sampling.program import OUTCOME_HEAD, build_program, greedy_program

if TYPE_CHECKING:
    import ttnn

__all__ = ["UnsupportedError", "Verified", "VerificationError", "greedy_verification", "speculative_sampling"]

_REASONS = {
    1: "the tree or its tokens: a parent does not come before its child, or a token is not below the vocabulary's size",
    2: "target logits with NaN, infinity or nothing finite at a visited node",
    3: "draft logits with NaN, infinity or nothing finite at a visited node",
}


class VerificationError(RuntimeError):
    """A user's verification ended with an error status."""


@dataclass(frozen=True)
class UserOutcome:
    """status: 0, or a reason of VerificationError. path: accepted nodes in order without the root; tokens: theirs and
    the bonus token."""

    status: int
    path: list[int]
    tokens: list[int]


@dataclass(frozen=True)
class Verified:
    """outcome: int32 [users, 4 + 2 * nodes], ROW_MAJOR on the device. A row holds the status, the number of accepted
    nodes, the bonus token, the number of new tokens; the path, padded with -1; the new tokens, padded with -1. With a
    status other than 0 nothing is accepted, and the bonus word is 0."""

    outcome: ttnn.Tensor
    nodes: int

    def read(self) -> list[UserOutcome]:
        """What each user got. Waits for the device."""
        import ttnn

        rows = ttnn.to_torch(self.outcome).tolist()
        path = slice(OUTCOME_HEAD, OUTCOME_HEAD + self.nodes)
        return [
            UserOutcome(row[0], row[path][: row[1]], row[OUTCOME_HEAD + self.nodes :][: row[3]])
            for row in rows
        ]

    def check(self) -> list[UserOutcome]:
        """As read(). Errors: VerificationError that names the users and reasons."""
        outcomes = self.read()
        failed = [
            f"user {user}: {_REASONS.get(outcome.status, f'unknown status {outcome.status}')}"
            for user, outcome in enumerate(outcomes)
            if outcome.status
        ]
        if failed:
            raise VerificationError("; ".join(failed))
        return outcomes


def speculative_sampling(
    tokens: ttnn.Tensor,
    parents: ttnn.Tensor,
    target_logits: ttnn.Tensor,
    draft_logits: ttnn.Tensor | None,
    uniforms: ttnn.Tensor,
    *,
    temperature: float = 1.0,
    draft_temperature: float | None = None,
    with_replacement: bool = False,
    top_k: int = 0,
    top_p: float = 1.0,
    grid: tuple[int, int] | None = None,
) -> Verified:
    """Exact verification: whatever the draft, the tokens have the target's distribution.

    tokens: uint32 [users, nodes], parents: int32 [users, nodes], ROW_MAJOR: a tree a user, parents before children;
        node 0 is the root, already decided, with parent -1; padding nodes have parent -1 too.
    target_logits: bfloat16 [users, nodes, vocab], ROW_MAJOR or TILE: row i the target's after node i.
    draft_logits: likewise, row i what the children of node i were drawn from at `draft_temperature` (default:
        `temperature`); None for children that were not drawn but chosen (point masses).
    uniforms: uint32 [users, nodes], ROW_MAJOR, in units of 2^-32 (reference.uniform_words): of each node, and in
        column 0 that of the bonus token.
    with_replacement: siblings were drawn independently, duplicates kept; else one by one without replacement.
    top_k, top_p: refused; logits a warper leaves out can be set to -inf.
    grid: (columns, rows) of cores, default all; each user has one of them.

    Errors: UnsupportedError before any launch. Logits with NaN or +inf at a visited node, trees and tokens out of range
    end in a status: `Verified.check()`.
    """
    import ttnn

    check_warpers(top_k, top_p)
    temperature = check_temperature("temperature", temperature)
    draft_temperature = (
        temperature
        if draft_temperature is None
        else check_temperature("draft_temperature", draft_temperature)
    )
    named = {"tokens": tokens, "parents": parents, "target_logits": target_logits, "uniforms": uniforms}
    if draft_logits is not None:
        named["draft_logits"] = draft_logits
    checked = {name: facts(name, tensor) for name, tensor in named.items()}
    problem = check_problem(
        checked["tokens"],
        checked["parents"],
        checked["target_logits"],
        checked.get("draft_logits"),
        checked["uniforms"],
    )
    device = target_logits.device()
    for name, tensor in named.items():
        _check_same_device(name, tensor, device)
    cores = _cores(device, grid)[: problem.users]
    outcome = _empty_outcome(device, problem.users, problem.nodes)
    tensors = {
        "target": target_logits,
        "draft": draft_logits,
        "parents": parents,
        "tokens": tokens,
        "uniforms": uniforms,
        "outcome": outcome,
    }
    program = build_program(
        problem,
        tensors,
        cores,
        _l1_free(device),
        (1.0 / temperature, 1.0 / draft_temperature),
        with_replacement,
    )
    ttnn.generic_op([*named.values(), outcome], program)
    return Verified(outcome, problem.nodes)


def greedy_verification(
    tokens: ttnn.Tensor, parents: ttnn.Tensor, target_argmax: ttnn.Tensor, vocab: int
) -> Verified:
    """Verification at temperature 0, from the target's choices alone: a child is accepted when its token is that of its
    parent's row, and the bonus token is the choice after the last accepted node.

    tokens: uint32, parents: int32 as of `speculative_sampling`; target_argmax: uint32 [users, nodes], ROW_MAJOR. vocab:
    all tokens and choices are below it, or a status says so. Errors: UnsupportedError.
    """
    import ttnn

    named = {"tokens": tokens, "parents": parents, "target_argmax": target_argmax}
    checked = {name: facts(name, tensor) for name, tensor in named.items()}
    shape = checked["tokens"].shape
    if len(shape) != 2:
        raise UnsupportedError(f"tokens must be [users, nodes], their shape is {shape}")
    check_limits(*shape, vocab)
    for name, dtype in (("tokens", "UINT32"), ("parents", "INT32"), ("target_argmax", "UINT32")):
        check_rows(name, checked[name], dtype, *shape)
    device = tokens.device()
    for name, tensor in named.items():
        _check_same_device(name, tensor, device)
    outcome = _empty_outcome(device, *shape)
    tensors = {"parents": parents, "tokens": tokens, "choices": target_argmax, "outcome": outcome}
    ttnn.generic_op([*named.values(), outcome], greedy_program(*shape, vocab, tensors))
    return Verified(outcome, shape[1])


def _empty_outcome(device, users: int, nodes: int):
    import ttnn

    shape = [users, OUTCOME_HEAD + 2 * nodes]
    return ttnn.empty(shape, ttnn.int32, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)


def _check_same_device(name: str, tensor, device) -> None:
    try:
        check_on_device(name, tensor, device)
    except ValueError as error:
        raise UnsupportedError(str(error)) from error


def _cores(device, grid: tuple[int, int] | None) -> list[tuple[int, int]]:
    size = device.compute_with_storage_grid_size()
    columns, rows = grid or (size.x, size.y)
    if not (1 <= columns <= size.x and 1 <= rows <= size.y):
        raise UnsupportedError(
            f"a grid of {columns}x{rows} cores is not within the device's {size.x}x{size.y}"
        )
    return [(x, y) for y in range(rows) for x in range(columns)]


def _l1_free(device) -> int:
    import ttnn

    blocks = ttnn.get_memory_view(device, ttnn.BufferType.L1).block_table
    taken = [int(block["address"]) for block in blocks if block["allocated"] == "yes"]
    return min(taken) if taken else sum(int(block["size"]) for block in blocks)
