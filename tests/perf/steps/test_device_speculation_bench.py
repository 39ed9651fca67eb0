# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the bench of drafting on chips projects, against the published totals and by hand; no device."""

from __future__ import annotations

import pytest
from loguru import logger

from models.llama31_8b.config import preset
from perf.projections.draft_projection import (
    DRAFT,
    EASYSPEC_SPEEDUP,
    TARGET,
    DraftCost,
    Round,
    add_ns,
    op_ns,
    product_line,
    product_ns,
    report,
    table_rows,
    tokens_per_round,
)
from perf.projections.estimator.latency import estimate
from perf.projections.estimator.tables import chip_table
from perf.steps import bench_device_speculation as bench

SMALL = preset(DRAFT)


@pytest.mark.parametrize("chips", [1, 2, 4, 8])
def test_the_model_it_was_fitted_to_takes_what_was_published(chips):
    """Appendix F's whole steps, from its single ops and a line through its products. Table 7's products are fused."""
    found = DraftCost(preset(TARGET), chips, 1).step_ns()
    published = estimate(1024, None, chips, "tp").token_latency_ns
    logger.info("{} chips: {:.2f} ms, published {:.2f}", chips, found / 1e6, published / 1e6)
    assert found == pytest.approx(published, rel=0.06 if chips == 8 else 0.02)


def test_products_lie_on_a_line_near_the_memorys_rate():
    fixed, rate = product_line()
    assert 0 < fixed < 20e3 and 200 < 1 / rate < 288, "ns; GB/s of Wormhole's DRAM at most"
    times = [op.ns for op in chip_table(4).per_layer if op.name == "Matmul"]
    assert product_ns(4096 * 6144 // 4 * 1088 // 1024) == pytest.approx(times[0], rel=0.15)


@pytest.mark.parametrize("chips, share", [(4, 1), (8, 2)])
def test_a_draft_step_by_hand(chips, share):
    """16 layers in six groups: 0 and 15 alone, stages of 3, 4, 4, 3; a stage's layers take `share` chips each."""
    fuzzy, row = DraftCost(SMALL, chips, 4), DraftCost(SMALL, chips, 1)
    gather, total = op_ns(chips, "AllGather"), op_ns(chips, "ReduceScatter")
    alone = row.attention_ns(chips) + total
    rest = sum(map(row.rest_ns, range(16))) + row.fixed_ns()
    assert row.step_ns() == pytest.approx(16 * (gather + alone) + rest)
    # Three or four times 2048 columns, against the 8B's 4096.
    stages = 4 * row.attention_ns(share) + 2 * total * (1.5 + 2.0) + 2 * (4 + 5) * add_ns(chips)
    assert fuzzy.step_ns() == pytest.approx(6 * gather + 2 * alone + stages + rest)
    assert fuzzy.drafting_ns(3) == fuzzy.calibration_ns() + 2 * fuzzy.step_ns()
    assert row.calibration_ns() == row.step_ns() < fuzzy.calibration_ns() < row.step_ns() * 1.2


def test_a_round_of_tokens_by_hand():
    assert tokens_per_round(0.5, 3) == 1 + 0.5 + 0.25 + 0.125
    assert (tokens_per_round(0, 4), tokens_per_round(1, 4)) == (1, 5)
    whole = Round(4, 4, 4)
    assert whole.gain(0.8) == pytest.approx(
        tokens_per_round(0.8, 4) * whole.plain_ns / (whole.plain_ns + whole.drafting_ns)
    )
    with pytest.raises(ValueError, match="got 1.5"):
        tokens_per_round(1.5, 4)


def test_the_projection_says_what_it_reaches_of_easyspecs_gain():
    """Against one chip, EasySpec's baseline, its factor on four chips; against a tensor-parallel draft far less."""
    text = report(table_rows((4, 8), 4, 4, (0.5, 0.9)))
    alone, row, fuzzy = (DraftCost(SMALL, *of).drafting_ns(4) for of in ((1, 1), (4, 1), (4, 4)))
    assert alone / fuzzy > EASYSPEC_SPEEDUP > 1.3 > row / fuzzy > 1
    assert f"{row / fuzzy:.2f}x as fast as tensor parallel on these chips, {alone / fuzzy:.2f}x as" in text
    assert text.count("nothing here ran on a board") == 1 and "1x8: a draft step takes" in text
    with pytest.raises(ValueError, match="from 1 to 14"):
        table_rows((4,), 15, 4, (0.5,))


def test_cycles_are_shown_by_row_and_compared():
    parts = {
        bench_part: {"cycles": cycles, "programs": 9}
        for bench_part, cycles in (
            ("draft step, sequential", 3000),
            ("draft step, layer-parallel", 2000),
            ("calibration", 3500),
        )
    }
    shape = {"layers": 2, "heads": 2, "drafted": 3, "context": 64}
    assert bench.speedup(parts) == 1.5
    text = bench.report({1: parts, 2: parts}, shape).splitlines()
    assert text[1].split()[-2:] == ["1x1", "1x2"] and text[-1].split()[-2:] == ["1.50x", "1.50x"]
    parts["draft step, sequential"]["cycles"] = 0
    with pytest.raises(ValueError, match="not measurable"):
        bench.speedup(parts)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--size", "15"], "from 1 to 14 for a model of 16 layers"),
        (["--layers", "1"], "--layers must be 2 to 4"),
        (["--length", "0"], "--length at least 1"),
        (["--simulate", "3"], "invalid choice: 3"),
    ],
)
def test_values_that_make_no_sense_are_refused_before_any_work(capsys, monkeypatch, arguments, words):
    monkeypatch.setattr(bench, "run", lambda *_: pytest.fail("nothing may be measured"))
    with pytest.raises(SystemExit) as ended:
        bench.main(arguments)
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_the_projection_alone_needs_no_device(capsys):
    assert bench.main(["--simulate"]) == 0
    assert "acceptance" in capsys.readouterr().out
