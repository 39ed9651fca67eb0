# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The two speculative ranks of a pair of chips on the host: where they are, their persistent state, and who gave up on
whom. The kernel side is `kernels/peer_link.hpp` and `kernels/peer_session.hpp`."""

from __future__ import annotations

import math
import weakref

from tt_kernels.common.cores import check_core, single_cores
from tt_kernels.common.device_state import DeviceState, MeshState, PeerError
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import UnsupportedError

CLOCK_HZ = 1_000_000_000
DEFAULT_TIMEOUT_S = 2.0  # far longer than a layer, which is how long one chip waits for another

__all__ = ["ChipPairs", "PeerError", "check_fabric", "timeout_words"]


_live: weakref.WeakSet[ChipPairs] = weakref.WeakSet()


def is_pair_axis(device: ttnn.MeshDevice, axis: int) -> bool:
    """Return whether the chips along `axis` of a mesh are the two ranks of pairs, whose gates differ."""
    return any(pairs.pair_axis == axis and pairs.device.id() == device.id() for pairs in list(_live))


class Pairs(DeviceState):
    """What both kinds of pairs share: the state of every rank's exchange core."""

    STATE_WORDS = 144  # sizeof(peer::State), rounded up to 64 bytes
    FIELDS = {"calls": 12, "status": 14, "status_call": 15, "sent": 16, "ties": 17}
    REASONS = {
        1: "the peer did not arrive",
        2: "the peer arrived but its data did not",
        3: "the fabric link took no packet",
        4: "the peer is in another call",
        5: "both ranks have priority 0, so neither holds the result",
        6: "both ranks took the same role: they disagree on the gathered priorities",
        7: "the ranks skip different users",
        8: "the peer did not acknowledge the data",
        9: "the exchange before this call failed on this rank",
    }


class ChipPairs(Pairs, MeshState):
    """Every pair of neighbouring chips along `pair_axis` of a mesh; that axis has two chips.

    The chip at index 0 of the axis is speculative rank 0. core: (x, y) of the exchange core, the same on every chip.
    Of several Ethernet links between the two chips the first is taken.

    Needs FABRIC_1D. Errors: ValueError for another fabric, another shape, or a core outside the grid.
    """

    defines = (("PEER_LINK_FABRIC", "1"),)

    def __init__(self, mesh: ttnn.MeshDevice, pair_axis: int = 0, core: tuple[int, int] = (0, 0)) -> None:
        check_fabric()
        shape = tuple(mesh.shape)
        if pair_axis not in range(len(shape)) or shape[pair_axis] != 2:
            raise ValueError(f"pairs along axis {pair_axis} need a mesh with 2 chips there; its shape is {shape}")
        check_core(mesh, core)
        self.pair_axis, self.shape, self.core = pair_axis, shape, core
        _live.add(self)
        self.make_state(mesh, single_cores(core), 1)

    def sp_rank(self, coordinate: tuple[int, ...]) -> int:
        return coordinate[self.pair_axis]

    def max_write(self) -> int:
        return ttnn.get_tt_fabric_max_payload_size_bytes()

    def link_args(self, coordinate: tuple[int, ...], program: ttnn.ProgramDescriptor) -> list[int]:
        """Return the runtime arguments of PeerLink on that chip; adds the connection's semaphores to `program`."""
        other = list(coordinate)
        other[self.pair_axis] = 1 - other[self.pair_axis]
        return self.connection(coordinate, tuple(other), program)


def timeout_words(seconds: float) -> list[int]:
    """Return `seconds` as the kernels take it: cycles of the 1 GHz clock in two words, low first. Errors:
    UnsupportedError."""
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and math.isfinite(seconds)
    if not number or not 1 <= seconds * CLOCK_HZ < 1 << 64:
        raise UnsupportedError(f"a timeout is a positive, finite number of seconds, not {seconds!r}")
    cycles = int(seconds * CLOCK_HZ)
    return [cycles & 0xFFFFFFFF, cycles >> 32]


def check_fabric() -> None:
    """Raise ValueError unless the fabric is FABRIC_1D, by whose routing the kernels send along one axis."""
    found = ttnn.get_fabric_config()
    if found != ttnn.FabricConfig.FABRIC_1D:
        raise ValueError(
            f"pairs of chips need FABRIC_1D, the fabric is {found.name}: call "
            "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before the mesh is opened"
        )
