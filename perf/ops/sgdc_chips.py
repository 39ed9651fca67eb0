# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Figure 13 of the ALSpec paper on two simulated chips that run at once: part of `perf.ops.bench_sgdc`.

Every layer runs the real programs on both chips of a pair, joined by the simulated Ethernet, with fast dispatch:
exchange, speculative attention, gate, an MLP-like op (a row of tiles times a matrix), gate open. The layers of a
pattern are one captured trace, and its replay is timed by the chips' common clock, from the start of the first program
to the end of the last: each chip's command queue starts a program when the one before has ended on that chip. The
latency of the links in the simulator is a guess.
"""

from __future__ import annotations

from pathlib import Path

from perf.lib.start_line import signed

KERNELS = Path(__file__).parent / "kernels"
CONTEXT, CHUNK, HEAD_DIM, HEADS = 256, 32, 64, 4
DEPTH, COLUMNS, BATCH = 8, 24, 4  # tiles of the MLP-like op; about as long as the attention
PATTERNS = {"0%": (False, False), "50%": (True, False), "100%": (True, True)}
HIT, MISS = 100.0, 0.0  # thresholds
GRID, MESH = "4x2", (1, 2)
PEER_CORE, MARK_CORE = (0, 1), (1, 1)
ATTENTION_CORES = [(x, 0) for x in range(4)]
# A kernel on a RISC that nothing else uses on its core: its span stays that of the trace's first program.
MARK = "#include <cstdint>\nvoid kernel_main() {}\n"


def spread(chips: list[dict]) -> dict[str, int]:
    """Return, from the counts of both chips, the cycles from the first mark until each has ended its last program."""
    marks = [counts[MARK_CORE].ncrisc.start for counts in chips]
    begun = marks[0] if signed(marks[1] - marks[0]) >= 0 else marks[1]
    ends = [max(signed(core.program.end - begun) for core in counts.values()) for counts in chips]
    return {"total": max(ends), "chip 0": ends[0], "chip 1": ends[1]}


def overlap(sender: dict, receiver: dict) -> int:
    """Cycles in the last layer, a hit, in which the receiver was at its MLP and the sender still at its attention.

    The MLP runs on the first core; what the other cores' Tensix units did last, of those that did anything, is
    attention.
    """
    attention_ends = max(sender[core].math.end for core in ATTENTION_CORES[1:] if sender[core].math)
    mlp = receiver[ATTENTION_CORES[0]].math
    return max(0, min(signed(attention_ends - mlp.start), signed(mlp.end - mlp.start)))


def measure_chips_patterns(mesh, patterns=PATTERNS) -> dict[str, dict]:
    """TracedStep every pattern on a mesh of two chips: cycles of the whole, of each chip, and of the overlap."""
    pair = _Chips(mesh)
    pair.launch((True, False))  # compiles
    return {name: pair.replay(hits) for name, hits in patterns.items()}


def as_text(results: dict[str, dict]) -> str:
    """The patterns as a table."""
    lines = [
        f"attention over {CONTEXT} tokens (chunk {CHUNK}) and an MLP-like op on two chips, fast dispatch, one trace "
        "per pattern, cycles of the chips' common clock",
        "| hits | layers | total | chip 0 | chip 1 | overlap in the last layer |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in results.items():
        last = "-" if found["overlap"] is None else found["overlap"]
        lines.append(
            f"| {name} | {found['layers']} | {found['total']} | {found['chip 0']} | {found['chip 1']} | {last} |"
        )
    return "\n".join(lines)


def check_outcome(hit: bool, sender: int, priorities: list[int]) -> None:
    """Errors: RuntimeError when the chips' priorities after the attention are not those of `hit`."""
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

    cores = core_set(core)
    reads = {core: {"activations": activations.buffer_address(), "weights": weights.buffer_address()}}
    writes = {core: {"output": output.buffer_address()}}
    sizes = {"depth": DEPTH, "columns": COLUMNS}
    kernels = [
        kernel_descriptor(
            KERNELS / "mlp_reader.cpp",
            ttnn.ReaderConfigDescriptor(),
            constants=sizes | {"batch": BATCH},
            accessors={"activations": activations, "weights": weights},
            per_core=reads,
        ),
        kernel_descriptor(KERNELS / "mlp_compute.cpp", ttnn.ComputeConfigDescriptor(), cores=cores, constants=sizes),
        kernel_descriptor(
            KERNELS / "mlp_writer.cpp",
            ttnn.WriterConfigDescriptor(),
            constants={"columns": COLUMNS},
            accessors={"output": output},
            per_core=writes,
        ),
    ]
    page = 2048
    cbs = []
    for index, pages in ((0, 2 * BATCH), (1, 2 * BATCH), (2, 2)):
        form = ttnn.CBFormatDescriptor(buffer_index=index, data_format=ttnn.bfloat16, page_size=page)
        cbs.append(ttnn.CBDescriptor(total_size=pages * page, core_ranges=cores, format_descriptors=[form]))
    program = ttnn.ProgramDescriptor(kernels=kernels, semaphores=[], cbs=cbs)
    ttnn.generic_op([activations, weights, output], program)


class _Chips:
    """Both ranks' tensors and programs, the same on either chip but for the priorities."""

    def __init__(self, mesh) -> None:
        import torch
        import ttnn

        from tt_kernels.common.peer import ChipPairs
        from tt_kernels.compute_gate.op import clear_compute_gate
        from tt_kernels.device_exchange.op import DeviceExchange
        from tt_kernels.speculative_flash_decode.op import Peer, ProgramConfig

        torch.manual_seed(0)
        clear_compute_gate(mesh)
        self.mesh = mesh

        def tile(*shape):
            values = torch.randn(shape)
            return ttnn.from_torch(values, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)

        self.q = tile(1, 1, HEADS, HEAD_DIM)
        self.k, self.v = (tile(1, 1, CONTEXT, HEAD_DIM) for _ in range(2))
        at = torch.tensor([CONTEXT - 1], dtype=torch.int32)
        self.at = ttnn.from_torch(at, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh)
        self.residual, self.output = tile(32, 32 * DEPTH), tile(32, 32 * COLUMNS)
        self.weights = tile(32 * DEPTH, 32 * COLUMNS)
        self.priority = self._initial(device=mesh)
        self.exchange = DeviceExchange(ChipPairs(mesh, 1, PEER_CORE), users=1, timeout_s=1e-2)
        self.peer = Peer(ChipPairs(mesh, 1, PEER_CORE), self.exchange.gathered, timeout_s=1e-2)
        self.config = ProgramConfig((len(ATTENTION_CORES), 1), (0, 0), workers_per_head=1)

    def _initial(self, **place):
        """The priorities a token starts with, a chip each."""
        import torch
        import ttnn

        from tt_kernels.common.priority import INITIAL, priority_row

        rows = torch.cat([priority_row(value) for value in INITIAL])
        mapper = ttnn.ShardTensorToMesh(self.mesh, dim=0)
        layout = ttnn.ROW_MAJOR_LAYOUT
        return ttnn.from_torch(rows, dtype=ttnn.uint32, layout=layout, mesh_mapper=mapper, **place)

    def _values(self) -> list[int]:
        """Both chips' priorities."""
        import ttnn

        parts = ttnn.get_device_tensors(self.priority)
        return [int(ttnn.to_torch(part).flatten()[0]) for part in parts]

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
        """The layers of a pattern, with the outcomes `hits`."""
        from tt_kernels.compute_gate.op import skip_compute
        from tt_kernels.speculative_flash_decode.op import speculative_flash_decode

        self._mark()
        for hit in hits:
            self.exchange(self.residual, self.priority)
            speculative_flash_decode(
                self.q,
                self.k,
                self.v,
                self.at,
                chunk_size=CHUNK,
                threshold=HIT if hit else MISS,
                priority=self.priority,
                peer=self.peer,
                program_config=self.config,
            )
            with skip_compute(self.priority, users=1):
                launch_mlp(ATTENTION_CORES[0], self.residual, self.weights, self.output)

    def replay(self, hits: tuple[bool, ...]) -> dict:
        """A pattern as a trace. Errors: RuntimeError when the outcomes are not `hits`, PeerError."""
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
        check_outcome(hits[-1], sender, self._values())
        last = overlap(chips[sender], chips[1 - sender]) if hits[-1] else None
        return spread(chips) | {"overlap": last, "layers": len(hits)}
