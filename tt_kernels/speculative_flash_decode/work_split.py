# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which core does what: the workers of each head, the output core and the exchange core, their parts of the cache, and
the circular buffers that must fit their L1 (README.md has the table of buffers).

`parts` mirrors common/kernels/chunk_split.hpp, which every kernel computes for itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from loguru import logger

from tt_kernels.common import merge_tree, value_rows
from tt_kernels.common.attention_checks import TILE
from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, l1_bytes, largest_buffers
from tt_kernels.common.kernel import Core
from tt_kernels.common.key_chunks import lengthened
from tt_kernels.common.priority import MAX_USERS
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.speculative_flash_decode.checks import Problem
from tt_kernels.speculative_flash_decode.guess_range import LINE_WORDS, chosen_words

WORKER, OUTPUT, EXCHANGE = "worker", "output", "exchange"

CONTROL_BYTES = 64  # and, where tiles are chosen, a word for each head of a group (kernels/control.hpp)
HANDOVER_BYTES = 16
MAX_COLUMNS = 24  # key tiles of a chunk whose masses are handed out (common/kernels/mass_columns.hpp)
ALIGNMENT = 16
LINE_BYTES = 4 * MAX_USERS
SCRATCH_LINES = 3

# Indices, and so the binaries, do not depend on which buffers a program has. The runtime places buffers in the order of
# the list it is given, which is the order of the indices.
_NAMES = (
    "guess exact outgoing gathered gathered_row_max totals handover query keys values mask ones "
    "scores weights state row_max_a row_max_b rescale rescale_other norms control "
    "control_writer scratch pages chosen masses mass_weights mass_line"
)
INDICES = {f"cb_{name}": index for index, name in enumerate(_NAMES.split())}

# What a worker's steps cost besides its key tiles, in units of one tile: per chunk (row maximum, rescale, packing), per
# step of the merge (sending a partial result and merging it), and per head. From the bench, at head_dim 64.
CHUNK_COST, MERGE_COST, HEAD_COST = 2.0, 1.5, 3.0

# What a worker could read while it merges a partial result of the guess, and while worker 0 emits it
# (common/kernels/chunk_split.hpp).
TILES_OF_MERGE, TILES_OF_EMISSION = 2, 2
FEW_TILES = 5  # of a guess: one worker has them sooner than two that merge their halves

# A group that does several heads one after another sends the guess of their user only with the last of them, and pays
# for the start and the end of each head: only for a gain of this factor.
MIN_GAIN_PER_ROUND = 1.05

CHOSEN_PART = 16  # of the cache is taken to be chosen, which only the device knows


@dataclass(frozen=True)
class Part:
    """The key tiles that one worker reads for one head: its share of the guess's two ranges, then of the middle."""

    first: range
    last: range
    middle: range

    @property
    def guess(self) -> list[int]:
        return [*self.first, *self.last]

    def tiles(self) -> list[int]:
        """List all of them, in the order they are read."""
        return [*self.guess, *self.middle]


def parts(
    tokens: int, first_tiles: int, tail_tiles: int, workers: int, speculate: bool, guess_alone: bool = False
) -> list[Part]:
    """Return the part of each worker of a group for a user with `tokens` cached tokens. first_tiles, tail_tiles: what
    the guess reads at either end (GuessRange), chosen tiles as some more of the first ones. guess_alone: the guess
    only; needs speculate=False."""
    total, split = -(-tokens // TILE), speculate or guess_alone
    first_end = min(first_tiles, total) if split else 0
    meet = total <= first_tiles + tail_tiles
    last_begin = (first_end if meet else total - tail_tiles) if split else total
    rest, guess = last_begin - first_end, total - (last_begin - first_end)
    dealt = workers_of_guess(guess, workers)
    shares = [*(_deal(guess, dealt) if dealt else []), *(workers - dealt) * [range(guess, guess)]]
    firsts = [range(min(s.start, first_end), min(s.stop, first_end)) for s in shares]
    lasts = [range(rest + max(s.start, first_end), rest + max(s.stop, first_end)) for s in shares]
    middles, ahead = [], first_end
    for size in _sizes_of_rest(0 if guess_alone else rest, guess, workers):
        middles.append(range(ahead, ahead + size))
        ahead += size
    return [Part(*ranges) for ranges in zip(firsts, lasts, middles, strict=True)]


def workers_of_guess(tiles: int, workers: int) -> int:
    """Return how many workers share a guess of `tiles`: 1, 2, 4 and so on, until a share is FEW_TILES."""
    dealt = min(tiles, 1)
    while dealt < workers and tiles > FEW_TILES * dealt:
        dealt = min(2 * dealt, workers)
    return dealt


def busy_with_guess(tiles: int, workers: int) -> list[int]:
    """Return how long each worker is busy with a guess of `tiles`, in tiles: its share, merges, and emission."""
    busy = workers * [0]
    if dealt := workers_of_guess(tiles, workers):
        for worker, share in enumerate(_deal(tiles, dealt)):
            busy[worker] = len(share) + TILES_OF_MERGE * len(merge_tree.sources_of(worker, dealt * [True]))
        busy[0] += TILES_OF_EMISSION
    return busy


def _sizes_of_rest(rest: int, guess: int, workers: int) -> list[int]:
    """Deal `rest` tiles so that all workers are busy as long. The first ones have none if they are busy longer."""
    dealt, busy = workers_of_guess(guess, workers), busy_with_guess(guess, workers)
    if not dealt or rest + sum(busy) >= (busy[0] + 1) * workers:
        shares = _deal(rest + sum(busy), workers)
        return [len(share) - own for share, own in zip(shares, busy, strict=True)]
    idle = dealt if rest <= busy[0] * (workers - dealt) else 1
    return idle * [0] + [len(share) for share in _deal(rest, workers - idle, idle)]


def _deal(tiles: int, count: int, first: int = 0) -> list[range]:
    """Deal `tiles` evenly to `count` workers, of which the first has number `first`; the larger shares go first to even
    numbers, to which the others send their partial results. Of fewer tiles than workers the first have one each."""
    order = sorted(range(count), key=lambda index: tiles >= count and (first + index) % 2)
    larger = order[: tiles % max(count, 1)]
    shares, begin = [], 0
    for index in range(count):
        end = begin + tiles // count + (index in larger)
        shares.append(range(begin, end))
        begin = end
    return shares


@dataclass(frozen=True)
class CoreAssignment:
    """groups: the workers of each group, the reducer first; group g does the heads g, g + len(groups), ... of all
    users.
    output, exchange: their cores, None if the program has none."""

    groups: tuple[tuple[Core, ...], ...]
    output: Core | None
    exchange: Core | None

    @property
    def workers_per_group(self) -> int:
        return len(self.groups[0])

    @property
    def workers(self) -> list[Core]:
        return [core for group in self.groups for core in group]

    @property
    def cores(self) -> list[Core]:
        return self.workers + [core for core in (self.output, self.exchange) if core is not None]


def assign_cores(
    cores: Sequence[Core],
    items: int,
    workers: int,
    *,
    speculate: bool,
    exchange: Core | None = None,
    output: Core | None = None,
) -> CoreAssignment:
    """Assign `cores` (in order) to the roles: as many groups of `workers` as fit, at most one for each of the `items`
    heads of all users.

    exchange: the core that talks to the peer, in `cores` or not; None without a peer. output: the core that verifies
    and writes the outputs of a speculative program, in `cores` or not; by default the last of the others.
    """
    rest = [core for core in cores if core not in (exchange, output)]
    if speculate and output is None:
        output = rest.pop()
    groups = min(items, len(rest) // workers)
    dealt = tuple(tuple(rest[g * workers : (g + 1) * workers]) for g in range(groups))
    return CoreAssignment(dealt, output, exchange)


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
    masses: bool = False,
    rounds: int = 1,
) -> dict[str, Buffer]:
    """Return every circular buffer by its name in kernels/config.hpp. key_tiles: tiles of keys a worker processes at
    once. masses: those of key tiles are handed out. rounds: heads that a group does one after another.

    Buffers that other cores write into come first and have the same pages on all their cores, so that they have the
    same address everywhere: the gathered results of all users.
    """
    head, users = problem.head_tiles, problem.users
    partial, levels = head + 1, merge_tree.levels(workers)
    columns = key_tiles if masses and not value_rows.with_ones(head) else 0
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
        ("cb_ones", "BFLOAT16", value_rows.pushes_of_ones(head) + columns, worker),
        ("cb_scores", "FLOAT32", 2 * key_tiles, worker),
        ("cb_weights", "BFLOAT16", 2 * key_tiles, worker),
        ("cb_state", "FLOAT32", 2 * partial, worker),
        ("cb_row_max_a", "BFLOAT16", 1, worker),
        ("cb_row_max_b", "BFLOAT16", 1, worker),
        ("cb_rescale", "FLOAT32", 1, worker),
        ("cb_rescale_other", "FLOAT32", 1, worker),
    ]
    if speculate:
        rows.append(("cb_norms", "FLOAT32", 2, output))
    found = {
        name: Buffer(INDICES[name], dtype, TILE_BYTES[dtype], pages, frozenset(roles))
        for name, dtype, pages, roles in rows
    }
    if problem.paging is not None:
        found["cb_pages"] = Buffer(INDICES["cb_pages"], "UINT32", problem.paging.row_bytes, 1, frozenset(worker))
    control = CONTROL_BYTES
    if problem.with_chosen:
        control += _aligned(4 * rounds)
        words = 2 * rounds * chosen_words(problem.max_tokens)
        found["cb_chosen"] = Buffer(INDICES["cb_chosen"], "UINT32", 4 * words, 1, frozenset(worker))
    everywhere = frozenset(worker | (output if speculate else set()) | (exchange if peer else set()))
    if masses:
        rows_per_head = problem.group_heads
        tiles = most_tiles(problem, workers)
        words = 4 + 2 * rows_per_head
        for name, size, pages in (
            ("cb_totals", 4 * words, 1),
            ("cb_masses", TILE_BYTES["FLOAT32"] + 4 * rows_per_head, 2),
            ("cb_mass_weights", 4 * rows_per_head * tiles, 1),
            ("cb_mass_line", -(-problem.max_tokens // (TILE * LINE_WORDS)) * LINE_WORDS * 4, 1),
        ):
            dtype = "FLOAT32" if name == "cb_masses" else "UINT32"
            found[name] = Buffer(INDICES[name], dtype, _aligned(size), pages, frozenset(worker))
    if levels or masses:
        found["cb_handover"] = Buffer(INDICES["cb_handover"], "UINT32", HANDOVER_BYTES, 1, frozenset(worker))
    for name, size in (
        ("cb_control", control),
        ("cb_control_writer", control),
        ("cb_scratch", SCRATCH_LINES * LINE_BYTES),
    ):
        found[name] = Buffer(INDICES[name], "UINT32", size, 1, everywhere)
    return found


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def most_tiles(problem: Problem, workers: int) -> int:
    """Return the most key tiles that one worker has of a head."""
    total = problem.max_tokens // TILE
    share = max(-(-total // workers), FEW_TILES)
    return min(total, share + 2 * (TILES_OF_MERGE * merge_tree.levels(workers) + TILES_OF_EMISSION + 1))


def l1_refusal(
    buffers: dict[str, Buffer], available: int, problem: Problem, workers: int, key_tiles: int
) -> UnsupportedError:
    """Return the error that says which core needs more than the `available` bytes of L1."""
    role, needed = next((role, bytes_) for role, bytes_ in l1_bytes(buffers).items() if bytes_ > available)
    return UnsupportedError(
        f"key_chunk {key_tiles * TILE} with head_dim {problem.head_dim}, {problem.users} user(s) and "
        f"{workers} worker(s) per head needs {needed} bytes of L1 on a {role} core, of which {available} "
        f"are free (largest buffers: {largest_buffers(buffers)}); choose a smaller key_chunk, fewer workers_per_head "
        "or fewer users, or free tensors in L1"
    )


@dataclass(frozen=True)
class WorkSplit:
    """assignment: the cores of each role. key_tiles: tiles of keys a worker processes at once. buffers: by name."""

    assignment: CoreAssignment
    key_tiles: int
    buffers: dict[str, Buffer]


@lru_cache(maxsize=1024)
def choose_work_split(
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
    masses: bool = False,
) -> WorkSplit:
    """Choose the WorkSplit on `cores` (in order) whose buffers fit in `l1_free` bytes of each core.

    exchange: the core that talks to the peer, in `cores` or not; None without a peer. output: the output core if it is
    fixed, in `cores` or not. workers_per_head: default the fastest number that fits, by `cost` at half the cache
    (`guess_alone`: at the guess's tiles); fewer groups than another number gives must gain MIN_GAIN_PER_ROUND.
    key_chunk: tokens a worker processes at once, default chunk_size or, with a log line, the most that fit; more in a
    long cache, see key_chunks.py. Errors: UnsupportedError with the numbers.
    """
    _check_key_chunk(key_chunk, problem.max_tokens)
    for_workers = len([core for core in cores if core not in (exchange, output)])
    verifying = int(speculate and output is None)  # a core that is no worker
    sizes = _group_sizes(for_workers, workers_per_head, bool(verifying))
    max_tiles = (key_chunk or problem.chunk_size) // TILE
    if masses and max_tiles > MAX_COLUMNS:
        if key_chunk:
            raise UnsupportedError(f"key_chunk {key_chunk}: at most {MAX_COLUMNS * TILE} where masses are handed out")
        max_tiles = MAX_COLUMNS
    min_tiles = max_tiles if key_chunk else 1

    half_cache = max(problem.max_tokens // TILE // 2, 1)
    guess_tiles = problem.guess.first_tiles + problem.guess.tail_tiles(1)
    if problem.with_chosen:
        guess_tiles += half_cache // CHOSEN_PART
    read = guess_tiles if guess_alone else half_cache

    def buffers_of(workers: int, key_tiles: int) -> dict[str, Buffer]:
        rounds = -(-problem.items // min(problem.items, max((for_workers - verifying) // workers, 1)))
        return make_buffers(problem, workers, key_tiles, speculate=speculate, peer=peer, masses=masses, rounds=rounds)

    def bytes_of(workers: int, key_tiles: int) -> int:
        return max(l1_bytes(buffers_of(workers, key_tiles)).values())

    best, best_cost = None, 0.0
    for workers in sizes:
        fitting = bisect_right(range(min_tiles, max_tiles + 1), l1_free, key=partial(bytes_of, workers))
        if not fitting:
            break  # more workers need more
        key_tiles = min_tiles + fitting - 1
        assignment = assign_cores(cores, problem.items, workers, speculate=speculate, exchange=exchange, output=output)
        time = cost(read, problem.items, len(assignment.groups), workers, guess_tiles, key_tiles, speculate)
        gain = 1.0 if best is None or len(assignment.groups) == len(best.assignment.groups) else MIN_GAIN_PER_ROUND
        if best is None or time * gain < best_cost:
            best, best_cost = WorkSplit(assignment, key_tiles, buffers_of(workers, key_tiles)), time
    if best is None:
        raise l1_refusal(buffers_of(sizes[0], min_tiles), l1_free, problem, sizes[0], min_tiles)
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
            problem.max_tokens // TILE,
            workers,
            lambda tiles: bytes_of(workers, tiles) <= l1_free and not (masses and tiles > MAX_COLUMNS),
        )
        best = WorkSplit(best.assignment, key_tiles, buffers_of(workers, key_tiles))
    return best


def _check_key_chunk(key_chunk: int | None, max_tokens: int) -> None:
    if key_chunk is None:
        return
    if type(key_chunk) is not int or not TILE <= key_chunk <= max_tokens or key_chunk % TILE:
        raise UnsupportedError(
            f"key_chunk must be a multiple of {TILE} from {TILE} to the {max_tokens} tokens of the caches, got "
            f"{key_chunk!r}"
        )


def _group_sizes(cores: int, wanted: int | None, speculate: bool) -> range:
    """Return the numbers of workers per head to consider, given `cores` besides the exchange core."""
    if wanted is not None and (type(wanted) is not int or wanted < 1):
        raise UnsupportedError(f"workers_per_head must be an integer of at least 1, got {wanted!r}")
    fewest, special = wanted or 1, int(speculate)
    available = cores - special
    if available < fewest:
        raise UnsupportedError(
            f"{fewest} worker(s) per head and {special} output core(s) need {fewest + special} cores, the grid "
            f"has {cores} for them"
        )
    return range(fewest, (wanted or available) + 1)
