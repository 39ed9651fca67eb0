# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which core does what: the workers of each head, their parts of the cache, and the circular buffers that must fit
their L1 (README.md has the table of buffers). The deciding core also gathers and writes the outputs.

`parts` mirrors common/kernels/chunk_split.hpp, which every kernel computes for itself.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import lru_cache, partial

from loguru import logger

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
from tt_kernels.speculative_flash_decode.checks import Problem

# Indices, and so the binaries, do not depend on which buffers a program has. The runtime places buffers in the order of
# the list it is given, which is the order of the indices.
_NAMES = (
    "guess exact outgoing gathered handover query keys values mask ones "
    "scores weights state row_max_a row_max_b rescale dense result norms control "
    "control_writer share share_writer scratch pages chosen masses mass_words"
)
INDICES = {f"cb_{name}": index for index, name in enumerate(_NAMES.split())}

# What a worker's steps cost besides its key tiles, in units of one tile: per chunk (row maximum, rescale, packing), per
# level of the merge (sending partial results and merging four), and per head. From the bench, at head_dim 64.
CHUNK_COST, MERGE_COST, HEAD_COST = 2.0, 2.3, 3.0

# Of tiles with a row for each query head of a key/value head, the upper faces alone are computed where they hold all
# rows and the probes behind them (kernels/probe_rows.hpp). So are they of tiles with a row for each query head.
UPPER_ROWS = 16
BAND_ROWS, PROBES = 4, 2
OF_GROUP = "query scores weights state row_max_a row_max_b rescale dense gathered result".split()
OF_HEADS = ("guess", "exact")
DENSE_TILES = 2  # of a partial result: kernels/dense_partials.hpp
HELD = 4  # partial results: one that is sent, one that is merged, one that is made, and one of the guess

FEW_TILES = 5  # of a guess: one worker has them sooner than two that merge their halves

# A group that does several heads one after another sends the guess of their user only with the last of them, and pays
# for the start and the end of each head: only for a gain of this factor.
MIN_GAIN_PER_ROUND = 1.05

CHOSEN_PART = 16  # of the cache is taken to be chosen, which only the device knows


def workers_of_guess(tiles: int, workers: int) -> int:
    """Return how many workers share a guess of `tiles`: 1, 4, 16 and so on, as levels of its merge have room for, until
    a share is FEW_TILES."""
    dealt = min(tiles, 1)
    while dealt < workers and tiles > FEW_TILES * dealt:
        dealt = min(merge_tree.RADIX * dealt, workers)
    return dealt


def cost(tiles: int, items: int, groups: int, workers: int, guess_tiles: int, key_tiles: int, speculate: bool) -> float:
    """Estimate how long `groups` groups of `workers` take for `items` heads of `tiles` cached key tiles each, in units
    of one tile's time. speculate: the `guess_tiles` of them are processed and merged before the others."""
    share, merges, of_guess = -(-tiles // workers), merge_tree.levels(workers), 0
    if speculate:
        dealt = workers_of_guess(min(guess_tiles, tiles), workers)
        of_guess = -(-min(guess_tiles, tiles) // dealt)
        merges += merge_tree.levels(dealt)
        share = max(share, of_guess)
    chunks = -(-of_guess // key_tiles) - (-(share - of_guess) // key_tiles)
    head = share + CHUNK_COST * chunks + MERGE_COST * merges + HEAD_COST
    return -(-items // groups) * head


def make_buffers(
    problem: Problem,
    workers: int,
    key_tiles: int,
    *,
    speculate: bool,
    peer: bool,
    rounds: int = 1,
) -> dict[str, Buffer]:
    """Return every circular buffer by its name in kernels/config.hpp. key_tiles: tiles of keys a worker processes at
    once. rounds: heads that a group does one after another.

    Buffers that other cores write into come first and have the same pages on all their cores, so that they have the
    same address everywhere: the gathered results of all users.
    """
    bands = -(-problem.group_heads // BAND_ROWS)
    tiles = {
        "mask": ("BFLOAT16", 1),
        "dense": ("FLOAT32", HELD * bands * DENSE_TILES),
        "result": ("BFLOAT16", 2 * bands),
    }
    if workers > 1:
        tiles["gathered"] = ("FLOAT32", merge_tree.slots(workers) * bands * DENSE_TILES)
    results = ("BFLOAT16", problem.users * problem.head_tiles)
    everywhere = {WORKER} | ({DECIDER} if speculate else set()) | ({EXCHANGE} if peer else set())
    on = {"exact": everywhere - {EXCHANGE}, "outgoing": {WORKER, EXCHANGE}}
    on |= dict.fromkeys(("control", "control_writer", "scratch"), everywhere)
    if speculate:
        tiles |= {"guess": results, "exact": results, "norms": ("FLOAT32", 2)}
        on |= {"guess": on["exact"], "norms": {DECIDER}}
    if peer:
        tiles["outgoing"] = results
    at_once = {"workers": workers, "key_tiles": key_tiles, "query_tiles": 1, "partials": bands, "rounds": rounds}
    found = buffers_of(INDICES, problem, tiles, {}, on, **at_once, few_tiles=FEW_TILES)
    of_group = computed_rows(aligned(problem.group_heads, BAND_ROWS) + PROBES)
    rows = dict.fromkeys(OF_GROUP, of_group) | dict.fromkeys(OF_HEADS, computed_rows(problem.query_heads))
    for name, computed in rows.items():
        if buffer := found.get(f"cb_{name}"):
            found[f"cb_{name}"] = replace(buffer, tile_rows=computed)
    for name in ("cb_dense", "cb_gathered"):
        if name in found:
            found[name] = replace(found[name], page_bytes=TILE_BYTES["FLOAT32"] * of_group // TILE)
    return found


def computed_rows(rows: int) -> int:
    """Return how many rows are computed of a tile of which so many count."""
    return UPPER_ROWS if rows <= UPPER_ROWS else TILE


@lru_cache(maxsize=1024)
def choose_work_split(
    problem: Problem,
    cores: tuple[Core, ...],
    l1_free: int,
    *,
    speculate: bool,
    guess_alone: bool = False,
    exchange: Core | None = None,
    decider: Core | None = None,
    workers_per_head: int | None = None,
    key_chunk: int | None = None,
) -> WorkSplit:
    """Choose the WorkSplit on `cores` (in order) whose buffers fit in `l1_free` bytes of each core.

    exchange: the core that talks to the peer, in `cores` or not; None without a peer. decider: the deciding core if it
    is fixed, in `cores` or not; else the last of the others. workers_per_head: default the fastest number that fits, by
    `cost` at half the cache (`guess_alone`: at the guess's tiles); fewer groups than another number gives must gain
    MIN_GAIN_PER_ROUND. key_chunk: tokens a worker processes at once, default chunk_size or, with a log line, the most
    that fit; more in a long cache, see `lengthened`. Errors: UnsupportedError with the numbers.
    """
    check_layout(workers_per_head, key_chunk, problem.max_tokens)
    cores = tuple(core for core in cores if core not in (exchange, decider))
    fewest, special = workers_per_head or 1, int(speculate and decider is None)
    if len(cores) < fewest + special:
        raise UnsupportedError(
            f"{fewest} worker(s) per head and {special} output core(s) need {fewest + special} cores, the grid "
            f"has {len(cores)} for them"
        )
    if special:
        cores, decider = cores[:-1], cores[-1]
    max_tiles = (key_chunk or problem.chunk_size) // TILE
    if problem.with_masses and max_tiles > MAX_COLUMNS:
        if key_chunk:
            raise UnsupportedError(f"key_chunk {key_chunk}: at most {MAX_COLUMNS * TILE} where masses are handed out")
        max_tiles = MAX_COLUMNS
    min_tiles = max_tiles if key_chunk else 1

    half_cache = max(problem.cache_tiles // 2, 1)
    guess_tiles = problem.guess.first_tiles + problem.guess.tail_tiles(1)
    if problem.with_chosen:
        guess_tiles += half_cache // CHOSEN_PART
    read = guess_tiles if guess_alone else half_cache

    def made(workers: int, key_tiles: int) -> dict[str, Buffer]:
        rounds = -(-problem.items // min(problem.items, max(len(cores) // workers, 1)))
        return make_buffers(problem, workers, key_tiles, speculate=speculate, peer=exchange is not None, rounds=rounds)

    def bytes_of(workers: int, key_tiles: int) -> int:
        return max(l1_bytes(made(workers, key_tiles)).values())

    best, best_cost = None, 0.0
    for workers in range(fewest, (workers_per_head or len(cores)) + 1):
        fitting = bisect_right(range(min_tiles, max_tiles + 1), l1_free, key=partial(bytes_of, workers))
        if not fitting:
            break  # more workers need more
        key_tiles = min_tiles + fitting - 1
        assignment = assign_cores(cores, problem.items, workers, decider, exchange)
        time = cost(read, problem.items, len(assignment.groups), workers, guess_tiles, key_tiles, speculate)
        gain = 1.0 if best is None or len(assignment.groups) == len(best.assignment.groups) else MIN_GAIN_PER_ROUND
        if best is None or time * gain < best_cost:
            best, best_cost = WorkSplit(assignment, key_tiles, made(workers, key_tiles)), time
    if best is None:
        buffers = made(fewest, min_tiles)
        role, needed = next((role, bytes_) for role, bytes_ in l1_bytes(buffers).items() if bytes_ > l1_free)
        raise UnsupportedError(
            f"key_chunk {min_tiles * TILE} with head_dim {problem.head_dim}, {problem.users} user(s) and {fewest} "
            f"worker(s) per head needs {needed} bytes of L1 on a {role} core, of which {l1_free} are free (largest "
            f"buffers: {largest_buffers(buffers)}); choose a smaller key_chunk, fewer workers_per_head or fewer users, "
            "or free tensors in L1"
        )
    if best.key_tiles < max_tiles:
        logger.info(
            f"speculative_flash_decode: {best.assignment.workers_per_group} worker(s) per head process "
            f"{best.key_tiles * TILE} keys at once: the {max_tiles * TILE} of a chunk do not fit the {l1_free} free "
            "bytes of L1"
        )
    elif not key_chunk:
        workers = best.assignment.workers_per_group
        key_tiles = lengthened(
            max_tiles,
            problem.cache_tiles,
            workers,
            lambda tiles: bytes_of(workers, tiles) <= l1_free and not (problem.with_masses and tiles > MAX_COLUMNS),
        )
        best = WorkSplit(best.assignment, key_tiles, made(workers, key_tiles))
    return best
