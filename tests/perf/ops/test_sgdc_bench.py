# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the bench of SGDC (static graph, dynamic concurrency) measures, in simulated cycles."""

from __future__ import annotations

import pytest

from perf.ops.bench_sgdc import KERNEL_CYCLES, TARGET, main, measure_exchange, measure_gate, report, since_start
from perf.ops.sgdc_chips import MARK_CORE, as_text, check_outcome, overlap, spread
from runtime_patches import sgdc
from runtime_patches.profiling.cycles import CYCLE_VARIABLES, CoreCycles, Span, cycle_overlays
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, YIELDED


@pytest.mark.parametrize("start", [1000, 0xFFFFFFFF, 0xFFFFFF90, 0xFFFFFC00])
def test_the_clock_may_wrap_between_start_and_end(start):
    """Three cores start together, and end 900, 800 and 700 cycles later."""
    counts = {}
    for column, cycles in enumerate((900, 800, 700)):
        kernel = Span(cycles, 1, start, (start + cycles) & 0xFFFFFFFF)
        counts[column, 0] = CoreCycles(None, kernel, *[None] * 4)
    assert since_start(counts, set(counts)) == 900
    assert since_start(counts, {(1, 0), (2, 0), (5, 5)}) == 800


def test_a_layer_with_another_outcome_than_asked_for_is_no_measurement():
    check_outcome(True, 0, [YIELDED, HOLDS_GUESS])
    check_outcome(False, 1, [HOLDS_GUESS, HOLDS_EXACT])
    with pytest.raises(RuntimeError, match=r"are \['rejected', 'received'\].*give \['accepted', 'received'\]"):
        check_outcome(True, 0, [HOLDS_EXACT, HOLDS_GUESS])


def span(start: int, end: int) -> Span:
    return Span(end - start, 1, start % (1 << 32), end % (1 << 32))


@pytest.mark.parametrize("origin", [1000, 0xFFFFFFC0])
def test_chips_on_one_clock(origin):
    """A hit: chip 1 marks its start 10 cycles after chip 0, its MLP runs from 300 to 800, and chip 0, the sender, is at
    its attention until 700."""

    def counts(mark: int, attention: int, mlp: tuple[int, int], end: int) -> dict:
        program = span(origin + end - 5, origin + end)
        work = {
            (x, 0): CoreCycles(program, None, None, None, span(origin, origin + attention), None) for x in range(1, 4)
        }
        work[0, 0] = CoreCycles(program, None, None, None, span(origin + mlp[0], origin + mlp[1]), None)
        work[MARK_CORE] = CoreCycles(program, None, span(origin + mark, origin + mark + 2), None, None, None)
        return work

    sender, receiver = counts(0, 700, (710, 715), 720), counts(10, 290, (300, 800), 820)
    assert spread([sender, receiver]) == {"total": 820, "chip 0": 720, "chip 1": 820}
    assert spread([receiver, sender]) == {"total": 820, "chip 0": 820, "chip 1": 720}
    assert overlap(sender, receiver) == 400
    assert overlap(counts(0, 250, (260, 265), 270), receiver) == 0
    assert overlap(counts(0, 5000, (5010, 5015), 5020), receiver) == 500


def test_the_overlap_is_left_out_where_the_last_layer_is_no_hit():
    found = {"total": 1100, "chip 0": 900, "chip 1": 1100, "overlap": 400, "layers": 1}
    *_, hit, miss = as_text({"100%": found, "0%": found | {"overlap": None}}).splitlines()
    assert hit == "| 100% | 1 | 1100 | 900 | 1100 | 400 |"
    assert miss == "| 0% | 1 | 1100 | 900 | 1100 | - |"


@pytest.mark.parametrize(("place", "why"), [("", "a folder"), ("missing/found.json", "does not exist")])
def test_results_that_cannot_be_written_are_refused_before_measuring(tmp_path, capsys, place, why):
    with pytest.raises(SystemExit, match="2"):
        main(["--json", str(tmp_path / place)])
    assert why in capsys.readouterr().err


def gate_body(device):
    return measure_gate(device, depth=64), measure_exchange(device, tiles=(1, 16))


@pytest.mark.sim
def test_a_skipped_kernel_costs_next_to_nothing(sim_device):
    overlays = {**sgdc.overlays(), **cycle_overlays()}
    gate, exchange = sim_device("2x1", overlays=overlays, variables=CYCLE_VARIABLES).run(gate_body)
    run, skipped = gate["op, run"], gate["op, skipped"]
    assert 0 < skipped["kernel"] < TARGET * KERNEL_CYCLES / 10
    assert run["kernel"] > 50 * skipped["kernel"]
    assert skipped["program"] < run["program"] - run["kernel"] + 100, "a skip costs no more than any launch"
    assert gate["open gate"]["kernel"] < gate["set gate"]["kernel"] < gate["set gate and log"]["kernel"]
    took = {(size["tiles"], size["rows"]): size["cycles"] for size in exchange}
    assert 0 < took[1, 32] < took[16, 32] < 16 * took[1, 32]
    assert 0 < took[1, 1] < took[16, 1] < 16 * took[1, 1]
    text = report({"gate": gate, "exchange": exchange})
    assert "10000-cycle kernel (target: under 5%, missed)" in text and "0.2% (met)" in text
