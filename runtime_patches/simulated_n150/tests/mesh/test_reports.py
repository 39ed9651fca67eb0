# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a mesh says about itself: nothing while all is well, and where it stands when it is not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest
import torch

from runtime_patches.simulated_n150.testing.worker import descendants, left_running
from runtime_patches.simulated_n150.tests.mesh.mesh_programs import long_transfers_body


@pytest.mark.sim
def test_long_transfers_are_no_deadlock(sim_mesh):
    worker = sim_mesh((1, 2))
    x = torch.randint(-8, 9, (1, 1, 32, 64)).float()
    for part in worker.run(long_transfers_body, x, 130_000):  # the watch takes 50,000 without progress for a deadlock
        assert torch.equal(part.float(), 2 * x)
    assert worker.diagnosis() == ""


OPENS = (
    "import ttnn, time;mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2)); print('open', flush=True); time.sleep(600)"
)


@pytest.mark.sim
def test_a_killed_program_takes_all_its_simulator_processes_along():
    program = subprocess.Popen(
        [sys.executable, "-m", "runtime_patches.simulated_n150", "run", "--mesh", "1x2", "--"]
        + [sys.executable, "-c", OPENS],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert any(line.startswith("open") for line in iter(program.stdout.readline, ""))
        host, *simulators = descendants(program.pid)
        assert len(simulators) >= 2, "one process a chip"
        os.kill(host, signal.SIGKILL)
        assert program.wait(60) != 0
    finally:
        for pid in [*descendants(program.pid), program.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        program.wait()
    left = left_running(simulators)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "a simulator process outlived its program"
