# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The report's figures."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from models.llama31_8b.checkpoint.load import Checkpoint
from models.llama31_8b.config import PRESETS
from models.llama31_8b.demo.options import DemoOptions
from models.llama31_8b.demo.report import RunReport, print_report
from models.llama31_8b.latency import estimates, layouts
from models.llama31_8b.results import ChipCounters, GenerationResult, LayerCounters
from models.llama31_8b.tiny import of_bytes

LLAMA = PRESETS["llama-3.1-8b"]


def report(decoded=(30, 2.0), run=LLAMA, whole=LLAMA, warm_up=(0, 0.0), **options):
    """Of 40,000 cached tokens, 100 prefilled in 0.5 s. decoded: tokens and seconds."""
    layers = [LayerCounters(*counts, 3) for counts in ((50, 0), (10, 10), (0, 0), (0, 10))]
    statistics = ChipCounters(tuple(layers), ties=1, sent=(3, 4), failures=())
    result = GenerationResult([[0]], ["length"], 100, 0.5, *decoded, statistics, None, [], *warm_up)
    session = SimpleNamespace(
        checkpoint=Checkpoint(run, None, "m", None, whole),
        options=DemoOptions(**{"attention": "alspec", "chunk_size": 256, "predictor": "ends", **options}),
        threads=None,
    )
    return RunReport(session, [result], 40000)


def shown(report: RunReport, width: int = 80) -> str:
    stream = io.StringIO()
    print_report(report, Console(file=stream, width=width))
    return stream.getvalue()


@pytest.mark.parametrize(
    "run, whole, told", [(of_bytes(), of_bytes(), False), (LLAMA.with_layers(2), LLAMA, False), (LLAMA, LLAMA, True)]
)
def test_hits_of_random_weights_or_of_some_layers_estimate_nothing(run, whole, told):
    found = report(run=run, whole=whole)
    assert bool(found.to_dict()["estimate"]) == told
    assert ("projected tokens/s" in shown(found)) == told != ("tell nothing of Llama 3.1 8B" in shown(found))


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
    text = shown(report(predictor=predictor))
    for row in rows:
        assert f"{row['tokens_per_s']:.1f} ({row['over_tp']:.2f}x)" in text


def test_report_text():
    text = shown(report())
    assert "200.0 tokens/s  (100 tokens)" in text and "15.0 tokens/s  (30 tokens)" in text
    assert "75.0%  (60 hits, 20 misses)" in text and "3 positions" in text
    bars = f"  0 {20 * '━'} 100%", f"  1 {10 * '━'}            50%", "  2 not verified", f"  3 {20 * ' '}   0%"
    assert all(line in text for line in bars)
    assert max(map(len, text.splitlines())) <= 80
    assert "no token" in shown(report(decoded=(0, 0.0)))


def test_steps_that_compile_are_left_out_of_the_rate_and_said():
    """30 tokens in 2 s, of which 2 took 1.6 s: 28 in 0.4 s."""
    board = report(warm_up=(2, 1.6))
    text = shown(board, width=120)
    assert "70.0 tokens/s  (28 tokens; the first 2, which compile, left out: 1.60 s)" in text
    assert "200.0 tokens/s  (100 tokens, compilation included)" in text
    assert "after 0.50 s, compilation included" in text
    told = board.to_dict()
    assert (told["decode_tokens"], told["warm_up_tokens"], told["warm_up_s"]) == (30, 2, 1.6)
    assert told["time_to_first_token_s"] == 0.5 and told["decode_tokens_per_s"] == pytest.approx(70)
    only = report(decoded=(2, 1.6), warm_up=(2, 1.6))
    assert only.decode_tokens_per_s is None and "no token  (0 tokens; the first 2" in shown(only, width=120)
