# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which core of an attention op does what, how many keys a worker processes at once, and the circular buffers that all
workers have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tt_kernels.common import merge_tree
from tt_kernels.common.attention_checks import TILE, AttentionShape
from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, aligned
from tt_kernels.common.kernel import Core
from tt_kernels.common.priority import MAX_USERS
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.speculative_flash_decode.guess_range import chosen_words

WORKER, DECIDER, EXCHANGE = "worker", "decider", "exchange"

CONTROL_BYTES = 64  # kernels/attention_control.hpp
SHARE_BYTES = 48  # kernels/head_share.hpp
SCRATCH_BYTES = 3 * 4 * MAX_USERS  # kernels/fetch_control.hpp, kernels/guess_verdict.hpp
HANDOVER_BYTES = 16
REGISTERS = 4  # destination tiles, float32 in half-sync mode
MAX_COLUMNS = 24  # key tiles of a chunk whose masses are handed out (kernels/mass_columns.hpp)
LINE_BYTES = 32  # of DRAM
# What a worker could read while it merges the parts of a guess of one level, and while worker 0 emits the guess
# (kernels/chunk_split.hpp).
TILES_OF_MERGE, TILES_OF_EMISSION = 2, 2
# Each chunk rounds the softmax state to 9 bits (kernels/online_softmax.hpp). The roundings of random scores add up as
# the root of their number: 0.58 % of the result after 128 of them, 0.46 % after 64.
MAX_CHUNKS = 64


@dataclass(frozen=True)
class CoreAssignment:
    """groups: the workers of each group, the reducer first; group g does the jobs g, g + len(groups), ... of all users.
    decider: the core that decides on guesses, exchange: the one that talks to the peer; None if there is none."""

    groups: tuple[tuple[Core, ...], ...]
    decider: Core | None = None
    exchange: Core | None = None

    @property
    def workers_per_group(self) -> int:
        return len(self.groups[0])

    @property
    def workers(self) -> list[Core]:
        return [core for group in self.groups for core in group]

    @property
    def by_role(self) -> dict[str, list[Core]]:
        named = ((DECIDER, self.decider), (EXCHANGE, self.exchange))
        return {WORKER: self.workers} | {role: [core] for role, core in named if core is not None}

    @property
    def cores(self) -> list[Core]:
        return [core for cores in self.by_role.values() for core in cores]


def assign_cores(
    cores: Sequence[Core], jobs: int, workers: int, decider: Core | None = None, exchange: Core | None = None
) -> CoreAssignment:
    """Deal `cores` (in order, without the other two) to as many groups of `workers` as fit, at most one a job."""
    groups = min(jobs, len(cores) // workers)
    dealt = tuple(tuple(cores[g * workers : (g + 1) * workers]) for g in range(groups))
    return CoreAssignment(dealt, decider, exchange)


@dataclass(frozen=True)
class WorkSplit:
    """assignment: the cores of each role. key_tiles: tiles of keys a worker processes at once. buffers: by name."""

    assignment: CoreAssignment
    key_tiles: int
    buffers: dict[str, Buffer]


def lengthened(key_tiles: int, cache_tiles: int, workers: int, fits: Callable[[int], bool]) -> int:
    """Return the key tiles of a chunk: `key_tiles`, or their lowest multiple with which each of `workers` that share a
    cache of `cache_tiles` goes through it in MAX_CHUNKS chunks, or the highest below that which `fits`."""
    wanted = key_tiles * -(-cache_tiles // (workers * MAX_CHUNKS * key_tiles))
    return next((tiles for tiles in range(wanted, key_tiles, -key_tiles) if fits(tiles)), key_tiles)


def most_tiles(cache_tiles: int, workers: int, few_tiles: int) -> int:
    """Return the most key tiles that one worker has of a head. few_tiles: of a guess that workers no longer share."""
    share = max(-(-cache_tiles // workers), few_tiles)
    return min(cache_tiles, share + 2 * (TILES_OF_MERGE * merge_tree.levels(workers) + TILES_OF_EMISSION + 1))


def buffers_of(
    indices: Mapping[str, int],
    shape: AttentionShape,
    tiles: Mapping[str, tuple[str, int]],
    words: Mapping[str, int],
    on: Mapping[str, set[str]],
    *,
    workers: int,
    key_tiles: int,
    query_tiles: int,
    partials: int,
    rounds: int,
    few_tiles: int,
    mass_pages: int = 2,
) -> dict[str, Buffer]:
    """Return circular buffers by their names in the kernels: those that all attention ops have, and an op's own.

    tiles: dtype and number; words: bytes of a page. on: the roles whose cores have a buffer, by default workers.
    key_tiles, query_tiles: that a worker takes at once. partials: results that compute hands over together
        (kernels/partial_merge.hpp). rounds: jobs that a group does one after another. few_tiles: of `most_tiles`.
        mass_pages: of masses handed out ahead (kernels/masses.hpp).
    """
    head = shape.head_tiles
    # A tile of ones follows each row of values where output and row sums fit the registers together, so that one
    # multiplication makes both: the host side of kernels/value_rows.hpp.
    fit = head < REGISTERS
    tiles = {
        "query": ("BFLOAT16", query_tiles * head),
        "keys": (shape.cache_dtype, 2 * key_tiles * head),
        "values": (shape.cache_dtype, 2 * key_tiles * (head + fit)),
        "ones": ("BFLOAT16", 2 if fit else 1 + key_tiles * shape.with_masses),
        "scores": ("FLOAT32", 2 * key_tiles),
        "weights": ("BFLOAT16", 2 * key_tiles),
        "state": ("FLOAT32", (query_tiles + 1) * (head + 1)),
        "row_max_a": ("BFLOAT16", query_tiles),
        "row_max_b": ("BFLOAT16", query_tiles),
        "rescale": ("FLOAT32", 1),
        **tiles,
    }
    words = {"control": CONTROL_BYTES, "control_writer": CONTROL_BYTES, "scratch": SCRATCH_BYTES, **words}
    if shape.with_chosen:  # bitmaps (kernels/chosen_heads.hpp)
        words["chosen"] = 8 * rounds * chosen_words(shape.max_tokens)
    if shape.paging is not None:
        words["pages"] = shape.paging.row_bytes
    sizes = {name: (dtype, TILE_BYTES[dtype], pages) for name, (dtype, pages) in tiles.items()}
    sizes |= {name: ("UINT32", size, 1) for name, size in words.items()}
    sizes |= dict.fromkeys(("share", "share_writer"), ("UINT32", SHARE_BYTES, 2))  # of the head at work and the next
    if workers > 1 or shape.with_masses:
        sizes["handover"] = ("UINT32", HANDOVER_BYTES, partials)
    if shape.with_masses:
        rows, most = shape.group_heads, most_tiles(shape.cache_tiles, workers, few_tiles)
        totals, line = aligned(4 * (4 + 2 * rows), LINE_BYTES), aligned(4 * shape.cache_tiles, LINE_BYTES)
        sizes["masses"] = ("FLOAT32", aligned(TILE_BYTES["FLOAT32"] + 4 * rows), mass_pages)
        sizes["mass_words"] = ("UINT32", aligned(totals + line + 4 * rows * most), 1)
    return {
        f"cb_{name}": Buffer(indices[f"cb_{name}"], *size, frozenset(on.get(name, {WORKER})))
        for name, size in sizes.items()
    }


def check_layout(workers_per_head: int | None, key_chunk: int | None, max_tokens: int) -> None:
    """Raise UnsupportedError unless `workers_per_head` is None or a number of workers, and `key_chunk` None or a
    multiple of 32 within the cache."""
    if workers_per_head is not None and (type(workers_per_head) is not int or workers_per_head < 1):
        raise UnsupportedError(f"workers_per_head must be an integer of at least 1, got {workers_per_head!r}")
    if key_chunk is not None and (
        type(key_chunk) is not int or not TILE <= key_chunk <= max_tokens or key_chunk % TILE
    ):
        raise UnsupportedError(
            f"key_chunk must be a multiple of {TILE} from {TILE} to the {max_tokens} tokens of the caches, got "
            f"{key_chunk!r}"
        )
