# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Options, skips and the device fixtures. Nothing here, and nothing at collection, imports ttnn."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path

import pytest

from runtime_patches import sgdc
from runtime_patches.board import doctor as board_doctor
from runtime_patches.board import environment as board
from runtime_patches.board.runtime_root import overlay_digests, project_cache_dir
from runtime_patches.simulated_n150 import doctor
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
from tests.support import simulators
from tests.support.sim_worker import DeviceWorker, MeshWorker, WorkerPool
from tests.support.simulators import Comparison

# Modules of checks beside the tests say what was not equal, as the tests do.
pytest.register_assert_rewrite(
    "tests.models.demo",
    "tests.tt_kernels",
    "tests.silicon",
    "tests.runtime_patches.simulated_n150",
    "tests.models.tt",
)

# A simulated chip or a mesh of eight, with the process that opens it, takes up to this much memory. As many of the
# devices that the files of a process use in turn stay open.
WORKER_BYTES = 3 << 29
LIVE_WORKERS = 3, 8  # min, max
_FAST = {"slow": "", "fast": " with fast dispatch"}
DEVICE_FIXTURES = "sim_mesh", "sim_device", "mock_mesh"  # in the order in which their files' tests run
MODE_OF_MARKER = {"mock_mesh": "mock mesh", "silicon": "silicon"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("llama-alspec")
    group.addoption(
        "--device",
        choices=("sim", "n150"),
        default="sim",
        help="where tests marked sim run: on the simulated N150 (default) or on the board of this machine",
    )
    group.addoption(
        "--runtime",
        choices=("patched", "stock"),
        default="patched",
        help="whether devices run on a runtime with the SGDC patch, its gate open (default), or on the stock one;"
        " tests of the gate itself always take the patched one",
    )
    group.addoption(
        "--simulator",
        metavar="PATH",
        help="a ttsim library (libttsim_wh.so) on which tests of single simulated chips run, without cycles; those that"
        " need cycles, meshes or the project's own simulator are skipped",
    )
    group.addoption(
        "--compare-simulators",
        metavar="FILE",
        help="with --simulator: run each call on both simulators, compare every returned value bit for bit and write"
        " the counts to FILE",
    )
    group.addoption("--run-slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--device") == "n150" and (reason := _why_not("silicon")):
        raise pytest.UsageError(f"--device n150: {reason}")
    if path := config.getoption("--simulator"):
        if config.getoption("--device") == "n150":
            raise pytest.UsageError("--simulator is for simulated chips; --device n150 is a board")
        if reason := doctor.why_not(doctor.LIBRARY, doctor.findings(path)):
            raise pytest.UsageError(reason)
    elif config.getoption("--compare-simulators"):
        raise pytest.UsageError("--compare-simulators needs --simulator PATH")
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
    on_board = item.config.getoption("--device") == "n150"
    modes = dict(MODE_OF_MARKER, sim="silicon" if on_board else "simulator")
    if item.config.getoption("--simulator"):
        if item.get_closest_marker("own_simulator"):
            pytest.skip("ttsim: needs the project's own simulator")
        if not item.config.getoption("--compare-simulators"):
            modes.pop("sim")  # pytest_configure has looked for what a library needs
    for marker, mode in modes.items():
        if item.get_closest_marker(marker) and (reason := _why_not(mode)):
            pytest.skip(f"{mode} not ready: {reason}")
    if item.get_closest_marker("silicon") and not on_board:
        pytest.skip("runs on a board only: give --device n150")


@pytest.fixture(autouse=True)
def _plain_surroundings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test print to a plain terminal of 80 columns and know none of the user's choices, whoever runs it."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    for variable in ("FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS"):
        monkeypatch.delenv(variable, raising=False)
    if not request.node.get_closest_marker("silicon"):  # these take their model from the user
        monkeypatch.delenv("HF_MODEL", raising=False)
        monkeypatch.delenv("MESH_DEVICE", raising=False)


@lru_cache(maxsize=None)
def _why_not(mode: str) -> str | None:
    return board_doctor.why_not() if mode == board_doctor.SILICON else doctor.why_not(mode)


def _live_workers() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    fewest, most = LIVE_WORKERS
    return max(fewest, min(most, memory // processes // WORKER_BYTES))


@pytest.fixture(scope="session")
def _workers(on_silicon: bool) -> Iterator[WorkerPool]:
    pool = WorkerPool(1 if on_silicon else _live_workers())  # one process holds the board
    yield pool
    pool.stop()


@pytest.fixture(scope="session")
def on_silicon(request: pytest.FixtureRequest) -> bool:
    """Return whether `sim_device` is a real board (``--device n150``)."""
    return request.config.getoption("--device") == "n150"


@pytest.fixture(scope="session")
def _runtime_overlays(request: pytest.FixtureRequest) -> Mapping[str, Path | bytes]:
    """Return what every device of the session has replaced in its runtime root."""
    return sgdc.overlays() if request.config.getoption("--runtime") == "patched" else {}


@pytest.fixture(scope="session")
def _comparison(request: pytest.FixtureRequest) -> Iterator[Comparison | None]:
    """Yield what compares two simulators under ``--compare-simulators``; write its counts at the end."""
    file = request.config.getoption("--compare-simulators")
    comparison = Comparison() if file else None
    yield comparison
    if comparison is not None:
        from perf.lib.data_file import save

        path = Path(request.config.getoption("--simulator"))
        tests = " ".join(request.config.args)
        save(
            Path(file),
            f"python -m pytest {tests} --simulator {path.name} --compare-simulators {Path(file).name}",
            comparison.rows(),
            ttsim_sha256=simulators.library.version(path),
        )


@pytest.fixture(scope="session")
def sim_device(
    request: pytest.FixtureRequest,
    _workers: WorkerPool,
    on_silicon: bool,
    _runtime_overlays: Mapping[str, Path | bytes],
    _comparison: Comparison | None,
) -> Callable[..., DeviceWorker]:
    """Return ``sim_device("2x2").run(function, *args)``: `function(device, *args)` on a simulated N150 of that grid.

    grid: columns x rows of compute cores. On silicon the chip has its full grid, of which a test uses that part.
    overlays: further files to replace in the runtime root (path: bytes or Path), for example the cycle
    counters; the SGDC stubs are present unless ``--runtime stock`` is given.
    variables: further environment variables, for example ``{"TT_SIM_COST_MODEL": "1"}``.
    options: keyword arguments of ``ttnn.open_device``.
    dispatch: "slow", or "fast" for command queues on the chip and room for traces; a board always dispatches fast,
    and keeps that room when it is asked for "fast".
    """
    simulator = request.config.getoption("--simulator")
    library = check_library(simulator) if simulator else None

    def device(
        grid: str = "1x1",
        *,
        dispatch: str = "slow",
        overlays: Mapping[str, Path | bytes] | None = None,
        variables: Mapping[str, str] | None = None,
        options: Mapping | None = None,
    ) -> DeviceWorker:
        name = grid_name(grid)
        if library is not None and (reason := simulators.why_not_on_library(variables)):
            pytest.skip(f"ttsim: {reason}")
        overlays = {**_runtime_overlays, **(overlays or {})}
        opening = {"mesh": None, "fabric": None, "options": opening_options(dispatch) | dict(options or {})}
        if on_silicon:
            title = "the N150"

            def make() -> dict[str, str]:
                chosen = board.silicon_environment(overlays) | dict(variables or {})
                return board.process_environment(chosen)
        else:
            opening["room"] = True
            title = f"the simulated N150 {name}{_FAST[dispatch]}"

            def make(library: Path | None = None) -> dict[str, str]:
                chosen = simulated_environment(name, overlays, dispatch=dispatch, library=library)
                return process_environment(chosen | dict(variables or {}))

            if library is not None:

                def judge() -> DeviceWorker:
                    make_environment = partial(make, library)
                    return _worker(
                        _workers, f"{title} on ttsim", make_environment, opening, overlays, variables,
                        kind=simulators.LibraryWorker,
                    )  # fmt: skip

                if _comparison is None:
                    return judge()
                return _comparison.both(lambda: _worker(_workers, title, make, opening, overlays, variables), judge)

        return _worker(_workers, title, make, opening, overlays, variables, disposable=not on_silicon)

    return device


@pytest.fixture(scope="session")
def sim_mesh(
    request: pytest.FixtureRequest, _workers: WorkerPool, _runtime_overlays: Mapping[str, Path | bytes]
) -> Callable[..., MeshWorker]:
    """Return ``sim_mesh((1, 2), "1x1").run(function, *args)``: `function(mesh, *args)` on simulated N150 joined by
    Ethernet.

    The stock fabric runs on the simulated Ethernet cores; ``sim_mesh(...).links`` cuts, delays and records its links.
    shape: (rows, columns), one of clusters.SHAPES. grid: compute cores of each chip. fabric: name of a
    ttnn.FabricConfig, or None. opened_as: the shape ttnn opens, if not the boards' own: (1, 4) makes 2x2 boards a
    ring. overlays, variables, dispatch: see `sim_device`; options: of ``ttnn.open_mesh_device``. With fast dispatch
    each chip's command queues run on their own. A test that cuts links ends with ``reopen()`` or ``kill()``.
    """
    simulator = request.config.getoption("--simulator")

    def mesh(
        shape: tuple[int, int],
        grid: str = "1x1",
        *,
        dispatch: str = "slow",
        fabric: str | None = "FABRIC_1D",
        opened_as: tuple[int, int] | None = None,
        overlays: Mapping[str, Path | bytes] | None = None,
        variables: Mapping[str, str] | None = None,
        options: Mapping | None = None,
    ) -> MeshWorker:
        if simulator:
            pytest.skip("ttsim: a library simulates one chip")
        (rows, columns), name = check_shape(shape), grid_name(grid)
        overlays = {**_runtime_overlays, **(overlays or {})}
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
        return _worker(_workers, title, make, opening, overlays, variables, kind=MeshWorker)

    return mesh


@pytest.fixture(scope="session")
def mock_mesh(
    _workers: WorkerPool, _runtime_overlays: Mapping[str, Path | bytes], request: pytest.FixtureRequest
) -> Callable[..., DeviceWorker]:
    """Return ``mock_mesh((1, 2)).run(function, *args)``: `function(mesh, *args)` on a mesh of full-size mock N150.

    Programs are validated, allocated and compiled; nothing executes and contents of tensors mean nothing. ttnn's own
    kernels are compiled with --run-slow only; otherwise an empty one stands for each.
    shape: (rows, columns): 1x1, 1x2, 2x2, 1x4, 2x4 or 1x8. fabric: name of a ttnn.FabricConfig; the default
    is FABRIC_1D for more than one chip. overlays, variables, options: see `sim_device`.
    """

    def mesh(
        shape: tuple[int, int],
        *,
        fabric: str | None = "FABRIC_1D",
        overlays: Mapping[str, Path | bytes] | None = None,
        variables: Mapping[str, str] | None = None,
        options: Mapping | None = None,
    ) -> DeviceWorker:
        rows, columns = check_shape(shape)
        overlays = {**_runtime_overlays, **(overlays or {})}
        fabric = fabric if rows * columns > 1 else None
        opening = {"mesh": (rows, columns), "fabric": fabric, "options": dict(options or {})}
        if board.real_sfpi() is None:
            opening["room"] = True
        title = f"the mock mesh {rows}x{columns}"

        def make() -> dict[str, str]:
            stock = "compiled" if request.config.getoption("--run-slow") else "empty"
            chosen = mock_environment((rows, columns), overlays, stock_kernels=stock)
            return process_environment(chosen | dict(variables or {}))

        return _worker(_workers, title, make, opening, overlays, variables)

    return mesh


def _worker(
    pool: WorkerPool,
    title: str,
    make_environment: Callable[[], dict[str, str]],
    opening: Mapping,
    overlays: Mapping[str, Path | bytes] | None,
    variables: Mapping[str, str] | None,
    disposable: bool = True,
    kind: type[DeviceWorker] = DeviceWorker,
) -> DeviceWorker:
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
