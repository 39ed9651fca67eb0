# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated cycles beside the nanoseconds that the ALSpec paper's tables 4 to 6 print, op by op.

`python -m perf.sweep.paper_cycles` writes docs/results/paper_cycles.md from perf/data/paper_cycles.csv, which is the
CSV of `python -m perf.sweep --suite paper --source sim`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.llama31_8b.latency import LAYERS
from perf.lib.chip import of_roofline
from perf.lib.data_file import FOLDER
from perf.projection.decode import table_ops
from perf.projection.published import FIXED, LAYER
from perf.sweep.configurations import PAPER_CONTEXTS, PAPER_VARIANTS, Configuration, cache_bytes, suites
from perf.sweep.groups import merged, ns_of
from perf.sweep.table import PASS, Block, read

CSV = FOLDER / "paper_cycles.csv"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "paper_cycles.md"
CHIPS = (1, 2, 4)
OF_A_TOKEN = 0.02  # ops below this share of a token are not judged
WITHIN = 0.15
# The decode model's role of a table's row -> the small op that is launched.
_SMALL = {
    "attention norm": "norm", "MLP norm": "norm", "last norm": "norm", "unshard": "unshard",
    "create heads": "create_heads", "rotate": "rotate", "update cache": "update_cache", "shard": "shard",
    "concat heads": "concat_heads", "attention add": "add", "MLP add": "add", "gated product": "gated_product",
}  # fmt: skip
_COLLECTIVES = {"gather": "all_gather", "scatter": "reduce_scatter"}
_MATMULS = {"qkv": "qkv", "wo": "wo", "ff1": "ff1", "ff3": "ff1", "ff2": "ff2", "lm_head": "lm_head"}


MISSING = """\
## Where an op is more than 15 % off, and which term is missing

A chain of small kernels runs nothing but its cores' instructions, and reads and writes that wait for each other; what a
matmul hides behind its DRAM reads counts in full there. Published figures below are of Wormhole boards.

- **Round trips.** tt-metal measured a read or write of 64 bytes with its barrier at 293 cycles, four at 359 (L1,
  another row and column: `noc_estimator/latencies/noc_latencies.yaml`). Wolfpine's own comparison with that file
  (`python -m framework.perf.noc_dataset_sweep`) comes out 46 to 58 cycles below it up to 1 KB, reads and writes, L1
  and DRAM alike; some of that is the profiler's. What a NoC interface takes to read or write its L1 is in no
  document. *Create heads* waits once per head: 48 times 50 are 2,400 of the 3,700 cycles that it is short of, and its
  error is about the same on 2 and 4 chips. Bursts of more than 16 reads took 25 to 27 cycles per read on the board
  and take 18 here. To measure: create heads by its core's own wall clock, without the profiler.
- **Fetching instructions.** They come at once here; a core has them through a cache of 512 or 2,048 bytes, which each
  program finds empty (BabyRISCV/InstructionCache.md). A rule was tried in which a jump to a line that the cache lacks
  waits seven cycles, the documents' floor: norm and create heads took 0 % more, unshard 1 %, shard 2 %, update cache
  5 %, add and rotate 6 %, concat heads 8 %. It is left out: it closes none of these gaps. What straight code waits
  for is in no document; loops above the cache's size took 1.25 cycles per instruction on a Blackhole (wolfpine's
  `riscvbench`). A jump that is predicted wrongly costs two more cycles (README.md there); how cores predict is in no
  document. To measure: loops of both kinds on a Wormhole.
- **Norm, rotate, moves of heads, adds** are round trips and instructions. The launch is 0.4 to 0.7 us of each here,
  from the go message to the kernels' starts. *Rotate* has no reader and no writer: its 2,300 other cycles are the
  three compute cores' code and their waits for each other, 1.9 times that on the board. In early 2025 a norm's
  compute kernel waited 2 us for the scaler of its reduction, which the writer makes once it has started
  (tt-metal#18477).
- **Gated product.** Not the same kernel: SiLU is an exponential and a reciprocal now, in a pass of its own before the
  product, and was a piecewise polynomial in v0.55 (PR#25716). A tile took 1.95 us there (the difference of 1 and 2
  chips) and takes 2.80 us here. The vector unit is not too slow here: a stock SiLU of one tile takes 3,309 cycles
  with its launch and each further tile 1,663; tt-metal measured 3,284 ns and 2,419 (PR#41949, the kernel of April
  2026).
- **Stock flash decode.** Not the same kernel, so sums without it are above: v0.55's takes 69.9, 64.3, 56.0 and 50.1 us
  with 32, 16, 8 and 4 heads (tables 4 to 7), so most of it is what no head costs. Since then tt-metal reported 13.2
  to 9.3 us (PR#20912: half tiles, no copies), 10.95 to 9.10 us (PR#25331: maximum, sum and scale fused) and 8.3 to
  7.4 us (PR#37004: workers merge as a tree, no longer one by one) on a Galaxy's shape. To measure: `python -m
  perf.sweep --suite paper --source n150` on a board.
- **Unpackers** that work together get half their rate (UNPACR_Regular.md) and **packers** write 16 bytes per cycle
  each (L1.md); neither is charged: at most 32 cycles per tile of bfloat16 and pass, some 400 of the 5,800 cycles that
  a norm is short of.
- **Product of qkv on 4 chips.** The input comes in 32 blocks, each multicast to all readers before it is multiplied:
  1.22 us per block on the board, 0.92 us here, where the 17 KB that a bank gives for it take 0.87 us. On 1 and 2 chips
  a block's weights take 3.4 and 1.8 us and hide the multicast: a semaphore from each receiver, the data, a semaphore
  back, which are round trips again. To measure: this product with an input in 8 blocks.
- **Collectives** were rewritten after v0.55.""".splitlines()

UNTRUE = """\
## What stays untrue of silicon

- The ops are those of ttnn 0.81.1, the times those of v0.55: flash decode, SiLU and collectives were rewritten between.
- A packet's header flit (1 in 257 of a long one) is not sent, and a link has no virtual channels and a router no
  buffers: two packets for one link follow each other whole. Random reads over NoC 0 come out 18 % slower than the ISA
  document measured, over NoC 1 12 % slower; readers placed by `get_optimal_dram_bank_to_logical_worker_assignment` to
  2 % (tests/runtime_patches/simulated_n150/simulator/behaviour/test_bandwidth.py).
- From L1 to L1 a long packet moves 32 bytes per cycle; tt-metal measured 28 (reads) and 30 (writes).
- Many cores that write to DRAM with dynamic virtual channels collapse to a third on silicon, and do not here.
- A channel's refreshes are spread evenly over its bytes (92 % of 24 bytes per cycle); rows, banks and turning from
  reading to writing cost nothing.
- L1 has no bank conflicts, and the link from a router to its own tile is not held by what arrives.
- A broadcast holds the union of its routes; its tree on silicon has the major axis first and last.
- Kernels are GCC 12's code, not SFPI's, and the cost model of cores and Tensix units is a floor.
- One cycle is a nanosecond: no throttling, no host, no gap between programs (600 to 1,000 ns on a Galaxy: tt-metal,
  models/demos/llama3_subdevices/tests/test_decoder_device_perf.py).""".splitlines()


@dataclass(frozen=True)
class PaperRow:
    """A row of a table. cycles: simulated, None where the op was not run. share: of a published token's time."""

    chips: int
    section: str
    role: str
    op: str
    published_ns: int
    share: float
    cycles: float | None

    @property
    def error(self) -> float | None:
        """Relative to the published time, a nanosecond per cycle."""
        return None if self.cycles is None else self.cycles / self.published_ns - 1


def configuration_of(role: str, section: str, chips: int) -> Configuration | None:
    """Return the configuration of the suite `paper` that is a table's row, None where the suite has none."""
    if role in _SMALL and not (section == FIXED and role in ("unshard", "shard")):
        return Configuration.make("decode_op", op=_SMALL[role], tp=chips)
    if role in _COLLECTIVES:
        return Configuration.make("collective", op=_COLLECTIVES[role], mesh=f"1x{chips}")
    if role == "attention":
        heads = {"heads": 32 // chips, "kv_heads": 8 // chips}
        return Configuration.make("flash_decode", variant="stock", chunk_size=256, **heads)
    if role in _MATMULS:
        layout = {"role": _MATMULS[role], "layout": "dram_sharded"}
        tp = 1 if role == "lm_head" else chips
        found = [c for c in suites()["paper"] if all(c.get(k) == v for k, v in layout.items())]
        return next(c for c in found if c["k"] * c["n"] == _products(role, tp))
    return None


def _products(role: str, tp: int) -> int:
    hidden, ffn = 4096, 14336
    sizes = {"qkv": 6144 * hidden // tp, "wo": hidden * hidden // tp, "lm_head": 32064 * hidden}
    return sizes.get(role, hidden * ffn // tp)


def cycles_of(blocks: Sequence[Block]) -> dict[str, float]:
    """Return the cycles of each configuration that passed, by its name."""
    return {block.name: sum(map(ns_of, merged(block))) for block in blocks if block.status == PASS}


def rows(blocks: Sequence[Block]) -> list[PaperRow]:
    """Return every row of tables 4 to 6 with the cycles of what passed among `blocks`."""
    cycles = cycles_of(blocks)
    found = []
    for chips in CHIPS:
        table = table_ops(chips)
        token = sum(ns * (LAYERS if section == LAYER else 1) for section, _, ns in table)
        for section, op, ns in table:
            configuration = configuration_of(op.role, section, chips)
            took = cycles.get(configuration.name) if configuration is not None else None
            share = ns * (LAYERS if section == LAYER else 1) / token
            found.append(PaperRow(chips, section, op.role, op.name, ns, share, took))
    return found


def layer_sums(told: Sequence[PaperRow], chips: int, without: str | None = None) -> tuple[float, float, float]:
    """Return published ns and simulated cycles of those of a layer that were run, and their share of its ns. without:
    a role that does not count."""
    layer = [row for row in told if row.chips == chips and row.section == LAYER and row.role != without]
    ran = [row for row in layer if row.cycles is not None]
    published = sum(row.published_ns for row in ran)
    whole = sum(row.published_ns for row in layer)
    return float(published), sum(row.cycles or 0.0 for row in ran), published / whole


def page(blocks: Sequence[Block]) -> str:
    """Return the text of PAGE."""
    told = rows(blocks)
    lines = [
        "<!-- Written by python -m perf.sweep.paper_cycles from perf/data/paper_cycles.csv; edit neither by hand. -->",
        "# Simulated cycles beside the paper's times",
        "",
        "Llama 3.1 8B's decode ops at context 1K on one of 1, 2 and 4 chips: the nanoseconds that tables 4 to 6 of the",
        "ALSpec paper print (TT-Metalium v0.55 on N150) beside the cycles of ttnn 0.81.1's ops on 8x8 simulated",
        "cores, 1 cycle = 1 ns, both with launch. Made by",
        "",
        "```sh",
        "python -m perf.sweep --suite paper --source sim --csv perf/data/paper_cycles.csv",
        "python -m perf.sweep.paper_cycles",
        "```",
        "",
        "| op | " + " | ".join(f"{n} chip{'s' * (n > 1)}: ns | cycles | error" for n in CHIPS) + " |",
        "|---|" + "---:|" * 3 * len(CHIPS),
    ]
    lines += _table(told)
    lines += ["", *_verdict(told), "", *_contexts(cycles_of(blocks)), "", *MISSING, "", *UNTRUE, ""]
    return "\n".join(lines)


def _table(told: Sequence[PaperRow]) -> list[str]:
    places: dict[tuple[str, str, str], dict[int, PaperRow]] = {}
    for row in told:
        places.setdefault((row.section, row.op, row.role), {}).setdefault(row.chips, row)
    lines = []
    for (_, op, role), of in places.items():
        if all(row.cycles is None for row in of.values()) and all(row.share < OF_A_TOKEN for row in of.values()):
            continue
        cells = [_cells(of.get(chips)) for chips in CHIPS]
        name = f"{op} ({role})"
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    sums = [layer_sums(told, chips) for chips in CHIPS]
    lines.append("| a layer's ops that were run | " + _sum_cells(sums))
    lines.append("| the same without attention | " + _sum_cells([layer_sums(told, n, "attention") for n in CHIPS]))
    lines.append("| their share of its published time | " + " | ".join(f"{share:.0%} | | " for *_, share in sums) + "|")
    return lines


def _sum_cells(sums: Sequence[tuple[float, float, float]]) -> str:
    cells = [
        f"{published:.0f} | {cycles:.0f} | {cycles / published - 1:+.1%}" if published else "- | - | -"
        for published, cycles, _ in sums
    ]
    return " | ".join(cells) + " |"


def _cells(row: PaperRow | None) -> str:
    if row is None:
        return "- | - | -"
    if row.cycles is None:
        return f"{row.published_ns} | not run | "
    mark = "**" if abs(row.error or 0.0) > WITHIN and row.share >= OF_A_TOKEN else ""
    return f"{row.published_ns} | {row.cycles:.0f} | {mark}{row.error:+.1%}{mark}"


def _contexts(cycles: Mapping[str, float]) -> list[str]:
    """Return the table of flash decode by context, of those that were run."""
    lines = [
        "## Flash decode by context",
        "",
        "Cycles of 32 heads on 8, one user, a cache in bfloat8_b in chunks of 256, on all 64 cores; speculative: a",
        "virtual pair, each rank on half of the cores. Last: the rate at which the exact op reads its keys and values.",
        "",
        "| tokens | " + " | ".join(PAPER_VARIANTS) + " | exact, of 288 GB/s |",
        "|---:|" + "---:|" * (len(PAPER_VARIANTS) + 1),
    ]
    for context in PAPER_CONTEXTS:
        shape = {"context": context, "chunk_size": 256}
        ops = {variant: Configuration.make("flash_decode", variant=variant, **shape) for variant in PAPER_VARIANTS}
        took = {variant: cycles.get(op.name) for variant, op in ops.items()}
        if any(took.values()):
            cells = ["not run" if found is None else f"{found:.0f}" for found in took.values()]
            exact = took["exact"]
            cells.append("-" if exact is None else f"{of_roofline(cache_bytes(ops['exact']), exact):.0%}")
            lines.append(f"| {context} | " + " | ".join(cells) + " |")
    return lines


def _verdict(told: Sequence[PaperRow]) -> list[str]:
    judged = [row for row in told if row.share >= OF_A_TOKEN]
    ran = [row for row in judged if row.cycles is not None]
    good = [row for row in ran if abs(row.error or 0.0) <= WITHIN]
    return [
        f"Bold: more than {WITHIN:.0%} off and at least {OF_A_TOKEN:.0%} of a token. Of the {len(judged)} rows of that "
        f"size {len(ran)} were run, and {len(good)} of",
        f"these are within {WITHIN:.0%}. Rows below {OF_A_TOKEN:.0%} that the suite does not have are left out.",
    ]


def main() -> int:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(read(CSV)), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
