# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The CSV of a sweep: columns of tt-metal's ops_perf_results, then the sweep's own; appended configuration by
configuration, so that a sweep that was killed goes on where it stopped. Programs are grouped as in tt_transformers'
device perf tests.

A configuration is a signpost row (its name, status, reason and how many rows follow) and a row for each program on each
chip. Cells follow tracy/process_ops_logs.py of the wheel: a comma is written ;, what is not known is blank.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

TENSORS = ("INPUT_0", "INPUT_1", "INPUT_2", "OUTPUT_0")
_TENSOR_CELLS = tuple(f"{axis}_PAD[LOGICAL]" for axis in "WZYX") + ("LAYOUT", "DATATYPE", "MEMORY")
# OPS_CSV_HEADER of the wheel, INPUTS and OUTPUTS as the columns of their tensors (a test compares).
BEFORE_TENSORS = (
    "OP CODE", "OP TYPE", "GLOBAL CALL COUNT", "DEVICE ID", "DEVICE ARCH", "ATTRIBUTES", "MATH FIDELITY", "CORE COUNT",
    "AVAILABLE WORKER CORE COUNT", "SUB DEVICE ID", "PARALLELIZATION STRATEGY", "HOST START TS", "HOST END TS",
    "HOST DURATION [ns]", "DEVICE FW START CYCLE", "DEVICE FW END CYCLE", "OP TO OP LATENCY [ns]",
    "OP TO OP LATENCY BR/NRISC START [ns]", "DEVICE FW DURATION [ns]", "DEVICE KERNEL DURATION [ns]",
    "DEVICE KERNEL DURATION DM START [ns]", "DEVICE KERNEL DURATION PER CORE MIN [ns]",
    "DEVICE KERNEL DURATION PER CORE MAX [ns]", "DEVICE KERNEL DURATION PER CORE AVG [ns]",
    "DEVICE KERNEL FIRST TO LAST START [ns]", "DEVICE BRISC KERNEL DURATION [ns]",
    "DEVICE NCRISC KERNEL DURATION [ns]", "DEVICE TRISC0 KERNEL DURATION [ns]", "DEVICE TRISC1 KERNEL DURATION [ns]",
    "DEVICE TRISC2 KERNEL DURATION [ns]", "DEVICE ERISC KERNEL DURATION [ns]", "DEVICE COMPUTE CB WAIT FRONT [ns]",
    "DEVICE COMPUTE CB RESERVE BACK [ns]", "DISPATCH TOTAL CQ CMD OP TIME [ns]", "DISPATCH GO SEND WAIT TIME [ns]",
)  # fmt: skip
AFTER_TENSORS = (
    "METAL TRACE ID", "METAL TRACE REPLAY SESSION ID", "COMPUTE KERNEL SOURCE", "COMPUTE KERNEL HASH",
    "DATA MOVEMENT KERNEL SOURCE", "DATA MOVEMENT KERNEL HASH", "PROGRAM HASH", "PROGRAM CACHE HIT", "PM IDEAL [ns]",
    "PM COMPUTE [ns]", "PM BANDWIDTH [ns]", "PM REQ I BW", "PM REQ O BW", "PM FPU UTIL (%)", "NOC UTIL (%)",
    "MULTICAST NOC UTIL (%)", "DRAM BW UTIL (%)", "DRAM BW UTIL PER CTRL (%)", "ETH BW UTIL (%)",
    "NPE CONG IMPACT (%)",
)  # fmt: skip
TIME_SOURCE, STATUS, REASON = "TIME SOURCE", "STATUS", "REASON"
NAME, GROUP, LAYER, ROLE, COUNT = "SWEEP NAME", "SWEEP GROUP", "SWEEP LAYER", "SWEEP ROLE", "SWEEP ROWS"
OWN = (NAME, TIME_SOURCE, STATUS, REASON, GROUP, LAYER, ROLE, COUNT)
HEADER = (*BEFORE_TENSORS, *(f"{t}_{c}" for t in TENSORS for c in _TENSOR_CELLS), *AFTER_TENSORS, *OWN)
KERNEL_NS, FIRMWARE_NS, GAP_NS = (
    "DEVICE KERNEL DURATION [ns]", "DEVICE FW DURATION [ns]", "OP TO OP LATENCY [ns]",
)  # fmt: skip
SIGNPOST, DEVICE_OP = "signpost", "tt_dnn_device"
PASS, FAILED, HUNG, NOT_RUN = "PASS", "FAIL_ASSERT_EXCEPTION", "FAIL_CRASH_HANG", "NOT_RUN"
FIRST, MID, TAIL, OP_GROUP = "decoder-first", "decoder-mid", "model-tail", "op"
GROUPS = (FIRST, MID, TAIL)
COLLECTIVES = ("AllGather", "ReduceScatter", "AllReduce")
Row = dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """What became of a configuration: rows where status is PASS, else a reason."""

    name: str
    source: str
    status: str
    reason: str = ""
    rows: Sequence[Mapping[str, object]] = field(default_factory=list)


@dataclass(frozen=True)
class Block:
    """A configuration as read from a file: its signpost, and its programs."""

    signpost: Row
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        return self.signpost[NAME]

    @property
    def source(self) -> str:
        return self.signpost[TIME_SOURCE]

    @property
    def status(self) -> str:
        return self.signpost[STATUS]

    def options(self) -> dict[str, str]:
        """The options by name, with the family."""
        family, *pairs = self.name.split(" ")
        return {"family": family, **dict(pair.partition("=")[::2] for pair in pairs)}


LOCK_PATIENCE_S = 5.0


class TableError(ValueError):
    """A file that no sweep wrote, or that another sweep writes."""


def cell(value: object) -> str:
    """Return a cell as tt-metal writes it: no comma, no line break, None and NaN blank."""
    if value is None or value != value:
        return ""
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace(",", ";").split())


def line(row: Mapping[str, object]) -> str:
    """Return a row of the CSV. Raises ValueError for a column that is not of HEADER."""
    if unknown := set(row) - set(HEADER):
        raise ValueError(f"no column {sorted(unknown)[0]!r}")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([cell(row.get(column)) for column in HEADER])
    return text.getvalue()


def block_text(outcome: Outcome, first: int) -> str:
    """Return the lines of a configuration; `first`: number of its signpost among all rows, which orders them."""
    own = {NAME: outcome.name, TIME_SOURCE: outcome.source, STATUS: outcome.status}
    signpost = own | {
        REASON: outcome.reason,
        "OP CODE": outcome.name,
        "OP TYPE": SIGNPOST,
        COUNT: len(outcome.rows),
    }
    lines = [line(signpost | {"GLOBAL CALL COUNT": first, "HOST START TS": first})]
    for number, row in enumerate(outcome.rows, first + 1):
        place = {"OP TYPE": DEVICE_OP, "GLOBAL CALL COUNT": number, "HOST START TS": number}
        lines.append(line({**row, **own, **place}))
    return "".join(lines)


def as_block(outcome: Outcome) -> Block:
    """Return it as it would be read back."""
    lines = block_text(outcome, 1).splitlines(keepends=True)
    rows = [row for n, text in enumerate(lines) if (row := _row(Path("memory"), n, text.encode())) is not None]
    return Block(rows[0], tuple(rows[1:]))


def read(path: Path) -> list[Block]:
    """Return all complete configurations of a file. Raises TableError."""
    return [block for block, _ in _blocks(path)]


def _blocks(path: Path) -> list[tuple[Block, int]]:
    """Return the configurations with the offset of each one's end in the file; what a killed sweep left half written is
    not among them."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TableError(f"cannot read {path}: {error}") from error
    lines = data.splitlines(keepends=True)
    if not lines or lines[0] != _header_bytes():
        raise TableError(f"{path} is not a sweep of this version: its header differs")
    found: list[tuple[Block, int]] = []
    at, offset = 1, len(lines[0])
    while at < len(lines):
        signpost = _row(path, at, lines[at])
        if signpost is None:
            break
        if signpost["OP TYPE"] != SIGNPOST or not signpost[COUNT].isdigit():
            raise TableError(f"{path}: line {at + 1} should begin a configuration, it is {signpost['OP CODE']!r}")
        count = int(signpost[COUNT])
        rows = [_row(path, n, lines[n]) for n in range(at + 1, min(at + 1 + count, len(lines)))]
        complete = [row for row in rows if row is not None]
        if len(complete) < count:
            break
        offset += sum(len(text) for text in lines[at : at + 1 + count])
        at += 1 + count
        found.append((Block(signpost, tuple(complete)), offset))
    return found


def _row(path: Path, at: int, text: bytes) -> Row | None:
    """Return None for a line that was not written to its end."""
    if not text.endswith(b"\n"):
        return None
    cells = next(csv.reader([text.decode("utf-8").rstrip("\n")]))
    if len(cells) != len(HEADER):
        raise TableError(f"{path}: line {at + 1} has {len(cells)} cells, not {len(HEADER)}")
    return dict(zip(HEADER, cells, strict=True))


def _header_bytes() -> bytes:
    return (",".join(HEADER) + "\n").encode()


class Table:
    """A file of a sweep, open for this process alone."""

    def __init__(self, path: Path, handle: io.FileIO, blocks: list[Block]) -> None:
        self.path, self.blocks, self._handle = path, blocks, handle
        self._rows = sum(1 + len(block.rows) for block in blocks)

    def finished(self) -> set[tuple[str, str]]:
        """(name, source) of what need not run again."""
        return {(block.name, block.source) for block in self.blocks}

    def append(self, outcome: Outcome) -> None:
        """Append; it is written to the disk when this returns."""
        self._handle.write(block_text(outcome, self._rows + 1).encode())
        self._rows += 1 + len(outcome.rows)
        os.fsync(self._handle.fileno())


@contextmanager
def opened(path: Path, retry_failed: bool = False) -> Iterator[Table]:
    """Open the sweep file `path`, made if it is not there; what a killed sweep left half written is cut off.

    retry_failed: configurations that did not pass are taken out, to be run again. Raises TableError.
    """
    with _locked(path) as handle:
        if path.stat().st_size == 0:
            handle.write(_header_bytes())
        placed = _blocks(path)
        handle.truncate(placed[-1][1] if placed else len(_header_bytes()))
        blocks = [block for block, _ in placed]
        kept = [block for block in blocks if not (retry_failed and block.status != PASS)]
        if len(kept) == len(blocks):
            yield Table(path, handle, kept)
            return
        draft = path.with_name(path.name + ".new")
        draft.write_bytes(_header_bytes() + "".join(line(r) for b in kept for r in (b.signpost, *b.rows)).encode())
        with _locked(draft) as new:
            os.replace(draft, path)
            yield Table(path, new, kept)


@contextmanager
def _locked(path: Path) -> Iterator[io.FileIO]:
    with open(path, "ab", buffering=0) as handle:
        # A killed sweep's last child shares its lock until it has started its own program.
        patience = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > patience:
                    raise TableError(f"another sweep writes {path}") from error
                time.sleep(0.05)
        yield handle


def group_of(layer: int | None, layers_begun: bool) -> str:
    """decoder-first: layer 0 and what comes before it; decoder-mid: the other layers; model-tail: what follows."""
    if layer is None:
        return TAIL if layers_begun else FIRST
    return FIRST if layer == 0 else MID


def ns_of(row: dict[str, str]) -> float:
    """Return what a program adds to a chip's time: its kernels' duration."""
    return float(row[KERNEL_NS] or row[FIRMWARE_NS])


def merged(block: Block) -> list[dict[str, str]]:
    """Return the rows of all chips as one chip's, as tt-metal merges them: of a program the slowest chip's, of a
    collective the mean. Where the chips ran other programs (sender and receiver), the rows of the chip that took
    longest."""
    chips: dict[str, list[dict[str, str]]] = {}
    for row in block.rows:
        chips.setdefault(row["DEVICE ID"], []).append(row)
    lists = list(chips.values())
    if not lists:
        return []
    if len({tuple(row["OP CODE"] for row in rows) for rows in lists}) > 1:
        return max(lists, key=lambda rows: sum(map(ns_of, rows)))
    found = []
    for same in zip(*lists, strict=True):
        slowest = max(same, key=ns_of)
        if any(name in slowest["OP CODE"] for name in COLLECTIVES):
            slowest = slowest | {KERNEL_NS: f"{mean(map(ns_of, same)):.10g}"}
        found.append(slowest)
    return found


def layers_in(block: Block, group: str) -> int:
    return max(1, len({row[LAYER] for row in block.rows if row[GROUP] == group and row[LAYER]}))


def table(block: Block) -> dict[str, dict[str, dict[str, float]]]:
    """Return {group: {op code: {"kernel_duration", "op_to_op" (means, ns; the latter where known), "calls" a layer}}}:
    the fields of tt_transformers' device_perf_measurements JSON."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    rows = merged(block)
    for group in dict.fromkeys(row[GROUP] for row in rows):
        for code in dict.fromkeys(row["OP CODE"] for row in rows if row[GROUP] == group):
            same = [row for row in rows if (row[GROUP], row["OP CODE"]) == (group, code)]
            entry = {
                "kernel_duration": mean(map(ns_of, same)),
                "calls": len(same) / layers_in(block, group),
            }
            if gaps := [float(row[GAP_NS]) for row in same if row[GAP_NS]]:
                entry["op_to_op"] = mean(gaps)
            found.setdefault(group, {})[code] = entry
    return found


def report(blocks: Sequence[Block]) -> str:
    """Return a table for each decode step: us per layer by op and group."""
    lines = []
    for block in blocks:
        groups = table(block)
        if not any(group in GROUPS for group in groups):
            continue
        lines.append(f"{block.name} ({block.source})")
        for group, ops in groups.items():
            whole = sum(op["kernel_duration"] * op["calls"] for op in ops.values())
            lines.append(f"  {group:16}{whole / 1000:12.2f} us")
            for code, op in sorted(ops.items(), key=lambda item: -item[1]["kernel_duration"] * item[1]["calls"]):
                gap = f", {op['op_to_op'] / 1000:.2f} after the one before" if "op_to_op" in op else ""
                lines.append(f"    {code:44}{op['kernel_duration'] / 1000:10.2f} us x {op['calls']:g}{gap}")
    return "\n".join(lines)
