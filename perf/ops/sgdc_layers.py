# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Layers of attention and an MLP-like op on a virtual pair (ALSpec paper, figure 13): part of
`perf.ops.bench_sgdc`.

The chip's rows 0 and 1 are the members. Every layer runs the real programs: exchange, speculative attention
of both members, gate, MLP-like op (a row of tiles times a matrix), gate open. Two chips would run theirs at
once, but slow dispatch, the only dispatch of the simulator, starts a program when the last one has ended on
the whole chip. So the cycles of each member in each program are measured, those of exchange and attention from a
start that all cores have in common (`perf.lib.start_line`), and `timeline` puts them on one clock a member: members
meet at the exchange and start attention together, and otherwise each goes on when it is done. Every program
counts with its launch; that of exchange and attention, which the start line hides, is taken to be the MLP's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"
CONTEXT, CHUNK, HEAD_DIM, HEADS = 256, 32, 64, 4
DEPTH, COLUMNS, BATCH = 8, 24, 4  # tiles of the MLP-like op; about as long as the attention
PATTERNS = {"0%": (False, False), "50%": (True, False), "100%": (True, True)}
HIT, MISS = 100.0, 0.0  # thresholds
TARGET = 0.10


@dataclass(frozen=True)
class MemberCycles:
    """One member in one layer. attention: speculative decode; gate: setting and opening it; mlp: run or
    skipped."""

    attention: int
    gate: int
    mlp: int


@dataclass(frozen=True)
class LayerCycles:
    hit: bool
    sender: int
    exchange: int
    members: tuple[MemberCycles, MemberCycles]


def timeline(layers: list[LayerCycles]) -> dict[str, int]:
    """Cycles until the last member that holds the result is done, of each member's work, and of their
    overlap.

    overlap: in hit layers, how long the receiver was at its MLP while the sender was still at its attention.
    """
    clocks, busy, overlap = [0, 0], [0, 0], 0
    for layer in layers:
        start = max(clocks) + layer.exchange
        for member, cycles in enumerate(layer.members):
            work = cycles.attention + cycles.gate + cycles.mlp
            clocks[member] = start + work
            busy[member] += layer.exchange + work
        if layer.hit:
            sender, receiver = layer.members[layer.sender], layer.members[1 - layer.sender]
            begun, ended = (
                receiver.attention + receiver.gate,
                receiver.attention + receiver.gate + receiver.mlp,
            )
            overlap += max(0, min(sender.attention, ended) - begun)
    return {"total": max(clocks), "member 0": busy[0], "member 1": busy[1], "overlap": overlap}


def synchronisation(layers: list[LayerCycles]) -> int:
    """Cycles of exchange and gate over the layers, which appendix F leaves out."""
    return sum(layer.exchange + max(member.gate for member in layer.members) for layer in layers)


def predict(layers: list[LayerCycles]) -> float:
    """Appendix F for the same kernels: the estimator's formula, which knows neither exchange nor gate."""
    from perf.projections.estimator.latency import token_latency

    senders = [layer.members[layer.sender] for layer in layers]
    receivers = [layer.members[1 - layer.sender] for layer in layers]
    run = [(r if layer.hit else s).mlp for layer, s, r in zip(layers, senders, receivers, strict=True)]
    count = len(layers)
    return token_latency(
        fixed=0.0,
        per_layer=sum(run) / count,
        sfd_s=sum(s.attention for s in senders) / count,
        sfd_r=sum(r.attention for r in receivers) / count,
        layers=count,
        hit_rate=sum(layer.hit for layer in layers) / count,
    )


def measure_patterns(device, patterns=PATTERNS) -> dict[str, dict]:
    """Run every pattern; for each the layers' cycles, `timeline` and `predict`."""
    pair = _Pair(device)
    found = {}
    for name, hits in patterns.items():
        pair.restart()
        layers = [pair.layer(hit) for hit in hits]
        measured, predicted = timeline(layers), predict(layers)
        found[name] = {
            "layers": [asdict(layer) for layer in layers],
            "predicted": predicted,
            "error": predicted / measured["total"] - 1,
            "error with exchange and gate": (predicted + synchronisation(layers)) / measured["total"] - 1,
            **measured,
        }
    return found


def check_outcome(hit: bool, sender: int, priorities: list[int]) -> None:
    """Errors: RuntimeError when the members' priorities after the attention are not those of `hit`."""
    from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, NAMES, YIELDED

    wanted = [HOLDS_GUESS, HOLDS_GUESS]
    wanted[sender] = YIELDED if hit else HOLDS_EXACT
    if priorities != wanted:
        found, asked = ([NAMES.get(value, value) for value in row] for row in (priorities, wanted))
        raise RuntimeError(f"the members' outcomes are {found}; the layer was to give {asked}")


def as_text(results: dict[str, dict]) -> str:
    """The patterns as a table."""
    lines = [
        f"attention over {CONTEXT} tokens (chunk {CHUNK}) and an MLP-like op on the virtual pair, cycles",
        "| hits | layers | total | member 0 | member 1 | overlap | predicted | difference | with the sync |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in results.items():
        lines.append(
            f"| {name} | {len(found['layers'])} | {found['total']} | {found['member 0']} "
            f"| {found['member 1']} | {found['overlap']} | {found['predicted']:.0f} | {found['error']:+.1%} "
            f"| {found['error with exchange and gate']:+.1%} |"
        )
    worst = max(abs(found["error"]) for found in results.values())
    verdict = "met" if worst <= TARGET else "missed"
    lines.append(f"the formula of appendix F is within {worst:.1%} (target: {TARGET:.0%}, {verdict})")
    return "\n".join(lines)


class _Pair:
    """The members' tensors and programs on rows 0 and 1 of the chip."""

    def __init__(self, device):
        import torch
        import ttnn

        from tt_kernels.common.peer import CorePair
        from tt_kernels.compute_gate.op import clear_compute_gate
        from tt_kernels.device_exchange.op import DeviceExchange
        from tt_kernels.speculative_flash_decode.op import Peer, ProgramConfig

        torch.manual_seed(0)
        clear_compute_gate(device)
        self.device = device
        self.q = _tile(device, 1, 1, HEADS, HEAD_DIM)
        self.k, self.v = (_tile(device, 1, 1, CONTEXT, HEAD_DIM) for _ in range(2))
        self.at = _words(device, torch.tensor([CONTEXT - 1], dtype=torch.int32), ttnn.int32)
        self.residuals = [_tile(device, 32, 32 * DEPTH) for _ in range(2)]
        self.weights = _tile(device, 32 * DEPTH, 32 * COLUMNS)
        self.outputs = [_tile(device, 32, 32 * COLUMNS) for _ in range(2)]
        self.priorities = [_words(device, self._row(member), ttnn.uint32) for member in range(2)]
        self.exchange = DeviceExchange(CorePair(device, ((2, 0), (2, 1))), users=1, timeout_s=1e-2)
        self.peer = Peer(CorePair(device, ((3, 0), (3, 1))), self.exchange.gathered, timeout_s=1e-2)
        self.configs = [ProgramConfig((4, 1), (0, row), workers_per_head=1) for row in range(2)]

    @staticmethod
    def _row(member: int):
        from tt_kernels.common.priority import INITIAL, priority_row

        return priority_row(INITIAL[member])

    def restart(self) -> None:
        """The priorities a token starts with."""
        import ttnn

        for member, tensor in enumerate(self.priorities):
            host = ttnn.from_torch(self._row(member), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
            ttnn.copy_host_to_device_tensor(host, tensor)

    def layer(self, hit: bool) -> LayerCycles:
        """One layer and its cycles. Errors: RuntimeError when the device's outcome is not `hit`."""
        import ttnn

        from runtime_patches.profiling.cycles import measure
        from tt_kernels.common.cores import core_list
        from tt_kernels.compute_gate.op import GateMember, clear_compute_gate, set_compute_gate
        from tt_kernels.speculative_flash_decode.op import PairMember, speculative_flash_decode_pair

        rows = [ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, y), ttnn.CoreCoord(3, y))]) for y in range(2)]
        gates = [GateMember(priority, row) for priority, row in zip(self.priorities, rows, strict=True)]
        members = [
            PairMember(self.q, self.k, self.v, self.at, priority, config)
            for priority, config in zip(self.priorities, self.configs, strict=True)
        ]
        before = self._values()
        threshold = HIT if hit else MISS

        def attend():
            speculative_flash_decode_pair(members, chunk_size=CHUNK, threshold=threshold, peer=self.peer)

        exchanged = measure_together(self.device, lambda: self.exchange(self.residuals, self.priorities))
        attended = measure_together(self.device, attend)
        sender = 1 if before[1] > before[0] else 0
        check_outcome(hit, sender, self._values())
        # Not skip_compute: the measurement's own programs run between these.
        closed = measure(self.device, lambda: set_compute_gate(gates, users=1))
        worked = measure(self.device, self._mlp)
        opened = measure(self.device, lambda: clear_compute_gate(self.device))
        self.exchange.check()
        self.peer.pairs.check()
        sides = []
        for y, row in enumerate(rows):
            mine = set(core_list(row))
            attention = since_start(attended, mine) + _launch(worked[0, y])
            gate = sum(_program(counts, mine) for counts in (closed, opened))
            sides.append(MemberCycles(attention, gate, _program(worked, mine)))
        exchange = since_start(exchanged, set(exchanged)) + max(_launch(worked[0, y]) for y in range(2))
        return LayerCycles(hit, sender, exchange, (sides[0], sides[1]))

    def _values(self) -> list[int]:
        """Both members' priorities."""
        import ttnn

        return [int(ttnn.to_torch(priority).flatten()[0]) for priority in self.priorities]

    def _mlp(self) -> None:
        """The MLP-like op of both members, each on the first core of its row."""
        launch_mlp({(0, y): (self.residuals[y], self.outputs[y]) for y in range(2)}, self.weights)


def launch_mlp(places: dict, weights) -> None:
    """A row of tiles times a matrix, on one core a member: {(x, y): (activations, output)}, on every chip of a mesh."""
    import ttnn

    from tt_kernels.common.cores import core_set
    from tt_kernels.common.kernel import kernel_descriptor

    cores = core_set(*places)
    inputs, outputs = zip(*places.values(), strict=True)
    reads = {
        core: {"activations": given.buffer_address(), "weights": weights.buffer_address()}
        for core, (given, _) in places.items()
    }
    writes = {core: {"output": output.buffer_address()} for core, (_, output) in places.items()}
    sizes = {"depth": DEPTH, "columns": COLUMNS}
    kernels = [
        kernel_descriptor(
            KERNELS / "mlp_reader.cpp",
            ttnn.ReaderConfigDescriptor(),
            constants=sizes | {"batch": BATCH},
            accessors={"activations": inputs[0], "weights": weights},
            per_core=reads,
        ),
        kernel_descriptor(KERNELS / "mlp_compute.cpp", ttnn.ComputeConfigDescriptor(), cores=cores, constants=sizes),
        kernel_descriptor(
            KERNELS / "mlp_writer.cpp",
            ttnn.WriterConfigDescriptor(),
            constants={"columns": COLUMNS},
            accessors={"output": outputs[0]},
            per_core=writes,
        ),
    ]
    page = 2048
    cbs = []
    for index, pages in ((0, 2 * BATCH), (1, 2 * BATCH), (2, 2)):
        form = ttnn.CBFormatDescriptor(buffer_index=index, data_format=ttnn.bfloat16, page_size=page)
        cbs.append(ttnn.CBDescriptor(total_size=pages * page, core_ranges=cores, format_descriptors=[form]))
    program = ttnn.ProgramDescriptor(kernels=kernels, semaphores=[], cbs=cbs)
    ttnn.generic_op([*inputs, weights, *outputs], program)


def _tile(device, *shape):
    import torch
    import ttnn

    return ttnn.from_torch(torch.randn(shape), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)


def _words(device, values, dtype):
    import ttnn

    return ttnn.from_torch(values, dtype=dtype, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)


def _program(counts: dict, cores: set) -> int:
    """The longest program among `cores`, launch included: what the member's next program waits for."""
    return max(counts[core].program.cycles for core in cores & set(counts))


def _launch(core) -> int:
    """What the firmware spent on a program of one core, before and after its kernels."""
    return core.program.cycles - max(span.cycles for span in core.kernels().values())


def measure_together(device, launch) -> dict:
    """As `runtime_patches.profiling.cycles.measure`, of one program whose cores all start at once."""
    from perf.lib.start_line import held_at_start_line
    from runtime_patches.profiling.cycles import measure

    def held():
        with held_at_start_line(device):  # and not what `measure` itself launches
            launch()

    return measure(device, held)


def since_start(counts: dict, cores: set) -> int:
    """From the common start of a program held at the start line to the end of the last kernel on `cores`.

    counts: as `measure_together` returns them; their 32-bit clock may wrap in between.
    """
    from perf.lib.start_line import common_start, signed

    start = common_start(counts)
    ends = [span.end for core in cores & set(counts) for span in counts[core].kernels().values()]
    return max(signed(end - start) for end in ends)
