# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How a call lies on the chip: its cores, the keys a worker holds at once and the buffers, so that they fit L1."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache, partial

from loguru import logger

from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.speculative_flash_decode.buffers import Buffer, l1_bytes, l1_refusal, plan_buffers
from tt_kernels.speculative_flash_decode.checks import Problem
from tt_kernels.speculative_flash_decode.work_split import TILE, Core, CoreAssignment, cost, deal_cores

# Where a group does more heads one after another, the guess of their user leaves only with the last of them, and what a
# head begins and ends with comes again: only for a gain of so much.
LEAST_GAIN_OF_A_ROUND = 1.05


@dataclass(frozen=True)
class Layout:
    """plan: the cores of each role. key_tiles: of keys a worker processes at once. buffers: by name."""

    plan: CoreAssignment
    key_tiles: int
    buffers: dict[str, Buffer]


@lru_cache(maxsize=1024)
def choose_layout(
    problem: Problem,
    cores: tuple[Core, ...],
    l1_free: int,
    *,
    speculate: bool,
    guess_alone: bool = False,
    peer: bool,
    exchange: Core | None = None,
    output: Core | None = None,
    workers_per_head: int | None = None,
    key_chunk: int | None = None,
) -> Layout:
    """The Layout on `cores` (in order) whose buffers fit in `l1_free` bytes of each core.

    exchange: the core that speaks to the peer, in `cores` or not; none without a peer. output: the output core where
    it is not any, in `cores` or not. workers_per_head: default as many as take the shortest time, as `work_split.cost`
    has it at half the cache (`guess_alone`: at the guess's tiles), among what fits; with fewer groups than another only
    for LEAST_GAIN_OF_A_ROUND.
    key_chunk: tokens a worker processes at once, default chunk_size or, said in a log line, the most that fit.
    Errors: UnsupportedError with the numbers.
    """
    _check_key_chunk(key_chunk, problem.chunk_size)
    for_workers = len([core for core in cores if core not in (exchange, output)])
    sizes = _group_sizes(for_workers, workers_per_head, speculate and output is None)
    most = (key_chunk or problem.chunk_size) // TILE
    least = most if key_chunk else 1

    guess_tiles = problem.guess.first_tiles + problem.guess.tail_tiles(1)
    half_cache = max(problem.max_tokens // TILE // 2, 1)
    read = guess_tiles if guess_alone else half_cache

    def buffers_of(workers: int, key_tiles: int) -> dict[str, Buffer]:
        return plan_buffers(problem, workers, key_tiles, speculate=speculate, peer=peer)

    def bytes_of(workers: int, key_tiles: int) -> int:
        return max(l1_bytes(buffers_of(workers, key_tiles)).values())

    best, best_cost = None, 0.0
    for workers in sizes:
        fitting = bisect_right(range(least, most + 1), l1_free, key=partial(bytes_of, workers))
        if not fitting:
            break  # more workers need more
        key_tiles = least + fitting - 1
        plan = deal_cores(cores, problem.items, workers, speculate=speculate, exchange=exchange, output=output)
        takes = cost(read, problem.items, len(plan.groups), workers, guess_tiles, key_tiles, speculate)
        gain = 1.0 if best is None or len(plan.groups) == len(best.plan.groups) else LEAST_GAIN_OF_A_ROUND
        if best is None or takes * gain < best_cost:
            best, best_cost = Layout(plan, key_tiles, buffers_of(workers, key_tiles)), takes
    if best is None:
        raise l1_refusal(buffers_of(sizes[0], least), l1_free, problem, sizes[0], least)
    if best.key_tiles < most:
        logger.info(
            f"speculative_flash_decode: {best.plan.workers_per_group} worker(s) a head process "
            f"{best.key_tiles * TILE} keys at once: the {most * TILE} of a chunk do not fit the {l1_free} free "
            "bytes of L1"
        )
    return best


def _check_key_chunk(key_chunk: int | None, chunk_size: int) -> None:
    if key_chunk is None:
        return
    if type(key_chunk) is not int or not TILE <= key_chunk <= chunk_size or key_chunk % TILE:
        raise UnsupportedError(
            f"key_chunk must be a multiple of {TILE} from {TILE} to the chunk_size {chunk_size}, got {key_chunk!r}"
        )


def _group_sizes(cores: int, wanted: int | None, speculate: bool) -> range:
    """The numbers of workers a head to consider, where there are `cores` beside the exchange core."""
    if wanted is not None and (type(wanted) is not int or wanted < 1):
        raise UnsupportedError(f"workers_per_head must be an integer of at least 1, got {wanted!r}")
    least, special = wanted or 1, int(speculate)
    available = cores - special
    if available < least:
        raise UnsupportedError(
            f"{least} worker(s) a head and {special} output core(s) need {least + special} cores, the grid "
            f"has {cores} for them"
        )
    return range(least, (wanted or available) + 1)
