# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Skip ops on the chips whose priority is 0 (ALSpec paper, algorithm 2 and appendix E): the paper's static graph,
dynamic concurrency (SGDC).

    clear_compute_gate(mesh)           # once, when the device opens: L1 keeps what an earlier run left there
    with skip_compute(priority):       # the device decides; the host reads nothing
        x = ttnn.linear(x, w)          # launched everywhere, run where the priority is not 0

Needs a runtime with the SGDC patch: `python -m runtime_patches.sgdc apply`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_patches.sgdc import UNGATED_DEFINE, require_patched
from tt_kernels.common.cores import all_worker_cores, check_core, check_on_device, core_list
from tt_kernels.common.kernel import kernel_descriptor
from tt_kernels.common.peer import is_pair_axis
from tt_kernels.common.priority import MAX_USERS, YIELDED, check_priority_tensor, check_users, priority_row
from tt_kernels.common.ungated import require_ungated
from tt_kernels.compute_gate.outcome_log import ROW_WORDS, OutcomeLog
from tt_kernels.compute_gate.region import gated_region, require_no_region

if TYPE_CHECKING:
    import ttnn

KERNEL = Path(__file__).parent / "kernels" / "set_gate.cpp"
_SCRATCH_CB = 0
_SCRATCH_BYTES = 4 * (MAX_USERS + ROW_WORDS)


@dataclass(frozen=True)
class GateMember:
    """A part of a chip with its own gate: one member of a virtual pair.

    priority: uint32 [1, 1, 1, MAX_USERS], row-major, interleaved. cores: ttnn.CoreRangeSet, not empty. log:
        its outcomes, its own alone.

    An op launched in a region of members must lie within the cores of one member, or the cores that run it would wait
    for ever for those that skip it. Where ttnn tells an op's cores beforehand (`cores_of.py`), others are refused.
    """

    priority: Any
    cores: Any
    log: OutcomeLog | None = None


@contextlib.contextmanager
def skip_compute(
    priority: ttnn.Tensor | Sequence[GateMember],
    *,
    users: int | None = None,
    log: OutcomeLog | None = None,
    layer: int | None = None,
    shared_gate_axis: int | None = None,
) -> Iterator[None]:
    """Gate the ops launched inside: each chip skips them when all its `users` have priority 0.

    priority: each chip's own priorities, uint32 [1, 1, 1, MAX_USERS], row-major, interleaved; read on the
        device when the region begins. Or the members of a virtual pair (see GateMember), whose cores must not
        overlap; the gates of cores of no member stay as they are, on entering and on leaving.
    users: how many entries count, 1 to MAX_USERS. The default is the users of the log, or without one
        MAX_USERS, since entries of no user are 0.
    log, layer: count the outcome in this row of an OutcomeLog.
    shared_gate_axis: the mesh axis whose chips always have equal priorities (tensor parallelism inside a
        member). Cross-chip ops called with that `cluster_axis=` are permitted inside; all others raise
        GatedRegionError.

    Skipped ops leave their outputs as they are: only a chip with a priority above 0 holds results. On
    leaving, also by an exception, the gate is open again. Errors: UnpatchedRuntimeError, ValueError,
    GatedRegionError.
    """
    import ttnn

    members, program = _closing_program(priority, users, log, layer)
    device = members[0].priority.device()
    if shared_gate_axis is not None:
        _check_axis(shared_gate_axis, device)
    opening, tensors = opening_program(_all_cores(members)), _tensors(members)
    shared_chip = [] if isinstance(priority, ttnn.Tensor) else [frozenset(core_list(m.cores)) for m in members]
    with gated_region(shared_gate_axis, shared_chip):
        _launch(program, tensors)
        try:
            yield
        finally:
            _launch(opening, tensors[:1])


def set_compute_gate(
    priority: ttnn.Tensor | Sequence[GateMember],
    *,
    users: int | None = None,
    log: OutcomeLog | None = None,
    layer: int | None = None,
) -> None:
    """Set every worker core's gate from its own priorities, as `skip_compute` does on entering.

    For callers that cannot use a context manager; they must call `clear_compute_gate`, and nothing refuses
    cross-chip ops in between. Arguments and errors as of `skip_compute`; GatedRegionError inside a region.
    """
    require_no_region("set_compute_gate")
    members, program = _closing_program(priority, users, log, layer)
    _launch(program, _tensors(members))


def clear_compute_gate(device: ttnn.MeshDevice) -> None:
    """Open the gate of every worker core of `device`.

    L1 is not cleared when a device opens: call this once before the first gated region, in case a program
    that ended inside a region left the gate closed. Errors: UnpatchedRuntimeError, and GatedRegionError
    inside a region, whose ops would run after it.
    """
    import ttnn

    require_no_region("clear_compute_gate")
    require_patched()
    anchor = ttnn.from_torch(priority_row(YIELDED), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)
    _launch(opening_program(all_worker_cores(device)), [anchor])


def closing_program(members: Sequence[GateMember], users: int, layer: int | None = None):
    """The ttnn.ProgramDescriptor that sets the gates of `members`; one kernel a member."""
    import ttnn

    kernels, cbs = [], []
    for member in members:
        accessors = {"priority": member.priority}
        common, defines = {"own_priority": member.priority.buffer_address()}, [UNGATED_DEFINE]
        if member.log is not None:
            defines.append(("OUTCOME_LOG", "1"))
            accessors["log"] = member.log.tensor
            x, y = core_list(member.cores)[0]
            common |= {
                "log_core_x": x,
                "log_core_y": y,
                "log": member.log.tensor.buffer_address(),
                "layer": layer,
            }
        constants = {"users": users, "scratch_cb": _SCRATCH_CB}
        kernels.append(_kernel(member.cores, defines, constants=constants, accessors=accessors, common=common))
        cbs.append(_scratch(member.cores))
    return require_ungated(ttnn.ProgramDescriptor(kernels=kernels, semaphores=[], cbs=cbs), "compute_gate")


def opening_program(cores):
    """The ttnn.ProgramDescriptor that opens the gates of `cores`, a ttnn.CoreRangeSet."""
    import ttnn

    kernels = [_kernel(cores, [UNGATED_DEFINE, ("FORCE_OPEN", "1")])]
    return require_ungated(ttnn.ProgramDescriptor(kernels=kernels, semaphores=[], cbs=[]), "compute_gate")


def _closing_program(priority, users, log, layer):
    """The checked members, and the program that sets their gates."""
    require_patched()
    members = _members(priority, log)
    logs = [member.log for member in members if member.log is not None]
    if wrong := [log for log in logs if not isinstance(log, OutcomeLog)]:
        raise ValueError(f"log is an OutcomeLog, not {_kind(wrong[0])}")
    users = check_users((logs[0].users if logs else MAX_USERS) if users is None else users)
    _check_members(members, users, layer)
    return members, closing_program(members, users, layer)


def _members(priority, log) -> list[GateMember]:
    import ttnn

    if isinstance(priority, Sequence) and priority and all(isinstance(m, GateMember) for m in priority):
        if log is not None:
            raise ValueError("give each GateMember its own log, not skip_compute")
        return list(priority)
    if not isinstance(priority, ttnn.Tensor):
        raise ValueError(f"priority is a ttnn.Tensor or a list of GateMember, not {_kind(priority)}")
    check_priority_tensor(priority)
    return [GateMember(priority, all_worker_cores(priority.device()), log)]


def _check_members(members: list[GateMember], users: int, layer: int | None) -> None:
    for member in members:
        check_priority_tensor(member.priority)
    device = members[0].priority.device()
    taken: set[tuple[int, int]] = set()
    logs: list[OutcomeLog] = []
    priorities: list = []
    for member in members:
        check_on_device("the priority of a member", member.priority, device)
        cores = _cores_of(member, device)
        if overlap := sorted(taken & cores):
            raise ValueError(f"core {overlap[0]} belongs to two members")
        taken |= cores
        if member.log is not None:
            _check_log(member.log, device, users, layer)
            if any(member.log is other for other in logs):
                raise ValueError("one log is given to two members: their counts would mix; give each its own")
            logs.append(member.log)
        if any(member.priority.buffer_address() == other.buffer_address() for other in priorities):
            raise ValueError("one priority tensor is given to two members; give each its own")
        priorities.append(member.priority)
    if layer is not None and not logs:
        raise ValueError(f"layer={layer} is given without a log to count in")


def _cores_of(member: GateMember, device) -> set[tuple[int, int]]:
    import ttnn

    if not isinstance(member.cores, ttnn.CoreRangeSet):
        raise ValueError(f"the cores of a member are a ttnn.CoreRangeSet, not {_kind(member.cores)}")
    cores = set(core_list(member.cores))
    if not cores:
        raise ValueError("the cores of a member are an empty ttnn.CoreRangeSet")
    for core in sorted(cores):
        check_core(device, core)
    return cores


def _check_log(log: OutcomeLog, device, users: int, layer: int | None) -> None:
    if layer is None:
        raise ValueError("a log needs the layer to count in: give layer=")
    log.check_layer(layer)
    if log.users != users:
        raise ValueError(f"the log counts {log.users} users, the gate {users}")
    check_on_device("the log", log.tensor, device)


def _check_axis(axis, device) -> None:
    shape = tuple(device.shape)
    if type(axis) is not int or axis not in range(len(shape)):
        raise ValueError(f"shared_gate_axis is an axis of the mesh of shape {shape}, not {axis!r}")
    if is_pair_axis(device, axis):
        raise ValueError(
            f"shared_gate_axis={axis}: the chips along that axis are the members of a pair, whose gates differ; a "
            "cross-chip op along it would hang the pair"
        )


def _kind(value) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _all_cores(members: Sequence[GateMember]):
    """The cores of all members, as a ttnn.CoreRangeSet."""
    cores = members[0].cores
    for member in members[1:]:
        cores = cores.merge(member.cores)
    return cores


def _tensors(members: Sequence[GateMember]) -> list:
    """What the gate's programs read and write."""
    priorities = [member.priority for member in members]
    return priorities + [member.log.tensor for member in members if member.log is not None]


def _kernel(cores, defines, **arguments):
    import ttnn

    return kernel_descriptor(KERNEL, ttnn.DataMovementConfigDescriptor(), cores=cores, defines=defines, **arguments)


def _scratch(cores):
    import ttnn

    page = ttnn.CBFormatDescriptor(buffer_index=_SCRATCH_CB, data_format=ttnn.uint32, page_size=_SCRATCH_BYTES)
    return ttnn.CBDescriptor(total_size=_SCRATCH_BYTES, core_ranges=cores, format_descriptors=[page])


def _launch(program, tensors) -> None:
    import ttnn

    # generic_op takes the device from its tensors and wants an output; this program has none, so the last
    # doubles.
    ttnn.generic_op([*tensors, tensors[-1]], program)
