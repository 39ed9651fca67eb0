# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Time what one configuration launches on an open mesh.

Programs are timed on simulated chips by their firmware's notes, on boards by the stock wheel's real-time profiler. Both
know a program by the runtime's number, and labels give it a name. A ttnn that was built with Tracy runs the worker
under `python -m tracy`, with a signpost before the timed run, each layer, and what follows; the rows of its
ops_perf_results between them are the configuration's. The stock wheel has no Tracy: there `python -m tracy` ends at
once, and that is the configuration's reason.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.lib.chip import one_after_the_other
from perf.lib.launch_labels import Label, Labels, Tensor, around
from perf.sweep.configurations import Configuration
from perf.sweep.table import (
    DEVICE_OP,
    FIRMWARE_NS,
    GAP_NS,
    GROUP,
    HEADER,
    KERNEL_NS,
    LAYER,
    OP_GROUP,
    OWN,
    ROLE,
    SIGNPOST,
    group_of,
)  # fmt: skip


def nothing() -> None:
    return None


@dataclass
class Launch:
    """run: what is timed. code: op code of programs that ttnn knows as a generic op. before, after: each time, not
    timed. compiled: once, after the first run, which compiles. check: raises where what ran went wrong on a chip.
    model: of a decode step, else None."""

    run: Callable[[], Any]
    code: str = "GenericOp"
    before: Callable[[], Any] = nothing
    after: Callable[[], Any] = nothing
    compiled: Callable[[], Any] = nothing
    check: Callable[[], Any] = nothing
    group: str = OP_GROUP
    model: Any = None


# --- timers ---

TIMELINE_PROGRAMS = 512
# Op codes of tt-metal's device operations, for ttnn's names that launch them.
CODES = {
    "linear": "MatmulDeviceOperation",
    "matmul": "MatmulDeviceOperation",
    "rms_norm": "LayerNormDeviceOperation",
    "add": "BinaryNgDeviceOperation",
    "add_": "BinaryNgDeviceOperation",
    "multiply": "BinaryNgDeviceOperation",
    "mul": "BinaryNgDeviceOperation",
    "embedding": "EmbeddingsDeviceOperation",
    "scaled_dot_product_attention_decode": "SdpaDecodeDeviceOperation",
    "rotary_embedding_llama": "RotaryEmbeddingLlamaDeviceOperation",
    "paged_update_cache": "PagedUpdateCacheDeviceOperation",
    "nlp_create_qkv_heads_decode": "NLPCreateQKVHeadsDecodeDeviceOperation",
    "nlp_concat_heads_decode": "NLPConcatHeadsDecodeDeviceOperation",
    "interleaved_to_sharded": "InterleavedToShardedDeviceOperation",
    "sharded_to_interleaved": "ShardedToInterleavedDeviceOperation",
}
PARTS = {"attention": "FlashDecode", "exchange": "DeviceExchange", "gate": "SetComputeGate"}
# The profiler's callback has a thread of its own and comes late.
QUIET_S, LATE_S = 0.3, 10.0


class NoProfiler(RuntimeError):
    """This machine, or this process, gives no device times; the message says what would."""


@dataclass(frozen=True)
class Ran:
    """A program on a chip. start, end: nanoseconds on that chip's clock. cores: None where it is not known."""

    number: int
    start: float
    end: float
    cores: int | None


Timer = Callable[[Callable[[], Any]], list[list[Ran]]]


def simulated_timer(mesh) -> Timer:
    """Return the cycles of the simulator's cost model, a nanosecond each (1 GHz)."""
    from runtime_patches.profiling.timeline import Timeline

    timeline = Timeline(mesh, TIMELINE_PROGRAMS)

    def timed(run: Callable[[], Any]) -> list[list[Ran]]:
        timeline.start()
        run()
        return [[Ran(s.number, s.start, s.end, s.cores) for s in chip] for chip in timeline.stop()]

    return timed


def realtime_timer(mesh) -> Timer:
    """Return the real-time profiler of the stock wheel: needs fast dispatch from worker cores and a chip of this host.

    Raises NoProfiler where it is not active, or gave less than what ran.
    """
    import ttnn

    if not ttnn.device.IsProgramRealtimeProfilerActive():
        raise NoProfiler(
            "ttnn's real-time profiler is not active: it needs fast dispatch on worker cores (not on Ethernet cores, "
            "no TT_METAL_SLOW_DISPATCH_MODE) and chips of this host; with a Tracy build give --tracy"
        )

    def timed(run: Callable[[], Any]) -> list[list[Ran]]:
        records: list[tuple[int, int, float, float]] = []
        dropped: list[int] = []

        def note(batch: Any) -> None:
            dropped.append(int(batch.dropped))
            records.extend(plain(batch.records))

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


def plain(records: Iterable[Any]) -> list[tuple[int, int, float, float]]:
    """Return (chip, program, start, end) of the profiler's records, ticks as nanoseconds by their own frequency."""
    return [
        (int(r.chip_id), int(r.runtime_id), r.start_timestamp / r.frequency, r.end_timestamp / r.frequency)
        for r in records
    ]


def by_chip(records: Sequence[tuple[int, int, float, float]]) -> list[list[Ran]]:
    """Return each chip's programs in order, chips by their number. Raises NoProfiler without records."""
    if not records:
        raise NoProfiler("the real-time profiler gave no record of what ran")
    chips = sorted({chip for chip, *_ in records})
    return [
        sorted((Ran(n, start, end, None) for c, n, start, end in records if c == chip), key=lambda ran: ran.start)
        for chip in chips
    ]


def measure(mesh, launch: Launch, timer: Timer, configuration: Configuration) -> list[dict[str, object]]:
    """Run once, which compiles, then again, timed, a decode step from a captured trace; rows of the CSV."""
    import ttnn

    labels = Labels()
    launch.before()
    launch.run()
    launch.after()
    launch.compiled()
    if launch.model is not None and "TT_METAL_SLOW_DISPATCH_MODE" not in os.environ:
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        with labels.of_model(launch.model):
            launch.run()
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        chips = timer(lambda: ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True))
        ttnn.release_trace(mesh, trace)
    else:
        launch.before()
        ttnn.synchronize_device(mesh)
        with labels.of_model(launch.model) if launch.model is not None else labels.taken():
            chips = timer(launch.run)
        launch.after()
    launch.check()
    size = mesh.compute_with_storage_grid_size()
    return rows_of(chips, labels, launch, configuration, size.x * size.y)


def rows_of(
    chips: Sequence[Sequence[Ran]], labels: Labels, launch: Launch, configuration: Configuration, workers: int
) -> list[dict[str, object]]:
    """Return a row per program and chip, chip after chip. Raises NoProfiler where nothing ran."""
    if not any(chips):
        raise NoProfiler("no program was seen")
    found = []
    for chip, programs in enumerate(chips):
        end, begun = None, False
        turns = one_after_the_other((ran.start, ran.end) for ran in programs)
        for ran, (_, took) in zip(programs, turns, strict=True):
            label = labels.of(ran.number)
            layer = None if label is None else label.layer
            begun = begun or layer is not None
            group = launch.group if launch.model is None else group_of(layer, begun)
            row = _row(ran, label, launch, configuration, workers)
            row |= {"DEVICE ID": chip, GROUP: group, LAYER: layer}
            row[KERNEL_NS] = took
            row[GAP_NS] = None if end is None else max(0.0, ran.start - end)
            end = ran.end if end is None else max(end, ran.end)
            found.append(row)
    return found


def _row(
    ran: Ran, label: Label | None, launch: Launch, configuration: Configuration, workers: int
) -> dict[str, object]:
    took = ran.end - ran.start
    row: dict[str, object] = {
        "OP CODE": op_code(label, launch.code),
        "DEVICE ARCH": "wormhole_b0",
        "ATTRIBUTES": attributes(configuration),
        "CORE COUNT": workers if ran.cores is None else ran.cores,
        "AVAILABLE WORKER CORE COUNT": workers,
        "DEVICE FW START CYCLE": ran.start,
        "DEVICE FW END CYCLE": ran.end,
        # From the first go message to the last core's end: launch included. Neither source has kernels apart.
        FIRMWARE_NS: took,
        ROLE: (label.part or label.name) if label else None,
    }
    if label is not None:
        row |= tensor_cells(label)
        if label.fidelity:
            # tt-perf-report knows no HiFi3: it is told the next one, so its share of the peak is too high for these.
            row["MATH FIDELITY"] = "HiFi4" if label.fidelity == "HiFi3" else label.fidelity
    return row


def op_code(label: Label | None, generic: str) -> str:
    """Return tt-metal's name of the device operation that a call launches, else one made of the call's name."""
    if label is None:
        return "Unknown"
    if label.name == "generic_op":
        return PARTS.get(label.part or "", generic)
    if label.name in CODES:
        return CODES[label.name]
    return "".join(word.capitalize() for word in re.split("_+", label.name) if word) + "DeviceOperation"


def attributes(configuration: Configuration) -> str:
    """Return the options, and for tt-perf-report what a DRAM-sharded program looks like."""
    text = "; ".join(f"{key}={value}" for key, value in configuration.options)
    if configuration.family == "matmul" and configuration["layout"] == "dram_sharded":
        text += "; program_config=MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig"
    return text


def tensor_cells(label: Label) -> dict[str, object]:
    """Return the cells of the first tensors that a call was given, and of its result."""
    cells: dict[str, object] = {}
    for index, tensor in enumerate(label.tensors):
        cells |= cells_of(f"INPUT_{index}", tensor)
    if label.output is not None:
        cells |= cells_of("OUTPUT_0", label.output)
    return cells


def cells_of(place: str, tensor: Tensor) -> dict[str, object]:
    sizes: dict[str, object] = {
        f"{place}_{axis}_PAD[LOGICAL]": f"{padded}[{logical}]"
        for axis, padded, logical in zip("WZYX", tensor.padded, tensor.shape, strict=True)
    }
    return sizes | {
        f"{place}_LAYOUT": tensor.layout,
        f"{place}_DATATYPE": tensor.dtype,
        f"{place}_MEMORY": f"DEV_0_{tensor.memory}",
    }


# --- a ttnn with Tracy ---

# As tt-metal's device perf tests write them.
START, STOP = "start", "stop"
LAYER_POST, LAYERS_OVER = "layer ", "layers over"


def tracy_command(worker: Sequence[str], folder: Path) -> list[str]:
    """Return `worker` ([python, -m, module, ...]) profiled, with an ops report under `folder`."""
    return [worker[0], "-m", "tracy", "-r", "-p", "-o", str(folder), *worker[1:]]


def tracy_run(launch: Launch) -> None:
    """Run once to compile, and once between signposts. Not from a trace: a replay has no layers."""
    signpost = importlib.import_module("tracy").signpost  # of the wheel; no package of its own for mypy
    launch.before()
    launch.run()
    launch.after()
    launch.compiled()
    launch.before()
    signpost(START)
    with _layers(launch.model, signpost):
        launch.run()
    signpost(STOP)
    launch.after()
    launch.check()


@contextlib.contextmanager
def _layers(model: Any, signpost: Callable[[str], Any]) -> Iterator[None]:
    layers = [] if model is None else list(model.layers)

    def posting(text: str) -> Callable[[], Any]:
        return lambda: signpost(text)

    def nothing() -> None:
        pass

    with contextlib.ExitStack() as stack:
        for index, layer in enumerate(layers):
            stack.enter_context(around(layer, "project_qkv", posting(f"{LAYER_POST}{index}"), nothing))
        for layer in layers[-1:]:
            stack.enter_context(around(layer, "after_attention", nothing, posting(LAYERS_OVER)))
        yield


def tracy_rows(folder: Path, configuration: Configuration) -> list[dict[str, object]]:
    """Return the rows of the newest report under `folder`. Raises ValueError where there is none, or no op between the
    signposts."""
    reports = sorted(folder.rglob("ops_perf_results*.csv"), key=lambda path: path.stat().st_mtime)
    if not reports:
        raise ValueError(f"Tracy left no ops_perf_results CSV in {folder}")
    with reports[-1].open(newline="", encoding="utf-8") as file:
        told = sorted(csv.DictReader(file), key=lambda row: float(row["HOST START TS"] or 0))
    found: list[dict[str, object]] = []
    inside, layer, begun = False, None, False
    for row in told:
        code = row["OP CODE"]
        if row["OP TYPE"] == SIGNPOST:
            if code in (START, STOP):
                inside = code == START
            elif code.startswith(LAYER_POST) or code == LAYERS_OVER:
                layer, begun = None if code == LAYERS_OVER else int(code[len(LAYER_POST) :]), True
        elif inside and row["OP TYPE"] == DEVICE_OP:
            group = group_of(layer, begun) if configuration.family == "decode" else OP_GROUP
            known = {column: row[column] for column in HEADER if column in row and column not in OWN}
            attributes = f"{row.get('ATTRIBUTES') or ''}; profiler=tracy"
            found.append({**known, "ATTRIBUTES": attributes, GROUP: group, LAYER: layer})
    if not found:
        raise ValueError(f"{reports[-1].name} has no device op between the signposts {START} and {STOP}")
    chips = sorted({int(str(row["DEVICE ID"])) for row in found})
    for kept in found:
        kept["DEVICE ID"] = chips.index(int(str(kept["DEVICE ID"])))
    return found


TRACY = "tracy"
