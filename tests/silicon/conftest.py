# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Several boards as one mesh."""

from collections.abc import Callable

import pytest

from runtime_patches import sgdc
from runtime_patches.board.environment import process_environment, silicon_environment, visible_boards
from runtime_patches.board.runtime_root import project_cache_dir
from runtime_patches.simulated_n150.testing.worker import DeviceWorker


@pytest.fixture(scope="session")
def board_mesh(device_workers) -> Callable[..., DeviceWorker]:
    """``board_mesh((1, 2)).run(function, *args)``: `function(mesh, *args)` on so many N150, with FABRIC_1D and patched
    kernel stubs. options: of ttnn.open_mesh_device. Skips where there are fewer."""

    def mesh(shape: tuple[int, int], **options) -> DeviceWorker:
        needed, present = shape[0] * shape[1], len(visible_boards())
        if present < needed:
            pytest.skip(f"needs {needed} N150 connected by ethernet; the driver shows {present}")
        title = f"{needed} N150 as {shape[0]}x{shape[1]}"

        def start() -> DeviceWorker:
            environment = process_environment(silicon_environment(sgdc.overlays()))
            opening = {"mesh": shape, "fabric": "FABRIC_1D", "options": options}
            return DeviceWorker(title, environment, opening, project_cache_dir() / "workers", False)

        return device_workers.get((title, repr(options)), start)

    return mesh
