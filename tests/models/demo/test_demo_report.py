# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The report's figures and bars."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from models.llama31_8b.checkpoint.load import Checkpoint
from models.llama31_8b.config import PRESETS
from models.llama31_8b.demo.options import DemoOptions
from models.llama31_8b.demo.report import RunReport, bar, gains_sentence, make_report, predictions, print_report
from models.llama31_8b.latency import estimate
from models.llama31_8b.tiny import of_bytes

REPORT = RunReport(
    model="m",
    attention="alspec",
    chunk_size=256,
    predictor="ends",
    speculates=True,
    context=40000,
    prefill_tokens=100,
    prefill_seconds=0.5,
    decode_tokens=30,
    decode_seconds=2.0,
    counts={"hits": 60, "misses": 20, "bypassed": 12, "bypassed_positions": 3},
    hit_rate=0.75,
    hit_rate_per_layer=[1.0, 0.5, None, 0.0],
)


def shown(report: RunReport, width: int = 80) -> str:
    stream = io.StringIO()
    print_report(report, Console(file=stream, width=width))
    return stream.getvalue()


def test_rates():
    assert REPORT.prefill_tokens_per_s == 200 and REPORT.decode_tokens_per_s == 15
    none = replace(REPORT, decode_tokens=0, decode_seconds=0.0)
    assert none.decode_tokens_per_s is None and "no token" in shown(none)


@pytest.mark.parametrize(
    "rate, text", [(0, "····"), (1, "████"), (0.5, "██··"), (0.53125, "██▏·"), (0.97, "███▉"), (0.01, "····")]
)
def test_bars(rate, text):
    assert bar(rate, 4, "utf-8") == text
    assert bar(rate, 4, "ascii") == "#" * round(4 * rate) + "." * (4 - round(4 * rate))


def test_a_narrow_terminal_gets_lines_in_place_of_a_cut_table():
    for width in (40, 60):
        text = shown(REPORT, width)
        assert max(map(len, text.splitlines())) <= width and "…" not in text and "┃" not in text
        assert "131,072 tokens, 8 chips: TP 27.35 (8)" in " ".join(text.split())
    assert "┃" in shown(REPORT)


@pytest.mark.parametrize(
    "config, layers, estimates",
    [(of_bytes(), None, False), (PRESETS["llama-3.1-8b"], 2, False), (PRESETS["llama-3.1-8b"], None, True)],
)
def test_hits_of_random_weights_or_of_some_layers_estimate_nothing(config, layers, estimates):
    run = config if layers is None else config.with_layers(layers)
    checkpoint = Checkpoint(run, None, "m", None, config)
    options = DemoOptions(attention="alspec", threshold=0.7)
    report = make_report(checkpoint, options, [], 200, None)
    report = replace(report, speculates=True, hit_rate=0.75, hit_rate_per_layer=[0.75])
    assert bool(report.to_dict()["estimate"]) == estimates
    assert ("estimated tokens/s" in shown(report)) == estimates != ("tell nothing of Llama 3.1 8B" in shown(report))


def test_another_chunk_size_than_the_papers_is_said():
    assert "S = 128, the nearest that the paper measured to 64)" in " ".join(
        shown(replace(REPORT, chunk_size=64)).split()
    )


def predicted(report: RunReport) -> list[dict]:
    return predictions(report.hit_rate, report.context, report.chunk_size)


def test_predictions_are_the_estimators():
    rows = predicted(REPORT)
    assert [(row["context"], row["chips"]) for row in rows] == [(c, n) for c in (40000, 131072) for n in (2, 4, 8)]
    for row in rows:
        best, without, hits = (
            estimate(row["context"], rate, chips, chunk_size=256)
            for rate, chips in ((None, row["best_tp_chips"]), (0.0, row["chips"]), (0.75, row["chips"]))
        )
        assert row["best_tp_tokens_per_s"] == best.tokens_per_s_per_user
        assert row["no_hits_tokens_per_s"] == without.tokens_per_s_per_user
        assert row["sp_tp_tokens_per_s"] == hits.tokens_per_s_per_user
        assert row["gain_of_hits"] == pytest.approx(without.token_latency_ns / hits.token_latency_ns)
        assert row["speedup"] == pytest.approx(best.token_latency_ns / hits.token_latency_ns)


def test_tensor_parallelism_is_the_fastest_on_at_most_as_many_chips():
    """At 1K tokens it is slower over eight chips than over four (tables 6 and 7): no gain is made of that."""
    *_, eight = predicted(replace(REPORT, context=1024, hit_rate=0.0))[:3]
    whole = estimate(1024, None, 8, chunk_size=256).tokens_per_s_per_user
    assert (eight["chips"], eight["best_tp_chips"]) == (8, 4) and eight["best_tp_tokens_per_s"] > whole
    assert eight["no_hits_tokens_per_s"] == eight["sp_tp_tokens_per_s"] > whole and eight["speedup"] < 1


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_the_closing_sentence_says_what_the_hits_gain(rate):
    """At 1K tokens half of the chips is too high a price at every hit rate: the sentence blames no hits for it."""
    rows = predicted(replace(REPORT, context=1024, hit_rate=rate))
    said = gains_sentence(rows)
    assert "do not pay" not in said and "1.00x" in said
    assert f"to {max(row['gain_of_hits'] for row in rows):.2f}x as fast as without any" in said
    chips = {
        0.0: "nowhere in this table.",
        0.5: "at 131,072 tokens on 8 chips.",
        1.0: "at 131,072 tokens on 2, 4, 8 chips.",
    }
    assert said.endswith(f"faster than TP {chips[rate]}")
    assert said in " ".join(shown(replace(REPORT, context=1024, hit_rate=rate), width=300).split())


def test_what_the_tables_lack_is_moved_and_said():
    short = replace(REPORT, context=300, chunk_size=32)
    rows = predicted(short)
    assert rows[0]["context"] == 1024 and rows[0]["chunk_size"] == 128
    assert "1,024 (for 300)" in shown(short) and "S = 128" in shown(short)
    long = predicted(replace(REPORT, context=131072))
    assert len(long) == 3


def test_report_text():
    text = shown(REPORT)
    assert "200.0 tokens/s  (100 tokens)" in text and "15.0 tokens/s  (30 tokens)" in text
    assert "75.0%  (60 hits, 20 misses)" in text and "3 positions" in text
    for line in (
        "  0 ████████████████████ 100%",
        "  1 ██████████··········  50%",
        "  2 not verified",
        "  3 ····················   0%",
    ):
        assert line in text
    assert f"{predicted(REPORT)[2]['sp_tp_tokens_per_s']:.2f}" in text
    assert max(map(len, text.splitlines())) <= 80


def test_steps_that_compile_are_left_out_of_the_rate_and_said():
    """30 tokens in 2 s, of which 2 took 1.6 s: 28 in 0.4 s."""
    board = replace(REPORT, first_token_seconds=12.3, warm_up=(2, 1.6))
    assert board.decode_tokens_per_s == pytest.approx(70)
    text = shown(board, width=120)
    assert "70.0 tokens/s  (28 tokens; the first 2, which compile, left out: 1.60 s)" in text
    assert "200.0 tokens/s  (100 tokens, compilation included)" in text
    assert "after 12.30 s, compilation included" in text
    told = board.to_dict()
    assert (told["decode_tokens"], told["warm_up_tokens"], told["warm_up_s"]) == (30, 2, 1.6)
    assert told["time_to_first_token_s"] == 12.3 and told["decode_tokens_per_s"] == board.decode_tokens_per_s
    only = replace(board, decode_tokens=2, decode_seconds=1.6)
    assert only.decode_tokens_per_s is None and "no token  (0 tokens; the first 2" in shown(only, width=120)


def test_a_run_that_compiles_nothing_leaves_nothing_out():
    text = shown(replace(REPORT, first_token_seconds=0.5, threads=2))
    assert "after 0.50 s" in text and "compil" not in text and "(30 tokens, 2 threads)" in text
    assert "first token" not in shown(REPORT), "several turns have no one first token"
    told = REPORT.to_dict()
    assert (told["warm_up_tokens"], told["warm_up_s"], told["time_to_first_token_s"]) == (0, 0.0, None)


def test_without_speculation_or_verification():
    assert "exact attention verifies nothing" in shown(
        replace(REPORT, attention="exact", speculates=False, hit_rate=None)
    )
    bypassed = shown(replace(REPORT, hit_rate=None, hit_rate_per_layer=[None] * 4))
    assert "speculation starts at 512 cached tokens" in bypassed and "none verified" in bypassed
    assert predicted(replace(REPORT, hit_rate=None)) == []
