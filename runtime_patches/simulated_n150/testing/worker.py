# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Test bodies that need a device run in a process of their own; this module is both ends of that.

ttnn reads its environment when it is imported and a process can hold one cluster only, so pytest itself never
imports ttnn. A test hands a module-level function to a worker, which calls it with its open device first:

    def body(device, x):                      # module-level; runs in the worker
        import ttnn
        t = ttnn.from_torch(x, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        return ttnn.to_torch(ttnn.add(t, t))  # torch tensors, numbers, dicts: whatever pickles, and no ttnn tensor

    @pytest.mark.sim
    def test_add(sim_device):
        assert torch.equal(sim_device("1x1").run(body, x), x + x)

A worker lives as long as its device is needed and keeps its program cache between tests. A call that takes
too long, a crash or a pytest timeout ends that worker and its simulator only; the next test gets a fresh one.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import linecache
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from runtime_patches.simulated_n150.testing.forked_process import ForkedProcess

DIAGNOSIS_VARIABLE = "SIMULATED_N150_DIAGNOSIS"
ASKED_FOR = "== asked for\n"  # begins the simulator's report at SIGUSR1
START_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 900.0
_SIMULATOR = b"runtime_patches.simulated_n150.simulator.startup"


class WorkerFailure(RuntimeError):
    """The worker ended, or did not answer in time; the message holds its stack, diagnosis and log."""


class RemoteTraceback(Exception):
    """The cause of an exception that was raised in a worker: its traceback there, as text."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n--- in the worker ---\n{self.text}"


class DeviceWorker:
    """A process that holds one open device (or mesh) and runs functions on it.

    name: shown in messages.
    environment: the whole environment of the process.
    opening: how the device is opened: ``{"mesh": (rows, columns) | None, "fabric": name of a
        ttnn.FabricConfig | None, "options": {...}, "room": bool, "recover": "module:function"}``. options go to
        ``ttnn.open_device`` or ``ttnn.open_mesh_device``; room leaves a core's L1 to programs in flight
        (`dispatch.program_room`); recover is called with the device and False once it is open, and with True after a
        function that failed.
    folder: where its log, stack and diagnosis files go.
    disposable: the device need not be closed in order, which takes seconds: true of all but boards.
    """

    def __init__(
        self,
        name: str,
        environment: Mapping[str, str],
        opening: Mapping,
        folder: Path,
        disposable: bool = True,
    ):
        self.name, self.opening, self._disposable = name, dict(opening), disposable
        folder.mkdir(parents=True, exist_ok=True)
        stem = folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{os.getpid()}-{time.monotonic_ns()}"
        self._log, self._stack, self._diagnosis = (stem.with_suffix(s) for s in (".log", ".stack", ".diagnosis"))
        self._connection, theirs = Pipe()
        environment = dict(environment) | {DIAGNOSIS_VARIABLE: str(self._diagnosis)}
        self._process = (self._forked if disposable else self._apart)(theirs, environment)
        theirs.close()
        try:
            self._call(("open", sys.path, self.opening), "opening the device", START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    def _forked(self, connection: Connection, environment: Mapping[str, str]) -> ForkedProcess:
        self._log.touch()
        return ForkedProcess(_main, (connection, str(self._stack)), environment, self._log)

    def _apart(self, connection: Connection, environment: Mapping[str, str]) -> subprocess.Popen:
        """Start a process that ends as programs do, with all that libraries do then: for what drives a board."""
        program = (
            "import sys; sys.path.insert(0, sys.argv.pop(1)); "
            "from runtime_patches.simulated_n150.testing.worker import _main_apart; _main_apart(*sys.argv[1:])"
        )
        project = str(Path(__file__).resolve().parents[3])
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-u", "-c", program, project, str(connection.fileno()), str(self._stack)],
                env=environment,
                pass_fds=[connection.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and not self._connection.closed

    def run(self, function: Callable, *args, timeout: float = RUN_TIMEOUT_S, **kwargs):
        """Call ``function(device, *args, **kwargs)`` in the worker; return its result, or raise the exception it
        raised.

        function: a module-level function. Arguments and result must pickle. timeout: seconds.
        Errors: WorkerFailure when the worker ends or does not answer in time; the worker is gone then.
        """
        if "<" in function.__qualname__ or "." in function.__qualname__:
            raise ValueError(f"a worker runs module-level functions only, not {function.__qualname__}")
        module, what = function.__module__, f"{function.__module__}.{function.__qualname__}"
        where = getattr(sys.modules.get(module), "__file__", None)
        request = ("run", sys.path, module, where, function.__qualname__, pickle.dumps((args, kwargs)))
        return self._call(request, what, timeout)

    def diagnosis(self) -> str:
        """Return what the simulator has reported about itself so far."""
        return self._diagnosis.read_text(errors="replace") if self._diagnosis.exists() else ""

    def reopen(self) -> None:
        """Close the device and open it again, in the same process and on the same chips."""
        self._call(("open", sys.path, self.opening), "opening the device again", START_TIMEOUT_S)

    def stop(self) -> None:
        """End the process, after closing the device where that matters; kill it if it does not follow."""
        clean = self.alive and self._disposable
        if self.alive and not self._disposable:
            with contextlib.suppress(OSError, EOFError, subprocess.TimeoutExpired):
                self._connection.send_bytes(pickle.dumps(("stop",)))
                self._process.wait(60)
            clean = self._process.poll() == 0
        self.kill()
        if clean:
            self._log.unlink(missing_ok=True)
            self._diagnosis.unlink(missing_ok=True)

    def kill(self) -> None:
        """End this worker and the processes it started, and no other."""
        pids = [*descendants(self._process.pid), self._process.pid] if self._process.poll() is None else []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        self._stack.unlink(missing_ok=True)

    def _call(self, request: tuple, what: str, timeout: float):
        __tracebackhide__ = True
        if not self.alive:
            raise WorkerFailure(f"the worker {self.name} has ended")
        finished = False
        try:
            self._connection.send_bytes(pickle.dumps(request))
            if not self._connection.poll(timeout):
                raise WorkerFailure(f"{what} did not end on {self.name} within {timeout:g} s.\n{self._state(True)}")
            try:
                kind, payload, text = pickle.loads(self._connection.recv_bytes())
            except (EOFError, ConnectionError) as error:
                code = self._process.wait(60)
                raise WorkerFailure(
                    f"the worker {self.name} ended (exit status {code}) in {what}.\n{self._state(False)}"
                ) from error
            finished = True
        finally:
            if not finished:  # also when pytest's own timeout or Ctrl-C ends the wait
                self.kill()
        if kind == "result":
            return payload
        if kind == "skip":
            import pytest

            pytest.skip(payload)
        raise payload from RemoteTraceback(text)

    def _whole_stack(self) -> str:
        """Return what faulthandler has written once it writes no more; a loaded machine may take its time."""
        stack = ""
        for _ in range(20):
            time.sleep(1.0)
            before, stack = stack, self._stack.read_text(errors="replace") if self._stack.exists() else ""
            if stack and stack == before:
                break
        return stack

    def _ask_simulator(self) -> None:
        """Let the simulator report where all cores stand; one that is busy elsewhere may not. The deadlock watch of a
        hung kernel reports all the while, so it is this report that is waited for."""
        patience = 0
        for pid in descendants(self._process.pid):
            with contextlib.suppress(OSError):
                if _SIMULATOR in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGUSR1)
                    patience = 100
        for _ in range(patience):
            if ASKED_FOR in self.diagnosis():
                break
            time.sleep(0.1)

    def _state(self, running: bool) -> str:
        """Return the stack of the running call, the simulator's last diagnosis and the end of the log, as text."""
        parts = []
        if running and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGUSR1)
            stack = self._whole_stack()
            parts.append(f"It was at: {_running_line(stack)}\n--- stack ---\n{stack.strip() or 'none was written'}")
            self._ask_simulator()
        diagnosis = self._diagnosis.read_text(errors="replace") if self._diagnosis.exists() else "none was written"
        parts.append(f"--- last diagnosis of the simulator ---\n{diagnosis.strip()}")
        lines = self._log.read_text(errors="replace").splitlines()
        parts.append(f"--- end of {self._log} ---\n" + "\n".join(lines[-40:]))
        return "\n".join(parts)


class MeshWorker(DeviceWorker):
    """A worker with a simulated mesh. links: its cables (runtime_patches/simulated_n150/links.py)."""

    @property
    def links(self):
        from runtime_patches.simulated_n150.links import Links

        return Links(self._process.pid)


class WorkerPool:
    """Workers by key, at most `limit` alive: the one unused for longest is stopped for a new one."""

    def __init__(self, limit: int):
        self._limit = limit
        self._workers: dict[tuple, DeviceWorker] = {}

    def get(self, key: tuple, start: Callable[[], DeviceWorker]) -> DeviceWorker:
        worker = self._workers.pop(key, None)
        if worker is None or not worker.alive:
            for other in [k for k, w in self._workers.items() if not w.alive]:
                self._workers.pop(other)
            while len(self._workers) >= self._limit:
                self._workers.pop(next(iter(self._workers))).stop()
            worker = start()
        self._workers[key] = worker
        return worker

    def stop(self) -> None:
        while self._workers:
            self._workers.popitem()[1].stop()


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`, those that made a session of their own included."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def left_running(pids: Iterable[int], seconds: int = 60) -> list[int]:
    """Return those of the processes that still run after up to `seconds`; one that only waits to be
    reaped has ended."""
    pids = list(pids)
    for _ in range(10 * seconds):
        pids = [pid for pid in pids if _runs(pid)]
        if not pids:
            break
        time.sleep(0.1)
    return pids


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _running_line(stack: str) -> str:
    """Return the innermost line of a faulthandler dump that is not in an installed package: the op a test called."""
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', stack):
        if "site-packages" not in file and not file.startswith(sys.base_prefix):
            return f"{file}:{line}: {linecache.getline(file, int(line)).strip()}"
    return "unknown"


# ------------------------------------------------------------------------------ in the worker process


def _serve(connection: Connection) -> None:
    device: Any = None
    answer: Any
    close = recover = None
    while True:
        try:
            request = pickle.loads(connection.recv_bytes())
        except (EOFError, ConnectionError):
            break
        if request[0] == "stop":
            break
        try:
            if request[0] == "open":
                sys.path[:] = request[1]
                if close is not None:
                    device, close = None, close()
                recover = _named(request[2].pop("recover", None))
                device, close = _open(**request[2])
                if recover is not None:
                    recover(device, False)
                answer = ("result", None, "")
            else:
                answer = ("result", _run(device, *request[1:]), "")
            data = pickle.dumps(answer)
        except BaseException as error:  # pytest's outcomes derive from BaseException
            data = _failure(error)
            traceback.clear_frames(error.__traceback__)  # the frames hold device tensors
            del error
            if request[0] == "run" and recover is not None:
                recover(device, True)  # if that fails too, this process ends, and its log says why
        answer = None
        gc.collect()
        connection.send_bytes(data)
    if close is not None:
        close()


def _open(mesh, fabric, options, room=False):
    import ttnn

    from runtime_patches.simulated_n150.dispatch import program_room

    gc.freeze()  # modules stay: the collection after every call skips them, which saves it a tenth of a second
    if room:
        options = program_room() | options
    if fabric is not None:
        ttnn.set_fabric_config(getattr(ttnn.FabricConfig, fabric))
    if mesh is None:
        device = ttnn.open_device(device_id=0, **options)
        return device, lambda: ttnn.close_device(device)
    device = ttnn.open_mesh_device(ttnn.MeshShape(*mesh), **options)
    return device, lambda: ttnn.close_mesh_device(device)


def _named(name: str | None) -> Callable | None:
    """Return the function written ``module:function``."""
    if name is None:
        return None
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _run(device, path, module, where, name, arguments):
    for entry in path:
        if entry not in sys.path:
            sys.path.append(entry)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location(module, where)
        found = sys.modules[module] = module_from_spec(spec)
        spec.loader.exec_module(found)
    args, kwargs = pickle.loads(arguments)
    return getattr(found, name)(device, *args, **kwargs)


def _failure(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if type(error).__name__ == "Skipped":
        return pickle.dumps(("skip", str(error), text))
    try:
        data = pickle.dumps(("error", error, text))
        pickle.loads(data)
        return data
    except Exception:
        return pickle.dumps(("error", RuntimeError(f"{type(error).__name__}: {error}"), text))


def _main(connection: Connection, stack: str) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: do not outlive pytest
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, file=open(stack, "w"), all_threads=True)
    _serve(connection)


def _main_apart(connection: str, stack: str) -> None:
    _main(Connection(int(connection)), stack)
