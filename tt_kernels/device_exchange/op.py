# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Both ranks of a pair end with the tensor of the higher priority (ALSpec paper, algorithm 2: the sync).

In each layer:

    exchange = DeviceExchange(ChipPairs(mesh, pair_axis=0), users=1)
    gathered = exchange(residual, priority, q, k, v)    # in place where the priority is lower
    exchange.check()                                    # when the host wants to know: did a rank give up on its peer?
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tt_kernels.common.cores import check_on_device, core_set
from tt_kernels.common.kernel import Values, kernel_descriptor
from tt_kernels.common.peer import ChipPairs, CorePair, timeout_words
from tt_kernels.common.priority import MAX_USERS, check_priority_tensor, check_users
from tt_kernels.common.ungated import UNGATED_DEFINE, require_ungated
from tt_kernels.compute_gate.region import refuse_in_region

if TYPE_CHECKING:
    import ttnn

KERNELS = Path(__file__).parent / "kernels"
_PIECES_CB = 0
_DECISION_SEMAPHORE = 0
_PIECES_IN_BUFFER = 16  # pieces_in_buffer of exchange.hpp
MAX_TENSORS = 4  # tensor_0 to tensor_3 of the kernels
DEFAULT_TIMEOUT_S = 2.0


class DeviceExchange:
    """The exchange of a set of pairs; it keeps their `gathered` priorities at a fixed address.

    pairs: ChipPairs or CorePair. users: how many priorities count, 1 to MAX_USERS.
    timeout_s: how long a rank waits for its peer before it gives up, in seconds at 1 GHz.

    `gathered`: uint32 [1, 1, 2, MAX_USERS], row-major, DRAM: row r holds the priorities of rank r. One tensor for
    ChipPairs, a list of two for CorePair.
    """

    def __init__(self, pairs: ChipPairs | CorePair, users: int, timeout_s: float = DEFAULT_TIMEOUT_S):
        if not isinstance(pairs, (ChipPairs, CorePair)):
            raise ValueError(f"pairs is a ChipPairs or a CorePair, not {pairs!r}")
        self.pairs, self.users = pairs, check_users(users)
        self._timeout = timeout_words(timeout_s)
        self._gathered = [self._make_gathered() for _ in range(pairs.ranks_per_chip)]
        self.gathered = self._gathered if pairs.ranks_per_chip == 2 else self._gathered[0]

    def __call__(self, tensor, priority, *more):
        """Exchange `tensor` and `more` tensors, in place; returns `gathered`.

        tensor: a device tensor of any shape, dtype and layout, interleaved or sharded, DRAM or L1; for
            CorePair a pair of tensors of equal specification, one a rank. more: as tensor, up to three, which
            go the same way in the same call.
        priority: each rank's own row, uint32 [1, 1, 1, MAX_USERS]; for CorePair two of them.

        The rank with the highest priority over its users sends; on a tie above 0, rank 0. Both 0 means
        that nobody holds the result: nothing is copied and `check` raises. A rank that gave up once does
        nothing any more until `pairs.reset()`. Errors: ValueError, and GatedRegionError inside skip_compute.
        """
        import ttnn

        refuse_in_region("device_exchange", getattr(self.pairs, "pair_axis", None))
        tensors, priorities = self._checked((tensor, *more), priority)
        if isinstance(self.pairs, CorePair):
            program = self.core_pair_program(tensors, priorities)
        else:
            program = self.mesh_program([part for (part,) in tensors], priorities[0])
        given = [part for parts in tensors for part in parts]
        ttnn.generic_op([*given, *priorities, *self._gathered], program)
        return self.gathered

    def check(self) -> None:
        """Raise PeerError if a rank gave up. Waits for the device."""
        self.pairs.check()

    def mesh_program(self, tensors, priority):
        """Return the ttnn.MeshProgramDescriptor of a call between chips. tensors: the same on each chip."""
        import ttnn

        programs = ttnn.MeshProgramDescriptor()
        for place in self.pairs.coordinates():
            program = ttnn.ProgramDescriptor(kernels=[], semaphores=self._semaphores(core_set(self.pairs.core)), cbs=[])
            arguments = self._arguments(
                self.pairs.sp_rank(place),
                tensors,
                tensors,
                priority,
                self._gathered[0],
                self.pairs.link_args(place, program),
            )
            self._add_kernels(program, {self.pairs.core: arguments}, tensors, priority)
            here = ttnn.MeshCoordinate(*place)
            programs[ttnn.MeshCoordinateRange(here, here)] = require_ungated(program, "device_exchange")
        return programs

    def core_pair_program(self, tensors, priorities, ranks=(0, 1)):
        """Return the ttnn.ProgramDescriptor of a call between two cores. tensors: pairs, one per rank. ranks: those
        that run; the peer of one that runs alone stays silent."""
        import ttnn

        arguments = {}
        for rank in ranks:
            core = self.pairs.cores[rank]
            mine, peers = ([parts[m] for parts in tensors] for m in (rank, 1 - rank))
            link = self.pairs.link_args(rank)
            arguments[core] = self._arguments(rank, mine, peers, priorities[rank], self._gathered[rank], link)
        program = ttnn.ProgramDescriptor(kernels=[], semaphores=self._semaphores(core_set(*arguments)), cbs=[])
        self._add_kernels(program, arguments, [parts[0] for parts in tensors], priorities[0])
        return require_ungated(program, "device_exchange")

    def _arguments(self, rank, mine, peers, priority, gathered, link) -> tuple[Values, Values]:
        """Return the runtime arguments of one rank's reader and writer."""
        writer = {
            "sp_rank": rank,
            "state": self.pairs.state.buffer_address(),
            "timeout": self._timeout,
            **{f"peer_{name}": part.buffer_address() for name, part in _named(peers).items()},
            "priority": priority.buffer_address(),
            "gathered": gathered.buffer_address(),
            "link": link,
        }
        reader = {name: part.buffer_address() for name, part in _named(mine).items()}
        return reader, writer

    def _add_kernels(self, program, arguments: dict, tensors, priority) -> None:
        import ttnn

        cores, named = core_set(*arguments), _named(tensors)
        longest_page = max(tensor.buffer_aligned_page_size() for tensor in tensors)
        piece_bytes = min(longest_page, self.pairs.max_write() // 64 * 64)
        constants = {
            "pieces_cb": _PIECES_CB,
            "decision_semaphore": _DECISION_SEMAPHORE,
            "piece_bytes": piece_bytes,
        }
        for number, (name, tensor) in enumerate(named.items()):
            constants[f"pages_{name}"] = tensor.buffer_num_pages() if number < len(tensors) else 0
            constants[f"page_bytes_{name}"] = tensor.buffer_aligned_page_size()
        defines = [UNGATED_DEFINE, *self.pairs.defines]
        program.kernels = [
            kernel_descriptor(
                KERNELS / "reader.cpp",
                ttnn.ReaderConfigDescriptor(),
                constants=constants,
                accessors=named,
                per_core={core: reader for core, (reader, _) in arguments.items()},
                defines=defines,
            ),
            kernel_descriptor(
                KERNELS / "writer.cpp",
                ttnn.WriterConfigDescriptor(),
                constants=constants | {"users": self.users},
                accessors=named | {"priority": priority, "gathered": self._gathered[0]},
                per_core={core: writer for core, (_, writer) in arguments.items()},
                defines=defines,
            ),
        ]
        page = ttnn.CBFormatDescriptor(buffer_index=_PIECES_CB, data_format=ttnn.uint32, page_size=piece_bytes)
        size = _PIECES_IN_BUFFER * piece_bytes
        program.cbs = [ttnn.CBDescriptor(total_size=size, core_ranges=cores, format_descriptors=[page])]

    def _semaphores(self, cores):
        import ttnn

        return [ttnn.SemaphoreDescriptor(id=_DECISION_SEMAPHORE, core_ranges=cores, initial_value=0)]

    def _make_gathered(self):
        import ttnn

        device = self.pairs.device
        return ttnn.from_torch(
            torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int32),
            dtype=ttnn.uint32,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            device=device,
            mesh_mapper=ttnn.ReplicateTensorToMesh(device),
        )

    def _checked(self, given: tuple, priority) -> tuple[list[list[ttnn.Tensor]], list[ttnn.Tensor]]:
        """Check the call; return each tensor's parts by rank, and the priorities by rank."""
        if len(given) > MAX_TENSORS:
            raise ValueError(f"an exchange takes up to {MAX_TENSORS} tensors, not {len(given)}")
        tensors, priorities = [self._parts("tensor", one) for one in given], self._parts("priority", priority)
        for part in priorities:
            check_priority_tensor(part)
        for parts in tensors:
            specs = [(tuple(t.shape), t.dtype, t.layout, t.memory_config()) for t in parts]
            if specs[0] != specs[-1]:
                raise ValueError(f"the ranks' tensors differ: {specs[0]} and {specs[-1]}")
            if parts[0].volume() == 0:
                raise ValueError(
                    f"the tensors are empty, of shape {tuple(parts[0].shape)}: there is nothing to exchange"
                )
        for name, parts_of in (("tensor", tensors), ("priority", [priorities])):
            # Addresses tell ranks apart, not parts: while a graph is captured without dispatch all have one.
            alike = [len(parts) == 2 and parts[0].buffer_address() == parts[1].buffer_address() for parts in parts_of]
            if any(alike) or len({id(parts[0]) for parts in parts_of}) < len(parts_of):
                raise ValueError(
                    f"the ranks of a pair and the parts of an exchange need a {name} each; the same one was given twice"
                )
        return tensors, priorities

    def _parts(self, name: str, given) -> list[ttnn.Tensor]:
        """Return `given` as a list of as many device tensors as there are ranks per chip."""
        import ttnn

        wanted = self.pairs.ranks_per_chip
        parts = [given] if isinstance(given, ttnn.Tensor) else given
        if not isinstance(parts, Sequence) or not all(isinstance(part, ttnn.Tensor) for part in parts):
            raise ValueError(f"{name} is a ttnn.Tensor or a list of them, not {given!r}")
        if len(parts) != wanted:
            raise ValueError(f"{type(self.pairs).__name__} takes {wanted} of {name}, not {len(parts)}")
        for part in parts:
            if not part.is_allocated():
                raise ValueError(f"{name} has been deallocated")
            if part.storage_type() != ttnn.StorageType.DEVICE:
                raise ValueError(f"{name} must be on the device, not {part.storage_type()}")
            check_on_device(name, part, self.pairs.device)
        return list(parts)


def _named(tensors: Sequence) -> dict:
    """Return the exchange's tensors by their names in the kernels; unused names stand for the first tensor and take no
    page of it."""
    return {f"tensor_{n}": tensors[n] if n < len(tensors) else tensors[0] for n in range(MAX_TENSORS)}
