# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Figure 7 from a sweep: one made of the paper's own tables gives what the paper's tables give."""

from __future__ import annotations

import shlex

import pytest

from models.llama31_8b.latency import CHIP_COUNTS, estimate
from perf.lib.data_file import ROOT
from perf.projection.__main__ import main
from perf.projection.measured import NotMeasured, load
from perf.projection.published import FLASH_DECODE_OP, LAYER, PaperTimes, op_table
from perf.sweep.configurations import Configuration
from perf.sweep.table import FAILED, FIRST, GROUP, KERNEL_NS, MID, PASS, ROLE, TAIL, Block, opened
from perf.sweep.table import LAYER as LAYER_OF

CONTEXTS = (1024, 65536, 131072)
PAPER = PaperTimes()


def rows_of(chips: int, attention: float, row: int = 0):
    """The paper's table as a sweep's rows: two layers, all fixed ops after them, on every chip of a row."""
    found = []
    for chip in range(chips):
        at = {"DEVICE ID": row * chips + chip}
        for layer, group in enumerate((FIRST, MID)):
            for op in op_table(chips):
                if op.section == LAYER:
                    mine = op.name == FLASH_DECODE_OP
                    # The first layer is slower, and counts for nothing.
                    cells = {KERNEL_NS: (attention if mine else op.ns) * (2 - layer), GROUP: group, LAYER_OF: layer}
                    found.append(at | cells | {"OP CODE": op.name, ROLE: "attention" if mine else ""})
        fixed = [op for op in op_table(chips) if op.section != LAYER]
        found += [at | {"OP CODE": op.name, KERNEL_NS: op.ns, GROUP: TAIL} for op in fixed]
    return found


def write(path, *, plans=("sharded",), pairs=(), chips=CHIP_COUNTS, contexts=CONTEXTS, status=PASS):
    with opened(path) as table:
        for plan in plans:
            for count in chips:
                for context in contexts:
                    c = Configuration.make("decode", mesh=f"1x{count}", context=context, plan=plan)
                    rows = rows_of(count, PAPER.flash_decode_ns(context, count))
                    table.append(Block.make(c.name, "n150", status, rows=rows if status == PASS else []))
            for count in pairs:
                for context in contexts:
                    c = Configuration.make(
                        "decode", mesh=f"2x{count}", context=context, plan=plan, attention="speculative"
                    )
                    rows = rows_of(count, PAPER.sender_ns(context, count))
                    rows += rows_of(count, PAPER.receiver_ns(context, count), row=1)
                    table.append(Block.make(c.name, "n150", PASS, rows=rows))
    return path


def test_the_papers_tables_as_a_sweep_give_the_papers_figure(tmp_path):
    """To rounding of each op: full TP at every context, and SP+TP with measured pairs."""
    sweep = load(write(tmp_path / "a.csv", pairs=(1, 2, 4)))
    for context in (1024, 65536, 98304):  # the model is a straight line, too
        for rate, counts in ((None, CHIP_COUNTS), (0.75, (2, 4, 8))):
            for chips in counts:
                same, got = (estimate(context, rate, chips, times=times) for times in (PAPER, sweep))
                assert got.flash_decode_ns == pytest.approx(same.flash_decode_ns, rel=1e-4)
                if rate is None or context != 98304:  # the receiver's is no straight line where the sender caps it
                    assert got.token_latency_ns == pytest.approx(same.token_latency_ns, rel=1e-4)


def test_without_pairs_the_assumptions_stand(tmp_path):
    sweep = load(write(tmp_path / "a.csv", chips=(4,)))
    flash = sweep.flash_decode_ns(65536, 4)
    assert flash == pytest.approx(PAPER.flash_decode_ns(65536, 4), abs=1)
    assert sweep.sender_ns(65536, 4) == flash + sweep.verify_ns
    assert sweep.receiver_ns(65536, 4) == sweep.flash_decode_ns(1024, 4) + sweep.hop_ns
    for what, call in {
        "outside what was swept of 1x4: 1024 to 131072": lambda: sweep.flash_decode_ns(512, 4),
        "no decode step on 1x8; meshes: 1x4": lambda: sweep.flash_decode_ns(1024, 8),
    }.items():
        with pytest.raises(NotMeasured, match=what):
            call()


@pytest.mark.parametrize(
    ("made", "arguments", "says"),
    [
        ({"plans": ("sharded", "interleaved")}, [], "several kinds of steps"),
        (
            {},
            ["--measured-only", "plan=interleaved"],
            "no passed decode step of llama-3.1-8b for one user with plan=interleaved",
        ),
        ({}, ["--measured-only", "paper"], "cannot read the filter 'paper'"),
        ({"status": FAILED}, [], "no passed decode step"),
        ({"chips": (1, 2)}, ["--chips", "8"], "no decode step on 1x8; meshes: 1x1, 1x2"),
        ({"contexts": (1024,)}, ["--context", "64K"], "context 65536 is outside what was swept"),
    ],
)
def test_sweeps_that_hold_too_little(tmp_path, capsys, made, arguments, says):
    csv = write(tmp_path / "a.csv", **made)
    assert main(["tokens", "--measured", str(csv), *arguments]) == 2 and says in capsys.readouterr().err


def test_the_line_of_the_readme_draws_the_figure_of_a_sweep_with_both_plans(tmp_path, monkeypatch):
    text = (ROOT / "perf/README.md").read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("python -m perf.projection tokens --measured"))
    write(tmp_path / "mine.csv", plans=("sharded", "interleaved"))
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line, comments=True)[3:]) == 0 and (tmp_path / "figure7.png").stat().st_size > 1000
