# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a chip's sweep gives: the golden one, which the real tt-perf-report reads, and the paper's ops, whose page is
what the CSV says; a chip runs a part of each again."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from perf import docs
from perf.lib.data_file import FOLDER
from perf.sweep import paper
from perf.sweep.__main__ import main
from perf.sweep.configurations import Configuration, from_lines, suites
from perf.sweep.table import FIRMWARE_NS, GAP_NS, KERNEL_NS, NOT_RUN, PASS, Block, Row, ns_of, opened, read, total_ns
from runtime_patches.board.runtime_root import project_cache_dir

VERSION = "1.4.1"
INSTALL_TIMEOUT_S = 420


# `python -m perf.sweep --suite tiny --source sim --csv tests/perf/sweep/golden_sweep.csv`
# in several goes; kernel durations and gaps of the first 13 derived, by the rule of rows_of, from recorded cycles.
GOLDEN = Path(__file__).with_name("golden_sweep.csv")


@pytest.fixture(scope="module")
def report():
    """What runs the real tt-perf-report over a CSV, with its table in `answer`. It is put into the project's cache
    if it is not there, in a Python environment of its own: it pins matplotlib and wants another numpy than ttnn."""
    folder = project_cache_dir() / "tools" / f"tt-perf-report-{VERSION}-py{sys.version_info[0]}{sys.version_info[1]}"
    whole = folder / ".installed"
    folder.parent.mkdir(parents=True, exist_ok=True)
    # This environment's pip installs into the new one, which needs none; and modules are compiled when they are first
    # read: of the packages' thousands that is a part.
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "--disable-pip-version-check"]
    make = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)]
    with FileLock(f"{folder}.lock", timeout=INSTALL_TIMEOUT_S):
        for step in () if whole.exists() else (make, [*pip, "install", "--no-compile", f"tt-perf-report=={VERSION}"]):
            try:
                subprocess.run(step, capture_output=True, timeout=INSTALL_TIMEOUT_S, check=True)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"tt-perf-report {VERSION} cannot be installed here: {error}")
        whole.touch()

    def run(csv: Path, answer: Path, *options: str) -> None:
        command = [str(folder / "bin" / "tt-perf-report"), str(csv), "--csv", str(answer), "--no-color", *options]
        surroundings = {"cwd": answer.parent, "env": {**os.environ, "MPLBACKEND": "Agg"}, "timeout": 120}
        done = subprocess.run(command, capture_output=True, text=True, check=False, **surroundings)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def programs(blocks: list[Block]) -> list[dict[str, str]]:
    return [row for block in blocks for row in block.rows]


@pytest.mark.slow  # it installs a program
def test_the_golden_sweep(report, tmp_path):
    """All programs of one chip; it merges those of several devices."""
    blocks = read(GOLDEN)
    alone = [block for block in blocks if "mesh=" not in block.name or "mesh=1x1" in block.name]
    first, answer = tmp_path / "one_chip.csv", tmp_path / "table.csv"
    with opened(first) as kept:
        for block in alone:
            kept.append(block)
    report(first, answer, "--ignore-signposts", "--no-summary")
    times = [float(row["Device Time"]) for row in rows_of(answer) if row["Device Time"]]
    assert times == pytest.approx([ns_of(row) / 1000 for row in programs(alone)], rel=1e-3)
    codes = " ".join(row["OP Code"] for row in rows_of(answer))
    assert "MatmulDeviceOperation 32 x 64 x 128" in codes and "SpeculativeFlashDecodePair" in codes


SUITE = """\
matmul k=64 n=64 dtype=bfloat16 layout=interleaved cores=1
flash_decode context=128 chunk_size=48 heads=4 kv_heads=1 head_dim=64 workers=1 dtype=bfloat16
"""
OF_A_RUN = (
    *(KERNEL_NS, FIRMWARE_NS, GAP_NS, "DEVICE FW START CYCLE", "DEVICE FW END CYCLE"),
    *("GLOBAL CALL COUNT", "HOST START TS"),
)
# Cycles of a program under fast dispatch differ by 100 to 200 between runs.
APART = 300


def untimed(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in OF_A_RUN}


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_a_simulated_sweep_against_the_golden_one(tmp_path, capsys):
    """One configuration that runs, and one that the op refuses on the chip."""
    suite, csv = tmp_path / "suite", tmp_path / "a.csv"
    suite.write_text(SUITE)
    arguments = ["--suite-file", str(suite), "--source", "sim", "--csv", str(csv), "--timeout", "1200"]
    assert main(arguments) == 0
    ran, refused = read(csv)
    (golden,) = [block for block in read(GOLDEN) if block.name == ran.name]
    assert ran.status == PASS and ran.source == golden.source, ran.reason
    assert list(map(untimed, ran.rows)) == list(map(untimed, golden.rows)) and len(ran.rows) == 1
    assert ns_of(ran.rows[0]) == pytest.approx(ns_of(golden.rows[0]), abs=APART)
    assert refused.status == NOT_RUN and not refused.rows
    assert refused.reason.startswith("UnsupportedError: ") and "48" in refused.reason
    assert "1 of 2 configurations passed" in capsys.readouterr().out
    before = csv.read_bytes()
    assert main(arguments) == 0 and csv.read_bytes() == before, "what is there is not run again"


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_prefills_and_long_rows_run(tmp_path, capsys):
    """A chunk behind another on two chips; four times the rows of a gather take longer."""
    suite, csv = tmp_path / "suite", tmp_path / "a.csv"
    rows = "long_rows op=all_gather mesh=1x2 columns=512 rows=64,256"
    prefill = "prefill model=tiny mesh=1x2 layers=1 tokens=64 start=64 plan=interleaved precision=accuracy"
    suite.write_text(f"{prefill}\n{rows}\n")
    assert main(["--suite-file", str(suite), "--source", "sim", "--csv", str(csv), "--timeout", "1200"]) == 0
    blocks = read(csv)
    assert [(block.status, block.reason) for block in blocks] == [(PASS, "")] * 3
    assert total_ns(blocks[1]) < total_ns(blocks[2])
    assert "3 of 3 configurations passed" in capsys.readouterr().out


def test_the_rows_of_the_page_are_what_the_csv_says():
    blocks = read(paper.CSV)
    assert docs.read(FOLDER / "paper_ops.json")[1] == paper.data_rows(blocks)
    known = {configuration.name for configuration in suites()["paper"]}
    assert {block.name for block in blocks} <= known and all(block.source == "sim" for block in blocks)


def test_every_row_of_the_tables_that_matters_is_in_the_suite():
    found = [(row, paper.configuration_of(row["role"], row["section"], row["chips"])) for row in paper.rows([])]
    assert [row for row, c in found if c is None and row["share"] > 0.01] == []
    assert {c for _, c in found if c is not None} <= set(suites()["paper"])


def test_errors_are_cycles_over_published_nanoseconds():
    (wo,) = [block for block in read(paper.CSV) if block.name == Configuration.make("matmul").name]
    slower = wo._replace(rows=tuple({**row, KERNEL_NS: str(2 * ns_of(row))} for row in wo.rows))
    for times, block in ((1, wo), (2, slower)):
        (error,) = [row["error_1"] for row in paper.data_rows([block]) if row.get("op") == "Matmul (wo)"]
        assert 1 + error == pytest.approx(times * total_ns(wo) / 76389)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_a_chip_gives_the_committed_cycles(tmp_path):
    """A matmul, a norm and flash decodes, as far as they are committed, run again."""
    again, suite = tmp_path / "again.csv", tmp_path / "suite"
    committed = {block.name: block for block in read(paper.CSV)}
    exact = "flash_decode variant=exact chunk_size=256 heads=8 kv_heads=2"
    lines = from_lines(f"matmul role=wo\ndecode_op op=norm\nflash_decode variant=stock chunk_size=256\n{exact}\n")
    wanted = [c for c in lines if c.name in committed]
    assert "matmul" in {c.family for c in wanted}
    suite.write_text("\n".join(c.name for c in wanted))
    assert main(["--suite-file", str(suite), "--source", "sim", "--csv", str(again), "--timeout", "5000"]) == 0
    for block in read(again):
        assert block.status == PASS
        assert total_ns(block) == pytest.approx(total_ns(committed[block.name]), rel=0.005)
