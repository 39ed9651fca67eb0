# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The report's figures and bars."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from models.llama31_8b.checkpoint.load import Checkpoint
from models.llama31_8b.config import PRESETS
from models.llama31_8b.demo.options import DemoOptions
from models.llama31_8b.demo.report import RunReport, bar, make_report, print_report
from models.llama31_8b.latency import estimates, layouts
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


@pytest.mark.parametrize(
    "config, layers, told",
    [(of_bytes(), None, False), (PRESETS["llama-3.1-8b"], 2, False), (PRESETS["llama-3.1-8b"], None, True)],
)
def test_hits_of_random_weights_or_of_some_layers_estimate_nothing(config, layers, told):
    run = config if layers is None else config.with_layers(layers)
    checkpoint = Checkpoint(run, None, "m", None, config)
    options = DemoOptions(attention="alspec", threshold=0.7)
    session = SimpleNamespace(checkpoint=checkpoint, options=options, statistics=None, warm_up=None, threads=None)
    report = make_report(session, [], 200)
    report = replace(report, speculates=True, hit_rate=0.75, hit_rate_per_layer=[0.75])
    assert bool(report.to_dict()["estimate"]) == told
    assert ("projected tokens/s" in shown(report)) == told != ("tell nothing of Llama 3.1 8B" in shown(report))


@pytest.mark.parametrize("predictor", ["ends", "budget"])
def test_the_estimate_is_that_of_the_plan(predictor):
    """Every mesh of up to 16 chips at the run's context and at 128K, or at 128K once."""
    rows = estimates(0.75, 40000, predictor)
    for context in (40000, 131072):
        found = [(row["mesh"], row["tokens_per_s"]) for row in rows if row["context"] == context]
        assert found == [(str(one), one.tokens_per_s) for one in layouts(16, context, 0.75, predictor)]
        assert len(found) == 8
    assert {row["context"] for row in estimates(0.75, 131072, predictor)} == {131072}
    assert estimates(None, 40000, predictor) == []
    text = shown(replace(REPORT, predictor=predictor))
    for row in rows:
        assert f"{row['tokens_per_s']:.1f} ({row['over_tp']:.2f}x)" in text


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
