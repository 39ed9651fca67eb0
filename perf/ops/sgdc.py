# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The bench of the compute gate and the exchange (SGDC: static graph, dynamic concurrency).

Figure 13 of the ALSpec paper, layers of a pair in time, is `perf.step pair --plot`.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from types import SimpleNamespace

import ttnn

from perf.lib.chip import cycles_of
from perf.lib.data_file import Row
from perf.lib.tensors import tile, words
from perf.lib.virtual_pair import CorePair, CorePairExchange
from runtime_patches.profiling.cycles import measure
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, YIELDED, priority_row
from tt_kernels.compute_gate.op import OutcomeLog, clear_compute_gate, set_compute_gate

DEPTH = 1024  # of the reference op, which takes about 10,000 cycles with it
EXCHANGE_TILES, EXCHANGE_ROWS = (2, 8, 32, 128), (1, 32)  # rows of a tile in use: of one user, of all


def measure_gate(device, depth: int = DEPTH) -> dict[str, Row]:
    """Return the cycles of the reference op run and skipped, and of setting the gate from a priority, with and without
    the outcome log, and opening it again."""
    closed, opened = _priority(device, YIELDED), _priority(device, HOLDS_EXACT)
    log = OutcomeLog(device, layers=1, users=1)
    op = _reference_op(device, depth)
    programs = {
        "op, run": op,
        "set gate": lambda: set_compute_gate(opened, users=1),
        "set gate and log": lambda: set_compute_gate(opened, users=1, log=log, layer=0),
        "open gate": lambda: clear_compute_gate(device),
    }
    found = {}
    for name, program in programs.items():
        program()  # compiled before it is measured
        found[name] = _spans(device, program)
    set_compute_gate(closed, users=1)
    found["op, skipped"] = _spans(device, op)
    clear_compute_gate(device)
    return found


def _reference_op(device, depth: int):
    """Return a function that runs a matmul [32, depth] x [depth, 32], bfloat16, on one core: slow dispatch starts the
    cores of a program one after another, and the spans of a larger one would hold the host's pace."""
    a, b, out = (tile(device, shape) for shape in ((32, depth), (depth, 32), (32, 32)))
    return lambda: ttnn.matmul(a, b, optional_output_tensor=out)


def _priority(device, value: int):
    return words(device, priority_row(value), "uint32")


def _spans(device, program) -> Row:
    """Return the cycles of core (0, 0): `program` from the go message until all its RISCs are done, `kernel` the
    longest of its kernels."""
    core = measure(device, program)[0, 0]
    assert core.program is not None
    return {"program": core.program.cycles, "kernel": max(span.cycles for span in core.kernels().values())}


def measure_exchange(device, tiles=EXCHANGE_TILES) -> list[Row]:
    """Return {"tiles", "rows", "cycles"} of each size: from when both ranks start until both are done, without the
    launch, bfloat16, DRAM."""
    exchange = CorePairExchange(CorePair(device), users=1)
    priorities = [_priority(device, HOLDS_EXACT), _priority(device, HOLDS_GUESS)]
    found = []
    for count, rows in product(tiles, EXCHANGE_ROWS):
        tensors = [tile(device, (rows, 32 * count)) for _ in range(2)]
        cycles = cycles_of(device, partial(exchange, tensors, priorities))
        found.append({"tiles": count, "rows": rows, "cycles": cycles})
    exchange.pairs.check()
    return found


def part(device, p: SimpleNamespace) -> list[Row]:
    """Return the rows of the exchange by size, of the gate, or of the program run from stock kernel stubs."""
    if p.part == "exchange":
        return measure_exchange(device)
    if p.part == "gate":
        return [{"name": name, **spans} for name, spans in measure_gate(device).items()]
    op = _reference_op(device, DEPTH)
    op()
    return [{"part": "gate", "name": "op, run from stock stubs", **_spans(device, op)}]
