# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The worker process of `sim_device` and `mock_mesh`: results, exceptions, timeouts, crashes, clean-up.

A mock mesh of one chip serves: it opens in seconds and the worker is the same for every device.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from runtime_patches.simulated_n150.environment import mock_environment, process_environment
from runtime_patches.simulated_n150.testing.worker import (
    DeviceWorker,
    RemoteTraceback,
    WorkerFailure,
    WorkerPool,
    _running_line,
    descendants,
    left_running,
)

pytestmark = pytest.mark.mock_mesh
ROOT = Path(__file__).resolve().parents[3]


class Odd(Exception):
    """An exception that does not survive pickling."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def doubled(mesh, x, *, factor=2):
    return {"x": x * factor, "grid": mesh.compute_with_storage_grid_size().x, "pid": os.getpid()}


def raises_value_error(mesh):
    raise ValueError("the number 7 is odd")


def raises_odd(mesh):
    raise Odd("this", "that")


def skips(mesh):
    pytest.skip("for a reason")


def fails_in_ttnn(mesh):
    import ttnn

    a, b = (ttnn.empty([n, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG) for n in (32, 64))
    ttnn.matmul(a, b)


def returns_a_device_tensor(mesh):
    import ttnn

    return ttnn.empty([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG)


def hangs_with_a_child(mesh, note):
    # A session of its own, as the simulator's process may have.
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(note).write_text(str(child.pid))
    Path(os.environ["SIMULATED_N150_DIAGNOSIS"]).write_text("core 1-1: brisc waits on semaphore 3")
    print("printed before the hang", flush=True)
    time.sleep(600)  # the line that hangs


def dies(mesh):
    os.abort()


@pytest.fixture
def worker(mock_mesh):
    return mock_mesh((1, 1))


def test_results_and_arguments(worker):
    x = torch.arange(6.0).reshape(2, 3).bfloat16()
    first, second = worker.run(doubled, x), worker.run(doubled, x, factor=3)
    assert torch.equal(first["x"], 2 * x) and torch.equal(second["x"], 3 * x)
    assert first["grid"] == 8
    assert first["pid"] == second["pid"] != os.getpid()


def test_exceptions_come_back_and_the_worker_lives(worker):
    pid = worker.run(doubled, torch.ones(1))["pid"]
    with pytest.raises(ValueError, match="7 is odd") as caught:
        worker.run(raises_value_error)
    assert isinstance(caught.value.__cause__, RemoteTraceback) and "raises_value_error" in str(caught.value.__cause__)
    with pytest.raises(RuntimeError, match="Odd: this and that"):
        worker.run(raises_odd)
    with pytest.raises(RuntimeError, match="width.*height|inner|TT_FATAL"):
        worker.run(fails_in_ttnn)
    with pytest.raises(pytest.skip.Exception, match="for a reason"):
        worker.run(skips)
    with pytest.raises(Exception, match="pickle|serialize"):
        worker.run(returns_a_device_tensor)
    assert worker.run(doubled, torch.ones(1))["pid"] == pid


def test_only_module_level_functions(worker):
    with pytest.raises(ValueError, match="module-level"):
        worker.run(lambda mesh: None)


def test_timeout_names_the_line_and_ends_worker_and_children(worker, mock_mesh, tmp_path):
    with pytest.raises(WorkerFailure) as caught:
        worker.run(hangs_with_a_child, str(tmp_path / "child"), timeout=10)
    message = str(caught.value)
    assert "hangs_with_a_child did not end on the mock mesh 1x1 within 10 s" in message
    assert "# the line that hangs" in message, "the running line is quoted"
    assert "brisc waits on semaphore 3" in message, "the last diagnosis is quoted"
    assert "printed before the hang" in message, "the log is quoted"
    child = int((tmp_path / "child").read_text())
    assert not left_running([child, worker._process.pid])
    assert not worker.alive
    with pytest.raises(WorkerFailure, match="has ended"):
        worker.run(doubled, torch.ones(1))
    assert mock_mesh((1, 1)).run(doubled, torch.ones(1))["grid"] == 8, "the next call has a fresh worker"


def test_crash_is_told(worker):
    with pytest.raises(WorkerFailure, match=r"ended \(exit status -6\) in \S*test_sim_worker\.dies") as caught:
        worker.run(dies)
    assert "in dies" in str(caught.value), "the stack at the crash is in the log"


def test_a_worker_that_drives_a_board_ends_as_programs_do(tmp_path):
    """In an interpreter of its own, asked to close its device: here a mock one."""
    opening = {"mesh": (1, 1), "fabric": None, "options": {}, "room": True}
    environment = process_environment(mock_environment((1, 1)))
    worker = DeviceWorker("a board", environment, opening, tmp_path, disposable=False)
    pid = worker.run(doubled, torch.ones(1))["pid"]
    assert pid == worker._process.pid and list(tmp_path.glob("*.log"))
    worker.stop()
    assert worker._process.returncode == 0 and not list(tmp_path.iterdir()), "what it left is gone"


class FakeWorker:
    def __init__(self):
        self.alive, self.stopped = True, 0

    def stop(self):
        self.alive, self.stopped = False, self.stopped + 1


def test_pool_keeps_the_recently_used():
    pool, made = WorkerPool(2), []

    def start():
        made.append(FakeWorker())
        return made[-1]

    a, b = pool.get(("a",), start), pool.get(("b",), start)
    assert pool.get(("a",), start) is a and len(made) == 2
    c = pool.get(("c",), start)
    assert b.stopped == 1 and a.alive and c.alive, "the one unused for longest goes"
    a.alive = False
    assert pool.get(("a",), start) is made[-1] is not a, "a dead worker is replaced"
    pool.stop()
    assert not any(w.alive for w in made)


def test_descendants_and_running_line():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        assert child.pid in descendants(os.getpid())
    finally:
        child.kill()
        child.wait()
    dump = 'File "/x/site-packages/ttnn/core.py", line 3 in f\n  File "%s", line 1 in g' % __file__
    assert _running_line(dump).startswith(f"{__file__}:1: # SPDX")
    assert _running_line("") == "unknown"
