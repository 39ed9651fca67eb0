# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Benches of ops: their points, oracles and arithmetic, what they refuse, and that recorded figures stand."""

import json
import shutil

import pytest
import torch

from perf import docs
from perf.lib.chip import Chip
from perf.lib.data_file import FOLDER, ROOT
from perf.lib.tensors import TREES, errors_of, intervals_of, parents_of
from perf.ops import __main__ as bench
from perf.ops.__main__ import FAMILIES, main, run
from perf.ops.families import guess_name, measurable, tree_columns
from runtime_patches import sgdc
from runtime_patches.profiling.cycles import CYCLE_VARIABLES, cycle_overlays
from runtime_patches.simulated_n150.library import version
from tt_kernels.tree_attention.checks import check_intervals
from tt_kernels.tree_attention.reference import path_of


def test_lists_of_points_are_whole_and_can_be_measured():
    for family in FAMILIES.values():
        for of in family.points:
            assert all(set(point) == set(family.options) for point in family.named(of))
        module, function = family.measure.split(".")
        assert f"\ndef {function}(" in (ROOT / f"perf/ops/{module}.py").read_text()
    guesses = [guess_name(point) for point in FAMILIES["flash_decode"].named("chosen")]
    assert guesses == ["128+"] * 2 + [f"32 + {tiles} x 32 + 128+" for tiles in (61, 61, 123, 246)]


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path, capsys, monkeypatch):
    kept, written, asked = tmp_path / "steps.json", tmp_path / "rows.json", []

    def measured(module, what, environment, timeout_s):
        asked.extend(what["points"])
        return [[{"cycles": point["context"]}] for point in what["points"]]

    monkeypatch.setattr(bench, "measure_apart", measured)
    assert main(["tile_selection", "context=8192", "--steps", str(kept)]) == 0
    assert main(["tile_selection", "context=65536,8192", "--steps", str(kept), "--write", str(written)]) == 0
    assert [point["context"] for point in asked] == [8192, 65536]
    assert [row["cycles"] for row in json.loads(written.read_text())["rows"]] == [65536, 8192]
    with pytest.raises(SystemExit):
        main(["flash_decode", "--steps", str(kept)])
    assert "has steps of tile_selection" in capsys.readouterr().err


def test_rows_have_ratios_and_bytes_of_masks():
    shape = {"shape": "balanced", "head_dim": 64, "heads": 4}
    rows = []
    for point, took in (
        ({"context": 2048, "nodes": 16, "workers": 1}, (300, 300, 400, 150, 330)),
        ({"context": 256, "nodes": 64, "workers": 4}, (640, 600, None, 100, None)),
    ):
        cycles = dict(zip(("tree", "chain", "stock", "decode", "speculating"), took, strict=True))
        whole = shape | point | cycles
        rows.append(whole | tree_columns(whole))
    assert (rows[0]["of_stock"], rows[0]["of_decode"], rows[0]["of_decodes"]) == (0.75, 2, 0.125)
    assert (rows[0]["interval_bytes"], rows[0]["mask_bytes"], rows[1]["mask_bytes"]) == (128, 262144, 131072)
    assert rows[0]["of_tree"] == 1.1 and rows[1]["of_stock"] is None
    for cycles in (0, -134, float("nan")):
        with pytest.raises(ValueError, match="not measurable: guess"):
            measurable({"exact": 900, "guess": cycles, "stock": None})


@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize("nodes", [1, 2, 4, 7, 16, 64])
def test_trees_are_walks_of_their_shape(shape, nodes):
    parents = parents_of(shape, nodes)
    check_intervals(*intervals_of(parents))
    deepest = max(len(path_of(parents, node)) for node in range(nodes))
    assert deepest == {"chain": nodes, "balanced": nodes.bit_length(), "skewed": nodes // 2 + 1}[shape]


def test_errors_are_of_the_norm_of_the_worst_row_and_along_the_reference():
    expected = torch.tensor([[3.0, 4.0], [0.0, 5.0]])
    errors = errors_of(torch.tensor([[3.3, 4.4], [0.0, 5.0]]), expected)
    assert errors["worst_head"] == pytest.approx(0.1) and errors["largest"] == pytest.approx(0.4)
    assert errors["error"] == pytest.approx(0.5 / 50**0.5) and errors["bias"] == pytest.approx(2.5 / 50)
    assert errors["largest_relative"] == pytest.approx(0.08) and 0.99 < errors["pcc"] < 1
    assert errors_of(1.02 * expected, expected)["norm_error"] == pytest.approx(0.02)


def gate_body(device):
    from perf.ops.sgdc import measure_exchange, measure_gate

    return measure_gate(device, depth=64), measure_exchange(device, tiles=(1, 16))


@pytest.mark.sim
def test_a_skipped_kernel_costs_next_to_nothing(sim_device):
    overlays = {**sgdc.overlays(), **cycle_overlays()}
    gate, exchange = sim_device("2x1", overlays=overlays, variables=CYCLE_VARIABLES).run(gate_body)
    ran, skipped = gate["op, run"], gate["op, skipped"]
    assert 0 < skipped["kernel"] < 50
    assert ran["kernel"] > 50 * skipped["kernel"]
    assert skipped["program"] < ran["program"] - ran["kernel"] + 100, "a skip costs no more than any launch"
    assert gate["open gate"]["kernel"] < gate["set gate"]["kernel"] < gate["set gate and log"]["kernel"]
    took = {(size["tiles"], size["rows"]): size["cycles"] for size in exchange}
    assert 0 < took[1, 32] < took[16, 32] < 16 * took[1, 32]
    assert 0 < took[1, 1] < took[16, 1] < 16 * took[1, 1]


LONG_CONTEXT = FOLDER / "ops" / "long_context.json"


def test_errors_on_a_library_replace_those_of_the_points_asked_for(tmp_path, monkeypatch):
    asked = FAMILIES["long_context"].asked(["cores=64", "context=65536", "op=pair"])
    library, file = tmp_path / "libttsim_wh.so", tmp_path / "rows.json"
    library.write_bytes(b"one")
    shutil.copyfile(LONG_CONTEXT, file)
    monkeypatch.setattr(Chip, "environment", lambda chip: {"on": str(chip.library), "grid": chip.grid})
    judged = {"cycles": None, **dict.fromkeys(FAMILIES["long_context"].errors, 0.25)}

    def measured(module, what, environment, _):
        assert what["points"] == asked and what["judged"] and environment == {"on": str(library), "grid": "8x8"}
        return [[judged]]

    monkeypatch.setattr(bench, "measure_apart", measured)
    bench.judge("long_context", asked, library, file)
    before, after = docs.read(LONG_CONTEXT), docs.read(file)
    changed = [(old, new) for old, new in zip(before[1], after[1], strict=True) if old != new]
    assert before[0] == after[0] and len(changed) == 1
    old, new = changed[0]
    assert (new["error"], new["guess_error"], new["errors_by"]) == (0.25, 0.25, f"ttsim {version(library)}")
    assert all(new[name] == old[name] for name in ("cores", "context", "op", "cycles", "of_exact", "guess_sent"))
    with pytest.raises(ValueError, match="has no row of .*'context': 512"):
        bench.judge("long_context", FAMILIES["long_context"].asked(["context=512"]), library, file)


@pytest.mark.slow
@pytest.mark.sim
def test_the_shortest_recorded_context_runs_again_as_recorded(library, tmp_path):
    """Cycles within 0.5 %, errors as they are; with a ttsim library errors alone."""
    rows = docs.read(LONG_CONTEXT)[1]
    recorded = next(row for row in rows if (row["cores"], row["context"], row["op"]) == (8, 16384, "exact"))
    asked = FAMILIES["long_context"].asked(["cores=8", "context=16384"])
    if library is not None:
        (again,) = bench.judge("long_context", asked, library, shutil.copyfile(LONG_CONTEXT, tmp_path / "rows.json"))
        assert again["errors_by"] == f"ttsim {version(library)}"
    else:
        (again,) = run("long_context", asked)
    assert again["cycles"] == pytest.approx(recorded["cycles"], rel=0.005)
    assert again["error"] == pytest.approx(recorded["error"], rel=0.01)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("prefill_product", "rows=128 outputs=512 program=banked_product"),
        ("prefill_attention", "start=448"),
        ("long_rows", "rows=512"),
    ],
)
def test_rows_of_a_prefills_tables_run_again_as_recorded(name, asked):
    (point,) = FAMILIES[name].asked(asked.split())
    (recorded,) = (row for row in docs.read(FOLDER / "ops" / f"{name}.json")[1] if point.items() <= row.items())
    (again,) = run(name, [point])
    assert again["cycles"] == pytest.approx(recorded["cycles"], rel=0.005)
