# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Speculative sampling on the device: drafted chains and trees are accepted, rejected and resampled on the chip, and
the host reads accepted tokens and nothing else ("Optimized Speculative Sampling for GPU Hardware Accelerators")."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tt_kernels.common.cores import check_on_device
from tt_kernels.common.tensor_facts import UnsupportedError, facts
from tt_kernels.speculative_sampling.checks import (
    MAX_VOCAB,
    check_limits,
    check_problem,
    check_rows,
    check_sigmoid,
    check_temperature,
    check_warpers,
)
from tt_kernels.speculative_sampling.layout import choose_layout
from tt_kernels.speculative_sampling.program import OUTCOME_HEAD, Place, Rule, build_program, greedy_program
from tt_kernels.speculative_sampling.row import VocabTpGroup

if TYPE_CHECKING:
    import ttnn

__all__ = [
    "UnsupportedError",
    "VerificationError",
    "Verified",
    "VocabTpGroup",
    "greedy_verification",
    "lossy_sigmoid_sampling",
    "speculative_sampling",
]

_REASONS = {
    1: "the tree or its tokens: a parent does not come before its child, or a token is not below the vocabulary's size",
    2: "target logits with NaN, infinity or nothing finite at a visited node",
    3: "draft logits with NaN, infinity or nothing finite at a visited node",
    4: "the chips of the row lost each other",
}


class VerificationError(RuntimeError):
    """A user's verification ended with an error status."""


@dataclass(frozen=True)
class VerificationResult:
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
    row: VocabTpGroup | None = None

    def read(self, chip: int = 0) -> list[VerificationResult]:
        """What each user got, as a chip of a mesh, counted row by row, has it. Waits for the device."""
        import ttnn

        rows = ttnn.to_torch(ttnn.get_device_tensors(self.outcome)[chip]).tolist()
        path = slice(OUTCOME_HEAD, OUTCOME_HEAD + self.nodes)
        return [
            VerificationResult(row[0], row[path][: row[1]], row[OUTCOME_HEAD + self.nodes :][: row[3]]) for row in rows
        ]

    def check(self) -> list[VerificationResult]:
        """As read(). Errors: VerificationError that names the users and reasons; PeerError when the chips of a row lost
        each other."""
        if self.row is not None:
            self.row.check()
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
    cores_per_user: int | None = None,
    row: VocabTpGroup | None = None,
) -> Verified:
    """Exact verification: whatever the draft, the tokens have the target's distribution.

    tokens: uint32 [users, nodes], parents: int32 [users, nodes], ROW_MAJOR: a tree a user, parents before children;
        node 0 is the root, already decided, with parent -1; padding nodes have parent -1 too.
    target_logits: bfloat16 [users, nodes, vocab], ROW_MAJOR or TILE: row i the target's after node i.
    draft_logits: likewise, row i what the children of node i were drawn from at `draft_temperature` (default:
        `temperature`); None for children that were not drawn but chosen (point masses).
    uniforms: uint32 [users, nodes], ROW_MAJOR, in units of 2^-32 (words.uniform_words): of each node, and in
        column 0 that of the bonus token.
    with_replacement: siblings were drawn independently, duplicates kept; else one by one without replacement.
    top_k, top_p: refused; logits a warper leaves out can be set to -inf.
    grid: (columns, rows) of cores, default all. cores_per_user: how many of them a user's vocabulary is split over; by
        default as many as there are, each with at least four tiles of 1024 ids.
    row: on a mesh the rows of chips that share a vocabulary; then vocab above is a chip's part of it, chip i has the
        ids from i * vocab on, and the other tensors, tokens among them, are alike on all chips of a row.

    Errors: UnsupportedError before any launch. Logits with NaN or +inf at a visited node, trees and tokens out of range
    end in a status: `Verified.check()`.
    """
    check_warpers(top_k, top_p)
    temperature = check_temperature("temperature", temperature)
    draft_temperature = (
        temperature if draft_temperature is None else check_temperature("draft_temperature", draft_temperature)
    )
    rule = Rule((1.0 / temperature, 1.0 / draft_temperature), with_replacement)
    drafted = {"tokens": tokens, "parents": parents, "target_logits": target_logits, "uniforms": uniforms}
    return _verify(drafted, draft_logits, rule, grid, cores_per_user, row)


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
    top_k: int = 0,
    top_p: float = 1.0,
    grid: tuple[int, int] | None = None,
    cores_per_user: int | None = None,
    row: VocabTpGroup | None = None,
) -> Verified:
    """LOSSY verification: the tokens do not have the target's distribution (section 3.2.2 of the paper, equation 5).

    A token is accepted when uniform * q^ <= p^, with p^ and q^ the sigmoids of (logit / temperature - alpha) /
    (beta - alpha): no reduction over the vocabulary, and no logits read but those of drafted tokens. The replacement of
    a rejected token is drawn from max(0, p^ - q^), or from the target's softmax where that is nothing; so is the token
    after a leaf.

    alpha < 0 < beta, within 1e5 of 0: the paper's are -1e3 and 1e3, and -1e4 and 1e4. draft_logits: needed, since a
    chosen token has none. temperature: of target and draft. The other arguments and errors: as of
    `speculative_sampling`.
    """
    check_warpers(top_k, top_p)
    temperature = check_temperature("temperature", temperature)
    scaling = check_sigmoid(alpha, beta)
    if draft_logits is None:
        raise UnsupportedError("draft_logits are None: the sigmoid approximation compares logits with the draft's")
    rule = Rule((1.0 / temperature, 1.0 / temperature), sigmoid=scaling)
    drafted = {"tokens": tokens, "parents": parents, "target_logits": target_logits, "uniforms": uniforms}
    return _verify(drafted, draft_logits, rule, grid, cores_per_user, row)


def _verify(
    drafted: dict, draft_logits, rule: Rule, grid, cores_per_user: int | None, row: VocabTpGroup | None
) -> Verified:
    """drafted: the arguments of `speculative_sampling` but for draft_logits, by name."""
    import ttnn

    named = drafted if draft_logits is None else {**drafted, "draft_logits": draft_logits}
    checked = {name: facts(name, tensor) for name, tensor in named.items()}
    problem = check_problem(
        checked["tokens"],
        checked["parents"],
        checked["target_logits"],
        checked.get("draft_logits"),
        checked["uniforms"],
    )
    device = named["target_logits"].device()
    for name, tensor in named.items():
        _check_same_device(name, tensor, device)
    chips = _check_row(row, device, problem.vocab)
    hub = None if row is None else row.core
    layout = choose_layout(_cores(device, grid), problem.users, problem.vocab, cores_per_user, hub, chips)
    outcome = _empty_outcome(device, problem.users, problem.nodes)
    tensors = {
        "target": named["target_logits"],
        "draft": draft_logits,
        **{name: named[name] for name in ("parents", "tokens", "uniforms")},
        "outcome": outcome,
    }

    def build(place: Place):
        return build_program(problem, tensors, layout, _l1_free(device), rule, place, _noc_core_of(device))

    if row is None:
        program = build(Place())
    else:
        program = ttnn.MeshProgramDescriptor()
        for at in row.coordinates():
            here = ttnn.MeshCoordinate(*at)
            links = partial(row.link_args, at)
            state = row.state.buffer_address()
            place = Place(row.index(at), row.chips, state, tuple(row.timeout), links)
            program[ttnn.MeshCoordinateRange(here, here)] = build(place)
    ttnn.generic_op([*named.values(), outcome], program)
    return Verified(outcome, problem.nodes, row)


def greedy_verification(tokens: ttnn.Tensor, parents: ttnn.Tensor, target_argmax: ttnn.Tensor, vocab: int) -> Verified:
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


def _check_row(row: VocabTpGroup | None, device, vocab: int) -> int:
    """How many chips share the vocabulary. Errors: UnsupportedError."""
    if row is None:
        return 1
    if not isinstance(row, VocabTpGroup):
        raise UnsupportedError(f"row must be a VocabTpGroup, it is a {type(row).__qualname__}")
    if row.device.id() != device.id():
        raise UnsupportedError(f"row lies on mesh {row.device.id()}, the tensors on mesh {device.id()}")
    if vocab * row.chips > MAX_VOCAB:
        raise UnsupportedError(f"vocab of {vocab} on each of {row.chips} chips is more than {MAX_VOCAB}")
    return row.chips


def _noc_core_of(device):
    """A function from a core to its (x, y) on the NoC."""
    import ttnn

    def noc_core(core: tuple[int, int]) -> tuple[int, int]:
        found = device.worker_core_from_logical_core(ttnn.CoreCoord(*core))
        return found.x, found.y

    return noc_core


def _cores(device, grid: tuple[int, int] | None) -> list[tuple[int, int]]:
    size = device.compute_with_storage_grid_size()
    columns, rows = grid or (size.x, size.y)
    if not (1 <= columns <= size.x and 1 <= rows <= size.y):
        raise UnsupportedError(f"a grid of {columns}x{rows} cores is not within the device's {size.x}x{size.y}")
    return [(x, y) for y in range(rows) for x in range(columns)]


def _l1_free(device) -> int:
    import ttnn

    blocks = ttnn.get_memory_view(device, ttnn.BufferType.L1).block_table
    taken = [int(block["address"]) for block in blocks if block["allocated"] == "yes"]
    return min(taken) if taken else sum(int(block["size"]) for block in blocks)
