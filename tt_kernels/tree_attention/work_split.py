# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which core does what: the jobs of each group of workers, the keys a worker holds at once, and the circular buffers
that must fit its L1 (README.md has the table of buffers)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tt_kernels.common import merge_tree
from tt_kernels.common.attention_checks import TILE
from tt_kernels.common.attention_split import (
    DECIDER,
    EXCHANGE,
    MAX_COLUMNS,
    WORKER,
    WorkSplit,
    assign_cores,
    buffers_of,
    check_layout,
    lengthened,
)
from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, aligned, l1_bytes, largest_buffers
from tt_kernels.common.kernel import Core
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.tree_attention.checks import MAX_NODES, Problem

_NAMES = (
    "gathered gathered_row_max handover query keys values query_times key_times ones scores weights state row_max_a "
    "row_max_b rescale rescale_other output control control_writer share share_writer scratch intervals guess "
    "measured_guess measured_exact norms sums pages chosen mass_words outgoing"
)
SUMS_BYTES = 16  # of a job (kernels/job_sums.hpp)
TILES_IN_FLIGHT = 16  # kernels/config.hpp
INDICES = {f"cb_{name}": index for index, name in enumerate(_NAMES.split())}
# On other cores than `outgoing`: a core has 32 indices.
INDICES["cb_masses"] = INDICES["cb_outgoing"]
# Of a prefill alone, where those of a guess are not.
INDICES |= {"cb_highest": INDICES["cb_guess"], "cb_cache_ones": INDICES["cb_norms"], "cb_verdicts": INDICES["cb_sums"]}
FEW_TILES = 10  # kernels/jobs.hpp

DEFAULT_KEY_CHUNK = 256
# Cycles of a query tile over a key tile for each tile of head_dim, and bytes a cycle that all cores together, or one of
# them, read from DRAM; for the choice of a layout only.
COMPUTE_CYCLES, CHIP_BYTES, CORE_BYTES = 250, 250, 24
# Cycles of a job besides its keys, and of a level of merges of a query tile for each tile of its state.
JOB_CYCLES, MERGE_CYCLES = 3000, 600


def times_tiles(problem: Problem, key_tiles: int) -> int:
    """Return the key tiles of a chunk that can hold nodes."""
    return min(problem.tree_tiles, key_tiles)


def rest_tiles(problem: Problem, key_tiles: int) -> int:
    """Return the key tiles that a worker can take beyond `key_tiles` at once, so that a guess's end takes no chunk more
    than its size says: where the last tile of the tree's root is not full there is another one, and the tree adds some.
    0 where those are more than half a chunk, and for one node, whose chunks are those of the flash decode."""
    rest = 1 + -(-(problem.nodes - 1) // TILE)
    return rest if problem.guess is not None and problem.nodes > 1 and 2 * rest <= key_tiles else 0


def masked_chunks(problem: Problem, key_tiles: int) -> int:
    """Return the chunks of a job that can hold nodes: each has a worker's `key_tiles` or is the last of its range; the
    tree's tiles may start anywhere in one, and be in two ranges."""
    return min(problem.tree_tiles, max(problem.tree_tiles - 2, 0) // key_tiles + 3)


def root_tiles(problem: Problem) -> int:
    """Return the query tiles that hold a root, whose masses are handed out."""
    return len({head * problem.nodes // TILE for head in range(problem.group_heads)})


def make_buffers(
    problem: Problem, workers: int, query_tiles: int, key_tiles: int, peer: bool = False, rounds: int = 1
) -> dict[str, Buffer]:
    """Return every circular buffer by its name in kernels/config.hpp. workers, query_tiles: per job. key_tiles: tiles
    of keys a worker processes at once, to which rest_tiles() are added. Buffers that other cores write into come first,
    at the same address everywhere. peer: with an exchange core. rounds: jobs that a group does one after another.
    """
    head, slots = problem.head_tiles, merge_tree.slots(workers)
    # A writer that keeps masses cannot wait until the times of a chunk have been used.
    chunks = masked_chunks(problem, key_tiles) if problem.with_masses else 1
    key_tiles += rest_tiles(problem, key_tiles)
    tiles = {
        "query_times": ("BFLOAT16", query_tiles),
        "key_times": ("BFLOAT16", 2 * chunks * times_tiles(problem, key_tiles)),
        "output": ("BFLOAT16", 2 * head),
    }
    if workers > 1:
        tiles |= {
            "gathered": ("FLOAT32", slots * query_tiles * (head + 1)),
            "gathered_row_max": ("BFLOAT16", slots * query_tiles),
            "rescale_other": ("FLOAT32", merge_tree.RADIX - 1),
        }
    words, on = {"intervals": 4 * 2 * MAX_NODES}, {"sums": {WORKER, DECIDER}, "outgoing": {EXCHANGE}}
    if problem.block_heads > 0:
        tiles["cache_ones"] = (problem.cache_dtype, 1)
        words |= {"highest": aligned(4 * query_tiles), "verdicts": aligned(4 * rounds)}
    if problem.guess is not None:
        tiles |= dict.fromkeys(("guess", "measured_guess", "measured_exact"), ("BFLOAT16", 2 * head))
        tiles["norms"] = ("FLOAT32", 2)
        words["sums"] = SUMS_BYTES * problem.items * -(-problem.query_tiles // query_tiles)
        on |= dict.fromkeys(("control", "scratch"), {WORKER, DECIDER} | ({EXCHANGE} if peer else set()))
    if peer:
        tiles["outgoing"] = ("BFLOAT16", TILES_IN_FLIGHT)
    return buffers_of(
        *(INDICES, problem, tiles, words, on),
        workers=workers,
        key_tiles=key_tiles,
        query_tiles=query_tiles,
        partials=query_tiles,
        rounds=rounds,
        few_tiles=FEW_TILES,
        mass_pages=max(root_tiles(problem), 2),  # a chunk's pages can wait while its guess is written
    )


@dataclass(frozen=True)
class JobSplit(WorkSplit):
    """query_tiles: per job. passes: jobs per key/value head of a user. key_tiles: without rest_tiles()."""

    query_tiles: int
    passes: int


@lru_cache(maxsize=1024)
def choose_work_split(
    problem: Problem,
    cores: tuple[Core, ...],
    l1_free: int,
    *,
    decider: Core | None = None,
    exchange: Core | None = None,
    workers_per_head: int | None = None,
    query_tiles: int | None = None,
    key_chunk: int | None = None,
) -> JobSplit:
    """Choose the JobSplit on `cores` (in order) whose buffers fit in `l1_free` bytes of each core.

    decider: the core that decides on guesses, if it is fixed; exchange: the one that talks to the peer, None without a
        peer. Both in `cores` or not.

    workers_per_head: cores that share the keys of a job; query_tiles: per job; by default the fastest by `cost`.
        key_chunk: tokens a worker processes at once, default 256 or the most that fit; more of a tree in a long cache,
        see `lengthened`. Errors: UnsupportedError with the numbers.
    """
    check_layout(workers_per_head, key_chunk, problem.max_tokens)
    cores = tuple(core for core in cores if core not in (decider, exchange))
    if problem.guess is not None and decider is None and cores:
        cores, decider = cores[:-1], cores[-1]
    fewest = workers_per_head or 1
    if len(cores) < fewest:
        raise UnsupportedError(
            f"{fewest} workers per head need {fewest} cores, the grid has {len(cores)}"
            + (" for them" if problem.guess is not None else "")
        )
    max_tiles = problem.cache_tiles
    if problem.with_masses and query_tiles not in (None, problem.query_tiles):
        raise UnsupportedError(
            f"query_tiles must be the {problem.query_tiles} of a key/value head where masses are handed out, got "
            f"{query_tiles!r}"
        )
    if query_tiles is not None and (type(query_tiles) is not int or not 1 <= query_tiles <= problem.query_tiles):
        raise UnsupportedError(
            f"query_tiles must be from 1 to the {problem.query_tiles} that {problem.nodes} nodes of "
            f"{problem.group_heads} query heads take, got {query_tiles!r}"
        )
    wanted = (key_chunk or min(DEFAULT_KEY_CHUNK, problem.max_tokens)) // TILE
    key_sizes = [wanted] if key_chunk else range(min(wanted, max_tiles), 0, -1)

    def made(workers: int, tiles: int, keys: int) -> dict[str, Buffer]:
        jobs = problem.items * -(-problem.query_tiles // tiles)
        rounds = -(-jobs // min(jobs, max(len(cores) // workers, 1)))
        return make_buffers(problem, workers, tiles, keys, exchange is not None, rounds)

    def fits(workers: int, tiles: int, keys: int) -> bool:
        if problem.with_masses and keys + rest_tiles(problem, keys) > MAX_COLUMNS:
            return False
        return l1_bytes(made(workers, tiles, keys))[WORKER] <= l1_free

    if problem.with_masses:
        query_tiles = problem.query_tiles
    if key_chunk and problem.with_masses and wanted + rest_tiles(problem, wanted) > MAX_COLUMNS:
        most = (MAX_COLUMNS - rest_tiles(problem, MAX_COLUMNS)) * TILE
        raise UnsupportedError(f"key_chunk {key_chunk}: at most {most} where masses are handed out")

    best, best_cost = None, 0.0
    for tiles in [query_tiles] if query_tiles else job_sizes(problem.query_tiles):
        passes = -(-problem.query_tiles // tiles)
        jobs = problem.items * passes
        for workers in [workers_per_head] if workers_per_head else group_sizes(len(cores), jobs):
            keys = next((keys for keys in key_sizes if fits(workers, tiles, keys)), None)
            if keys is None:
                break  # more workers need more
            assignment = assign_cores(cores, jobs, workers, decider, exchange)
            time = cost(problem, jobs, len(assignment.groups), workers, tiles, keys)
            if best is None or time < best_cost:
                best = JobSplit(assignment, keys, made(workers, tiles, keys), tiles, passes)
                best_cost = time
    if best is None:
        tiles, keys = query_tiles or 1, key_sizes[-1]
        buffers = made(fewest, tiles, keys)
        raise UnsupportedError(
            f"query_tiles {tiles} and key_chunk {keys * TILE} with head_dim {problem.head_dim} and {fewest} worker(s) "
            f"per head need {l1_bytes(buffers)[WORKER]} bytes of L1 on a core, of which {l1_free} are free (largest "
            f"buffers: {largest_buffers(buffers)}); choose fewer query_tiles or workers_per_head, a smaller key_chunk, "
            "or free tensors in L1"
        )
    if key_chunk or best.key_tiles < wanted or problem.block_heads > 0:  # a prefill's state is not rounded by chunks
        return best
    workers, tiles = best.assignment.workers_per_group, best.query_tiles
    keys = lengthened(wanted, max_tiles, workers, lambda keys: fits(workers, tiles, keys))
    return replace(best, key_tiles=keys, buffers=made(workers, tiles, keys))


def group_sizes(cores: int, jobs: int) -> list[int]:
    """Return the numbers of workers per head worth trying: the most for each number of groups, and powers of two;
    fewest first."""
    powers = {1 << level for level in range(cores.bit_length())}
    return sorted(powers | {cores // groups for groups in range(1, min(jobs, cores) + 1)})


def job_sizes(query_tiles: int) -> list[int]:
    """Return the query tiles per job worth trying: the fewest for each number of passes, most passes last."""
    return sorted({-(-query_tiles // passes) for passes in range(1, query_tiles + 1)}, reverse=True)


def cost(problem: Problem, jobs: int, groups: int, workers: int, query_tiles: int, key_tiles: int) -> float:
    """Estimate the cycles that `groups` groups of `workers` take for `jobs` jobs with a half-filled cache. A worker
    reads its key tiles once, while it computes those before; all share the DRAM. Then the partial results are merged.
    """
    tile_bytes = 2 * problem.head_tiles * TILE_BYTES[problem.cache_dtype]
    read = tile_bytes / min(CORE_BYTES, CHIP_BYTES / (groups * workers))
    compute = COMPUTE_CYCLES * problem.head_tiles * query_tiles * (1 + 2 / key_tiles)
    share = -(-max(problem.cache_tiles // 2, 1) // workers)
    merge = merge_tree.levels(workers) * query_tiles * (problem.head_tiles + 1) * MERGE_CYCLES
    return -(-jobs // groups) * (share * max(read, compute) + merge + JOB_CYCLES)
