# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bench of the compute gate and the exchange (SGDC: static graph, dynamic concurrency).

- gate: a skipped program against the same program run, with and without what the firmware spends on any launch, and
  setting the gate from a priority, with and without the outcome log, and opening it again;
- stock: the program run from stock kernel stubs;
- exchange: of a tensor over the virtual pair, by size;
- chips: figure 13 of the ALSpec paper on two chips that run at once, joined by the simulated Ethernet, under fast
  dispatch: exchange, speculative attention, gate, an MLP-like op (a row of tiles times a matrix), gate open. The layers
  of a pattern are one captured trace, whose replay is timed by the chips' common clock, from the start of the first
  program to the end of the last. The latency of the links in the simulator is a guess.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace

from perf.lib.chip import Chip, cycles_of
from perf.lib.start_line import signed
from perf.ops.family import Family, Row, Target

KERNELS = Path(__file__).parent / "kernels"
KERNEL_CYCLES = 10_000  # what a skipped program is held against
DEPTH = 1024  # of the reference op, which takes about KERNEL_CYCLES with it
EXCHANGE_TILES, EXCHANGE_ROWS = (2, 8, 32, 128), (1, 32)  # rows of a tile in use: of one user, of all


def measure_gate(device, depth: int = DEPTH) -> dict[str, Row]:
    """Return the cycles of the reference op run and skipped, and of the programs around it.

    Spans are those of core (0, 0): `program` from the go message until all its RISCs are done, `kernel` the longest of
    its kernels.
    """
    from tt_kernels.common.priority import HOLDS_EXACT, YIELDED
    from tt_kernels.compute_gate.op import OutcomeLog, clear_compute_gate, set_compute_gate

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
    """Return a function that runs a matmul [32, depth] x [depth, 32], bfloat16.

    It takes one core: slow dispatch starts the cores of a program one after another, and those of a matmul wait for
    each other, so that the spans of a larger one would hold the host's pace.
    """
    import ttnn

    from perf.lib.tensors import tile

    a, b, out = (tile(device, shape) for shape in ((32, depth), (depth, 32), (32, 32)))
    return lambda: ttnn.matmul(a, b, optional_output_tensor=out)


def _priority(device, value: int):
    from perf.lib.tensors import words
    from tt_kernels.common.priority import priority_row

    return words(device, priority_row(value), "uint32")


def _spans(device, program) -> Row:
    from runtime_patches.profiling.cycles import measure

    core = measure(device, program)[0, 0]
    assert core.program is not None
    return {"program": core.program.cycles, "kernel": max(span.cycles for span in core.kernels().values())}


def _stock(device) -> list[Row]:
    op = _reference_op(device, DEPTH)
    op()
    return [{"part": "gate", "name": "op, run from stock stubs", **_spans(device, op)}]


def measure_exchange(device, tiles=EXCHANGE_TILES) -> list[Row]:
    """Return {"tiles", "rows", "cycles"} of each size: from when both ranks start until both are done, without the
    launch, bfloat16, DRAM."""
    from perf.lib.tensors import tile
    from perf.lib.virtual_pair import CorePair, CorePairExchange
    from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS

    exchange = CorePairExchange(CorePair(device), users=1)
    priorities = [_priority(device, HOLDS_EXACT), _priority(device, HOLDS_GUESS)]
    found = []
    for count, rows in product(tiles, EXCHANGE_ROWS):
        tensors = [tile(device, (rows, 32 * count)) for _ in range(2)]
        cycles = cycles_of(device, partial(exchange, tensors, priorities))
        found.append({"tiles": count, "rows": rows, "cycles": cycles})
    exchange.check()
    return found


# --- two chips ---

CONTEXT, CHUNK, HEAD_DIM, HEADS = 256, 32, 64, 4
MLP_DEPTH, MLP_COLUMNS, BATCH = 8, 24, 4  # tiles of the MLP-like op; about as long as the attention
PATTERNS = {"0%": (False, False), "50%": (True, False), "100%": (True, True)}
HIT, MISS = 100.0, 0.0  # thresholds
PEER_CORE, MARK_CORE = (0, 1), (1, 1)
ATTENTION_CORES = [(x, 0) for x in range(4)]
# A kernel on a RISC that nothing else uses on its core: its span stays that of the trace's first program.
MARK = "#include <cstdint>\nvoid kernel_main() {}\n"


def spread(chips: list[dict]) -> dict[str, int]:
    """Return, from the counts of both chips, the cycles from the first mark until each has ended its last program."""
    marks = [counts[MARK_CORE].ncrisc.start for counts in chips]
    begun = marks[0] if signed(marks[1] - marks[0]) >= 0 else marks[1]
    ends = [max(signed(core.program.end - begun) for core in counts.values()) for counts in chips]
    return {"total": max(ends), "chip_0": ends[0], "chip_1": ends[1]}


def overlap(sender: dict, receiver: dict) -> int:
    """Return the cycles of the last layer, a hit, in which the receiver was at its MLP and the sender still at its
    attention.

    The MLP runs on the first core; what the other cores' Tensix units did last, of those that did anything, is
    attention.
    """
    attention_ends = max(sender[core].math.end for core in ATTENTION_CORES[1:] if sender[core].math)
    mlp = receiver[ATTENTION_CORES[0]].math
    return max(0, min(signed(attention_ends - mlp.start), signed(mlp.end - mlp.start)))


def check_outcome(hit: bool, sender: int, priorities: list[int]) -> None:
    """Raise RuntimeError when the chips' priorities after the attention are not those of `hit`."""
    from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, NAMES, YIELDED

    wanted = [HOLDS_GUESS, HOLDS_GUESS]
    wanted[sender] = YIELDED if hit else HOLDS_EXACT
    if priorities != wanted:
        found, asked = ([NAMES.get(value, value) for value in row] for row in (priorities, wanted))
        raise RuntimeError(f"the chips' priorities are {found}; the layer was to give {asked}")


def launch_mlp(core: tuple[int, int], activations, weights, output) -> None:
    """Multiply a row of tiles by a matrix on one core of every chip."""
    import ttnn

    from tt_kernels.common.cores import core_set
    from tt_kernels.common.kernel import kernel_descriptor

    cores, sizes = core_set(core), {"depth": MLP_DEPTH, "columns": MLP_COLUMNS}
    kernels = [
        kernel_descriptor(
            KERNELS / "mlp_reader.cpp",
            ttnn.ReaderConfigDescriptor(),
            constants=sizes | {"batch": BATCH},
            accessors={"activations": activations, "weights": weights},
            per_core={core: {"activations": activations.buffer_address(), "weights": weights.buffer_address()}},
        ),
        kernel_descriptor(KERNELS / "mlp_compute.cpp", ttnn.ComputeConfigDescriptor(), cores=cores, constants=sizes),
        kernel_descriptor(
            KERNELS / "mlp_writer.cpp",
            ttnn.WriterConfigDescriptor(),
            constants={"columns": MLP_COLUMNS},
            accessors={"output": output},
            per_core={core: {"output": output.buffer_address()}},
        ),
    ]
    page, cbs = 2048, []
    for index, pages in ((0, 2 * BATCH), (1, 2 * BATCH), (2, 2)):
        form = ttnn.CBFormatDescriptor(buffer_index=index, data_format=ttnn.bfloat16, page_size=page)
        cbs.append(ttnn.CBDescriptor(total_size=pages * page, core_ranges=cores, format_descriptors=[form]))
    program = ttnn.ProgramDescriptor(kernels=kernels, semaphores=[], cbs=cbs)
    ttnn.generic_op([activations, weights, output], program)


class _Chips:
    """Both ranks' tensors and programs, the same on either chip but for the priorities."""

    def __init__(self, mesh) -> None:
        import torch

        from perf.lib.tensors import tile, words
        from tt_kernels.common.peer import ChipPairs
        from tt_kernels.compute_gate.op import clear_compute_gate
        from tt_kernels.device_exchange.op import DeviceExchange
        from tt_kernels.speculative_flash_decode.op import Peer, ProgramConfig

        torch.manual_seed(0)
        clear_compute_gate(mesh)
        self.mesh = mesh
        q = tile(mesh, (1, 1, HEADS, HEAD_DIM))
        k, v = (tile(mesh, (1, 1, CONTEXT, HEAD_DIM)) for _ in range(2))
        self.attention = (q, k, v, words(mesh, [CONTEXT - 1]))
        self.residual, self.output = tile(mesh, (32, 32 * MLP_DEPTH)), tile(mesh, (32, 32 * MLP_COLUMNS))
        self.weights = tile(mesh, (32 * MLP_DEPTH, 32 * MLP_COLUMNS))
        self.priority = self._initial(device=mesh)
        self.exchange = DeviceExchange(ChipPairs(mesh, 1, PEER_CORE), users=1, timeout_s=1e-2)
        self.peer = Peer(ChipPairs(mesh, 1, PEER_CORE), self.exchange.gathered, timeout_s=1e-2)
        self.config = ProgramConfig((len(ATTENTION_CORES), 1), (0, 0), workers_per_head=1)

    def _initial(self, **place):
        """Return the priorities that a token starts with, one per chip."""
        import torch
        import ttnn

        from tt_kernels.common.priority import INITIAL, priority_row

        rows = torch.cat([priority_row(value) for value in INITIAL])
        mapper, layout = ttnn.ShardTensorToMesh(self.mesh, dim=0), ttnn.ROW_MAJOR_LAYOUT
        return ttnn.from_torch(rows, dtype=ttnn.uint32, layout=layout, mesh_mapper=mapper, **place)

    def _mark(self) -> None:
        import ttnn

        from tt_kernels.common.cores import core_set

        kernel = ttnn.KernelDescriptor(
            kernel_source=MARK,
            source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
            core_ranges=core_set(MARK_CORE),
            config=ttnn.ReaderConfigDescriptor(),
        )
        program = ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[])
        ttnn.generic_op([self.residual, self.residual], program)

    def launch(self, hits: tuple[bool, ...]) -> None:
        """Launch the layers of a pattern, with the outcomes `hits`."""
        from tt_kernels.compute_gate.op import skip_compute
        from tt_kernels.speculative_flash_decode.op import speculative_flash_decode

        self._mark()
        pair = {"priority": self.priority, "peer": self.peer, "program_config": self.config}
        for hit in hits:
            self.exchange(self.residual, self.priority)
            speculative_flash_decode(*self.attention, chunk_size=CHUNK, threshold=HIT if hit else MISS, **pair)
            with skip_compute(self.priority, users=1):
                launch_mlp(ATTENTION_CORES[0], self.residual, self.weights, self.output)

    def replay(self, hits: tuple[bool, ...]) -> Row:
        """Replay a pattern from a trace. Raises RuntimeError when the outcomes are not `hits`, PeerError."""
        import ttnn

        from runtime_patches.profiling.cycles import measure_chips

        trace = ttnn.begin_trace_capture(self.mesh, cq_id=0)
        self.launch(hits)
        ttnn.end_trace_capture(self.mesh, trace, cq_id=0)
        ttnn.copy_host_to_device_tensor(self._initial(), self.priority)
        chips = measure_chips([self.mesh], lambda: ttnn.execute_trace(self.mesh, trace, cq_id=0, blocking=False))
        ttnn.release_trace(self.mesh, trace)
        self.exchange.check()
        self.peer.pairs.check()
        sender = 0  # of the first layer; a hit makes the other one the next layer's
        for hit in hits[:-1]:
            sender = 1 - sender if hit else sender
        values = [int(ttnn.to_torch(part).flatten()[0]) for part in ttnn.get_device_tensors(self.priority)]
        check_outcome(hits[-1], sender, values)
        last = overlap(chips[sender], chips[1 - sender]) if hits[-1] else None
        return spread(chips) | {"overlap": last, "layers": len(hits)}


def _chips(mesh) -> list[Row]:
    pair = _Chips(mesh)
    pair.launch((True, False))  # compiles
    return [{"hits": name, **pair.replay(hits)} for name, hits in PATTERNS.items()]


def _gate(device) -> list[Row]:
    return [{"name": name, **spans} for name, spans in measure_gate(device).items()]


PARTS = {"stock": _stock, "gate": _gate, "exchange": measure_exchange, "chips": _chips}
CHIPS = {"stock": Chip("4x2"), "chips": Chip("4x2", mesh=(1, 2), gated=True)}


def _measure(device, p: SimpleNamespace) -> list[Row]:
    return PARTS[p.part](device)


def _skipped(row: Row) -> bool:
    return row.get("name") == "op, skipped"


SGDC = Family(
    about="the compute gate, the exchange, and figure 13 of the ALSpec paper on two chips",
    options={"part": "gate"},
    choices={"part": tuple(PARTS)},
    points={"default": ["part=stock,gate,exchange,chips"]},
    chip=lambda point: CHIPS.get(point.part, Chip("4x2", gated=True)),
    measure=_measure,
    targets=[
        Target("program", 0.05 * KERNEL_CYCLES, _skipped, "a skipped program with its launch"),
        Target("kernel", 0.05 * KERNEL_CYCLES, _skipped, "a skipped program's kernels"),
    ],
)
