# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a sweep makes of timed programs and of the real-time profiler's records, without either."""

from types import SimpleNamespace

import pytest

from perf.lib.launch_labels import Label, Labels, Tensor
from perf.sweep import table
from perf.sweep.configurations import Configuration
from perf.sweep.timers import Launch, NoProfiler, by_chip, op_code, rows_of
from runtime_patches.profiling.timeline import ProgramSpan as Ran

NOTHING, STEP, MATMUL = Launch(run=lambda: None), Launch(run=lambda: None, model=object()), Configuration.make("matmul")
X = Tensor((1, 1, 1, 64), (1, 1, 32, 64), "BFLOAT16", "TILE", "L1_WIDTH_SHARDED")
WEIGHT = Tensor((1, 1, 64, 96), (1, 1, 64, 96), "BFLOAT8_B", "TILE", "DRAM_WIDTH_SHARDED")
OUT = Tensor((1, 1, 1, 96), (1, 1, 32, 96), "BFLOAT16", "TILE", "L1_INTERLEAVED")


def record(chip, program, start, end, frequency=1.0):
    names = ("chip_id", "runtime_id", "start_timestamp", "end_timestamp", "frequency")
    return SimpleNamespace(**dict(zip(names, (chip, program, start, end, frequency))))


def labels(*given: Label) -> Labels:
    made = Labels()
    made.labels += given
    return made


def test_programs_get_the_names_of_their_calls():
    """A call of two programs, one that ttnn has no name for, one before all calls."""
    calls = (Label(5, "rms_norm", None, None), Label(7, "generic_op", 1, "attention"), Label(8, "some_op", 1, None))
    chip = [Ran(4, 0, 10, 2), Ran(5, 10, 30, 4), Ran(6, 35, 40, 4), Ran(7, 40, 140, 1), Ran(8, 150, 151, 0)]
    rows = rows_of([chip], labels(*calls), STEP, MATMUL, 64)
    codes = ["Unknown", *["LayerNormDeviceOperation"] * 2, "FlashDecode", "SomeOpDeviceOperation"]
    assert [row["OP CODE"] for row in rows] == codes
    assert [row[table.KERNEL_NS] for row in rows] == [10, 20, 5, 100, 1]
    assert [row[table.GAP_NS] for row in rows] == [None, 0, 5, 0, 10]
    assert [row["CORE COUNT"] for row in rows] == [2, 4, 4, 1, 64]
    assert rows[3][table.ROLE] == "attention" and rows[3][table.LAYER] == 1
    with pytest.raises(NoProfiler, match="no program was seen"):
        rows_of([[]], labels(*calls), STEP, MATMUL, 64)


def test_a_program_counts_from_the_end_of_those_before_it():
    """Its first cores wait there while others are still at work; all of it then adds up to the chip's time."""
    chip = [Ran(0, 0, 100, 1), Ran(1, 40, 130, 1), Ran(2, 50, 120, 1), Ran(3, 150, 160, 1)]
    calls = labels(*(Label(n, "add", None, None) for n in range(4)))
    rows = rows_of([chip], calls, NOTHING, MATMUL, 1)
    columns = {name: [row[name] for row in rows] for name in (table.KERNEL_NS, table.FIRMWARE_NS, table.GAP_NS)}
    assert columns == {
        table.KERNEL_NS: [100, 30, 0, 10],
        table.FIRMWARE_NS: [100, 90, 70, 10],
        table.GAP_NS: [None, 0, 0, 20],
    }
    assert sum(row[table.KERNEL_NS] + (row[table.GAP_NS] or 0) for row in rows) == 160


@pytest.mark.parametrize(
    ("launch", "groups"),
    [(STEP, [table.FIRST, table.FIRST, table.MID, table.MID, table.TAIL]), (NOTHING, [table.OP_GROUP] * 5)],
    ids=["step", "op"],
)
def test_layers_are_grouped_and_ops_are_not(launch, groups):
    calls = labels(*(Label(n, "add", layer, None) for n, layer in enumerate((None, 0, 1, 2, None))))
    rows = rows_of([[Ran(n, n, n + 1, 1) for n in range(5)]], calls, launch, MATMUL, 1)
    assert [row[table.GROUP] for row in rows] == groups


def test_tensors_are_written_as_tt_perf_report_reads_them():
    calls = [Label(n, "linear", None, None, (X, WEIGHT), fidelity, OUT) for n, fidelity in ((1, "HiFi2"), (2, "HiFi3"))]
    rows = rows_of([[Ran(1, 0, 9, 12), Ran(2, 9, 18, 12)]], labels(*calls), NOTHING, MATMUL, 64)
    written, third = table.Block.make("matmul", "n150", table.PASS, rows=rows).rows
    assert written["INPUT_0_Y_PAD[LOGICAL]"] == "32[1]" and written["INPUT_1_X_PAD[LOGICAL]"] == "96[96]"
    assert written["INPUT_1_DATATYPE"] == "BFLOAT8_B" and written["INPUT_1_MEMORY"] == "DEV_0_DRAM_WIDTH_SHARDED"
    assert written["OUTPUT_0_MEMORY"] == "DEV_0_L1_INTERLEAVED" and written["MATH FIDELITY"] == "HiFi2"
    assert "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig" in written["ATTRIBUTES"]
    assert third["MATH FIDELITY"] == "HiFi4", "tt-perf-report ends at HiFi3"
    assert op_code(Label(1, "generic_op", None, None), "TreeAttention") == "TreeAttention"


def test_records_of_the_real_time_profiler():
    """Ticks by their own frequency, chips in order whatever the order of arrival."""
    late = [record(3, 8, 3000, 3600, 1.2), record(3, 7, 1200, 2400, 1.2)]
    chips = by_chip([late[0], record(0, 8, 500, 700), record(0, 7, 100, 400), late[1]])
    assert chips[0] == [Ran(7, 100, 400, 0), Ran(8, 500, 700, 0)]
    took = [(ran.number, ran.end - ran.start) for ran in chips[1]]
    assert took == [(7, pytest.approx(1000)), (8, pytest.approx(500))]
    with pytest.raises(NoProfiler, match="gave no record"):
        by_chip([])
