# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The committed cycles of the paper's ops: the page is what the CSV says, and the CSV is what a chip gives today."""

from __future__ import annotations

import pytest

from perf import docs
from perf.lib.data_file import FOLDER
from perf.sweep import paper
from perf.sweep.__main__ import main
from perf.sweep.configurations import Configuration, from_lines, suites
from perf.sweep.table import KERNEL_NS, PASS, Block, merged, ns_of, read


def cycles_of(block: Block) -> float:
    return sum(map(ns_of, merged(block)))


def test_the_rows_of_the_page_are_what_the_csv_says():
    blocks = read(paper.CSV)
    assert docs.read(FOLDER / "paper_ops.json")[1] == paper.data_rows(blocks)
    known = {configuration.name for configuration in suites()["paper"]}
    assert {block.name for block in blocks} <= known and all(block.source == "sim" for block in blocks)


def test_every_row_of_the_tables_that_matters_is_in_the_suite():
    found = {row: paper.configuration_of(row.role, row.section, row.chips) for row in paper.rows([])}
    assert [row for row, c in found.items() if c is None and row.share > 0.01] == []
    assert {c for c in found.values() if c is not None} <= set(suites()["paper"])


def test_errors_are_cycles_over_published_nanoseconds():
    (wo,) = [block for block in read(paper.CSV) if block.name == Configuration.make("matmul").name]
    slower = wo._replace(rows=tuple({**row, KERNEL_NS: str(2 * ns_of(row))} for row in wo.rows))
    for times, block in ((1, wo), (2, slower)):
        (error,) = [row["error_1"] for row in paper.data_rows([block]) if row.get("op") == "Matmul (wo)"]
        assert 1 + error == pytest.approx(times * cycles_of(wo) / 76389)


def test_dram_sharded_matmuls_read_as_fast_as_silicon_does():
    """Between 200 and 267 bytes per cycle: tt-metal's decode matmuls have 239 to 260, its microbenchmark 267."""
    from models.llama31_8b.tt.precision import TILE_BYTES

    products = [(block, *from_lines(block.name)) for block in read(paper.CSV) if block.status == PASS]
    large = [(block, c) for block, c in products if c.get("k", 0) >= 4096]
    assert large
    for block, c in large:
        tiles = c["k"] // 32 * -(-c["n"] // 384) * 12
        assert 200 <= tiles * TILE_BYTES[c["dtype"]] / cycles_of(block) <= 267


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_a_chip_gives_the_committed_cycles(tmp_path):
    """A matmul, a norm and a flash decode, as far as they are committed, run again."""
    again, suite = tmp_path / "again.csv", tmp_path / "suite"
    committed = {block.name: block for block in read(paper.CSV)}
    lines = from_lines("matmul role=wo\ndecode_op op=norm\nflash_decode variant=stock chunk_size=256\n")
    wanted = [c for c in lines if c.name in committed]
    assert "matmul" in {c.family for c in wanted}
    suite.write_text("\n".join(c.name for c in wanted))
    assert main(["--suite-file", str(suite), "--source", "sim", "--csv", str(again), "--timeout", "5000"]) == 0
    for block in read(again):
        assert block.status == PASS
        assert cycles_of(block) == pytest.approx(cycles_of(committed[block.name]), rel=0.005)
