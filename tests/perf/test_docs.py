# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The documents' figures are those of perf/data."""

import sys

import pytest

from perf import docs, record
from perf.__main__ import commands
from perf.lib.data_file import recorded, save

DOCUMENTS = docs.documents()
MODULES = dict(commands())
# Rows kept one by one, by several runs.
KEPT = ("gemm", "long_context", "prefill_attention", "prefill_parts", "prefill_product")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(docs.ROOT).as_posix())
def test_a_document_says_what_its_data_say(path):
    text = path.read_text(encoding="utf-8")
    assert docs.generated(text) == text, "make docs writes the figures anew"


@pytest.mark.parametrize("path", sorted(docs.FOLDER.rglob("*.json")), ids=lambda path: path.stem)
def test_a_data_file_says_what_made_it(path):
    facts, rows = docs.read(path)
    module = docs.module_of(facts["command"])
    assert not facts["commit"].endswith("+changes") and (not module or module in MODULES), "is there"
    assert facts["date"] >= "2026-11-22" and rows
    if path.stem not in KEPT:
        assert facts["seconds"] >= 0 and "python" in facts["versions"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(docs, "FOLDER", tmp_path)
    rows = [{"size": 1, "gain": 1.5, "name": "a b"}, {"size": 1, "gain": 2.5, "name": None}]
    save(tmp_path / "x_1.json", "python -m perf.x", rows, chips=2)
    save(tmp_path / "x_10.json", "python -m perf.x --long", [{"size": 3, "gain": 4.0, "name": "c"}], chips=4)
    return tmp_path


def test_a_table_is_made_of_its_marker(folder):
    marker = "<!-- table x_*.json\n| n | gain |\n| {name} on {chips} | {gain:.1f}x |\n-->"
    text = f"before\n{marker}\nold <!-- /table -->\nafter"
    made = docs.generated(text)
    assert "| n | gain |\n|---|---:|\n| a b on 2 | 1.5x |\n| - on 2 | 2.5x |\n| c on 4 | 4.0x |\n" in made
    assert "- `python -m perf.x` (" in made and "`python -m perf.x --long`" in made
    assert "old" not in made and made.endswith("after") and docs.generated(made) == made


@pytest.mark.parametrize(
    ("asked", "cells", "shown"),
    [
        ('x_1.json name="a b"', "| {gain:.1f}x |", "| 1.5x |"),
        ("x_*.json gain=4|7", "| {size} of {chips} |", "| 3 of 4 |"),
        ("x_1.json mean=size", "| {gain:.2f} ± {gain_error:.1f}, {size} ± {size_error:.0f} |", "| 2.00 ± 0.5, 1 ± 0 |"),
        ("x_*.json name=c mean=size,chips", "| {gain:.1f} ± {gain_error} |", "| 4.0 ± - |"),
    ],
)
def test_rows_of_a_table_are_selected_and_averaged(folder, asked, cells, shown):
    assert f"\n{shown}\n" in docs.generated(f"<!-- table {asked}\n| a |\n{cells}\n--><!-- /table -->")


@pytest.mark.parametrize(("asked", "why"), [("y.json", "no such file"), ("x_1.json gain=7", "selects no row")])
def test_markers_without_data_are_refused(folder, asked, why):
    with pytest.raises(ValueError, match=why):
        docs.generated(f"<!-- table {asked}\n| a |\n| {{gain}} |\n--><!-- /table -->")


def test_data_files_keep_what_chooses_the_results():
    given = "--layers 2 --write a.json --hits 0 1 --plot=b.png --simulator lib/a.so --steps c".split()
    assert recorded(given) == ["--layers", "2", "--hits", "0", "1", "--simulator", "a.so"]


def test_what_a_command_prints_is_shown_as_it_was(folder, capfd):
    script = "print('pcc 1.0000'); print('distance 0.6')"
    assert record.main([str(folder / "said.json"), sys.executable, "-c", script]) == 0
    made = docs.generated("<!-- output said.json -->old<!-- /output -->")
    assert made == "<!-- output said.json -->\n\n```\npcc 1.0000\ndistance 0.6\n```\n\n<!-- /output -->"
    assert record.main([str(folder / "none.json"), sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert not (folder / "none.json").exists()


def test_every_command_is_listed_with_what_it_does():
    listed = dict(commands())
    assert {"perf.sweep", "perf.studies.quality", "perf.projection"} <= set(listed)
    assert not any(name in module for module in listed for name in ("worker", "mesh_build"))
    for module, what in listed.items():
        assert what.endswith(".") and what[0].isupper(), module
