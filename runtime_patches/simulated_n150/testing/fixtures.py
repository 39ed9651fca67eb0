# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest with the fixtures `sim_device`, `sim_mesh` and `mock_mesh`, for tests of any ttnn program.

    pytest -p runtime_patches.simulated_n150.testing.fixtures

Nothing here, and nothing at collection, imports ttnn. What a project adds, it puts into ``config.stash[PROJECT]``.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from runtime_patches.simulated_n150 import doctor
from runtime_patches.simulated_n150.board import environment as board_environment
from runtime_patches.simulated_n150.board.runtime_root import overlay_digests, project_cache_dir
from runtime_patches.simulated_n150.clusters import check_shape
from runtime_patches.simulated_n150.dispatch import mesh_options, opening_options
from runtime_patches.simulated_n150.environment import (
    mock_environment,
    process_environment,
    simulated_environment,
    simulators_folder,
)
from runtime_patches.simulated_n150.grids import grid_name
from runtime_patches.simulated_n150.library import check_library
from runtime_patches.simulated_n150.simulator.directory import NUMBA_FOLDER
from runtime_patches.simulated_n150.testing import simulators
from runtime_patches.simulated_n150.testing.simulators import Comparison
from runtime_patches.simulated_n150.testing.worker import DeviceWorker, MeshWorker, WorkerPool

# Modules of checks beside the tests say what was not equal, as the tests do.
pytest.register_assert_rewrite("runtime_patches.simulated_n150.tests")

# A simulated chip or a mesh of eight, with the process that opens it, takes up to this much memory. As many of the
# devices that the files of a process use in turn stay open.
WORKER_BYTES = 3 << 29
LIVE_WORKERS = 3, 8  # min, max
_FAST = {"slow": "", "fast": " with fast dispatch"}
DEVICE_FIXTURES = "sim_mesh", "sim_device", "mock_mesh"  # in the order in which their files' tests run
MARKERS = {
    "sim": "runs real ttnn kernels on the simulated N150 (needs the RISC-V toolchain and wolfpine)",
    "own_simulator": "is about this simulator itself; left out with --simulator, a ttsim library",
    "mock_mesh": "builds real ttnn programs on a mock N150 mesh; nothing executes",
    "slow": "minutes long; left out unless --run-slow is given",
}
Overlays = Mapping[str, "Path | bytes"]


@dataclass
class Project:
    """What a project adds to the fixtures.

    overlays: gives the files that every device has replaced in its runtime root. board: gives, for overlays, the
    environment of a process that opens a real board in place of the simulated chip; None on simulated chips. recover:
    "module:function" for workers (`DeviceWorker`). save: writes the counts of --compare-simulators and
    --count-outcomes, by file, command, rows and named facts.
    """

    overlays: Callable[[], Overlays] = dict
    board: Callable[[Overlays], dict[str, str]] | None = None
    recover: str | None = None
    save: Callable[..., None] | None = None


PROJECT = pytest.StashKey[Project]()
_STARTED = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulated N150")
    group.addoption(
        "--simulator",
        metavar="PATH",
        help="a ttsim library (libttsim_wh.so) on which tests of single simulated chips run, without cycles; those that"
        " need cycles, meshes or this simulator itself are skipped",
    )
    group.addoption(
        "--compare-simulators",
        metavar="FILE",
        help="with --simulator: run each call on both simulators, compare every returned value bit for bit and write"
        " the counts to FILE",
    )
    group.addoption(
        "--count-outcomes",
        metavar="FILE",
        help="with --simulator: write to FILE how many tests of each file passed, failed and were skipped, and why",
    )
    group.addoption("--run-slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    for marker, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}")
    project = config.stash.setdefault(PROJECT, Project())
    if path := config.getoption("--simulator"):
        if project.board is not None:
            raise pytest.UsageError("--simulator is for simulated chips; --device n150 is a board")
        if reason := doctor.why_not(doctor.LIBRARY, doctor.findings(path)):
            raise pytest.UsageError(reason)
    else:
        for option in ("--compare-simulators", "--count-outcomes"):
            if config.getoption(option):
                raise pytest.UsageError(f"{option} needs --simulator PATH")
    # Simulator's code that tests run by themselves is compiled once for them and for simulators.
    os.environ.setdefault("NUMBA_CACHE_DIR", str(simulators_folder() / NUMBA_FOLDER))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and items stay: no garbage is looked for while they are made, nor among them while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put files that use the same kind of device next to each other, and files without a device last.

    Few devices stay open, so fewer are opened; and of several processes that take file after file (``--dist loadfile
    --no-loadscope-reorder``) none is left with a long file at the end.
    """
    kind: dict[Path, int] = {}
    for item in items:
        used = [n for n, fixture in enumerate(DEVICE_FIXTURES) if fixture in item.fixturenames]
        kind[item.path] = min([*used, kind.get(item.path, len(DEVICE_FIXTURES))])
    items.sort(key=lambda item: kind[item.path])
    if not config.getoption("--run-slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: give --run-slow"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    modes = {"mock_mesh": doctor.MOCK_MESH}
    if item.config.stash[PROJECT].board is None:
        modes["sim"] = doctor.SIMULATOR
    if item.config.getoption("--simulator"):
        if item.get_closest_marker("own_simulator"):
            pytest.skip("ttsim: is about the project's own simulator")
        if item.get_closest_marker("sim") and "library" not in item.fixturenames:
            pytest.skip("ttsim: opens no chip through the fixtures")
        if not item.config.getoption("--compare-simulators"):
            modes.pop("sim", None)  # pytest_configure has looked for what a library needs
    for marker, mode in modes.items():
        if item.get_closest_marker(marker) and (reason := _why_not(mode)):
            pytest.skip(f"{mode} not ready: {reason}")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say with --simulator how many tests ended how, and for which reason they were skipped."""
    if not (simulator := config.getoption("--simulator")):
        return
    found = simulators.outcomes(terminalreporter.stats)
    terminalreporter.section("on the ttsim library")
    for outcome in sorted({outcome for _, outcome in found}):
        tests = sum(number for (_, ended), number in found.items() if ended == outcome)
        terminalreporter.write_line(f"{tests:5} {outcome}")
    if file := config.getoption("--count-outcomes"):
        _save(config, "--count-outcomes", file, simulators.by_file(found), simulator)


def _save(config: pytest.Config, option: str, file: str, rows: list[dict[str, Any]], simulator: str) -> None:
    """Write rows, with the command and the library that gave them."""
    path, project = Path(simulator), config.stash[PROJECT]
    chosen = {"-m": config.option.markexpr, "-k": config.option.keyword}
    marked = [f"{name} '{expression}'" for name, expression in chosen.items() if expression]
    slow = ["--run-slow"] if config.getoption("--run-slow") else []
    tests = [*config.args, *marked, *slow]
    command = f"pytest {' '.join(tests)} --simulator {path.name} {option} {Path(file).name}"
    facts = {"seconds": round(time.monotonic() - _STARTED), "ttsim_sha256": simulators.library.version(path)}
    if project.save is not None:
        project.save(Path(file), command, rows, **facts)
    else:
        Path(file).write_text(json.dumps({"command": command, **facts, "rows": rows}, indent=1))


@cache
def _why_not(mode: str) -> str | None:
    return doctor.why_not(mode)


def _live_workers() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    fewest, most = LIVE_WORKERS
    return max(fewest, min(most, memory // processes // WORKER_BYTES))


@pytest.fixture(scope="session")
def device_workers(on_silicon: bool) -> Iterator[WorkerPool]:
    """Yield the workers that stay open from test to test."""
    pool = WorkerPool(1 if on_silicon else _live_workers())  # one process holds the board
    yield pool
    pool.stop()


@pytest.fixture(scope="session")
def project(request: pytest.FixtureRequest) -> Project:
    """Return what the project adds to the fixtures."""
    return request.config.stash[PROJECT]


@pytest.fixture(scope="session")
def on_silicon(project: Project) -> bool:
    """Return whether `sim_device` is a real board."""
    return project.board is not None


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest) -> Path | None:
    """Return the ttsim library of --simulator, for tests of commands that take one; else None.

    With --simulator a test marked sim is skipped unless it, or a fixture of it, asks for this one.
    """
    path = request.config.getoption("--simulator")
    return check_library(path) if path else None


@pytest.fixture(scope="session")
def comparison(request: pytest.FixtureRequest) -> Iterator[Comparison | None]:
    """Yield what compares two simulators under ``--compare-simulators``; write its counts at the end."""
    option = "--compare-simulators"
    file = request.config.getoption(option)
    compared = Comparison() if file else None
    yield compared
    if compared is not None:
        _save(request.config, option, file, compared.rows(), request.config.getoption("--simulator"))


@pytest.fixture(scope="session")
def sim_device(
    device_workers: WorkerPool, project: Project, library: Path | None, comparison: Comparison | None
) -> Callable[..., Any]:
    """Return ``sim_device("2x2").run(function, *args)``: `function(device, *args)` on a simulated N150 of that grid.

    grid: columns x rows of compute cores. On silicon the chip has its full grid, of which a test uses that part.
    overlays: further files to replace in the runtime root (path: bytes or Path), besides the project's.
    variables: further environment variables, for example ``{"TT_SIM_COST_MODEL": "1"}``.
    options: keyword arguments of ``ttnn.open_device``.
    dispatch: "slow", or "fast" for command queues on the chip and room for traces; a board always dispatches fast,
    and keeps that room when it is asked for "fast".
    """

    def device(
        grid: str = "1x1",
        *,
        dispatch: str = "slow",
        overlays: Overlays | None = None,
        variables: Mapping[str, str] | None = None,
        options: Mapping | None = None,
    ) -> Any:
        name = grid_name(grid)
        if library is not None and (reason := simulators.why_not_on_library(variables)):
            pytest.skip(f"ttsim: {reason}")
        overlays = {**project.overlays(), **(overlays or {})}
        chosen_options = opening_options(dispatch) | dict(options or {})
        opening = {"mesh": None, "fabric": None, "options": chosen_options, "room": project.board is None}

        def make(on: Path | None = None) -> dict[str, str]:
            if project.board is not None:
                return project.board(overlays) | dict(variables or {})
            chosen = simulated_environment(name, overlays, dispatch=dispatch, library=on)
            return process_environment(chosen | dict(variables or {}))

        def worker(title: str, make_environment: Callable[[], dict[str, str]], **how: Any) -> Any:
            return _worker(device_workers, project, title, make_environment, opening, overlays, variables, **how)

        if project.board is not None:
            return worker("the N150", make, disposable=False)
        title = f"the simulated N150 {name}{_FAST[dispatch]}"
        if library is None:
            return worker(title, make)
        judge = partial(worker, f"{title} on ttsim", partial(make, library), kind=simulators.LibraryWorker)
        return judge() if comparison is None else comparison.both(partial(worker, title, make), judge)

    return device


@pytest.fixture(scope="session")
def sim_mesh(device_workers: WorkerPool, project: Project, library: Path | None) -> Callable[..., MeshWorker]:
    """Return ``sim_mesh((1, 2), "1x1").run(function, *args)``: `function(mesh, *args)` on simulated N150 joined by
    Ethernet.

    The stock fabric runs on the simulated Ethernet cores; ``sim_mesh(...).links`` cuts, delays and records its links.
    shape: (rows, columns), one of clusters.SHAPES. grid: compute cores of each chip. fabric: name of a
    ttnn.FabricConfig, or None. opened_as: the shape ttnn opens, if not the boards' own: (1, 4) makes 2x2 boards a
    ring. overlays, variables, dispatch: see `sim_device`; options: of ``ttnn.open_mesh_device``. With fast dispatch
    each chip's command queues run on their own. A test that cuts links ends with ``reopen()`` or ``kill()``.
    """

    def mesh(
        shape: tuple[int, int],
        grid: str = "1x1",
        *,
        dispatch: str = "slow",
        fabric: str | None = "FABRIC_1D",
        opened_as: tuple[int, int] | None = None,
        overlays: Overlays | None = None,
        variables: Mapping[str, str] | None = None,
        options: Mapping | None = None,
    ) -> MeshWorker:
        if library is not None:
            pytest.skip("ttsim: a library simulates one chip")
        (rows, columns), name = check_shape(shape), grid_name(grid)
        overlays = {**project.overlays(), **(overlays or {})}
        opening = {
            "mesh": opened_as or (rows, columns),
            "fabric": fabric,
            "options": mesh_options(dispatch) | dict(options or {}),
            "room": True,
        }

        def make() -> dict[str, str]:
            chosen = simulated_environment(name, overlays, mesh=(rows, columns), dispatch=dispatch)
            return process_environment(chosen | dict(variables or {}))

        title = f"the simulated mesh {rows}x{columns} of {name}{_FAST[dispatch]}"
        return _worker(device_workers, project, title, make, opening, overlays, variables, kind=MeshWorker)

    return mesh


@pytest.fixture(scope="session")
def mock_mesh(
    device_workers: WorkerPool, project: Project, request: pytest.FixtureRequest
) -> Callable[..., DeviceWorker]:
    """Return ``mock_mesh((1, 2)).run(function, *args)``: `function(mesh, *args)` on a mesh of full-size mock N150.

    Programs are validated, allocated and compiled; nothing executes and contents of tensors mean nothing. ttnn's own
    kernels are compiled with --run-slow only; otherwise an empty one stands for each.
    shape: (rows, columns): 1x1, 1x2, 2x2, 1x4, 2x4, 1x8 or 2x8. fabric: name of a ttnn.FabricConfig; the default
    is FABRIC_1D for more than one chip. overlays, variables, options: see `sim_device`.
    """

    def mesh(
        shape: tuple[int, int],
        *,
        fabric: str | None = "FABRIC_1D",
        overlays: Overlays | None = None,
        variables: Mapping[str, str] | None = None,
        options: Mapping | None = None,
    ) -> DeviceWorker:
        rows, columns = check_shape(shape)
        overlays = {**project.overlays(), **(overlays or {})}
        fabric = fabric if rows * columns > 1 else None
        opening: dict[str, Any] = {"mesh": (rows, columns), "fabric": fabric, "options": dict(options or {})}
        if board_environment.real_sfpi() is None:
            opening["room"] = True
        title = f"the mock mesh {rows}x{columns}"

        def make() -> dict[str, str]:
            stock = "compiled" if request.config.getoption("--run-slow") else "empty"
            chosen = mock_environment((rows, columns), overlays, stock_kernels=stock)
            return process_environment(chosen | dict(variables or {}))

        return _worker(device_workers, project, title, make, opening, overlays, variables)

    return mesh


def _worker(
    pool: WorkerPool,
    project: Project,
    title: str,
    make_environment: Callable[[], dict[str, str]],
    opening: Mapping,
    overlays: Overlays | None,
    variables: Mapping[str, str] | None,
    disposable: bool = True,
    kind: type[DeviceWorker] = DeviceWorker,
) -> Any:
    opening = dict(opening) | ({"recover": project.recover} if project.recover else {})
    key = (
        title,
        repr(opening),
        repr(overlay_digests(overlays or {})),
        repr(sorted((variables or {}).items())),
    )

    def start() -> DeviceWorker:
        environment = {"OMP_NUM_THREADS": "2"} | make_environment()
        folder = project_cache_dir() / "workers"
        return kind(title, environment, opening, folder, disposable)

    return pool.get(key, start)
