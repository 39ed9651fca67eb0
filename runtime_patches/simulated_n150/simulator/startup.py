# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Start wolfpine's Wormhole server in this process, after patching it.

tt-metal runs it through run.sh; `python -m runtime_patches.simulated_n150.simulator.startup --list-patches` only checks
the patches against the installed simulator and lists them.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time

from runtime_patches.simulated_n150.simulator.diagnosis import Diagnosis
from runtime_patches.simulated_n150.simulator.host import rendezvous
from runtime_patches.simulated_n150.simulator.speed.burst import BURST_VARIABLE

# Set where the chips of a mesh are hosted by one process; its value, "1x2", is for people.
MESH_VARIABLE = "SIMULATED_N150_MESH"


def _watch_device(diagnosis: Diagnosis) -> None:
    """Let the diagnosis know the device that the server builds, and compile what its cores do where
    that is asked for."""
    from framework.sim.wormhole import wh_device

    make_device = wh_device.make_device

    def making(*arguments, **named):
        device = make_device(*arguments, **named)
        diagnosis.watch(device.tt_device)
        if os.environ.get(BURST_VARIABLE) == "1":
            from runtime_patches.simulated_n150.simulator.speed.burst.engine import Burst

            device.tt_device.run = Burst(device.tt_device).run
        return device

    wh_device.make_device = making


def _end_with_host() -> None:
    """End this server soon after the program that started it: a killed program says no goodbye."""
    host = os.getppid()

    def watch() -> None:
        while os.getppid() == host:
            time.sleep(2.0)
        os._exit(0)

    threading.Thread(target=watch, daemon=True, name="host watch").start()


def _collect_seldom() -> None:
    """Look for garbage in circles a hundredth as often, and never among what exists from the start: a chip's parts
    point to each other and live as long as it does, and looking through them took a fifteenth of all time."""
    gc.freeze()
    gc.set_threshold(100_000, 10, 100)


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the program's, which needs this chip to its end
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # of all processes of a mesh only the one that hosts it reports
    address, listener = os.environ.get("NNG_SOCKET_ADDR", ""), None
    if os.environ.get(MESH_VARIABLE) and "--list-patches" not in arguments:
        _end_with_host()
        listener = rendezvous.listen(rendezvous.program_id())
        if listener is None:  # another process hosts the chips
            rendezvous.hand_over(rendezvous.program_id(), address)
            return 0
    return _simulate(arguments, address, listener)


def _simulate(arguments: list[str], address: str, listener: socket.socket | None) -> int:
    # Imported here: a process that only hands over its address starts in a tenth of the time.
    from loguru import logger

    from runtime_patches.simulated_n150.simulator.patch import PatchRefused, apply_all
    from runtime_patches.simulated_n150.simulator.registry import all_patches, behaviour_patches, speed_patches

    diagnosis = Diagnosis.from_environment()
    try:
        with diagnosis.catch():
            apply_all(all_patches())
    except PatchRefused as refusal:
        logger.error("{}", refusal)
        return 3
    if "--list-patches" in arguments:
        for title, patches in (("change results", behaviour_patches()), ("change speed alone", speed_patches())):
            print(title, *(f"  {patch.name}: {patch.rule} ({patch.source})" for patch in patches), sep="\n")
        return 0
    _collect_seldom()
    from framework.device.deadlock import DeadlockDetector

    diagnosis.listen_to_deadlock_watch(DeadlockDetector)
    diagnosis.report_on_signal()
    if listener is not None:
        from runtime_patches.simulated_n150.simulator.host.server import serve as serve_mesh

        with diagnosis.catch():
            return serve_mesh(address, listener, diagnosis)
    from framework.sim.wormhole import __main__ as server

    server.print = lambda *_, **__: None  # that it started, with what and when it ended
    _end_with_host()
    _watch_device(diagnosis)
    with diagnosis.catch():
        return server.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
