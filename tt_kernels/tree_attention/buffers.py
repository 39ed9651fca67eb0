# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The circular buffers of the op: their place in L1, and whether all of them fit. See README.md for the table."""

from __future__ import annotations

from tt_kernels.common import merge_tree, value_rows
from tt_kernels.common.attention_checks import TILE
from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, l1_bytes, largest_buffers
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.tree_attention.checks import MAX_NODES, MAX_USERS, Problem

WORKER = "worker"
_NAMES = (
    "gathered gathered_row_max handover query keys values query_times key_times ones scores weights state row_max_a "
    "row_max_b rescale rescale_other output control control_writer intervals"
)
HANDOVER_BYTES = 16
INDICES = {f"cb_{name}": index for index, name in enumerate(_NAMES.split())}


def times_tiles(problem: Problem, key_tiles: int) -> int:
    """Key tiles of a chunk that can hold nodes."""
    return min(problem.tree_tiles, key_tiles)


def plan_buffers(problem: Problem, workers: int, query_tiles: int, key_tiles: int) -> dict[str, Buffer]:
    """Every circular buffer by its name in kernels/config.hpp. workers: of a job, as are query_tiles. key_tiles: of
    keys a worker processes at once. Those that other cores write into come first, at the same address everywhere."""
    levels = merge_tree.levels(workers)
    head = problem.head_tiles
    tiles = {
        "query": ("BFLOAT16", query_tiles * head),
        "keys": (problem.cache_dtype, 2 * key_tiles * head),
        "values": (problem.cache_dtype, 2 * key_tiles * value_rows.stride(head)),
        "query_times": ("BFLOAT16", query_tiles),
        "key_times": ("BFLOAT16", 2 * times_tiles(problem, key_tiles)),
        "ones": ("BFLOAT16", value_rows.pushes_of_ones(head)),
        "scores": ("FLOAT32", 2 * key_tiles),
        "weights": ("BFLOAT16", 2 * key_tiles),
        "state": ("FLOAT32", (query_tiles + 1) * (head + 1)),
        "row_max_a": ("BFLOAT16", query_tiles),
        "row_max_b": ("BFLOAT16", query_tiles),
        "rescale": ("FLOAT32", 1),
        "output": ("BFLOAT16", 2 * head),
    }
    if levels:
        tiles |= {
            "gathered": ("FLOAT32", levels * query_tiles * (head + 1)),
            "gathered_row_max": ("BFLOAT16", levels * query_tiles),
            "rescale_other": ("FLOAT32", 1),
        }
    words = {"control": MAX_USERS, "control_writer": MAX_USERS, "intervals": 2 * MAX_NODES}
    on = frozenset({WORKER})
    found = {
        f"cb_{name}": Buffer(INDICES[f"cb_{name}"], dtype, TILE_BYTES[dtype], pages, on)
        for name, (dtype, pages) in tiles.items()
    }
    for name, count in words.items():
        found[f"cb_{name}"] = Buffer(INDICES[f"cb_{name}"], "UINT32", 4 * count, 1, on)
    if levels:
        found["cb_handover"] = Buffer(INDICES["cb_handover"], "UINT32", HANDOVER_BYTES, query_tiles, on)
    return found


def check_l1(problem: Problem, workers: int, query_tiles: int, key_tiles: int, available: int) -> None:
    """Errors: UnsupportedError when a core needs more than `available` bytes of L1."""
    buffers = plan_buffers(problem, workers, query_tiles, key_tiles)
    needed = l1_bytes(buffers)[WORKER]
    if needed > available:
        raise UnsupportedError(
            f"query_tiles {query_tiles} and key_chunk {key_tiles * TILE} with head_dim {problem.head_dim} and "
            f"{workers} worker(s) a head need {needed} bytes of L1 on a core, of which {available} are free "
            f"(largest buffers: {largest_buffers(buffers)}); choose fewer query_tiles or workers_per_head, a smaller "
            "key_chunk, or free tensors in L1"
        )
