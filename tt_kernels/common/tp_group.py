# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The chips that share a user's heads (tensor parallelism) and therefore decide together on its guess.

The kernel side is `kernels/tp_session.hpp`.
"""

from __future__ import annotations

from tt_kernels.common.cores import check_core, single_cores
from tt_kernels.common.device_state import MeshState
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.peer import DEFAULT_TIMEOUT_S, check_fabric, timeout_words

MAX_CHIPS = 8


class TpChips(MeshState):
    """State on one core of every chip of the TP groups along `tp_axis` of a mesh, 2 to MAX_CHIPS chips each, and that
    core's links to the chips of its group.

    core: (x, y), the same on every chip. timeout_s: how long a chip waits for another, in seconds at 1 GHz.

    Needs FABRIC_1D. Errors: ValueError for another fabric, another shape, or a core outside the grid.
    """

    FIELDS = {"calls": 8, "status": 9, "status_call": 10, "silent": 11}

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        tp_axis: int = 1,
        core: tuple[int, int] = (0, 0),
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        check_fabric()
        shape = tuple(mesh.shape)
        if tp_axis not in range(len(shape)) or not 2 <= shape[tp_axis] <= MAX_CHIPS:
            raise ValueError(
                f"TP groups along axis {tp_axis} need a mesh with 2 to {MAX_CHIPS} chips there; its shape is {shape}"
            )
        check_core(mesh, core)
        self.tp_axis, self.shape, self.core = tp_axis, shape, core
        self.chips, self.timeout_s, self.timeout = shape[tp_axis], timeout_s, timeout_words(timeout_s)
        self.make_state(mesh, single_cores(core), 1)

    def tp_rank(self, coordinate: tuple[int, ...]) -> int:
        """Return the index of a chip in its TP group."""
        return coordinate[self.tp_axis]

    def link_args(self, coordinate: tuple[int, ...], program: ttnn.ProgramDescriptor, link: int = 0) -> list[int]:
        """Return the runtime arguments of tp::Links on that chip; adds the connections' semaphores to `program`. link:
        which Ethernet link between two chips."""
        flags, connections = [], []
        for step in (1, -1):
            place = list(coordinate)
            place[self.tp_axis] += step
            flags.append(int(0 <= place[self.tp_axis] < self.chips))
            if flags[-1]:
                connections += self.connection(coordinate, tuple(place), program, link)
        return [*flags, *connections]


class TpGroup(TpChips):
    """The chips of a TP group, which share the heads of the same users.

    core: the output core; not the exchange core of a pair. timeout_s: for the numbers of another chip; five times as
    long for its vote, which may wait for a peer. Otherwise as TpChips.
    """

    STATE_WORDS = 640  # sizeof(tp::State), rounded up to 64 bytes
    REASONS = {
        1: "TP rank {silent} sent no numbers",
        2: "TP rank {silent} did not vote",
        3: "the fabric link took no packet",
        4: "TP rank {silent} is in another call",
    }
    defines = (("TP_GROUP", "1"), ("PEER_LINK_FABRIC", "1"))
