# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How a call lies on the chip: its cores, the query tiles of a job, the keys a worker holds at once; within L1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tt_kernels.common import merge_tree
from tt_kernels.common.attention_checks import TILE
from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, l1_bytes
from tt_kernels.common.kernel import Core
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.tree_attention.buffers import WORKER, check_l1, plan_buffers
from tt_kernels.tree_attention.checks import Problem

DEFAULT_KEY_CHUNK = 256
# Cycles of a query tile over a key tile for each tile of head_dim, and bytes a cycle that all cores together, or one of
# them, read from DRAM; for the choice of a layout only.
COMPUTE_CYCLES, CHIP_BYTES, CORE_BYTES = 250, 250, 24
# Cycles of a job besides its keys, and of a merge of two partial results of a query tile for each of their tiles.
JOB_CYCLES, MERGE_CYCLES = 3000, 400


@dataclass(frozen=True)
class Layout:
    """groups: the workers of each group, which does the jobs g, g + len(groups), ... query_tiles: of a job. passes:
    jobs of a key/value head of a user. key_tiles: of keys a worker processes at once. buffers: by name."""

    groups: tuple[tuple[Core, ...], ...]
    query_tiles: int
    passes: int
    key_tiles: int
    buffers: dict[str, Buffer]

    @property
    def workers(self) -> list[Core]:
        return [core for group in self.groups for core in group]

    @property
    def workers_per_group(self) -> int:
        return len(self.groups[0])


@lru_cache(maxsize=1024)
def choose_layout(
    problem: Problem,
    cores: tuple[Core, ...],
    l1_free: int,
    *,
    workers_per_head: int | None = None,
    query_tiles: int | None = None,
    key_chunk: int | None = None,
) -> Layout:
    """The Layout on `cores` (in order) whose buffers fit in `l1_free` bytes of each core.

    workers_per_head: cores that share the keys of a job; query_tiles: of a job; by default those that take the shortest
    time by `cost`. key_chunk: tokens a worker processes at once, default 256 or the most that fit. Errors:
    UnsupportedError with the numbers.
    """
    if workers_per_head is not None and (type(workers_per_head) is not int or workers_per_head < 1):
        raise UnsupportedError(f"workers_per_head must be an integer of at least 1, got {workers_per_head!r}")
    if workers_per_head is not None and workers_per_head > len(cores):
        raise UnsupportedError(
            f"{workers_per_head} workers a head need {workers_per_head} cores, the grid has {len(cores)}"
        )
    most_tiles = problem.max_tokens // TILE
    if key_chunk is not None and (
        type(key_chunk) is not int or not TILE <= key_chunk <= problem.max_tokens or key_chunk % TILE
    ):
        raise UnsupportedError(
            f"key_chunk must be a multiple of {TILE} from {TILE} to the {problem.max_tokens} tokens of the caches, "
            f"got {key_chunk!r}"
        )
    if query_tiles is not None and (type(query_tiles) is not int or not 1 <= query_tiles <= problem.query_tiles):
        raise UnsupportedError(
            f"query_tiles must be from 1 to the {problem.query_tiles} that {problem.nodes} nodes of "
            f"{problem.group_heads} query heads take, got {query_tiles!r}"
        )
    wanted = (key_chunk or min(DEFAULT_KEY_CHUNK, problem.max_tokens)) // TILE
    key_sizes = [wanted] if key_chunk else range(min(wanted, most_tiles), 0, -1)

    def fits(workers: int, tiles: int, keys: int) -> bool:
        return l1_bytes(plan_buffers(problem, workers, tiles, keys))[WORKER] <= l1_free

    best, best_cost = None, 0.0
    for tiles in [query_tiles] if query_tiles else job_sizes(problem.query_tiles):
        passes = -(-problem.query_tiles // tiles)
        jobs = problem.items * passes
        for workers in [workers_per_head] if workers_per_head else group_sizes(len(cores), jobs):
            keys = next((keys for keys in key_sizes if fits(workers, tiles, keys)), None)
            if keys is None:
                break  # more workers need more
            groups = min(jobs, len(cores) // workers)
            takes = cost(problem, jobs, groups, workers, tiles, keys)
            if best is None or takes < best_cost:
                dealt = tuple(tuple(cores[g * workers : (g + 1) * workers]) for g in range(groups))
                best = Layout(dealt, tiles, passes, keys, plan_buffers(problem, workers, tiles, keys))
                best_cost = takes
    if best is None:
        check_l1(problem, workers_per_head or 1, query_tiles or 1, key_sizes[-1], l1_free)
        raise AssertionError("a layout that fits was not taken")
    return best


def group_sizes(cores: int, jobs: int) -> list[int]:
    """Workers a head that are worth trying: the most for each number of groups, and powers of two; fewest first."""
    powers = {1 << level for level in range(cores.bit_length())}
    return sorted(powers | {cores // groups for groups in range(1, min(jobs, cores) + 1)})


def job_sizes(query_tiles: int) -> list[int]:
    """Query tiles of a job that are worth trying: the fewest for each number of passes, most passes last."""
    return sorted({-(-query_tiles // passes) for passes in range(1, query_tiles + 1)}, reverse=True)


def cost(problem: Problem, jobs: int, groups: int, workers: int, query_tiles: int, key_tiles: int) -> float:
    """How many cycles `jobs` jobs take `groups` groups of `workers`, about, with a cache filled by half: a worker reads
    its key tiles once, while it computes those before; all share the DRAM. Then the partial results are merged."""
    tile_bytes = 2 * problem.head_tiles * TILE_BYTES[problem.cache_dtype]
    read = tile_bytes / min(CORE_BYTES, CHIP_BYTES / (groups * workers))
    compute = COMPUTE_CYCLES * problem.head_tiles * query_tiles * (1 + 2 / key_tiles)
    share = -(-max(problem.max_tokens // TILE // 2, 1) // workers)
    merge = merge_tree.levels(workers) * query_tiles * (problem.head_tiles + 1) * MERGE_CYCLES
    return -(-jobs // groups) * (share * max(read, compute) + merge + JOB_CYCLES)
