# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Skip ops on the chips whose priority is 0 (ALSpec paper, algorithm 2 and appendix E): the paper's static graph,
dynamic concurrency (SGDC).

    clear_compute_gate(mesh)           # once, when the device opens: L1 keeps what an earlier run left there
    with skip_compute(priority):       # the device decides; the host reads nothing
        x = ttnn.linear(x, w)          # launched everywhere, run where the priority is not 0

Needs a runtime with the SGDC patch: `python -m runtime_patches.sgdc apply`. What speculation did is counted on the
device, in an OutcomeLog, and read only when asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime_patches.sgdc import UNGATED_DEFINE, require_patched
from tt_kernels.common.circular_buffers import word_buffer
from tt_kernels.common.cores import all_worker_cores, check_on_device, core_list
from tt_kernels.common.device_state import clear_words, zero_words
from tt_kernels.common.kernel import kernel_descriptor, program_of
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.peer import is_pair_axis
from tt_kernels.common.priority import (
    HOLDS_EXACT,
    HOLDS_EXACT_UNVERIFIED,
    HOLDS_GUESS,
    MAX_USERS,
    YIELDED,
    check_priority_tensor,
    check_users,
    priority_row,
)
from tt_kernels.compute_gate.region import gated_region, require_no_region

_COUNTERS = 8
ROW_WORDS = _COUNTERS + MAX_USERS


@dataclass(frozen=True)
class DeviceCounters:
    """What one chip counted at one layer; each count is in (calls, users) except `calls`."""

    calls: int
    accepted: int
    received: int
    rejected: int
    bypassed: int
    invalid: int
    last: tuple[int, ...] = field(repr=False)
    """The priorities after the last call, one per user."""


class OutcomeLog:
    """A row of counters per layer in one device tensor: uint32 [1, 1, layers, ROW_WORDS], row-major, DRAM.

    The gate writer adds to it when it is given to `skip_compute`. On a mesh every chip keeps its own rows.
    """

    def __init__(self, device: ttnn.MeshDevice, layers: int, users: int) -> None:
        if type(layers) is not int or layers < 1:
            raise ValueError(f"layers must be a positive integer, not {layers!r}")
        self.layers, self.users, self.device = layers, check_users(users), device
        self.tensor = zero_words(device, (1, 1, layers, ROW_WORDS))

    def reset(self) -> None:
        """Set all counters to zero, at the same address."""
        clear_words(self.tensor, self.device)

    def read(self) -> list[list[DeviceCounters]]:
        """Return the counters of every chip (row-major over the mesh), by layer. Waits for the device."""
        chips = [ttnn.to_torch(part) for part in ttnn.get_device_tensors(self.tensor)]
        return [[self._row(row) for row in chip.reshape(self.layers, ROW_WORDS).tolist()] for chip in chips]

    def _row(self, words: list[int]) -> DeviceCounters:
        return DeviceCounters(
            calls=words[0],
            accepted=words[1 + YIELDED],
            received=words[1 + HOLDS_GUESS],
            rejected=words[1 + HOLDS_EXACT],
            bypassed=words[1 + HOLDS_EXACT_UNVERIFIED],
            invalid=words[_COUNTERS - 1],
            last=tuple(words[_COUNTERS : _COUNTERS + self.users]),
        )


KERNEL = Path(__file__).parent / "kernels" / "set_gate.cpp"
_SCRATCH_CB = 0
_SCRATCH_BYTES = 4 * (MAX_USERS + ROW_WORDS)


@contextlib.contextmanager
def skip_compute(
    priority: ttnn.Tensor,
    *,
    users: int | None = None,
    log: OutcomeLog | None = None,
    layer: int | None = None,
    shared_gate_axis: int | None = None,
) -> Iterator[None]:
    """Gate the ops launched inside: each chip skips them when all its `users` have priority 0.

    priority: each chip's own priorities, uint32 [1, 1, 1, MAX_USERS], row-major, interleaved; read on the device when
        the region begins.
    users: how many entries count, 1 to MAX_USERS. The default is the log's users, or MAX_USERS without a log, since
        unused entries are 0.
    log, layer: count the result in this row of an OutcomeLog.
    shared_gate_axis: the mesh axis whose chips always have equal priorities (tensor parallelism within a speculative
        rank). Cross-chip ops called with that `cluster_axis=` are permitted inside; all others raise GatedRegionError.

    Skipped ops leave their outputs as they are: only a chip with a priority above 0 holds results. On leaving, also by
    an exception, the gate is open again. Errors: UnpatchedRuntimeError, ValueError, GatedRegionError.
    """
    program, tensors = _closing(priority, users, log, layer)
    device = priority.device()
    if shared_gate_axis is not None:
        shape = tuple(device.shape)
        if type(shared_gate_axis) is not int or shared_gate_axis not in range(len(shape)):
            raise ValueError(f"shared_gate_axis is an axis of the mesh of shape {shape}, not {shared_gate_axis!r}")
        if is_pair_axis(device, shared_gate_axis):
            raise ValueError(
                f"shared_gate_axis={shared_gate_axis}: the chips along that axis are the two ranks of a pair, whose "
                "gates differ; a cross-chip op along it would hang the pair"
            )
    opening = opening_program(all_worker_cores(device))
    with gated_region(shared_gate_axis):
        _launch(program, tensors)
        try:
            yield
        finally:
            _launch(opening, tensors[:1])


def set_compute_gate(
    priority: ttnn.Tensor,
    *,
    users: int | None = None,
    log: OutcomeLog | None = None,
    layer: int | None = None,
) -> None:
    """Set every worker core's gate from its chip's priorities, as `skip_compute` does on entering.

    For callers that cannot use a context manager; they must call `clear_compute_gate`, and nothing refuses cross-chip
    ops in between. Arguments and errors are those of `skip_compute`; GatedRegionError inside a region.
    """
    require_no_region("set_compute_gate")
    _launch(*_closing(priority, users, log, layer))


def clear_compute_gate(device: ttnn.MeshDevice) -> None:
    """Open the gate of every worker core of `device`.

    L1 is not cleared when a device opens: call this once before the first gated region, in case a program that ended
    inside a region left the gate closed. Errors: UnpatchedRuntimeError, and GatedRegionError inside a region, whose ops
    would run after it.
    """
    require_no_region("clear_compute_gate")
    require_patched()
    anchor = ttnn.from_torch(priority_row(YIELDED), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)
    _launch(opening_program(all_worker_cores(device)), [anchor])


def closing_program(priority: ttnn.Tensor, users: int, log: OutcomeLog | None = None, layer: int | None = None) -> Any:
    """Return the ttnn.ProgramDescriptor that sets every core's gate by `priority`."""
    cores = all_worker_cores(priority.device())
    accessors = {"priority": priority}
    common: dict[str, Any] = {"priority": priority.buffer_address()}
    defines = [UNGATED_DEFINE]
    if log is not None:
        defines.append(("OUTCOME_LOG", "1"))
        accessors["log"] = log.tensor
        x, y = core_list(cores)[0]
        common |= {"log_core_x": x, "log_core_y": y, "log": log.tensor.buffer_address(), "layer": layer}
    constants = {"users": users, "scratch_cb": _SCRATCH_CB}
    given: dict[str, Any] = {"constants": constants, "accessors": accessors, "common": common}
    kernel = kernel_descriptor(KERNEL, "DataMovement", cores=cores, defines=defines, **given)
    return program_of([kernel], [word_buffer(_SCRATCH_CB, _SCRATCH_BYTES, cores)], ungated="compute_gate")


def opening_program(cores: ttnn.CoreRangeSet) -> Any:
    """Return the ttnn.ProgramDescriptor that opens the gates of `cores`, a ttnn.CoreRangeSet."""
    defines = [UNGATED_DEFINE, ("FORCE_OPEN", "1")]
    return program_of([kernel_descriptor(KERNEL, "DataMovement", cores=cores, defines=defines)], ungated="compute_gate")


def _closing(priority: ttnn.Tensor, users: Any, log: Any, layer: Any) -> tuple[Any, list[Any]]:
    """Check the arguments; return the program that sets the gates and the tensors it reads and writes."""
    require_patched()
    check_priority_tensor(priority)
    if log is not None and not isinstance(log, OutcomeLog):
        raise ValueError(f"log is an OutcomeLog, not {log!r}")
    users = check_users((MAX_USERS if log is None else log.users) if users is None else users)
    if log is None:
        if layer is not None:
            raise ValueError(f"layer={layer} is given without a log to count in")
        return closing_program(priority, users), [priority]
    if layer is None:
        raise ValueError("a log needs the layer to count in: give layer=")
    if type(layer) is not int or not 0 <= layer < log.layers:
        raise ValueError(f"layer must be from 0 to {log.layers - 1}, not {layer!r}")
    if log.users != users:
        raise ValueError(f"the log counts {log.users} users, the gate {users}")
    check_on_device("the log", log.tensor, priority.device())
    return closing_program(priority, users, log, layer), [priority, log.tensor]


def _launch(program: Any, tensors: Any) -> None:
    # generic_op takes the device from its tensors and wants an output; this program has none, so the last one
    # is given twice.
    ttnn.generic_op([*tensors, tensors[-1]], program)
