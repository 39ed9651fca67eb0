# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From checked tensors to a running program, on one chip or on every chip of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tt_kernels.common.core_pair import CorePair
from tt_kernels.common.cores import check_on_device
from tt_kernels.common.kernel import Core
from tt_kernels.common.peer import ChipPairs, timeout_words
from tt_kernels.common.placement import grid_cores, noc_core_of
from tt_kernels.common.placement import l1_free as l1_free
from tt_kernels.common.priority import MAX_USERS, check_priority_tensor
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError, facts, facts_or_none, unsupported_if_refused
from tt_kernels.common.tp_group import TpGroup
from tt_kernels.compute_gate.region import refuse_in_region
from tt_kernels.speculative_flash_decode.checks import Problem, check_problem
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.program import (
    PeerArgs,
    Rank,
    Settings,
    Tensors,
    TpArgs,
    empty_program,
    fill_program,
)
from tt_kernels.speculative_flash_decode.work_split import WorkSplit, choose_work_split

OP = "speculative_flash_decode"
DEFAULT_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class ProgramConfig:
    """How a call uses the chip.

    grid: (columns, rows) of cores to use, default all. origin: (x, y) of its first core.
    workers_per_head: cores that share one head, default by shapes. key_chunk: tokens whose keys a worker holds and
    processes at once, a multiple of 32; default chunk_size, a multiple of it in a long cache (key_chunks.py), or the
    most that fit L1.
    math_fidelity: name of a ttnn.MathFidelity.
    """

    grid: tuple[int, int] | None = None
    origin: Core = (0, 0)
    workers_per_head: int | None = None
    key_chunk: int | None = None
    math_fidelity: str = "HiFi3"


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


def launch(
    problem: Problem,
    tensors: Tensors,
    settings: Settings,
    config: ProgramConfig,
    peer: Peer | None,
    tp_group: TpGroup | None = None,
) -> None:
    """Run on every chip that holds the tensors. Errors: UnsupportedError, GatedRegionError."""
    import ttnn

    device = tensors.q.device()
    if peer is not None:
        refuse_in_region(OP, getattr(peer.pairs, "pair_axis", None))
        if not isinstance(peer.pairs, ChipPairs):
            raise UnsupportedError(f"peer.pairs must be a ChipPairs, it is a {type(peer.pairs).__qualname__}")
        check_rank(tensors, peer.gathered, peer.timeout_s)
    if tp_group is not None:
        refuse_in_region(OP, getattr(tp_group, "tp_axis", None))
    _check_tp_group(tp_group, peer, device)
    exchange = None if peer is None else peer.pairs.core
    output = None if tp_group is None else tp_group.core
    split = split_of(device, problem, settings, config, exchange, output, tensors.masses is not None)
    noc_core = noc_core_of(device)
    chips = tp_group if peer is None else peer.pairs
    if chips is None:
        program = empty_program(problem, [split.assignment])
        fill_program(program, problem, settings, [Rank(tensors, split.assignment)], split, noc_core)
    else:
        program = ttnn.MeshProgramDescriptor()
        for place in chips.coordinates():
            here = ttnn.MeshCoordinate(*place)
            part = empty_program(problem, [split.assignment])
            sp_rank, peer_args_, tp_args = 0, None, None
            if peer is not None:
                sp_rank, link = peer.pairs.sp_rank(place), peer.pairs.link_args(place, part)
                peer_args_ = peer_args(peer.pairs, tensors.exact, peer.timeout_s, link)
            if tp_group is not None:
                state, links = tp_group.state.buffer_address(), tp_group.link_args(place, part)
                tp_rank = tp_group.tp_rank(place)
                tp_args = TpArgs(tp_group.defines, state, tp_rank, tp_group.chips, tp_group.timeout, links)
            rank = Rank(tensors, split.assignment, sp_rank, peer_args_, tp_args)
            fill_program(part, problem, settings, [rank], split, noc_core)
            program[ttnn.MeshCoordinateRange(here, here)] = part
    ttnn.generic_op(tensors.all(), program)


def problem_of(
    q,
    k,
    v,
    cur_pos,
    priority,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    page_table=None,
    tile_lists=None,
    tile_masses=None,
) -> Problem:
    """Check the tensors of a call and return their shapes. Errors: UnsupportedError."""
    named = {"q": q, "k": k, "v": v, "cur_pos": cur_pos}
    optional = {"page_table": page_table, "tile_lists": tile_lists, "tile_masses": tile_masses}
    problem = check_problem(
        facts("q", q),
        facts("k", k),
        facts("v", v),
        facts("cur_pos", cur_pos),
        chunk_size,
        guess_range,
        *(facts_or_none(name, tensor) for name, tensor in optional.items()),
    )
    named |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    if priority is not None:
        unsupported_if_refused(check_priority_tensor, priority)
        named["priority"] = priority
    for name, tensor in named.items():
        unsupported_if_refused(check_on_device, name, tensor, q.device())
    return problem


def check_config(config) -> None:
    """Raise UnsupportedError unless `config` is a ProgramConfig."""
    if not isinstance(config, ProgramConfig):
        raise UnsupportedError(f"program_config must be a ProgramConfig, it is a {type(config).__qualname__}")


def check_peer(peer) -> None:
    """Raise UnsupportedError unless `peer` is a Peer."""
    if not isinstance(peer, Peer):
        raise UnsupportedError(f"peer must be a Peer, it is a {type(peer).__qualname__}")


def check_rank(tensors: Tensors, gathered, timeout_s: float) -> None:
    """Raise UnsupportedError for what a rank with a peer cannot run with."""
    if tensors.priority is None:
        raise UnsupportedError("a peer needs this rank's priorities: give priority=")
    check_gathered(facts("peer.gathered", gathered))
    unsupported_if_refused(timeout_words, timeout_s)


def check_gathered(found: TensorFacts) -> None:
    """Raise UnsupportedError unless the tensor is one as device_exchange returns it."""
    wanted = ((1, 1, 2, MAX_USERS), "UINT32", "ROW_MAJOR", True, True)
    if (found.shape, found.dtype, found.layout, found.on_device, found.interleaved) != wanted:
        raise UnsupportedError(
            f"peer.gathered must be UINT32 ROW_MAJOR {wanted[0]}, interleaved, on device; it is "
            f"{found.dtype} {found.layout} {found.shape}, interleaved: {found.interleaved}, "
            f"on device: {found.on_device}"
        )


def peer_args(pairs: ChipPairs | CorePair, peer_exact, timeout_s: float, link: Sequence[int]) -> PeerArgs:
    """Return what an exchange core needs. peer_exact: the peer's output tensor; link: arguments of its PeerLink."""
    state = pairs.state.buffer_address()
    return PeerArgs(pairs.defines, pairs.max_write(), state, peer_exact, timeout_words(timeout_s), link)


def split_of(
    device,
    problem: Problem,
    settings: Settings,
    config: ProgramConfig,
    exchange: Core | None,
    output: Core | None = None,
    masses: bool = False,
) -> WorkSplit:
    """Choose the work split of one rank. exchange: the core that talks to the peer; output: the one that talks to the
    TP group; masses: those of key tiles are handed out. Errors: UnsupportedError."""
    return choose_work_split(
        problem,
        grid_cores(device, config.grid, config.origin),
        l1_free(device),
        speculate=settings.speculate,
        guess_alone=settings.guess_alone,
        peer=exchange is not None,
        exchange=exchange,
        output=output,
        workers_per_head=config.workers_per_head,
        key_chunk=config.key_chunk,
        masses=masses,
    )


def _check_tp_group(tp_group: TpGroup | None, peer: Peer | None, device) -> None:
    shape = tuple(device.shape)
    if tp_group is None:
        shared = [axis for axis, chips in enumerate(shape) if chips > 1 and peer and axis != peer.pairs.pair_axis]
        if shared:
            raise UnsupportedError(
                f"on a mesh of shape {shape} the chips along axis {shared[0]} share each user's heads and must "
                "decide together: give tp_group=TpGroup(...)"
            )
        return
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
