# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Time what one configuration launches on an open mesh.

Programs are timed on simulated chips by their firmware's notes, on boards by the stock wheel's real-time profiler. Both
know a program by the runtime's number, and labels give it a name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perf.lib.chip import Timer, one_after_the_other, replayed
from perf.lib.launch_labels import Label, Labels, Tensor
from perf.sweep import table
from perf.sweep.configurations import Configuration
from runtime_patches.profiling.timeline import ProgramSpan


@dataclass
class Launch:
    """run: what is timed. code: op code of programs that ttnn knows as a generic op. compiled: once, after the first
    run, which compiles. check: raises where what ran went wrong on a chip. model: of a decode step, else None."""

    run: Callable[[], Any]
    code: str = "GenericOp"
    compiled: Callable[[], Any] = lambda: None
    check: Callable[[], Any] = lambda: None
    model: Any = None


# Op codes of tt-metal's device operations, for ttnn's names that launch them, less "DeviceOperation".
CODES = {
    "linear": "Matmul",
    "matmul": "Matmul",
    "rms_norm": "LayerNorm",
    "add": "BinaryNg",
    "add_": "BinaryNg",
    "multiply": "BinaryNg",
    "mul": "BinaryNg",
    "embedding": "Embeddings",
    "scaled_dot_product_attention_decode": "SdpaDecode",
    "nlp_create_qkv_heads_decode": "NLPCreateQKVHeadsDecode",
    "nlp_concat_heads_decode": "NLPConcatHeadsDecode",
}
PARTS = {"attention": "FlashDecode", "exchange": "DeviceExchange", "gate": "SetComputeGate"}
# The profiler's callback has a thread of its own and comes late.
QUIET_S, LATE_S = 0.3, 10.0


class NoProfiler(RuntimeError):
    """This machine, or this process, gives no device times; the message says what would."""


def realtime_timer(mesh) -> Timer:
    """Return the real-time profiler of the stock wheel: needs fast dispatch from worker cores and a chip of this host.

    Raises NoProfiler where it is not active, or gave less than what ran.
    """
    import ttnn

    if not ttnn.device.IsProgramRealtimeProfilerActive():
        raise NoProfiler(
            "ttnn's real-time profiler is not active: it needs fast dispatch on worker cores (not on Ethernet cores, "
            "no TT_METAL_SLOW_DISPATCH_MODE) and chips of this host"
        )

    def timed(run: Callable[[], Any]) -> list[list[ProgramSpan]]:
        records: list[Any] = []
        dropped: list[int] = []

        def note(batch: Any) -> None:
            dropped.append(int(batch.dropped))
            records.extend(batch.records)

        handle = ttnn.device.RegisterProgramRealtimeProfilerCallback(note)
        try:
            run()
            ttnn.synchronize_device(mesh)
            seen, since, begun = -1, time.monotonic(), time.monotonic()
            while time.monotonic() - since < QUIET_S and time.monotonic() - begun < LATE_S:
                if len(records) != seen:
                    seen, since = len(records), time.monotonic()
                time.sleep(0.02)
        finally:
            ttnn.device.UnregisterProgramRealtimeProfilerCallback(handle)
        if any(dropped):
            raise NoProfiler(f"the real-time profiler dropped {sum(dropped)} records")
        return by_chip(records)

    return timed


def by_chip(records: Sequence[Any]) -> list[list[ProgramSpan]]:
    """Return the profiler's records as programs by chip, in order, with ticks as nanoseconds by their own frequency; 0
    cores: not known. Raises NoProfiler without records."""
    if not records:
        raise NoProfiler("the real-time profiler gave no record of what ran")
    chips: dict[int, list[ProgramSpan]] = {}
    for r in records:
        start, end = (ticks / r.frequency for ticks in (r.start_timestamp, r.end_timestamp))
        chips.setdefault(int(r.chip_id), []).append(ProgramSpan(int(r.runtime_id), start, end, 0))  # type: ignore[arg-type]
    return [sorted(chips[chip], key=lambda span: span.start) for chip in sorted(chips)]


def measure(mesh, launch: Launch, timer: Timer, configuration: Configuration) -> list[dict[str, object]]:
    """Run once, which compiles, then again, timed, a decode step from a captured trace; rows of the CSV."""
    import ttnn

    labels = Labels()
    launch.run()
    launch.compiled()
    if launch.model is not None:
        chips = replayed(mesh, timer, launch.run, labels.of_model(launch.model))
    else:
        ttnn.synchronize_device(mesh)
        with labels.taken():
            chips = timer(launch.run)
    launch.check()
    size = mesh.compute_with_storage_grid_size()
    return rows_of(chips, labels, launch, configuration, size.x * size.y)


def rows_of(
    chips: Sequence[Sequence[ProgramSpan]], labels: Labels, launch: Launch, configuration: Configuration, workers: int
) -> list[dict[str, object]]:
    """Return a row per program and chip, chip after chip. Raises NoProfiler where nothing ran."""
    if not any(chips):
        raise NoProfiler("no program was seen")
    found = []
    for chip, programs in enumerate(chips):
        end, begun = None, False
        turns = one_after_the_other((span.start, span.end) for span in programs)
        for span, (_, took) in zip(programs, turns, strict=True):
            label = labels.of(span.number)
            layer = None if label is None else label.layer
            begun = begun or layer is not None
            # Firmware: from the first go message to the last core's end, launch included; no source has kernels apart.
            row: dict[str, object] = {
                "OP CODE": op_code(label, launch.code),
                "DEVICE ID": chip,
                "DEVICE ARCH": "wormhole_b0",
                "ATTRIBUTES": attributes(configuration),
                "CORE COUNT": span.cores or workers,
                "AVAILABLE WORKER CORE COUNT": workers,
                "DEVICE FW START CYCLE": span.start,
                "DEVICE FW END CYCLE": span.end,
                table.FIRMWARE_NS: span.end - span.start,
                table.KERNEL_NS: took,
                table.GAP_NS: None if end is None else max(0.0, span.start - end),
                table.GROUP: table.OP_GROUP if launch.model is None else table.group_of(layer, begun),
                table.LAYER: layer,
            }
            end = span.end if end is None else max(end, span.end)
            found.append(row | (label_cells(label) if label else {}))
    return found


def op_code(label: Label | None, generic: str) -> str:
    """Return tt-metal's name of the device operation that a call launches, else one made of the call's name."""
    if label is None:
        return "Unknown"
    if label.name == "generic_op":
        return PARTS.get(label.part or "", generic)
    words = "".join(word.capitalize() for word in re.split("_+", label.name) if word)
    return f"{CODES.get(label.name, words)}DeviceOperation"


def attributes(configuration: Configuration) -> str:
    """Return the options, and for tt-perf-report what a DRAM-sharded program looks like."""
    text = "; ".join(f"{key}={value}" for key, value in configuration.options)
    if configuration.get("layout") == "dram_sharded":
        text += "; program_config=MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig"
    return text


def label_cells(label: Label) -> dict[str, object]:
    """Return the role, the cells of the first tensors that a call was given, and of its result."""
    cells: dict[str, object] = {table.ROLE: label.part or label.name}
    if label.fidelity:
        # tt-perf-report knows no HiFi3: it is told the next one, so its share of the peak is too high for these.
        cells["MATH FIDELITY"] = "HiFi4" if label.fidelity == "HiFi3" else label.fidelity
    for index, tensor in enumerate(label.tensors):
        cells |= tensor_cells(f"INPUT_{index}", tensor)
    return cells | (tensor_cells("OUTPUT_0", label.output) if label.output else {})


def tensor_cells(place: str, tensor: Tensor) -> dict[str, object]:
    axes = zip("WZYX", tensor.padded, tensor.shape, strict=True)
    cells: dict[str, object] = {f"{place}_{axis}_PAD[LOGICAL]": f"{padded}[{own}]" for axis, padded, own in axes}
    cells |= {f"{place}_LAYOUT": tensor.layout, f"{place}_DATATYPE": tensor.dtype}
    return cells | {f"{place}_MEMORY": f"DEV_0_{tensor.memory}"}
