# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Start a process with torch imported already, which takes a third of what a worker's start costs.

It is forked off a server of this process (multiprocessing's, which runs nothing else) and then given an environment, a
session and a log of its own. What reads its environment when it is imported, as ttnn does, is imported after that.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

# networkx for ttnn, pytest for the modules of test bodies.
PRELOADED = ["torch", "numpy", "networkx", "pytest"]


class ForkedProcess:
    """``function(*arguments)`` in a process of its own, with what subprocess.Popen offers of one.

    function: a module-level function. arguments: what multiprocessing can hand over: pickles, and connections.
    environment: the whole environment. log: a file for what it prints.
    """

    def __init__(self, function: Callable, arguments: tuple, environment: Mapping[str, str], log: Path):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._process = context.Process(
            target=_begin, args=(function, arguments, dict(environment), str(log)), daemon=True
        )
        self._process.start()
        self.pid = int(self._process.pid or 0)

    def poll(self) -> int | None:
        """Return the exit status, the negative number of a signal that ended it; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until it has ended, at most `timeout` seconds; return what poll() says then."""
        self._process.join(timeout)
        return self.poll()


def _begin(function: Callable, arguments: tuple, environment: dict[str, str], log: str) -> None:
    gc.freeze()  # what was preloaded stays: collections, of which further imports cause many, pass over it
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # As in any process: locks made here leave no name behind, which a killed process could not remove.
    multiprocessing.set_start_method("fork", force=True)
    os.environ.clear()
    os.environ.update(environment)
    if threads := environment.get("OMP_NUM_THREADS", ""):  # which torch has read by now
        import torch

        torch.set_num_threads(int(threads))
    function(*arguments)
