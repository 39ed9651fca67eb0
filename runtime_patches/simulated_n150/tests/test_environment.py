# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Grids, cluster descriptions and the environment variables; ttnn is not imported here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from runtime_patches.simulated_n150 import clusters, doctor, environment, grids
from runtime_patches.simulated_n150.board import environment as board
from runtime_patches.simulated_n150.board.runtime_root import RuntimeRootError, find_ttnn_dir, read_manifest

needs_simulator = pytest.mark.skipif(bool(doctor.why_not("simulator")), reason=str(doctor.why_not("simulator")))
needs_ttnn = pytest.mark.skipif(bool(doctor.why_not("mock mesh")), reason=str(doctor.why_not("mock mesh")))


@pytest.mark.parametrize("text, grid", [("1x1", (1, 1)), ("4x2", (4, 2)), (" 8X8 ", (8, 8)), ((3, 4), (3, 4))])
def test_grids(text, grid):
    assert grids.parse_grid(text) == grid
    assert grids.grid_name(text) == f"{grid[0]}x{grid[1]}"


@pytest.mark.parametrize("text", ["0x1", "9x1", "1x9", "4", "4x", "axb", "-1x2", "1x2x3", (0, 1)])
def test_grids_that_do_not_fit(text):
    with pytest.raises(ValueError, match="grid"):
        grids.parse_grid(text)


@pytest.mark.parametrize("text", ["3x1", "3x2", "5x1", "3x3", "2x7"])
def test_grids_that_the_runtime_does_not_open(text):
    columns, rows = map(int, text.split("x"))
    with pytest.raises(ValueError, match=f"{text} has {columns * rows} cores; the runtime opens chips of 1, 2, 4"):
        grids.parse_grid(text)


@needs_ttnn
def test_core_counts_are_those_that_the_runtime_divides_by():
    """Powers of two by shifts, the others by the functions of a header."""
    library = (find_ttnn_dir() / "tt_metal" / "hw" / "inc" / "internal" / "mod_div_lib.h").read_text()
    known = {int(number) for number in re.findall(r"if constexpr \(d == (\d+)\)", library)}
    possible = {width * height for width in range(1, 9) for height in range(1, 9)}
    powers = {count for count in possible if count & (count - 1) == 0}
    assert set(grids.CORE_COUNTS) == powers | (known & possible)


def test_the_smallest_grid_of_so_many_cores():
    found = [grids.smallest_grid(*asked) for asked in ((1,), (2, 2), (3, 2), (8, 4), (9, 2), (13, 2), (64,))]
    assert found == ["1x1", "2x1", "2x2", "4x2", "2x6", "2x8", "8x8"]
    for cores, columns in ((65, 1), (2, 9)):
        with pytest.raises(ValueError, match=f"{cores} cores in {columns} or more columns"):
            grids.smallest_grid(cores, columns)


@needs_ttnn
def test_core_descriptor_cuts_the_compute_range_and_nothing_else():
    original = yaml.safe_load((find_ttnn_dir() / grids.CORE_DESCRIPTOR).read_text())
    cut = yaml.safe_load(grids.core_descriptor(find_ttnn_dir(), "4x2"))
    ranges = 0
    for product, axes in original.items():
        for axis, configs in axes.items():
            for queues, config in configs.items():
                mine = cut[product][axis][queues]
                assert mine.pop("compute_with_storage_grid_range") == {"start": [0, 0], "end": [3, 1]}
                config.pop("compute_with_storage_grid_range")
                assert mine == config
                ranges += 1
    assert ranges >= 4


@pytest.mark.parametrize("shape", clusters.SHAPES)
def test_cluster_descriptor_is_a_wiring_one_can_build(shape):
    rows, columns = shape
    description = yaml.safe_load(clusters.cluster_descriptor(shape))
    chips = rows * columns
    assert sorted(description["chips"]) == list(range(chips))
    assert len({tuple(place) for place in description["chips"].values()}) == chips
    assert set(description["chip_to_boardtype"].values()) == {"n150"}
    assert len({board[0]["board_id"] for board in description["boards"]}) == chips
    ends = [(end["chip"], end["chan"]) for link in description["ethernet_connections"] for end in link]
    assert len(ends) == len(set(ends)), "an Ethernet channel has one cable"
    assert {channel for _, channel in ends} <= {0, 1, 6, 7, 14, 15}
    # Two links between neighbours of a row and of a column.
    joined = {frozenset(end["chip"] for end in link) for link in description["ethernet_connections"]}
    neighbours = {frozenset((c, c + 1)) for c in range(chips) if (c + 1) % columns} | {
        frozenset((c, columns + c)) for c in range(columns if rows == 2 else 0)
    }
    assert joined == neighbours
    assert len(description["ethernet_connections"]) == 2 * len(joined)
    assert f"dims: [ {rows}, {columns} ]" in clusters.mesh_graph_descriptor(shape)


def test_unknown_shapes_are_refused():
    with pytest.raises(ValueError, match="3x3.*1x8"):
        clusters.cluster_descriptor((3, 3))
    with pytest.raises(ValueError, match="ROWSxCOLUMNS"):
        clusters.parse_shape("2 by 4")
    assert clusters.parse_shape("2x4") == (2, 4)


@needs_simulator
def test_simulated_environment(tmp_path):
    small = environment.simulated_environment("1x1", cache_dir=tmp_path)
    large = environment.simulated_environment("4x2", cache_dir=tmp_path)
    patched = environment.simulated_environment("1x1", {"tt_metal/new.h": b"x"}, cache_dir=tmp_path)
    for variables in (small, large, patched):
        assert variables["TT_METAL_RUNTIME_ROOT"] == variables["TT_METAL_HOME"]
        assert variables["TT_METAL_SLOW_DISPATCH_MODE"] == "1" and variables["WOLFPINE_PYTHON"] == sys.executable
        assert (Path(variables["TT_METAL_SIMULATOR"]) / "run.sh").is_file()
        assert (Path(variables["TT_METAL_SIMULATOR"]) / "soc_descriptor.yaml").is_file()
        assert Path(variables["TT_METAL_CACHE"]).is_dir()
    for key in ("TT_METAL_RUNTIME_ROOT", "TT_METAL_CACHE"):
        assert len({v[key] for v in (small, large, patched)}) == 3, f"{key} is shared by different roots"
    root = Path(large["TT_METAL_RUNTIME_ROOT"])
    assert grids.CORE_DESCRIPTOR in read_manifest(root)["overlays"]
    assert (root / "runtime/sfpi/compiler/bin/riscv-tt-elf-g++").is_file()
    with pytest.raises(RuntimeRootError, match="grid and by caller"):
        environment.simulated_environment("1x1", {grids.CORE_DESCRIPTOR: b"other"}, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="9x9"):
        environment.simulated_environment("9x9", cache_dir=tmp_path)


@needs_simulator
def test_a_program_on_a_simulated_chip_prints_what_it_prints_itself(tmp_path):
    script = "import ttnn; device = ttnn.open_device(device_id=0); ttnn.close_device(device); print('done')"
    variables = environment.process_environment(environment.simulated_environment("1x1"))
    for name in environment.LOG_LEVELS:
        assert variables[name] == environment.LOG_LEVELS[name] or name in os.environ
    ran = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


@needs_simulator
def test_fast_dispatch_changes_the_dispatch_and_nothing_else(tmp_path):
    slow, fast = (environment.simulated_environment("1x1", dispatch=d, cache_dir=tmp_path) for d in ("slow", "fast"))
    assert slow == environment.simulated_environment("1x1", cache_dir=tmp_path)
    different = {name for name in slow.keys() | fast.keys() if slow.get(name) != fast.get(name)}
    assert different == {
        "TT_METAL_SLOW_DISPATCH_MODE",
        "TT_METAL_DRAM_BACKED_CQ",
        "TT_METAL_DISPATCH_TELEMETRY_DISABLE",
        "SIMULATED_N150_BURST",
    }
    assert "TT_METAL_SLOW_DISPATCH_MODE" not in fast
    assert not different & environment.process_environment({}, fast).keys(), "a shell's choice of it is dropped"
    with pytest.raises(ValueError, match="slow or fast, got 'quick'"):
        environment.simulated_environment("1x1", dispatch="quick", cache_dir=tmp_path)


@needs_ttnn
def test_mock_environment(tmp_path):
    variables = environment.mock_environment((2, 4), cache_dir=tmp_path)
    assert "TT_METAL_SIMULATOR" not in variables and "TT_METAL_SLOW_DISPATCH_MODE" not in variables
    described = yaml.safe_load(Path(variables["TT_METAL_MOCK_CLUSTER_DESC_PATH"]).read_text())
    assert len(described["chips"]) == 8
    assert "dims: [ 2, 4 ]" in Path(variables["TT_MESH_GRAPH_DESC_PATH"]).read_text()
    other = environment.mock_environment((1, 2), cache_dir=tmp_path)
    assert other["TT_METAL_CACHE"] == variables["TT_METAL_CACHE"], "meshes of all sizes share one kernel cache"


@needs_simulator
def test_empty_kernels_never_share_a_cache_with_what_is_executed(tmp_path):
    empty = environment.mock_environment((1, 2), cache_dir=tmp_path)
    whole = environment.mock_environment((1, 2), stock_kernels="compiled", cache_dir=tmp_path)
    name = environment.EMPTY_STOCK_KERNELS
    assert empty[name] == "1" and name not in whole
    assert empty["TT_METAL_CACHE"] != whole["TT_METAL_CACHE"]
    assert empty["TT_METAL_RUNTIME_ROOT"] == whole["TT_METAL_RUNTIME_ROOT"]
    simulated = environment.process_environment(
        environment.simulated_environment("1x1", cache_dir=tmp_path), {name: "1"}
    )
    assert name not in simulated and Path(simulated["TT_METAL_CACHE"]).parent != Path(empty["TT_METAL_CACHE"]).parent
    with pytest.raises(ValueError, match="empty, compiled, not 'none'"):
        environment.mock_environment((1, 2), stock_kernels="none", cache_dir=tmp_path)


def _fake_sfpi(folder: Path) -> Path:
    compiler = folder / board.SFPI_COMPILER
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    return folder


@needs_simulator
def test_a_real_sfpi_is_shadowed_by_the_simulator_only(tmp_path, monkeypatch):
    monkeypatch.setattr(board, "SYSTEM_SFPI", _fake_sfpi(tmp_path / "opt"))
    assert board.real_sfpi() == tmp_path / "opt"
    launcher = "runtime/sfpi/compiler/bin/riscv-tt-elf-g++"

    def overlays_of(variables):
        return read_manifest(Path(variables["TT_METAL_RUNTIME_ROOT"]))["overlays"]

    assert launcher in overlays_of(environment.simulated_environment("1x1", cache_dir=tmp_path))
    mock = environment.mock_environment((1, 2), cache_dir=tmp_path)
    assert launcher not in overlays_of(mock) and "TT_METAL_DISABLE_SFPLOADMACRO" not in mock
    assert environment.EMPTY_STOCK_KERNELS not in mock
    assert board.silicon_environment(cache_dir=tmp_path) == {}
    silicon = board.silicon_environment({"tt_metal/new.h": b"x"}, cache_dir=tmp_path)
    assert list(overlays_of(silicon)) == ["tt_metal/new.h"]


def test_process_environment_drops_what_conflicts():
    base = {
        "PATH": "/bin",
        "TT_METAL_SIMULATOR": "old",
        "TT_METAL_MOCK_CLUSTER_DESC_PATH": "old",
        "TT_METAL_DPRINT": "1",
    }
    made = environment.process_environment({"TT_METAL_SIMULATOR": "new"}, base)
    assert made == {"PATH": "/bin", "TT_METAL_DPRINT": "1", "TT_METAL_SIMULATOR": "new"}
