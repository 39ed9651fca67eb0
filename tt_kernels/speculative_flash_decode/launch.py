# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From checked tensors to a running program: on every chip alone, on pairs of chips, on a pair of core
groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tt_kernels.common.cores import check_on_device
from tt_kernels.common.peer import ChipPairs, CorePair, timeout_words
from tt_kernels.common.placement import grid_cores, noc_core_of
from tt_kernels.common.placement import l1_free as l1_free
from tt_kernels.common.priority import check_priority_tensor
from tt_kernels.common.row import TpGroup
from tt_kernels.common.tensor_facts import UnsupportedError, facts, unsupported_if_refused
from tt_kernels.compute_gate.region import refuse_in_region
from tt_kernels.speculative_flash_decode.checks import Problem, check_problem
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.layout import Layout, choose_layout
from tt_kernels.speculative_flash_decode.member import Member, RowArgs, Settings, Tensors
from tt_kernels.speculative_flash_decode.peer import Peer, check_gathered
from tt_kernels.speculative_flash_decode.program import empty_program, fill_program
from tt_kernels.speculative_flash_decode.work_split import TILE, Core

OP = "speculative_flash_decode"


@dataclass(frozen=True)
class ProgramConfig:
    """How a call is laid out on the chip.

    grid: (columns, rows) of cores to use, default all. origin: (x, y) of its first core.
    workers_per_head: cores that share one head, default by shapes. key_chunk: tokens whose keys a worker holds and
    processes at once, a multiple of 32 up to chunk_size; default chunk_size, or the most that fit L1.
    math_fidelity: name of a ttnn.MathFidelity.
    """

    grid: tuple[int, int] | None = None
    origin: Core = (0, 0)
    workers_per_head: int | None = None
    key_chunk: int | None = None
    math_fidelity: str = "HiFi3"


def launch(
    problem: Problem,
    tensors: Tensors,
    settings: Settings,
    config: ProgramConfig,
    peer: Peer | None,
    row: TpGroup | None = None,
) -> None:
    """Run on the chip, or each chip of the mesh, that holds the tensors. Errors: UnsupportedError,
    GatedRegionError."""
    import ttnn

    device = tensors.q.device()
    pairs: ChipPairs | None = None
    if peer is not None:
        refuse_in_region(OP, getattr(peer.pairs, "pair_axis", None))
        if not isinstance(peer.pairs, ChipPairs):
            raise UnsupportedError(
                f"peer.pairs is a {type(peer.pairs).__name__}: a virtual pair is run by speculative_flash_decode_pair"
            )
        pairs = peer.pairs
        _check_peer(tensors, peer)
    if row is not None:
        refuse_in_region(OP, getattr(row, "row_axis", None))
    _check_row(row, peer, pairs, device)
    exchange = None if pairs is None else pairs.core
    layout = layout_of(device, problem, settings, config, exchange, None if row is None else row.core)
    noc_core = noc_core_of(device)
    chips = pairs if row is None else row
    if chips is None:
        program = empty_program(problem, [layout.plan])
        fill_program(program, problem, settings, [Member(tensors, layout.plan)], layout, noc_core)
    else:
        program = ttnn.MeshProgramDescriptor()
        for place in chips.coordinates():
            here = ttnn.MeshCoordinate(*place)
            part = empty_program(problem, [layout.plan])
            index, peer_args, row_args = 0, None, None
            if peer is not None and pairs is not None:
                index = pairs.member(place)
                peer_args = peer.args(tensors.exact, pairs.link_args(place, part))
            if row is not None:
                state, links = row.state.buffer_address(), row.link_args(place, part)
                row_args = RowArgs(row.defines, state, row.index(place), row.chips, row.timeout, links)
            member = Member(tensors, layout.plan, index, peer_args, row_args)
            fill_program(part, problem, settings, [member], layout, noc_core)
            program[ttnn.MeshCoordinateRange(here, here)] = part
    ttnn.generic_op(tensors.all(), program)


def launch_pair(
    problem: Problem,
    members: Sequence[Tensors],
    configs: Sequence[ProgramConfig],
    settings: Settings,
    peer: Peer,
    pairs: CorePair,
    present: Sequence[int] = (0, 1),
) -> None:
    """Run both members of a virtual pair in one program; with one of them in `present`, its peer stays
    silent. pairs: those of `peer`. Errors: UnsupportedError, GatedRegionError."""
    import ttnn

    refuse_in_region(f"{OP}_pair")
    if sorted(present) not in ([0], [1], [0, 1]):
        raise UnsupportedError(f"present must name members 0, 1 or both once, got {tuple(present)}")
    fidelities = [config.math_fidelity for config in configs]
    if fidelities[0] != fidelities[1]:
        raise UnsupportedError(
            f"the members have math_fidelity {fidelities[0]} and {fidelities[1]}: they must be equal"
        )
    device = members[0].q.device()
    for index, tensors in enumerate(members):
        _check_peer(tensors, peer, index)
    if members[0].priority.buffer_address() == members[1].priority.buffer_address():
        raise UnsupportedError("both members were given the same priority tensor: each updates its own")
    layouts = [
        layout_of(device, problem, settings, config, core) for config, core in zip(configs, pairs.cores, strict=True)
    ]
    plans = [layout.plan for layout in layouts]
    if shared := sorted(set(plans[0].cores) & set(plans[1].cores)):
        raise UnsupportedError(f"core {shared[0]} belongs to both members of the pair")
    if plans[0].workers_per_group != plans[1].workers_per_group:
        sizes = [plan.workers_per_group for plan in plans]
        raise UnsupportedError(f"the members have {sizes[0]} and {sizes[1]} workers a head: they must be equal")
    if layouts[0].key_tiles != layouts[1].key_tiles:
        sizes = [layout.key_tiles * TILE for layout in layouts]
        raise UnsupportedError(f"the members have a key_chunk of {sizes[0]} and {sizes[1]}: they must be equal")
    built = [Member(members[i], plans[i], i, peer.args(members[1 - i].exact, pairs.link_args(i))) for i in present]
    program = empty_program(problem, [member.plan for member in built])
    fill_program(program, problem, settings, built, layouts[0], noc_core_of(device))
    ttnn.generic_op([tensor for tensors in members for tensor in tensors.all()], program)


def problem_of(q, k, v, cur_pos, priority, chunk_size: int, guess_range: GuessRange | None = None) -> Problem:
    """The checked shapes of a call. Errors: UnsupportedError."""
    problem = check_problem(
        facts("q", q), facts("k", k), facts("v", v), facts("cur_pos", cur_pos), chunk_size, guess_range
    )
    named = {"q": q, "k": k, "v": v, "cur_pos": cur_pos}
    if priority is not None:
        unsupported_if_refused(check_priority_tensor, priority)
        named["priority"] = priority
    for name, tensor in named.items():
        unsupported_if_refused(check_on_device, name, tensor, q.device())
    return problem


def check_config(config) -> None:
    """Errors: UnsupportedError unless `config` is a ProgramConfig."""
    if not isinstance(config, ProgramConfig):
        raise UnsupportedError(f"program_config must be a ProgramConfig, it is a {type(config).__qualname__}")


def check_peer(peer) -> None:
    """Errors: UnsupportedError unless `peer` is a Peer."""
    if not isinstance(peer, Peer):
        raise UnsupportedError(f"peer must be a Peer, it is a {type(peer).__qualname__}")


def layout_of(
    device,
    problem: Problem,
    settings: Settings,
    config: ProgramConfig,
    exchange: Core | None,
    output: Core | None = None,
) -> Layout:
    """The layout of one member. exchange: the core that speaks to its peer; output: the one that speaks to its row.
    Errors: UnsupportedError."""
    return choose_layout(
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
    )


def check_gathered_pair(peer: Peer) -> None:
    """Refuse what does not name the gathered priorities of both members of a virtual pair."""
    if not isinstance(peer.gathered, Sequence) or len(peer.gathered) != 2:
        count = f" of {len(peer.gathered)}" if isinstance(peer.gathered, Sequence) else ""
        raise UnsupportedError(
            "peer.gathered of a virtual pair must be a list of two tensors, one a member; it is a "
            f"{type(peer.gathered).__qualname__}{count}"
        )


def _check_peer(tensors: Tensors, peer: Peer, member: int = 0) -> None:
    if tensors.priority is None:
        raise UnsupportedError("a peer needs the priorities of this member: give priority=")
    check_gathered(facts("peer.gathered", peer.gathered_of(member)))
    unsupported_if_refused(timeout_words, peer.timeout_s)


def _check_row(row: TpGroup | None, peer: Peer | None, pairs: ChipPairs | None, device) -> None:
    shape = tuple(device.shape)
    if row is None:
        pair_axis = None if pairs is None else pairs.pair_axis
        shared = [axis for axis, chips in enumerate(shape) if axis != pair_axis and chips > 1]
        if peer is not None and shared:
            raise UnsupportedError(
                f"on a mesh of shape {shape} the chips along axis {shared[0]} share the heads of a user and must "
                "decide together: give row=TpGroup"
            )
        return
    if not isinstance(row, TpGroup):
        raise UnsupportedError(f"row must be a TpGroup, it is a {type(row).__qualname__}")
    if row.device.id() != device.id():
        raise UnsupportedError(f"row lies on mesh {row.device.id()}, the tensors on mesh {device.id()}")
    if pairs is not None and pairs.pair_axis == row.row_axis:
        raise UnsupportedError(f"pairs and rows both lie along axis {row.row_axis} of the mesh")
    if peer is not None and peer.timeout_s > row.timeout_s:
        raise UnsupportedError(
            f"a chip of a row waits {row.timeout_s} s for another, which may wait {peer.timeout_s} s for its peer: "
            "give the row at least the timeout of the peer"
        )
    if pairs is not None and pairs.core == row.core:
        raise UnsupportedError(
            f"core {row.core} cannot be both the exchange core of the pairs and the output core of the rows"
        )
