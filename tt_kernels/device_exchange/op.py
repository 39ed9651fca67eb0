# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Leave both ranks of a pair with the tensors of the higher priority (ALSpec paper, algorithm 2: the sync).

In each layer:

    exchange = DeviceExchange(ChipPairs(mesh, pair_axis=0), users=1)
    gathered = exchange(residual, priority, fused)      # in place where the priority is lower
    exchange.pairs.check()                              # when the host wants to know: did a rank give up on its peer?
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tt_kernels.common.circular_buffers import word_buffer
from tt_kernels.common.cores import check_on_device, core_set, grid_cores, noc_core_of
from tt_kernels.common.device_state import zero_words
from tt_kernels.common.kernel import (
    UNGATED_DEFINE,
    Core,
    Values,
    kernel_descriptor,
    program_of,
    require_ungated,
    semaphores_on,
)
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.peer import DEFAULT_TIMEOUT_S, ChipPairs, timeout_words
from tt_kernels.common.priority import MAX_USERS, check_priority_tensor, check_users
from tt_kernels.common.tensor_facts import facts
from tt_kernels.compute_gate.region import refuse_in_region

KERNELS = Path(__file__).parent / "kernels"
_PIECES_CB, _ROWS_CB = 0, 1
_DECISION_SEMAPHORE, _PACKED_SEMAPHORE = 0, 1
_PIECES_IN_BUFFER = 16  # pieces_in_buffer of exchange.hpp
MAX_TENSORS = 4  # tensor_0 to tensor_3 of the kernels
FACE_ROWS, ROW_BYTES, TILE_BYTES = 16, 32, 2048  # of 32 x 32 two-byte elements
PACKED_ROWS = 8  # of a tile at most, above which packing takes as long as sending whole faces
LANDING_BYTES = 1 << 16
MAX_HELPERS, TILES_PER_HELPER = 3, 10  # cores that pack rows beside the exchange core; packed tiles that one is worth


class DeviceExchange:
    """The exchange of every pair of a mesh; it keeps their `gathered` priorities at a fixed address.

    pairs: ChipPairs. users: how many priorities count, 1 to MAX_USERS.
    timeout_s: how long a rank waits for its peer before it gives up, in seconds at 1 GHz.

    `gathered`: uint32 [1, 1, 2, MAX_USERS], row-major, DRAM: row r holds the priorities of rank r.
    """

    def __init__(self, pairs: ChipPairs, users: int, timeout_s: float = DEFAULT_TIMEOUT_S):
        if not isinstance(pairs, ChipPairs):
            raise ValueError(f"pairs is a ChipPairs, not {pairs!r}")
        self._make(pairs, users, timeout_s)
        (self.gathered,), (self._landing,) = self._make_buffers(1)

    def __call__(self, tensor: ttnn.Tensor, priority: ttnn.Tensor, *more: Any) -> Any:
        """Exchange `tensor` and `more` tensors in place; return `gathered`.

        tensor: a device tensor of any shape, dtype and layout, interleaved or sharded, DRAM or L1. more: up to three
            more tensors, which go the same way in the same call.
        priority: each chip's own priorities, uint32 [1, 1, 1, MAX_USERS].

        The rank with the highest priority over its users sends; on a tie above 0, rank 0. If both are 0, nobody holds
        the result: nothing is copied and `pairs.check()` raises. A rank that gave up once does nothing until
        `pairs.reset()`.
        Errors: ValueError, and GatedRegionError inside skip_compute.
        """
        refuse_in_region("device_exchange", self.pairs.pair_axis)
        tensors = [tensor, *more]
        self._check(tensors, priority)
        if len({id(part) for part in tensors}) < len(tensors):
            raise ValueError("the parts of an exchange need a tensor each; the same one was given twice")
        given = [*tensors, priority, self._landing, self.gathered]
        ttnn.generic_op(given, self.mesh_program(tensors, priority))
        return self.gathered

    def mesh_program(self, tensors: Any, priority: ttnn.Tensor) -> Any:
        """Return the ttnn.MeshProgramDescriptor of a call."""
        programs, core = ttnn.MeshProgramDescriptor(), self.pairs.core
        helpers = self._helpers(tensors, [core])
        for place in self.pairs.coordinates():
            program = self._empty_program(helpers)
            rank, link = self.pairs.sp_rank(place), self.pairs.link_args(place, program)
            landing = self._landing
            arguments = self._arguments(
                rank, (tensors, tensors), (landing, landing), priority, self.gathered, link, helpers[core]
            )
            here = ttnn.MeshCoordinate(*place)
            programs[ttnn.MeshCoordinateRange(here, here)] = self._add_kernels(
                program, {core: arguments}, helpers, tensors, landing, priority, self.gathered
            )
        return programs

    def _make(self, pairs: Any, users: int, timeout_s: float) -> None:
        self.pairs, self.users = pairs, check_users(users)
        self._timeout = timeout_words(timeout_s)
        self._packet_bytes = pairs.max_write() // 64 * 64

    def _helpers(self, tensors: Sequence[Any], cores: Sequence[Core]) -> dict[Core, list[Core]]:
        """Return the helpers of each exchange core, of each as many: none where few rows are packed or the grid has no
        other cores."""
        free = [core for core in grid_cores(self.pairs.device) if core not in cores]
        tiles = sum(tensor.buffer_num_pages() for tensor in _packed(tensors))
        count = min(MAX_HELPERS, tiles // TILES_PER_HELPER, len(free) // len(cores))
        return {core: free[place * count : (place + 1) * count] for place, core in enumerate(cores)}

    def _arguments(
        self,
        rank: Any,
        tensors: Any,
        landings: Any,
        priority: ttnn.Tensor,
        gathered: ttnn.Tensor,
        link: Any,
        helpers: Any,
    ) -> tuple[Values, Values]:
        """Return the runtime arguments of one rank's reader and writer. tensors, landings: this rank's, the peer's."""
        own = {name: part.buffer_address() for name, part in _named(tensors[0]).items()}
        noc_core = noc_core_of(self.pairs.device)
        writer = {
            **own,
            "sp_rank": rank,
            "state": self.pairs.state.buffer_address(),
            "timeout": self._timeout,
            **{f"peer_{name}": part.buffer_address() for name, part in _named(tensors[1]).items()},
            "peer_landing": landings[1].buffer_address(),
            "priority": priority.buffer_address(),
            "gathered": gathered.buffer_address(),
            "helpers": [part for helper in helpers for part in noc_core(helper)],
            "link": link,
        }
        return own | {"landing": landings[0].buffer_address()}, writer

    def _add_kernels(
        self,
        program: ttnn.ProgramDescriptor,
        arguments: dict[Any, Any],
        helpers: dict[Core, list[Core]],
        tensors: Any,
        landing: ttnn.Tensor,
        priority: ttnn.Tensor,
        gathered: ttnn.Tensor,
    ) -> Any:
        """Give `program` its kernels and buffers; return it. arguments: reader's and writer's by exchange core."""
        named, packed = _named(tensors), _packed(tensors)
        packed_bytes = sum(2 * _row_bytes(tensor) * tensor.buffer_num_pages() for tensor in packed)
        packed_ids = {id(tensor) for tensor in packed}
        whole = [tensor for tensor in tensors if id(tensor) not in packed_ids]
        piece_bytes = min(max([priority.buffer_aligned_page_size(), *map(_used_bytes, whole)]), self._packet_bytes)
        constants = {
            "pieces_cb": _PIECES_CB,
            "rows_cb": _ROWS_CB,
            "decision_semaphore": _DECISION_SEMAPHORE,
            "packed_semaphore": _PACKED_SEMAPHORE,
            "helpers": max(map(len, helpers.values())),
            "packed_bytes": packed_bytes,
            "piece_bytes": piece_bytes,
            "packet_bytes": self._packet_bytes,
        }
        for number, (name, tensor) in enumerate(named.items()):
            pages = tensor.buffer_num_pages() if number < len(tensors) else 0
            packs = id(tensor) in packed_ids
            constants |= {
                f"packed_pages_{name}": pages if packs else 0,
                f"row_bytes_{name}": _row_bytes(tensor) if packs and pages else 0,
                f"pages_{name}": 0 if packs else pages,
                f"page_bytes_{name}": tensor.buffer_aligned_page_size(),
                f"used_bytes_{name}": _used_bytes(tensor),
            }
        rows, noc_core = named | {"landing": landing}, noc_core_of(self.pairs.device)
        defines = [UNGATED_DEFINE, *self.pairs.defines]
        kernel = partial(kernel_descriptor, accessors=rows, constants=constants, defines=defines)
        kernels = [
            kernel(
                KERNELS / "reader.cpp", "Reader", per_core={core: reader for core, (reader, _) in arguments.items()}
            ),
            kernel(
                KERNELS / "writer.cpp",
                "Writer",
                accessors=rows | {"priority": priority, "gathered": gathered},
                constants=constants | {"users": self.users},
                per_core={core: writer for core, (_, writer) in arguments.items()},
            ),
        ]
        for half, config in enumerate(("Reader", "Writer")):
            shares = {
                helper: reader
                | {"share": 1 + 2 * place + half}
                | dict(zip(("exchange_x", "exchange_y"), noc_core(core), strict=True))
                for core, (reader, _) in arguments.items()
                for place, helper in enumerate(helpers[core])
            }
            if shares:
                kernels.append(kernel(KERNELS / "helper.cpp", config, per_core=shares))
        program.kernels = kernels
        program.cbs = [
            word_buffer(cb, size, cores, pages)
            for cb, size, pages, cores in (
                (_PIECES_CB, piece_bytes, _PIECES_IN_BUFFER, core_set(*arguments)),
                (_ROWS_CB, packed_bytes, 1, _with_helpers(helpers)),
            )
            if size > 0
        ]
        return require_ungated(program, "device_exchange")

    def _empty_program(self, helpers: dict[Core, list[Core]]) -> Any:
        return program_of((), semaphores=semaphores_on(_with_helpers(helpers), 0, 0))

    def _make_buffers(self, ranks: int) -> tuple[list[Any], list[Any]]:
        """Return `gathered` of so many ranks, and where packed rows of their peers land."""
        pages = -(-LANDING_BYTES // self._packet_bytes)
        shapes = (1, 1, 2, MAX_USERS), (1, 1, pages, self._packet_bytes // 4)
        gathered, landing = ([zero_words(self.pairs.device, shape) for _ in range(ranks)] for shape in shapes)
        return gathered, landing

    def _check(self, tensors: Sequence[Any], priority: ttnn.Tensor) -> None:
        """Raise ValueError for one rank's inputs that cannot be exchanged."""
        if len(tensors) > MAX_TENSORS:
            raise ValueError(f"an exchange takes up to {MAX_TENSORS} tensors, not {len(tensors)}")
        for name, part in (*(("tensor", tensor) for tensor in tensors), ("priority", priority)):
            if not facts(name, part).on_device:
                raise ValueError(f"{name} must be on the device, it is in host memory")
            check_on_device(name, part, self.pairs.device)
            if part.volume() == 0:
                raise ValueError(f"the {name} is empty, of shape {tuple(part.shape)}: there is nothing to exchange")
        check_priority_tensor(priority)


def _with_helpers(helpers: dict[Core, list[Core]]) -> Any:
    """Return exchange cores and helpers as a ttnn.CoreRangeSet."""
    return core_set(*helpers, *(helper for several in helpers.values() for helper in several))


def _rows(tensor: ttnn.Tensor) -> int:
    """Return how many rows of each tile a tensor of two-byte elements uses, all where it is of another kind."""
    fits = tensor.layout == ttnn.TILE_LAYOUT and tensor.dtype == ttnn.bfloat16
    if not fits or tensor.buffer_aligned_page_size() != TILE_BYTES:
        return 2 * FACE_ROWS
    return min(tensor.shape[-2] if len(tensor.shape) > 1 else 1, 2 * FACE_ROWS)


def _used_bytes(tensor: ttnn.Tensor) -> int:
    """Return how many bytes of each page hold values: the first two faces of a tile if none has more than 16 rows, else
    all."""
    page = tensor.buffer_aligned_page_size()
    return page // 2 if _rows(tensor) <= FACE_ROWS else page


def _row_bytes(tensor: ttnn.Tensor) -> int:
    """Return how many bytes of each of a tile's first two faces travel packed; 0 for a tensor that does not."""
    rows = _rows(tensor)
    return rows * ROW_BYTES if rows <= PACKED_ROWS and _whole_shards(tensor) else 0


def _whole_shards(tensor: ttnn.Tensor) -> bool:
    """Return whether a tensor is interleaved, or every shard of it holds as many tiles."""
    if not tensor.is_sharded():
        return True
    shard = tensor.memory_config().shard_spec
    if shard is None:
        return False
    return shard.grid.num_cores() * (shard.shape[0] * shard.shape[1] * 2) == tensor.buffer_num_pages() * TILE_BYTES


def _packed(tensors: Sequence[Any]) -> list[Any]:
    """Return the tensors whose rows travel packed: those that have few, in this order, as long as they fit the landing
    buffer."""
    found, room = [], LANDING_BYTES
    for tensor in tensors:
        size = 2 * _row_bytes(tensor) * tensor.buffer_num_pages()
        if 0 < size <= room:
            found.append(tensor)
            room -= size
    return found


def _named(tensors: Sequence[Any]) -> dict[Any, Any]:
    """Return the exchange's tensors by their names in the kernels; unused names stand for the first tensor and take no
    page of it."""
    return {f"tensor_{n}": tensors[n] if n < len(tensors) else tensors[0] for n in range(MAX_TENSORS)}
