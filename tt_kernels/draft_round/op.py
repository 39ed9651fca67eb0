# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run a round of drafted chains without the host: three ops of one core that move integers between its steps.

A round is the draft's exact pass over the tokens decided in the last round (EasySpec's bonus calibration, section 3.2),
the draft's steps, and the target's step over the chain with its verification (FlashSpecInfer, section 5):

    choices = likeliest token after each decided one       # the exact pass
    begin_chain(decided, choices, step, chain)
    for node in range(2, nodes):
        append_token(the draft's step, node, chain)        # what a step chose is also what the next one reads
    result = the target's step over `chain`
    take_result(result, decided)                           # the next round may begin

All tensors are ROW_MAJOR and interleaved, of 32-bit integers, one page per row, the same on every chip of a mesh; those
that steps return are in any memory, the others in DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tt_kernels.common.circular_buffers import aligned, word_buffer
from tt_kernels.common.cores import check_on_device, core_set
from tt_kernels.common.kernel import kernel_descriptor, program_of
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import UnsupportedError, check_words, facts
from tt_kernels.speculative_sampling.program import RESULT_HEAD

KERNELS = Path(__file__).parent / "kernels"
COUNT_WORD = 3  # of an result, see Verified
_SCRATCH_CB = 0
_ANYWHERE = ("choices", "chosen", "result")  # read through an accessor of their own


class Decided(NamedTuple):
    """What the draft's exact pass reads. tokens: uint32 [1, users * nodes], each user's tokens decided since the last
    round, padded with zeros. cached: int32 [users], tokens cached before them, -1 for a user to skip. angles: uint32
    [1, users * nodes], their positions. last: int32 [users], the index of the last decided token; row: uint32 [1,
    users], its index among all users' nodes."""

    tokens: Any
    cached: Any
    angles: Any
    last: Any
    row: Any


class DraftStep(NamedTuple):
    """What the draft's step reads, shaped as StepInputs: uint32 [1, users], int32 [users], uint32 [1, users]."""

    token: Any
    position: Any
    angle: Any


class Chain(NamedTuple):
    """What the target's step and its verification read. tokens, angles: uint32 [1, users * nodes]; prefix: int32
    [users], -1 for a user to skip; rows: uint32 [users, nodes], the tokens again."""

    tokens: Any
    prefix: Any
    angles: Any
    rows: Any


def begin_chain(decided: Decided, choices: ttnn.Tensor, step: DraftStep, chain: Chain) -> None:
    """Write root and node 1 of each user's chain, zeros for the others, and the draft's first step. Node 1 is the token
    after the last decided one by `choices`, uint32 [1, users * nodes]. Errors: UnsupportedError."""
    sizes = _sizes(chain)
    users, nodes = sizes["users"], sizes["nodes"]
    _check_decided(decided, users, nodes)
    _check({"choices": choices}, (1, users * nodes))
    _check({"step.token": step.token, "step.angle": step.angle}, (1, users))
    _check({"step.position": step.position}, (users,))
    read = {"decided": decided.tokens, "choices": choices, "cached": decided.cached, "last": decided.last}
    written = {
        "token": step.token,
        "position": step.position,
        "angle": step.angle,
        "tree_tokens": chain.tokens,
        "tree_angles": chain.angles,
        "tree_prefix": chain.prefix,
        "rows": chain.rows,
    }
    accessors = {"per_node": chain.tokens, "per_user": chain.prefix, "rows": chain.rows, "choices": choices}
    _launch("begin_chain.cpp", read, written, accessors, sizes)


def append_token(chosen: ttnn.Tensor, node: int, chain: Chain) -> None:
    """Make `chosen`, uint32 [1, users], node `node` of the users that are not skipped. Errors: UnsupportedError."""
    sizes = _sizes(chain)
    users, nodes = sizes["users"], sizes["nodes"]
    if isinstance(node, bool) or not isinstance(node, int) or not 1 <= node < nodes:
        raise UnsupportedError(f"node must be 1 to {nodes - 1}, got {node!r}")
    _check({"chosen": chosen}, (1, users))
    read = {"chosen": chosen, "tree_prefix": chain.prefix}
    written = {"tree_tokens": chain.tokens, "rows": chain.rows}
    accessors = {"per_node": chain.tokens, "per_user": chain.prefix, "rows": chain.rows, "chosen": chosen}
    _launch("append_token.cpp", read, written, accessors, sizes, {"node": node})


def take_result(result: ttnn.Tensor, decided: Decided) -> None:
    """Make the new tokens of `result`, int32 [users, 4 + 2 * nodes] of Verified, the decided ones, after those decided
    before. A skipped user, and one whose verification failed, stays as it is. Errors: UnsupportedError."""
    users, width = tuple(result.shape)
    nodes = (width - RESULT_HEAD) // 2
    _check({"result": result}, (users, RESULT_HEAD + 2 * nodes))
    _check_decided(decided, users, nodes)
    sizes = {
        "users": users,
        "nodes": nodes,
        "user_bytes": _page(decided.cached),
        "node_bytes": _page(decided.tokens),
        "result_bytes": _page(result),
        "count_word": COUNT_WORD,
        "tokens_word": RESULT_HEAD + nodes,
    }
    written = {
        "decided": decided.tokens,
        "angles": decided.angles,
        "cached": decided.cached,
        "last": decided.last,
        "row": decided.row,
    }
    accessors = {"per_node": decided.tokens, "per_user": decided.cached, "result": result}
    _launch("take_result.cpp", {"result": result}, written, accessors, sizes)


def _sizes(chain: Chain) -> dict[str, int]:
    """Return the numbers that kernels take of a chain, users and nodes first. Errors: UnsupportedError."""
    users, nodes = tuple(chain.rows.shape)
    _check({"chain.rows": chain.rows}, (users, nodes))
    _check({"chain.tokens": chain.tokens, "chain.angles": chain.angles}, (1, users * nodes))
    _check({"chain.prefix": chain.prefix}, (users,))
    if nodes < 2:
        raise UnsupportedError(f"a chain has a root and at least one drafted token, got {nodes} nodes")
    bytes_of = {"user": chain.prefix, "node": chain.tokens, "row": chain.rows}
    return {"users": users, "nodes": nodes} | {f"{name}_bytes": _page(tensor) for name, tensor in bytes_of.items()}


def _check_decided(decided: Decided, users: int, nodes: int) -> None:
    _check({"decided.tokens": decided.tokens, "decided.angles": decided.angles}, (1, users * nodes))
    _check({"decided.cached": decided.cached, "decided.last": decided.last}, (users,))
    _check({"decided.row": decided.row}, (1, users))


def _check(tensors: Mapping[str, ttnn.Tensor], shape: tuple[int, ...]) -> None:
    for name, tensor in tensors.items():
        found = facts(name, tensor)
        check_words(name, found, "INT32" if found.dtype == "INT32" else "UINT32", shape)
        if name not in _ANYWHERE and tensor.memory_config().buffer_type != ttnn.BufferType.DRAM:
            raise UnsupportedError(f"{name} must be in DRAM, it is in {tensor.memory_config().buffer_type}")


def _page(tensor: ttnn.Tensor) -> int:
    """Return the bytes of a row in memory."""
    return tensor.buffer_aligned_page_size()


def _launch(
    kernel: str,
    read: Mapping[str, ttnn.Tensor],
    written: Mapping[str, ttnn.Tensor],
    accessors: Mapping[str, ttnn.Tensor],
    sizes: Mapping[str, int],
    common: Mapping[str, int] | None = None,
) -> None:
    tensors = {**read, **written}
    device = next(iter(tensors.values())).device()
    for name, tensor in tensors.items():
        check_on_device(name, tensor, device)
    scratch = sum(aligned(_page(t), 32) * (t.shape[0] if len(t.shape) > 1 else 1) for t in tensors.values())
    cores = core_set((0, 0))
    descriptor = kernel_descriptor(
        KERNELS / kernel,
        "DataMovement",
        cores=cores,
        constants={"scratch_cb": _SCRATCH_CB, **sizes},
        accessors=accessors,
        common={name: tensor.buffer_address() for name, tensor in tensors.items()} | dict(common or {}),
    )
    program = program_of([descriptor], [word_buffer(_SCRATCH_CB, scratch, cores)])
    ttnn.generic_op(list(tensors.values()), program)
