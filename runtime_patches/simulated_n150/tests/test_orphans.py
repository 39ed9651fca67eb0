# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A killed program leaves no simulator behind."""

import os
import signal
import subprocess
import sys

import pytest

from runtime_patches.simulated_n150.environment import process_environment, simulated_environment
from runtime_patches.simulated_n150.testing.worker import descendants, left_running

OPENS = "import ttnn, time; device = ttnn.open_device(device_id=0); print('open', flush=True); time.sleep(600)"


@pytest.mark.sim
def test_a_killed_program_takes_its_simulator_along(on_silicon):
    if on_silicon:
        pytest.skip("there is no simulator on silicon")
    program = subprocess.Popen(
        [sys.executable, "-c", OPENS],
        env=process_environment(simulated_environment("1x1")),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert any(line.startswith("open") for line in iter(program.stdout.readline, ""))
        simulators = descendants(program.pid)
        assert simulators
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()
    left = left_running(simulators)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "the simulator outlived its program"
