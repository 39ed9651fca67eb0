# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Figure 7 from a sweep: one made of the paper's own tables gives what the paper's tables give."""

from __future__ import annotations

import json

import pytest

from perf.projections.estimator import cli
from perf.projections.estimator.attention_latency import AttentionLatency
from perf.projections.estimator.latency import estimate
from perf.projections.estimator.measured import MeasuredAttention, NotMeasured, load
from perf.projections.estimator.tables import CHIP_COUNTS, FLASH_DECODE_OP, chip_table
from perf.sweep.configurations import Configuration
from perf.sweep.groups import FIRST, MID, TAIL
from perf.sweep.table import FAILED, GROUP, KERNEL_NS, LAYER, PASS, ROLE, Outcome, opened

CONTEXTS = (1024, 65536, 131072)
MODEL = AttentionLatency()


def rows_of(chips: int, attention: float, row: int = 0):
    """The paper's table as a sweep's rows: two layers, all fixed ops after them, on every chip of a row."""
    table, found = chip_table(chips), []
    for chip in range(chips):
        at = {"DEVICE ID": row * chips + chip}
        for layer, group in enumerate((FIRST, MID)):
            for op in table.per_layer:
                mine = op.name == FLASH_DECODE_OP
                ns = attention if mine else op.ns
                # The first layer is slower, and counts for nothing.
                found.append(
                    at
                    | {
                        "OP CODE": op.name,
                        KERNEL_NS: ns * (2 - layer),
                        GROUP: group,
                        LAYER: layer,
                        ROLE: "attention" if mine else "",
                    }
                )
        found += [at | {"OP CODE": op.name, KERNEL_NS: op.ns, GROUP: TAIL} for op in table.fixed]
    return found


def write(path, *, plans=("sharded",), pairs=(), chips=CHIP_COUNTS, contexts=CONTEXTS, status=PASS):
    with opened(path) as table:
        for plan in plans:
            for count in chips:
                for context in contexts:
                    c = Configuration.make("decode", mesh=f"1x{count}", context=context, plan=plan)
                    rows = rows_of(count, MODEL.flash_decode_ns(context, count))
                    table.append(Outcome(c.name, "n150", status, "", rows if status == PASS else []))
            for count in pairs:
                for context in contexts:
                    c = Configuration.make(
                        "decode", mesh=f"2x{count}", context=context, plan=plan, attention="speculative"
                    )
                    rows = rows_of(count, MODEL.sender_ns(context, count))
                    rows += rows_of(count, MODEL.receiver_ns(context, count, 256), row=1)
                    table.append(Outcome(c.name, "n150", PASS, "", rows))
    return path


def test_the_papers_tables_as_a_sweep_give_the_papers_figure(tmp_path):
    """To rounding of each op: full TP at every context, and SP+TP with measured pairs."""
    sweep = load(write(tmp_path / "a.csv", pairs=(1, 2, 4)))
    attention = MeasuredAttention(sweep=sweep)
    for context in (1024, 65536, 98304):  # the model is a straight line, too
        for chips in CHIP_COUNTS:
            same = estimate(context, None, chips, "tp")
            got = estimate(context, None, chips, "tp", attention=attention, tables=sweep.table)
            assert got.token_latency_ns == pytest.approx(same.token_latency_ns, rel=1e-4)
        for chips in (2, 4, 8):
            same = estimate(context, 0.75, chips, "sp+tp")
            got = estimate(context, 0.75, chips, "sp+tp", attention=attention, tables=sweep.table)
            assert got.sender_ns == pytest.approx(same.sender_ns, rel=1e-4)
            if context != 98304:  # the receiver's is no straight line where it is capped by the sender's
                assert got.token_latency_ns == pytest.approx(same.token_latency_ns, rel=1e-4)


def test_without_pairs_the_assumptions_stand(tmp_path):
    sweep = load(write(tmp_path / "a.csv", chips=(4,)))
    attention = MeasuredAttention(sweep=sweep)
    flash = attention.flash_decode_ns(65536, 4)
    assert flash == pytest.approx(MODEL.flash_decode_ns(65536, 4), abs=1)
    assert attention.sender_ns(65536, 4) == flash + attention.verify_ns
    assert attention.receiver_ns(65536, 4, 256) == attention.flash_decode_ns(1024, 4) + attention.hop_ns
    assert "assumed: sender 3.0 us" in attention.assumptions()[-1]
    for what, call in {
        "outside what was swept of 1x4: 1024 to 131072": lambda: attention.flash_decode_ns(512, 4),
        "no decode step on 1x8; meshes: 1x4": lambda: attention.flash_decode_ns(1024, 8),
    }.items():
        with pytest.raises(NotMeasured, match=what):
            call()


def test_the_command_draws_figure_7_from_a_sweep(tmp_path, capsys):
    csv = write(tmp_path / "a.csv", pairs=(1, 2, 4))
    arguments = ["--measured", str(csv), "--json", "--plot", str(tmp_path / "7.png"), "--hit-rate", "0.5"]
    assert cli.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(p["context"], p["chips"]) for p in found["estimates"]} == {
        (context, chips) for context in cli.FIGURE_CONTEXTS for chips in CHIP_COUNTS
    }
    assert "paper_claims" not in found and (tmp_path / "7.png").stat().st_size > 10_000
    assert cli.main(["--measured", str(csv), "--context", "1K"]) == 0
    text = capsys.readouterr().out
    assert "all times are of a.csv (n150, plan sharded, performance)" in text and "1.65" not in text


@pytest.mark.parametrize(
    ("made", "arguments", "says"),
    [
        ({"plans": ("sharded", "interleaved")}, [], "several kinds of steps"),
        (
            {},
            ["--measured-only", "plan=paper"],
            "no passed decode step of llama-3.1-8b for one user with plan=paper",
        ),
        ({}, ["--measured-only", "paper"], "cannot read the filter 'paper'"),
        ({"status": FAILED}, [], "no passed decode step"),
        ({"chips": (1, 2)}, ["--chips", "8"], "no decode step on 1x8; meshes: 1x1, 1x2"),
        ({"contexts": (1024,)}, ["--context", "64K"], "context 65536 is outside what was swept"),
        ({}, ["--dram-gb-per-s", "200"], "are of the model that --measured replaces"),
    ],
)
def test_sweeps_that_hold_too_little(tmp_path, capsys, made, arguments, says):
    csv = write(tmp_path / "a.csv", **made)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--measured", str(csv), *arguments])
    assert ended.value.code == 2 and says in capsys.readouterr().err


def test_options_of_no_sweep(tmp_path, capsys):
    for arguments, says in (
        (["--measured", str(tmp_path / "none.csv")], "cannot read"),
        (["--measured-only", "plan=sharded"], "--measured-only is of --measured"),
    ):
        with pytest.raises(SystemExit):
            cli.main(arguments)
        assert says in capsys.readouterr().err


def test_a_plan_can_be_chosen(tmp_path):
    csv = write(tmp_path / "a.csv", plans=("sharded", "interleaved"), chips=(1,))
    assert load(csv, ["plan=interleaved"]).name == "a.csv (n150, plan interleaved, performance)"
