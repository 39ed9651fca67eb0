# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From checked tensors to a running program: on every chip alone, on pairs of chips, on a pair of core
groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tt_kernels.common.peer import ChipPairs
from tt_kernels.common.priority import check_priority_tensor
from tt_kernels.compute_gate.region import refuse_in_region
from tt_kernels.speculative_flash_decode.buffers import Buffer, check_l1, plan_buffers
from tt_kernels.speculative_flash_decode.checks import Problem, TensorFacts, UnsupportedError, check_problem
from tt_kernels.speculative_flash_decode.peer import Peer, check_gathered
from tt_kernels.speculative_flash_decode.program import Member, Settings, Tensors, empty_program, fill_program
from tt_kernels.speculative_flash_decode.work_split import Core, CorePlan, plan_cores

OP = "speculative_flash_decode"


@dataclass(frozen=True)
class ProgramConfig:
    """How a call is laid out on the chip.

    grid: (columns, rows) of cores to use, default all. origin: (x, y) of its first core.
    workers_a_head: cores that share one head, default by shapes. math_fidelity: name of a ttnn.MathFidelity.
    """

    grid: tuple[int, int] | None = None
    origin: Core = (0, 0)
    workers_a_head: int | None = None
    math_fidelity: str = "HiFi4"


def launch(
    problem: Problem, tensors: Tensors, settings: Settings, config: ProgramConfig, peer: Peer | None
) -> None:
    """Run on the chip, or each chip of the mesh, that holds the tensors. Errors: UnsupportedError,
    ValueError."""
    import ttnn

    device = tensors.q.device()
    if peer is not None:
        refuse_in_region(OP, getattr(peer.pairs, "pair_axis", None))
        if not isinstance(peer.pairs, ChipPairs):
            raise UnsupportedError(
                f"peer.pairs is a {type(peer.pairs).__name__}: a virtual pair is run by "
                "speculative_flash_decode_pair"
            )
        _check_peer(tensors, peer.gathered)
    plan = plan_of(device, problem, settings, config, None if peer is None else peer.pairs.core)
    buffers = buffers_of(problem, plan, settings, peer is not None)
    noc_core = noc_core_of(device)
    if peer is None:
        program = empty_program(problem, [plan])
        fill_program(program, problem, settings, [Member(tensors, plan)], buffers, noc_core)
    else:
        program = ttnn.MeshProgramDescriptor()
        for place in peer.pairs.coordinates():
            here = ttnn.MeshCoordinate(*place)
            part = empty_program(problem, [plan])
            link = peer.pairs.link_args(place, part)
            member = Member(tensors, plan, peer.pairs.member(place), peer.args(tensors.exact, link))
            fill_program(part, problem, settings, [member], buffers, noc_core)
            program[ttnn.MeshCoordinateRange(here, here)] = part
    ttnn.generic_op(tensors.all(), program)


def launch_pair(
    problem: Problem,
    members: Sequence[Tensors],
    configs: Sequence[ProgramConfig],
    settings: Settings,
    peer: Peer,
    present: Sequence[int] = (0, 1),
) -> None:
    """Run both members of a virtual pair in one program; with one of them in `present`, its peer stays
    silent. Errors: UnsupportedError."""
    import ttnn

    if sorted(present) not in ([0], [1], [0, 1]):
        raise UnsupportedError(f"present must name members 0, 1 or both once, got {tuple(present)}")
    fidelities = [config.math_fidelity for config in configs]
    if fidelities[0] != fidelities[1]:
        raise UnsupportedError(
            f"the members have math_fidelity {fidelities[0]} and {fidelities[1]}: they must be equal"
        )
    device = members[0].q.device()
    for index, tensors in enumerate(members):
        _check_peer(tensors, peer.gathered_of(index))
    plans = [
        plan_of(device, problem, settings, config, core)
        for config, core in zip(configs, peer.pairs.cores, strict=True)
    ]
    if shared := sorted(set(plans[0].cores) & set(plans[1].cores)):
        raise UnsupportedError(f"core {shared[0]} belongs to both members of the pair")
    if plans[0].workers_a_group != plans[1].workers_a_group:
        sizes = [plan.workers_a_group for plan in plans]
        raise UnsupportedError(
            f"the members have {sizes[0]} and {sizes[1]} workers a head: they must be equal"
        )
    buffers = buffers_of(problem, plans[0], settings, True)
    built = [
        Member(members[i], plans[i], i, peer.args(members[1 - i].exact, peer.pairs.link_args(i)))
        for i in present
    ]
    program = empty_program(problem, [member.plan for member in built])
    fill_program(program, problem, settings, built, buffers, noc_core_of(device))
    ttnn.generic_op([tensor for tensors in members for tensor in tensors.all()], program)


def problem_of(q, k, v, cur_pos, priority, chunk_size: int) -> Problem:
    """The checked shapes of a call. Errors: UnsupportedError, ValueError."""
    problem = check_problem(*(facts(part) for part in (q, k, v, cur_pos)), chunk_size)
    if priority is not None:
        check_priority_tensor(priority)
    return problem


def plan_of(
    device, problem: Problem, settings: Settings, config: ProgramConfig, exchange: Core | None
) -> CorePlan:
    """The cores of one member, `exchange` the one that speaks to its peer.

    Errors: UnsupportedError, ValueError.
    """
    return plan_cores(
        _cores(device, config),
        problem.items,
        speculate=settings.speculate,
        exchange=exchange,
        workers_a_head=config.workers_a_head,
    )


def buffers_of(problem: Problem, plan: CorePlan, settings: Settings, peer: bool) -> dict[str, Buffer]:
    """The circular buffers, after making sure that they fit L1. Errors: UnsupportedError."""
    import ttnn

    buffers = plan_buffers(problem, plan.workers_a_group, speculate=settings.speculate, peer=peer)
    check_l1(buffers, ttnn.get_max_worker_l1_unreserved_size(), problem, plan.workers_a_group)
    return buffers


def noc_core_of(device):
    """A function from a core to its (x, y) on the NoC, as kernels address it."""
    import ttnn

    def noc_core(core: Core) -> tuple[int, int]:
        found = device.worker_core_from_logical_core(ttnn.CoreCoord(*core))
        return found.x, found.y

    return noc_core


def facts(tensor) -> TensorFacts:
    """What the checks need to know of a ttnn tensor."""
    import ttnn

    return TensorFacts(
        tuple(tensor.shape),
        tensor.dtype.name,
        tensor.layout.name,
        tensor.storage_type() == ttnn.StorageType.DEVICE,
        not tensor.is_sharded(),
    )


def _check_peer(tensors: Tensors, gathered) -> None:
    if tensors.priority is None:
        raise UnsupportedError("a peer needs the priorities of this member: give priority=")
    check_gathered(facts(gathered))


def _cores(device, config: ProgramConfig) -> list[Core]:
    """The cores of the program, row by row."""
    size = device.compute_with_storage_grid_size()
    x, y = config.origin
    columns, rows = config.grid or (size.x - x, size.y - y)
    if min(x, y) < 0 or min(columns, rows) < 1 or x + columns > size.x or y + rows > size.y:
        raise UnsupportedError(
            f"a grid of {columns}x{rows} cores at ({x}, {y}) is not within the device's {size.x}x{size.y}"
        )
    return [(x + column, y + row) for row in range(rows) for column in range(columns)]
