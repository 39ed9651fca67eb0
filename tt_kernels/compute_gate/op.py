# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Skip ops on the chips whose priority is 0 (ALSpec paper, algorithm 2 and appendix E).

    clear_compute_gate(mesh)                      # once, when the device opens: L1 keeps what an earlier run
    left ...
    with skip_compute(priority, users=1):         # the device decides; the host reads nothing
        x = ttnn.linear(x, w)                     # launched everywhere, run where the priority is not 0

Needs a runtime with the SGDC patch: `python -m runtime_patches.sgdc apply`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_patches.sgdc import UNGATED_DEFINE, require_patched
from tt_kernels.common.cores import all_worker_cores, core_list
from tt_kernels.common.priority import ACCEPTED, MAX_USERS, check_priority_tensor, check_users, priority_row
from tt_kernels.common.ungated import require_ungated
from tt_kernels.compute_gate.outcome_log import ROW_WORDS, OutcomeLog
from tt_kernels.compute_gate.region import gated_region

if TYPE_CHECKING:
    import ttnn

KERNEL = str(Path(__file__).parent / "kernels" / "set_gate.cpp")
_SCRATCH_CB = 0
_SCRATCH_BYTES = 4 * (MAX_USERS + ROW_WORDS)


@dataclass(frozen=True)
class GateMember:
    """A part of a chip with its own gate: one member of a virtual pair.

    priority: uint32 [1, 1, 1, MAX_USERS], row-major, interleaved. cores: ttnn.CoreRangeSet. log: its
        outcomes.
    """

    priority: Any
    cores: Any
    log: OutcomeLog | None = None


@contextlib.contextmanager
def skip_compute(
    priority: ttnn.Tensor | Sequence[GateMember],
    *,
    users: int,
    log: OutcomeLog | None = None,
    layer: int | None = None,
    shared_gate_axis: int | None = None,
) -> Iterator[None]:
    """Gate the ops launched inside: each chip skips them when all its `users` have priority 0.

    priority: each chip's own priorities, uint32 [1, 1, 1, MAX_USERS], row-major, interleaved; read on the
        device when the region begins. Or the members of a virtual pair, whose cores must not overlap; cores
        of no member stay ungated.
    users: how many entries count, 1 to MAX_USERS.
    log, layer: count the outcome in this row of an OutcomeLog.
    shared_gate_axis: the mesh axis whose chips always have equal priorities (tensor parallelism inside a
        member). Cross-chip ops called with that `cluster_axis=` are permitted inside; all others raise
        GatedRegionError.

    Skipped ops leave their outputs as they are: only a chip with a priority above 0 holds results. On
    leaving, also by an exception, the gate is open again. Errors: UnpatchedRuntimeError, ValueError,
    GatedRegionError.
    """
    device, program, tensors = _closing_program(priority, users, log, layer)
    with gated_region(shared_gate_axis):
        _launch(program, tensors)
        try:
            yield
        finally:
            _launch(opening_program(device), tensors[:1])


def set_compute_gate(
    priority: ttnn.Tensor | Sequence[GateMember],
    *,
    users: int,
    log: OutcomeLog | None = None,
    layer: int | None = None,
) -> None:
    """Set every worker core's gate from its own priorities, as `skip_compute` does on entering.

    For callers that cannot use a context manager; they must call `clear_compute_gate`, and nothing refuses
    cross-chip ops in between.
    """
    _, program, tensors = _closing_program(priority, users, log, layer)
    _launch(program, tensors)


def clear_compute_gate(device: ttnn.MeshDevice) -> None:
    """Open the gate of every worker core of `device`.

    L1 is not cleared when a device opens: call this once before the first gated region, in case a program
    that ended inside a region left the gate closed.
    """
    import ttnn

    require_patched()
    anchor = ttnn.from_torch(
        priority_row(ACCEPTED), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device
    )
    _launch(opening_program(device), [anchor])


def closing_program(members: Sequence[GateMember], users: int, layer: int | None = None):
    """The ttnn.ProgramDescriptor that sets the gates of `members`; one kernel a member."""
    import ttnn

    kernels, cbs = [], []
    for member in members:
        arguments = [users, _SCRATCH_CB, *ttnn.TensorAccessorArgs(member.priority).get_compile_time_args()]
        common, defines = [member.priority.buffer_address()], [UNGATED_DEFINE]
        if member.log is not None:
            defines.append(("OUTCOME_LOG", "1"))
            arguments += ttnn.TensorAccessorArgs(member.log.tensor).get_compile_time_args()
            common += [*core_list(member.cores)[0], member.log.tensor.buffer_address(), layer]
        kernels.append(_kernel(member.cores, arguments, common, defines))
        cbs.append(_scratch(member.cores))
    return require_ungated(ttnn.ProgramDescriptor(kernels=kernels, semaphores=[], cbs=cbs), "compute_gate")


def opening_program(device):
    """The ttnn.ProgramDescriptor that opens every core's gate."""
    import ttnn

    defines = [UNGATED_DEFINE, ("FORCE_OPEN", "1")]
    kernels = [_kernel(all_worker_cores(device), [], [], defines)]
    return require_ungated(ttnn.ProgramDescriptor(kernels=kernels, semaphores=[], cbs=[]), "compute_gate")


def _closing_program(priority, users, log, layer):
    require_patched()
    check_users(users)
    members = _members(priority, log)
    device = members[0].priority.device()
    _check_members(members, device, users, layer)
    tensors = [tensor for member in members for tensor in (member.priority, member.log and member.log.tensor)]
    return (
        device,
        closing_program(members, users, layer),
        [tensor for tensor in tensors if tensor is not None],
    )


def _members(priority, log) -> list[GateMember]:
    if isinstance(priority, Sequence):
        if not priority or not all(isinstance(member, GateMember) for member in priority):
            raise ValueError(f"priority is a tensor or a list of GateMember, not {priority!r}")
        if log is not None:
            raise ValueError("give each GateMember its own log, not skip_compute")
        return list(priority)
    check_priority_tensor(priority)
    return [GateMember(priority, all_worker_cores(priority.device()), log)]


def _check_members(members: list[GateMember], device, users: int, layer: int | None) -> None:
    grid = device.compute_with_storage_grid_size()
    taken: set[tuple[int, int]] = set()
    for member in members:
        check_priority_tensor(member.priority)
        cores = set(core_list(member.cores))
        if outside := sorted(core for core in cores if core[0] >= grid.x or core[1] >= grid.y):
            raise ValueError(
                f"core {outside[0]} of a member lies outside the grid of {grid.x}x{grid.y} cores"
            )
        if overlap := sorted(taken & cores):
            raise ValueError(f"core {overlap[0]} belongs to two members")
        taken |= cores
        if member.log is None:
            continue
        if layer is None:
            raise ValueError("a log needs the layer to count in: give layer=")
        member.log.check_layer(layer)
        if member.log.users != users:
            raise ValueError(f"the log counts {member.log.users} users, the gate {users}")
    if layer is not None and all(member.log is None for member in members):
        raise ValueError(f"layer={layer} is given without a log to count in")


def _kernel(cores, arguments, common, defines):
    import ttnn

    return ttnn.KernelDescriptor(
        kernel_source=KERNEL,
        core_ranges=cores,
        compile_time_args=arguments,
        common_runtime_args=common,
        defines=defines,
        config=ttnn.DataMovementConfigDescriptor(),
    )


def _scratch(cores):
    import ttnn

    page = ttnn.CBFormatDescriptor(
        buffer_index=_SCRATCH_CB, data_format=ttnn.uint32, page_size=_SCRATCH_BYTES
    )
    return ttnn.CBDescriptor(total_size=_SCRATCH_BYTES, core_ranges=cores, format_descriptors=[page])


def _launch(program, tensors) -> None:
    import ttnn

    # generic_op takes the device from its tensors and wants an output; this program has none, so the last
    # doubles.
    ttnn.generic_op([*tensors, tensors[-1]], program)
