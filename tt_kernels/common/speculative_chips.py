# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The other chips of a call that emits a guess: the peer that receives it, and the TP group that decides on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tt_kernels.common.circular_buffers import TILE_BYTES
from tt_kernels.common.kernel import Values
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.peer import DEFAULT_TIMEOUT_S, ChipPairs, timeout_words
from tt_kernels.common.priority import MAX_USERS
from tt_kernels.common.tensor_facts import UnsupportedError, check_words, facts
from tt_kernels.common.tp_group import TpGroup
from tt_kernels.compute_gate.region import refuse_in_region


@dataclass(frozen=True)
class Peer:
    """How a call finds its peer.

    pairs: ChipPairs of this op alone (device_exchange needs its own): its cores are the exchange cores and its state
        counts the calls. `pairs.check()` raises PeerError that says which chip gave up.
    gathered: the priorities of both speculative ranks as device_exchange returns them, uint32 [1, 1, 2, MAX_USERS]. The
        rank whose users have the highest priority sends; on a tie rank 0.
    timeout_s: how long a chip waits for its peer, in seconds at 1 GHz. A sender that gave up accepts no guess; the
        outputs of a receiver that gave up are undefined. Neither talks to its peer again until `pairs.reset()`.
    """

    pairs: ChipPairs
    gathered: Any
    timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True)
class OtherChips:
    """What a core that talks to other chips needs: defines of its kernel, and runtime arguments by name."""

    defines: Sequence[tuple[str, str]]
    values: Values


@dataclass(frozen=True)
class ChipArgs:
    """One chip's place. sp_rank: 0 or 1; rank 0 sends when the priorities are equal. peer: the other rank, for the
    exchange core (kernels/guess_exchange.hpp); tp: the TP group that shares the users' heads, for the deciding core
    (kernels/guess_verdict.hpp); None where there is none."""

    sp_rank: int = 0
    peer: OtherChips | None = None
    tp: OtherChips | None = None


ALONE = ChipArgs()


def mesh_program(
    peer: Peer | None,
    tp_group: TpGroup | None,
    exact: Any,
    empty: Callable[[], Any],
    fill: Callable[[Any, ChipArgs], Any],
) -> Any:
    """Return the program of a call: of every chip alike without other chips, else a ttnn.MeshProgramDescriptor.

    exact: the output, in whose place on the peer the guess goes. empty(): a program with semaphores only; fill(program,
    chip): adds the rest.
    """
    chips = tp_group if peer is None else peer.pairs
    if chips is None:
        return fill(empty(), ALONE)
    programs = ttnn.MeshProgramDescriptor()
    for place in chips.coordinates():
        here, program = ttnn.MeshCoordinate(*place), empty()
        sp_rank, peers, tp = 0, None, None
        if peer is not None:
            sp_rank, link = peer.pairs.sp_rank(place), peer.pairs.link_args(place, program)
            peers = peer_args(peer.pairs, exact, peer.timeout_s, link)
        if tp_group is not None:
            numbers: dict[str, Any] = {"tp_state": tp_group.state.buffer_address(), "tp_rank": tp_group.tp_rank(place)}
            numbers |= {"tp_chips": tp_group.chips, "tp_timeout": tp_group.timeout}
            tp = OtherChips(tp_group.defines, numbers | {"tp_links": tp_group.link_args(place, program)})
        programs[ttnn.MeshCoordinateRange(here, here)] = fill(program, ChipArgs(sp_rank, peers, tp))
    return programs


def peer_args(pairs: ChipPairs | Any, peer_exact: Any, timeout_s: float, link: Sequence[int]) -> OtherChips:
    """Return what an exchange core needs. peer_exact: the peer's output tensor; link: arguments of its PeerLink."""
    values: dict[str, Any] = {"state": pairs.state.buffer_address(), "timeout": timeout_words(timeout_s)}
    values |= {"peer_exact": peer_exact.buffer_address(), "link": link}
    return OtherChips([*pairs.defines, ("PEER_MAX_WRITE", str(pairs.max_write()))], values)


def gathered_of(peer: Peer | None) -> Any:
    """Return the gathered priorities of a call, None without a peer. Errors: UnsupportedError for what is no Peer."""
    if peer is None:
        return None
    if not isinstance(peer, Peer):
        raise UnsupportedError(f"peer must be a Peer, it is a {type(peer).__qualname__}")
    return peer.gathered


def check_chips(
    op: str, peer: Peer | None, tp_group: TpGroup | None, priority: ttnn.Tensor | None, device: ttnn.MeshDevice
) -> None:
    """Raise UnsupportedError, or GatedRegionError, for other chips that `op` cannot run with. priority: this rank's."""
    if peer is not None:
        refuse_in_region(op, getattr(peer.pairs, "pair_axis", None))
        if not isinstance(peer.pairs, ChipPairs):
            raise UnsupportedError(f"peer.pairs must be a ChipPairs, it is a {type(peer.pairs).__qualname__}")
        if (most := peer.pairs.max_write()) < TILE_BYTES["BFLOAT16"]:
            raise UnsupportedError(
                f"a guess travels in packets of a tile, {TILE_BYTES['BFLOAT16']} bytes; the fabric's hold {most}"
            )
        check_rank(priority, peer.gathered, peer.timeout_s)
    shape = tuple(device.shape)
    if tp_group is None:
        shared = [axis for axis, chips in enumerate(shape) if chips > 1 and peer and axis != peer.pairs.pair_axis]
        if shared:
            raise UnsupportedError(
                f"on a mesh of shape {shape} the chips along axis {shared[0]} share each user's heads and must "
                "decide together: give tp_group=TpGroup(...)"
            )
        return
    refuse_in_region(op, getattr(tp_group, "tp_axis", None))
    if not isinstance(tp_group, TpGroup):
        raise UnsupportedError(f"tp_group must be a TpGroup, it is a {type(tp_group).__qualname__}")
    if tp_group.device.id() != device.id():
        raise UnsupportedError(f"tp_group is on mesh {tp_group.device.id()}, the tensors on mesh {device.id()}")
    if peer is None:
        return
    if peer.pairs.pair_axis == tp_group.tp_axis:
        raise UnsupportedError(f"peer.pairs and tp_group both use axis {tp_group.tp_axis} of the mesh")
    if peer.timeout_s > tp_group.timeout_s:
        raise UnsupportedError(
            f"a chip of a TP group waits {tp_group.timeout_s} s for another, which may wait {peer.timeout_s} s for its "
            "peer: give the TP group at least the timeout of the peer"
        )
    if peer.pairs.core == tp_group.core:
        raise UnsupportedError(
            f"core {tp_group.core} cannot be both the exchange core of the pairs and the output core of the TP group"
        )


def check_rank(priority: ttnn.Tensor | None, gathered: ttnn.Tensor, timeout_s: float) -> None:
    """Raise UnsupportedError for what a rank with a peer cannot run with."""
    if priority is None:
        raise UnsupportedError("a peer needs this rank's priorities: give priority=")
    check_words("peer.gathered", facts("peer.gathered", gathered), "UINT32", (1, 1, 2, MAX_USERS))
    timeout_words(timeout_s)
