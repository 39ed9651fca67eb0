# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the environment variables that put ttnn on a simulated N150 or on a mock mesh.

They must be set before ttnn is imported, so these functions return them and change nothing: a program that needs a
device is started in a process of its own with ``process_environment(simulated_environment("2x2"))``.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from runtime_patches.simulated_n150 import clusters
from runtime_patches.simulated_n150 import dispatch as dispatch_modes
from runtime_patches.simulated_n150.board import environment as board
from runtime_patches.simulated_n150.board.environment import Overlays, real_sfpi, root_variables
from runtime_patches.simulated_n150.board.runtime_root import (
    RuntimeRootError,
    build_runtime_root,
    find_ttnn_dir,
    merge_overlays,
    project_cache_dir,
)
from runtime_patches.simulated_n150.compiler.driver import EMPTY_STOCK_KERNELS
from runtime_patches.simulated_n150.grids import CORE_DESCRIPTOR, core_descriptor, grid_name, parse_grid
from runtime_patches.simulated_n150.library import prepared

# Any of these that a shell holds would send the runtime elsewhere than asked.
CONFLICTING = (
    "TT_METAL_SIMULATOR",
    "TT_METAL_MOCK_CLUSTER_DESC_PATH",
    "TT_MESH_GRAPH_DESC_PATH",
    *dispatch_modes.VARIABLES,
    "TT_METAL_RUNTIME_ROOT",
    "TT_METAL_HOME",
    "TT_METAL_CACHE",
    "TT_METAL_EMULE_MODE",
    "TT_METAL_VISIBLE_DEVICES",
    "TT_METAL_CORE_GRID_OVERRIDE_TODEPRECATE",
    "TT_METAL_DISABLE_SFPLOADMACRO",
    "TT_METAL_FABRIC_ROUTER_SYNC_TIMEOUT_MS",
    "SIMULATED_N150_MESH",
    EMPTY_STOCK_KERNELS,
)
LOG_LEVELS = {"TT_LOGGER_LEVEL": "ERROR", "LOGURU_LEVEL": "INFO"}  # of a simulated chip, unless others are set
STOCK_KERNELS = ("empty", "compiled")  # of a mock mesh, the default first
# How long the host waits for the fabric's routers, in wall time: a simulated mesh is slow, and slower when busy.
FABRIC_START_MS = 600_000


def simulators_folder(cache_dir: Path | None = None) -> Path:
    """Return the folder in the project's cache for simulators, and for what numba has compiled for them."""
    return project_cache_dir(cache_dir) / "simulators"


def simulated_environment(
    grid: str | tuple[int, int] = "1x1",
    overlays: Overlays | None = None,
    *,
    mesh: tuple[int, int] | None = None,
    dispatch: str = "slow",
    library: Path | None = None,
    cache_dir: Path | None = None,
) -> dict[str, str]:
    """Return variables for simulated N150 with a compute grid of `grid` (columns x rows) cores each.

    overlays: further files to replace in the runtime root (for example the stubs of SGDC: static graph,
        dynamic concurrency).
    mesh: (rows, columns), one of :data:`clusters.SHAPES`: chips joined by simulated Ethernet; None is one chip.
    dispatch: "slow" or "fast", see :mod:`runtime_patches.simulated_n150.dispatch`.
    library: a ttsim library that simulates the one chip in place of this simulator, without cycles; see
        :mod:`runtime_patches.simulated_n150.library`.
    Errors: ValueError for a grid that does not fit, an unknown mesh or dispatch, a library with a mesh;
    RuntimeRootError when a part is missing or does not fit.
    """
    from runtime_patches.simulated_n150.simulator import simulator_dir
    from runtime_patches.simulated_n150.simulator.behaviour.operand_formats import own_formats

    if library is not None and mesh is not None:
        raise ValueError(f"a ttsim library simulates one chip, not a mesh of {'x'.join(map(str, mesh))}")
    own_formats()
    name, dispatching = grid_name(grid), dispatch_modes.dispatch_variables(dispatch)
    ttnn_dir, cache = find_ttnn_dir(), project_cache_dir(cache_dir)
    root = build_runtime_root(
        merge_overlays(
            simulated_n150=_toolchain_overlays(cache, ttnn_dir),
            grid={CORE_DESCRIPTOR: core_descriptor(ttnn_dir, name)},
            caller=overlays or {},
        ),
        ttnn_dir=ttnn_dir,
        cache_dir=cache,
    )
    variables = root_variables(cache, root)
    # Of a simulated chip ttnn warns of what no user can change; its Python part logs its configuration.
    variables |= {name: os.environ.get(name, level) for name, level in LOG_LEVELS.items()}
    if library is not None:
        dispatching.pop(dispatch_modes.BURST_VARIABLE, None)
        return (
            variables
            | dispatching
            | {
                "TT_METAL_SIMULATOR": str(prepared(library, ttnn_dir, cache)),
                "TT_METAL_DISABLE_SFPLOADMACRO": "1",
            }
        )
    simulator = simulator_dir(simulators_folder(cache), parse_grid(name), Path(sys.executable))
    variables |= dispatching | {
        "TT_METAL_SIMULATOR": str(simulator),
        "TT_METAL_DISABLE_SFPLOADMACRO": "1",
        "WOLFPINE_PYTHON": sys.executable,
    }
    if mesh is not None:
        variables |= _mesh_descriptors(cache, mesh) | {
            "SIMULATED_N150_MESH": "x".join(map(str, mesh)),
            "TT_METAL_FABRIC_ROUTER_SYNC_TIMEOUT_MS": str(FABRIC_START_MS),
        }
    elif (descriptor := simulator / "cluster_descriptor.yaml").is_file():
        # With translated NoC coordinates, as boards ship; host and simulator read the same file.
        variables["TT_METAL_MOCK_CLUSTER_DESC_PATH"] = str(descriptor)
    return variables


def mock_environment(
    mesh_shape: tuple[int, int],
    overlays: Overlays | None = None,
    *,
    stock_kernels: str = STOCK_KERNELS[0],
    cache_dir: Path | None = None,
) -> dict[str, str]:
    """Return variables for a mesh of full-size N150 whose programs are validated, allocated and compiled, but never
    executed.

    mesh_shape: (rows, columns), one of :data:`clusters.SHAPES`. stock_kernels: "compiled", or "empty": an empty kernel
    stands for each of those that come with ttnn, which takes a fraction of the time. Kernels from elsewhere are
    compiled in any case. A real SFPI compiler is used where there is one, and compiles all. Errors: ValueError for an
    unknown shape or choice of kernels; RuntimeRootError when a part is missing or does not fit.
    """
    rows, columns = clusters.check_shape(mesh_shape)
    if stock_kernels not in STOCK_KERNELS:
        raise ValueError(f"stock_kernels is one of {', '.join(STOCK_KERNELS)}, not {stock_kernels!r}")
    ttnn_dir, cache = find_ttnn_dir(), project_cache_dir(cache_dir)
    real = real_sfpi(ttnn_dir)
    toolchain = {} if real else _toolchain_overlays(cache, ttnn_dir)
    root = build_runtime_root(
        merge_overlays(simulated_n150=toolchain, caller=overlays or {}), ttnn_dir=ttnn_dir, cache_dir=cache
    )
    empty = not real and stock_kernels == "empty"
    variables = root_variables(cache, root, jit="jit_of_empty_kernels" if empty else "jit")
    if not real:
        variables["TT_METAL_DISABLE_SFPLOADMACRO"] = "1"
    if empty:
        variables[EMPTY_STOCK_KERNELS] = "1"
    return variables | _mesh_descriptors(cache, (rows, columns))


def _mesh_descriptors(cache: Path, mesh: tuple[int, int]) -> dict[str, str]:
    """Return the variables that name the cluster and mesh graph descriptors of a mesh."""
    rows, columns = clusters.check_shape(mesh)
    folder, name = cache / "clusters", f"n150_{rows}x{columns}"
    cluster = _written(folder, name, ".yaml", clusters.cluster_descriptor((rows, columns)))
    graph = _written(folder, name, ".textproto", clusters.mesh_graph_descriptor((rows, columns)))
    return {"TT_METAL_MOCK_CLUSTER_DESC_PATH": str(cluster), "TT_MESH_GRAPH_DESC_PATH": str(graph)}


def process_environment(variables: Mapping[str, str], base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a whole environment for a child process: `base` (default ours) without what would conflict."""
    return board.process_environment(variables, base, unwanted=CONFLICTING)


def _toolchain_overlays(cache: Path, ttnn_dir: Path) -> dict[str, Path]:
    from runtime_patches.simulated_n150.compiler import toolchain

    if missing := toolchain.missing_packages():
        raise RuntimeRootError(
            "the stand-in compiler needs Debian packages that are not installed: "
            f"apt-get install -y {' '.join(missing)}"
        )
    # The launcher among the overlays names the toolchain's own folder, which is keyed by all it was made
    # from.
    return toolchain.overlay_files(toolchain.build_toolchain(cache, ttnn_dir, sys.executable))


def _written(folder: Path, stem: str, suffix: str, text: str) -> Path:
    """Write a file named after its content, so that a program that reads an older one is not disturbed; return its
    path."""
    path = folder / f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{suffix}"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as draft:
            draft.write(text)
        os.chmod(draft.name, 0o644)
        os.replace(draft.name, path)
    return path
