# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The circular buffers of the op: their place in L1, and whether all of them fit. See README.md for the
table."""

from __future__ import annotations

from tt_kernels.common import merge_tree, value_rows
from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, largest_buffers
from tt_kernels.common.circular_buffers import l1_bytes as l1_bytes
from tt_kernels.common.priority import MAX_USERS
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.speculative_flash_decode.checks import Problem
from tt_kernels.speculative_flash_decode.work_split import TILE

CONTROL_BYTES = 64
HANDOVER_BYTES = 16
LINE_BYTES = 4 * MAX_USERS
SCRATCH_LINES = 3

# Indices are the same whichever buffers a program has, and so are its binaries. The runtime places buffers in
# the order of the list it is given, which is that of the indices.
_NAMES = (
    "guess exact outgoing gathered gathered_row_max handover query keys values mask ones "
    "scores weights state row_max_a row_max_b rescale rescale_other verdict control "
    "control_writer scratch"
)
INDICES = {f"cb_{name}": index for index, name in enumerate(_NAMES.split())}

WORKER, OUTPUT, EXCHANGE = "worker", "output", "exchange"


def plan_buffers(problem: Problem, workers: int, key_tiles: int, *, speculate: bool, peer: bool) -> dict[str, Buffer]:
    """Every circular buffer by its name in kernels/config.hpp. key_tiles: of keys a worker processes at once.

    Those that other cores write into come first and have the same pages on all their cores, so that they lie
    at the same address there: the gathered results of all users.
    """
    head, users = problem.head_tiles, problem.users
    partial, levels = head + 1, merge_tree.levels(workers)
    results = users * head if speculate else 2 * head
    worker, output, exchange = {WORKER}, {OUTPUT}, {EXCHANGE}
    rows: list[tuple[str, str, int, set[str]]] = []
    if speculate:
        rows.append(("cb_guess", "BFLOAT16", results, worker | output))
    rows.append(("cb_exact", "BFLOAT16", results, worker | output if speculate else worker))
    if peer:
        rows.append(("cb_outgoing", "BFLOAT16", results, worker | exchange))
    if levels:
        rows += [
            ("cb_gathered", "FLOAT32", levels * partial, worker),
            ("cb_gathered_row_max", "BFLOAT16", levels, worker),
        ]
    rows += [
        ("cb_query", "BFLOAT16", head, worker),
        ("cb_keys", problem.cache_dtype, 2 * key_tiles * head, worker),
        ("cb_values", problem.cache_dtype, 2 * key_tiles * value_rows.stride(head), worker),
        ("cb_mask", "BFLOAT16", 1, worker),
        ("cb_ones", "BFLOAT16", value_rows.pushes_of_ones(head), worker),
        ("cb_scores", "FLOAT32", 2 * key_tiles, worker),
        ("cb_weights", "BFLOAT16", 2 * key_tiles, worker),
        ("cb_state", "FLOAT32", 2 * partial, worker),
        ("cb_row_max_a", "BFLOAT16", 1, worker),
        ("cb_row_max_b", "BFLOAT16", 1, worker),
        ("cb_rescale", "FLOAT32", 1, worker),
        ("cb_rescale_other", "FLOAT32", 1, worker),
    ]
    if speculate:
        rows.append(("cb_verdict", "FLOAT32", 2, output))
    found = {
        name: Buffer(INDICES[name], dtype, TILE_BYTES[dtype], pages, frozenset(roles))
        for name, dtype, pages, roles in rows
    }
    everywhere = frozenset(worker | (output if speculate else set()) | (exchange if peer else set()))
    if levels:
        found["cb_handover"] = Buffer(INDICES["cb_handover"], "UINT32", HANDOVER_BYTES, 1, frozenset(worker))
    for name, size in (
        ("cb_control", CONTROL_BYTES),
        ("cb_control_writer", CONTROL_BYTES),
        ("cb_scratch", SCRATCH_LINES * LINE_BYTES),
    ):
        found[name] = Buffer(INDICES[name], "UINT32", size, 1, everywhere)
    return found


def l1_refusal(
    buffers: dict[str, Buffer], available: int, problem: Problem, workers: int, key_tiles: int
) -> UnsupportedError:
    """What says that a core needs more than the `available` bytes of L1, and which one does."""
    role, needed = next((role, bytes_) for role, bytes_ in l1_bytes(buffers).items() if bytes_ > available)
    return UnsupportedError(
        f"key_chunk {key_tiles * TILE} with head_dim {problem.head_dim}, {problem.users} user(s) and "
        f"{workers} worker(s) a head needs {needed} bytes of L1 on a {role} core, of which {available} "
        f"are free (largest buffers: {largest_buffers(buffers)}); choose a smaller key_chunk, fewer workers_per_head "
        "or fewer users, or free tensors in L1"
    )
