# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Measure what the compute gate and the exchange cost, in simulated cycles.

- a skipped program against the same program run, with and without what the firmware spends on any launch,
  and the program run from stock kernel stubs;
- setting the gate from a priority, with and without the outcome log, and opening it again;
- the exchange of a tensor over the virtual pair, by size;
- figure 13 of the paper on two chips that run at once: see `perf.ops.sgdc_chips`.

The simulator's cost model is deterministic and a floor: ratios within one run mean something, cycles do not.
"""

from __future__ import annotations

import argparse
import os
import sys
from itertools import product

from perf.lib.data_file import add_write_option, write
from perf.lib.measuring_process import answered, measure_apart
from perf.ops import sgdc_chips

KERNEL_CYCLES = 10_000
TARGET = 0.05
DEPTH = 1024  # of the reference op, which takes about KERNEL_CYCLES with it
EXCHANGE_TILES, EXCHANGE_ROWS = (2, 8, 32, 128), (1, 32)  # rows of a tile in use: of one user, of all
PARTS = ("gate", "exchange", "chips")
STOCK = "stock"  # the part that is measured on stock stubs, beside "gate"
GRID = "4x2"


def measure_gate(device, depth: int = DEPTH) -> dict:
    """Return the cycles of the reference op run and skipped, and of the programs around it.

    Spans are those of core (0, 0): `program` from the go message until all its RISCs are done, `kernel` the longest of
    its kernels.
    """
    from runtime_patches.profiling.cycles import measure
    from tt_kernels.common.priority import HOLDS_EXACT, YIELDED
    from tt_kernels.compute_gate.op import OutcomeLog, clear_compute_gate, set_compute_gate

    closed, opened = _priority(device, YIELDED), _priority(device, HOLDS_EXACT)
    log = OutcomeLog(device, layers=1, users=1)
    programs = {
        "op, run": _reference_op(device, depth),
        "set gate": lambda: set_compute_gate(opened, users=1),
        "set gate and log": lambda: set_compute_gate(opened, users=1, log=log, layer=0),
        "open gate": lambda: clear_compute_gate(device),
    }
    found = {}
    for name, program in programs.items():
        program()  # compiled before it is measured
        found[name] = _spans(measure(device, program)[0, 0])
    set_compute_gate(closed, users=1)
    found["op, skipped"] = _spans(measure(device, programs["op, run"])[0, 0])
    clear_compute_gate(device)
    return found


def measure_stock(device, depth: int = DEPTH) -> dict[str, int]:
    """Return the cycles of the reference op as `measure_gate` runs it, on a runtime whose stubs have no gate."""
    from runtime_patches.profiling.cycles import measure

    program = _reference_op(device, depth)
    program()
    return _spans(measure(device, program)[0, 0])


def _reference_op(device, depth: int):
    """Return a function that runs a matmul [32, depth] x [depth, 32], bf16.

    It takes one core: slow dispatch starts the cores of a program one after another, and those of a matmul wait for
    each other, so that the spans of a larger one would hold the host's pace.
    """
    import torch
    import ttnn

    tensors = [
        ttnn.from_torch(torch.randn(shape), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        for shape in ((32, depth), (depth, 32), (32, 32))
    ]
    return lambda: ttnn.matmul(tensors[0], tensors[1], optional_output_tensor=tensors[2])


def measure_exchange(device, tiles=EXCHANGE_TILES) -> list[dict[str, int]]:
    """Return {"tiles", "rows", "cycles"} of each size: from when both ranks start until both are done, without the
    launch, bf16, DRAM."""
    import torch
    import ttnn

    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS
    from tt_kernels.device_exchange.virtual_pair import CorePairExchange

    exchange = CorePairExchange(CorePair(device), users=1)
    priorities = [_priority(device, HOLDS_EXACT), _priority(device, HOLDS_GUESS)]
    found = []
    for count, rows in product(tiles, EXCHANGE_ROWS):
        tensors = [
            ttnn.from_torch(torch.randn(rows, 32 * count), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            for _ in range(2)
        ]
        cores = measure_together(device, lambda given=tensors: exchange(given, priorities))
        found.append({"tiles": count, "rows": rows, "cycles": since_start(cores, set(cores))})
    exchange.check()
    return found


def measure_together(device, launch) -> dict:
    """Measure one program whose cores all start at once, as `runtime_patches.profiling.cycles.measure` does."""
    from perf.lib.start_line import held_at_start_line
    from runtime_patches.profiling.cycles import measure

    def held():
        with held_at_start_line(device):  # and not what `measure` itself launches
            launch()

    return measure(device, held)


def since_start(counts: dict, cores: set) -> int:
    """Return the cycles from the start of a program held at the start line to the end of the last kernel on `cores`.

    counts: as `measure_together` returns them; their 32-bit clock may wrap in between.
    """
    from perf.lib.start_line import common_start, signed

    start = common_start(counts)
    ends = [span.end for core in cores & set(counts) for span in counts[core].kernels().values()]
    return max(signed(end - start) for end in ends)


def table_rows(results: dict) -> list[dict]:
    """Return the rows of a data file; `part` says which of PARTS a row is of, and with it which columns it has."""
    rows = [{"part": "gate", "name": name, **span} for name, span in results.get("gate", {}).items()]
    rows += [{"part": "exchange", **size} for size in results.get("exchange", [])]
    for hits, found in results.get("chips", {}).items():
        cells = {name.replace(" ", "_"): value for name, value in found.items()}
        rows.append({"part": "chips", "hits": hits} | cells)
    return rows


def report(results: dict) -> str:
    """Return the results of `run` as text."""
    lines = []
    if gate := results.get("gate"):
        lines += _gate_report(gate)
    if exchange := results.get("exchange"):
        sizes = ", ".join(f"{size['tiles']} of {size['rows']} rows: {size['cycles']} cycles" for size in exchange)
        lines.append(f"exchange over the NoC, bf16 tiles: {sizes}")
    if chips := results.get("chips"):
        lines.append(sgdc_chips.as_text(chips))
    return "\n".join(lines)


def _gate_report(gate: dict) -> list[str]:
    lines = [f"{'on core (0, 0) of the simulated N150, cycles':46}{'program':>9}{'kernels':>9}"]
    lines += [f"  {name:44}{span['program']:>9}{span['kernel']:>9}" for name, span in gate.items()]
    ran, skipped = gate["op, run"], gate["op, skipped"]
    launches = [span["program"] - span["kernel"] for span in (ran, skipped)]
    whole, kernels = (skipped[part] / KERNEL_CYCLES for part in ("program", "kernel"))
    lines += [
        f"a skipped program takes {skipped['program']} cycles, {whole:.1%} of a {KERNEL_CYCLES}-cycle kernel "
        f"(target: under {TARGET:.0%}, {'met' if whole < TARGET else 'missed'})",
        f"  its kernels take {skipped['kernel']} of them, {kernels:.1%} ({'met' if kernels < TARGET else 'missed'}); "
        f"the firmware's launch {launches[1]}, where the op that runs spends {launches[0]} on it too",
        f"  skipping saves {1 - skipped['program'] / ran['program']:.1%} of the {ran['program']}-cycle program",
    ]
    return lines


def run(parts: list[str]) -> dict:
    """Measure in processes of their own, each on a simulated chip."""
    from runtime_patches import sgdc

    results = _measured([part for part in parts if part != "chips"], sgdc.overlays())
    if "chips" in parts:
        results |= _measured(["chips"], sgdc.overlays())
    if "gate" in parts:
        stock = _measured([STOCK], {})[STOCK]
        results["gate"] = {"op, run from stock stubs": stock} | results["gate"]
    return results


def _measured(parts: list[str], overlays: dict[str, bytes]) -> dict:
    from runtime_patches.profiling.cycles import CYCLE_VARIABLES, cycle_overlays
    from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

    if not parts:
        return {}
    files = {**overlays, **cycle_overlays()}
    if parts == ["chips"]:
        variables = simulated_environment(sgdc_chips.GRID, files, mesh=sgdc_chips.MESH, dispatch="fast")
    else:
        variables = simulated_environment(GRID, files)
    environment = process_environment(variables | CYCLE_VARIABLES)
    return measure_apart("perf.ops.bench_sgdc", {"parts": parts}, environment)


def _work(parts: list[str]) -> dict:
    import ttnn

    from runtime_patches.simulated_n150.dispatch import opening_options, program_room

    if parts == ["chips"]:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        shape = ttnn.MeshShape(*sgdc_chips.MESH)
        device = ttnn.open_mesh_device(shape, **program_room(), **opening_options("fast"))
    else:
        device = ttnn.open_device(device_id=0)

    if parts != [STOCK]:
        from tt_kernels.compute_gate.op import clear_compute_gate

        clear_compute_gate(device)
    measures = {
        "gate": measure_gate,
        "exchange": measure_exchange,
        "chips": sgdc_chips.measure_chips_patterns,
        STOCK: measure_stock,
    }
    results = {part: measures[part](device) for part in parts}
    if parts == ["chips"]:
        ttnn.close_mesh_device(device)
    else:
        ttnn.close_device(device)
    return results


def _priority(device, value: int):
    import ttnn

    from tt_kernels.common.priority import priority_row

    return ttnn.from_torch(priority_row(value), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)


def _spans(core) -> dict[str, int]:
    """Return of a measurement of one core its program and its longest kernel, in cycles."""
    return {"program": core.program.cycles, "kernel": max(span.cycles for span in core.kernels().values())}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.ops.bench_sgdc", description=__doc__.splitlines()[0])
    add_write_option(parser, "--json")
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        help="what to measure; the chips take minutes",
    )
    options = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    results = run(options.parts)
    if options.write:
        write(options.write, parser, argv, table_rows(results))
    print(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
