# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sweeps without a device: suites and filters, a CSV that outlives a kill, failing
configurations. Workers are small programs of the test's own."""

import ast
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from perf.sweep import table
from perf.sweep.__main__ import main
from perf.sweep.configurations import Configuration, from_file, from_lines, suites
from perf.sweep.runner import grid_of, sweep
from perf.sweep.table import HEADER, KERNEL_NS, PASS, Block, opened, read
from runtime_patches.board.runtime_root import find_ttnn_dir

WO = Configuration.make("matmul")
OTHER = Configuration.make("sampling")
CONFIGURATIONS = from_lines("matmul k=64,128,256,512")


def run(capsys, *arguments) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr().out


def saying(program: str):
    """Return a worker that runs `program`; ANSWER stands for its file."""
    return lambda _, answer: ([sys.executable, "-c", program.replace("ANSWER", repr(str(answer)))], os.environ)


def answering(rows, status=PASS, reason=""):
    """Return a worker that answers at once."""
    return saying(f"open(ANSWER, 'w').write({json.dumps({'status': status, 'reason': reason, 'rows': rows})!r})")


def one(start, path, timeout_s=60.0, configurations=(WO,)):
    with opened(path) as rows:
        return sweep(configurations, "sim", rows, timeout_s=timeout_s, start=start)


ROW = {"OP CODE": "MatmulDeviceOperation", "DEVICE ID": 0, KERNEL_NS: 1000.0, table.GROUP: "op"}


def test_the_header_is_that_of_the_wheel():
    """OPS_CSV_HEADER of tracy/process_ops_logs.py, in its order, its tensors spread out; ours after them."""
    source = (find_ttnn_dir().parent / "tracy" / "process_ops_logs.py").read_text()
    theirs = next(
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "OPS_CSV_HEADER"
    )
    cut = theirs.index("INPUTS")
    tensors = [column for column in HEADER if column.startswith(("INPUT_", "OUTPUT_"))]
    ours = [*theirs[:cut], *tensors, *theirs[cut + 2 :]]
    assert theirs[cut : cut + 2] == ["INPUTS", "OUTPUTS"] and list(HEADER[: len(ours)]) == ours and len(tensors) == 28


@pytest.mark.parametrize(
    ("line", "grids"),
    [
        ("sampling vocab=1024,128256", ["1x1", "8x8"]),
        ("collective", ["4x2"]),
        ("flash_decode variant=exact heads=4 kv_heads=1 workers=1,3", ["1x1", "4x1"]),
        ("flash_decode variant=speculative heads=4 kv_heads=1 workers=1,3", ["4x2", "8x2"]),
        ("flash_decode variant=guess workers=4,8", ["8x4", "8x8"]),
    ],
)
def test_a_chip_has_as_few_cores_as_an_op_asks_for(line, grids):
    assert [grid_of(c) for c in from_lines(line)] == grids


def test_more_cores_than_a_chip_has_are_refused():
    with pytest.raises(ValueError, match="1 x 128 cores are more than the 8x8 of a chip"):
        grid_of(Configuration.make("flash_decode", workers=16))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no configuration"),
        ("conv k=1", "mine: no family 'conv'"),
        ("matmul k=0", "matmul.k must be at least 1, got 0"),
        ("collective mesh=3x3", "no mesh 3x3"),
        ("collective op=half", "op must be one of all_gather, reduce_scatter, all_reduce, got half"),
        ("flash_decode context=9000000", "context=9000000 take 18.2 GiB, a chip has 12"),
    ],
)
def test_suite_files_that_make_no_sense(tmp_path, text, says):
    path = tmp_path / "mine"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        from_file(path)


def test_configurations_come_back_from_their_names(capsys):
    for name, suite in suites().items():
        code, text = run(capsys, "--suite", name, "--list")
        assert code == 0 and from_lines(text) == suite


def test_a_csv_shows_its_sweep(tmp_path, capsys):
    """The time of what passed, and the reason of what did not."""
    csv = tmp_path / "a.csv"
    one(answering([ROW] * 2), csv)
    one(answering([], table.NOT_RUN, "a reason"), csv, configurations=[OTHER])
    code, text = run(capsys, "--csv", csv)
    assert code == 0 and f"| {WO.name} | sim | 2 | 2 |" in text and f"NOT_RUN {OTHER.name} (sim): a reason" in text


def test_a_killed_sweep_goes_on(tmp_path, capsys):
    """Half a configuration at the end, the third: those before it stay, the rest runs."""
    csv = tmp_path / "a.csv"
    one(answering([ROW, ROW]), csv, configurations=CONFIGURATIONS[:2])
    kept = csv.read_bytes()
    half = Block.make(CONFIGURATIONS[2].name, "sim", PASS, rows=[ROW, ROW]).text(7)
    for cut in (5, len(half) - 3, half.index("\n") + 1, len(half) - 1):
        csv.write_bytes(kept + half[:cut].encode())
        ran = one(answering([ROW]), csv, configurations=CONFIGURATIONS)
        assert "2 of 4 configurations are in" in capsys.readouterr().out
        assert [o.name for o in ran] == [c.name for c in CONFIGURATIONS[2:]]
        assert csv.read_bytes().startswith(kept)
        blocks = read(csv)
        assert [b.name for b in blocks] == [c.name for c in CONFIGURATIONS]
        numbers = [int(r["GLOBAL CALL COUNT"]) for b in blocks for r in b.rows]
        assert numbers == [2, 3, 5, 6, 8, 10]


@pytest.mark.parametrize(
    ("start", "status", "says"),
    [
        (saying("import os; os.abort()"), table.HUNG, "ended by SIGABRT"),
        (saying("raise RuntimeError('TT_FATAL, of')"), table.FAILED, "ended with status 1: RuntimeError: TT_FATAL; of"),
        (saying("import time; time.sleep(600)"), table.HUNG, "the program did not end within 1 s"),
        (answering([], table.FAILED, "RuntimeError: out of L1"), table.FAILED, "RuntimeError: out of L1"),
    ],
)
def test_a_configuration_that_fails_is_a_row(tmp_path, start, status, says):
    """And the next one runs; --retry-failed runs it again, and only it."""
    csv, other = tmp_path / "a.csv", OTHER
    (found,) = one(start, csv, timeout_s=1.0 if "within" in says else 60.0)
    assert found.status == status
    one(answering([ROW]), csv, configurations=[WO, other])
    failed, passed = read(csv)
    assert failed.reason.startswith(says) and passed.name == other.name and passed.status == PASS
    with opened(csv, retry_failed=True) as rows:
        assert rows.done == {(other.name, "sim")}
        sweep([WO, other], "sim", rows, timeout_s=60, start=answering([ROW]))
    assert [(b.name, b.status) for b in read(csv)] == [(other.name, PASS), (WO.name, PASS)]


def test_a_broken_configuration_leaves_no_process(tmp_path):
    """The simulators are children of the worker."""
    child = tmp_path / "child"
    program = (
        "import os, subprocess, sys; c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        f"open({str(child)!r}, 'w').write(str(c.pid)); os.abort()"
    )
    one(saying(program), tmp_path / "a.csv")
    stat = Path(f"/proc/{child.read_text()}/stat")
    for _ in range(100):
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    os.kill(int(child.read_text()), signal.SIGKILL)
    pytest.fail("it still ran")


def test_boards_that_are_not_there_are_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("runtime_patches.board.environment.visible_boards", lambda: [0])
    configurations = [Configuration.make("decode", mesh="1x2")]
    with opened(tmp_path / "a.csv") as rows:
        (found,) = sweep(configurations, "n150", rows, timeout_s=9)
    assert (found.status, found.reason) == (table.NOT_RUN, "MeshError: mesh 1x2 needs 2 chips, this machine has 1")


def test_files_that_are_no_sweep(tmp_path):
    csv = tmp_path / "a.csv"
    csv.write_text("OP CODE,OP TYPE\n")
    for reading in (lambda: read(csv), lambda: opened(csv).__enter__()):
        with pytest.raises(table.TableError, match="not a sweep of this version"):
            reading()
    assert csv.read_text() == "OP CODE,OP TYPE\n"
    with opened(tmp_path / "b.csv"), pytest.raises(table.TableError, match="another sweep writes"):
        with opened(tmp_path / "b.csv"):
            pass


def test_chips_are_merged_as_tt_metal_does():
    rows = [
        ROW | {"DEVICE ID": chip, "OP CODE": op, KERNEL_NS: ns}
        for chip, times in enumerate(((100.0, 10.0), (300.0, 30.0)))
        for op, ns in zip(("MatmulDeviceOperation", "AllGatherAsync"), times, strict=True)
    ]
    assert [table.ns_of(row) for row in table.merged(Block.make(WO.name, "sim", PASS, rows=rows))] == [300, 20]
