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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from perf.lib.data_file import markdown

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
COLLECTIVES = ("AllGather", "ReduceScatter", "AllReduce")
Row = dict[str, str]
_HEADER_LINE = (",".join(HEADER) + "\n").encode()


class TableError(ValueError):
    """A file that no sweep wrote, or that another sweep writes."""


class Block(NamedTuple):
    """What became of a configuration: cells of its programs as text where status is PASS, else a reason."""

    name: str
    source: str
    status: str
    reason: str = ""
    rows: tuple[Row, ...] = ()

    @classmethod
    def make(
        cls, name: str, source: str, status: str, reason: str = "", rows: Iterable[Mapping[str, object]] = ()
    ) -> Block:
        """Make one of rows of any values, None or absent where nothing is known. A column is one of HEADER."""
        cells = ({**dict.fromkeys(HEADER, ""), **{c: cell(value) for c, value in row.items()}} for row in rows)
        return cls(name, source, status, reason, tuple(cells))

    def text(self, first: int) -> str:
        """Return its lines of the CSV. first: number of its signpost among all rows, which orders them."""
        own: dict[str, object] = {NAME: self.name, TIME_SOURCE: self.source, STATUS: self.status}
        signpost = {"OP CODE": self.name, "OP TYPE": SIGNPOST, REASON: self.reason, COUNT: len(self.rows)}
        lines: list[Mapping[str, object]] = [signpost, *(row | {"OP TYPE": DEVICE_OP} for row in self.rows)]
        text = io.StringIO()
        writer = csv.DictWriter(text, HEADER, lineterminator="\n")
        for number, row in enumerate(lines, first):
            cells = {**row, **own, "GLOBAL CALL COUNT": number, "HOST START TS": number}
            writer.writerow({column: cell(value) for column, value in cells.items()})
        return text.getvalue()


def cell(value: object) -> str:
    """Return a cell as tt-metal writes it: no comma, no line break, None and NaN blank."""
    if value is None or value != value:
        return ""
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace(",", ";").split())


def read(path: Path) -> list[Block]:
    """Return the configurations of a file as they were measured last. Raises TableError."""
    found: dict[tuple[str, str], Block] = {}
    for block in _blocks(path)[0]:
        found.pop((block.name, block.source), None)
        found[block.name, block.source] = block
    return list(found.values())


def _blocks(path: Path) -> tuple[list[Block], int]:
    """Return all complete configurations and the bytes that they take: a killed sweep leaves the last half written."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise TableError(f"cannot read {path}: {error}") from error
    if lines[:1] != [_HEADER_LINE]:
        raise TableError(f"{path} is not a sweep of this version: its header differs")
    if not lines[-1].endswith(b"\n"):
        lines.pop()
    rows: list[Row] = list(csv.DictReader(line.decode() for line in lines))
    found, at = [], 0
    while at < len(rows) and (end := at + 1 + int(rows[at][COUNT])) <= len(rows):
        name, source, status, reason = (rows[at][column] for column in (NAME, TIME_SOURCE, STATUS, REASON))
        found.append(Block(name, source, status, reason, tuple(rows[at + 1 : end])))
        at = end
    return found, sum(map(len, lines[: at + 1]))


@dataclass
class Table:
    """The file of a sweep, open for this process alone. done: (name, source) of what need not run again."""

    path: Path
    done: set[tuple[str, str]]
    _handle: io.FileIO
    _rows: int

    def append(self, block: Block) -> None:
        self._handle.write(block.text(self._rows + 1).encode())
        self._rows += 1 + len(block.rows)
        os.fsync(self._handle.fileno())


@contextmanager
def opened(path: Path, retry_failed: bool = False) -> Iterator[Table]:
    """Open the sweep file `path`, made if it is not there; what a killed sweep left half written is cut off.

    retry_failed: what did not pass is to run again, and its later row counts. Raises TableError.
    """
    with open(path, "ab", buffering=0) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TableError(f"another sweep writes {path}") from error
        if not path.stat().st_size:
            handle.write(_HEADER_LINE)
        blocks, size = _blocks(path)
        handle.truncate(size)
        done = {(b.name, b.source) for b in read(path) if b.status == PASS or not retry_failed}
        yield Table(path, done, handle, sum(1 + len(block.rows) for block in blocks))


def group_of(layer: int | None, layers_begun: bool) -> str:
    """decoder-first: layer 0 and what comes before it; decoder-mid: the other layers; model-tail: what follows."""
    if layer is None:
        return TAIL if layers_begun else FIRST
    return FIRST if layer == 0 else MID


def ns_of(row: Row) -> float:
    """Return what a program adds to a chip's time: its kernels' duration."""
    return float(row[KERNEL_NS] or row[FIRMWARE_NS])


def merged(block: Block) -> list[Row]:
    """Return the rows of all chips as one chip's, as tt-metal merges them: of a program the slowest chip's, of a
    collective the mean. Where the chips ran other programs (sender and receiver), the rows of the chip that took
    longest."""
    chips: dict[str, list[Row]] = {}
    for row in block.rows:
        chips.setdefault(row["DEVICE ID"], []).append(row)
    lists = list(chips.values())
    if len({tuple(row["OP CODE"] for row in rows) for rows in lists}) > 1:
        return max(lists, key=lambda rows: sum(map(ns_of, rows)))
    found = []
    for same in zip(*lists, strict=True):
        slowest = max(same, key=ns_of)
        if any(name in slowest["OP CODE"] for name in COLLECTIVES):
            slowest = slowest | {KERNEL_NS: f"{mean(map(ns_of, same)):.10g}"}
        found.append(slowest)
    return found


def total_ns(block: Block) -> float:
    """Return the time of a chip, see `merged`."""
    return sum(map(ns_of, merged(block)))


def report(blocks: Sequence[Block]) -> str:
    """Return a table of what passed, and the reasons of what did not."""
    rows = [
        {"configuration": b.name, "source": b.source, "programs": len(merged(b)), "us": total_ns(b) / 1e3}
        for b in blocks
        if b.status == PASS
    ]
    failed = [f"{b.status} {b.name} ({b.source}): {b.reason}" for b in blocks if b.status != PASS]
    return "\n".join([*([markdown(rows)] if rows else []), *failed])
