# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Record what the simulator knows when a program fails or hangs on it.

The file named by SIMULATED_N150_DIAGNOSIS holds, newest last: the reports of the deadlock watch, an uncaught exception
of the simulator with its traceback, and for each core where it stood. The test fixture prints it. SIGUSR1 asks for a
report while the program runs, or hangs: kernels that poll for ever are no deadlock to the watch.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

VARIABLE = "SIMULATED_N150_DIAGNOSIS"
_KEEP = 20_000

# As the report names a core -> as the tile's attribute does.
_CORES = (
    ("BRISC", "brisc"),
    ("NCRISC", "ncrisc"),
    ("TRISC0", "trisc0"),
    ("TRISC1", "trisc1"),
    ("TRISC2", "trisc2"),
    ("ERISC", "erisc"),
)


class Diagnosis:
    """Collect reports and write them to the file; without a file every call does nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._reports: list[str] = []
        self._devices: dict[int | None, object] = {}
        self.links: Callable[[], list[str]] = list  # lines about the links of a mesh
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    @classmethod
    def from_environment(cls) -> Diagnosis:
        path = os.environ.get(VARIABLE)
        return cls(Path(path) if path else None)

    def watch(self, device, chip: int | None = None) -> None:
        """Remember a simulated device, whose cores are listed with each report; chip: its number in a mesh."""
        self._devices[chip] = device

    def report(self, title: str, text: str) -> None:
        """Append a report and rewrite the file, keeping the newest 20 000 characters."""
        if self.path is None:
            return
        self._reports.append(f"== {title}\n{text.rstrip()}\n{self.cores()}")
        while len(self._reports) > 1 and sum(map(len, self._reports)) > _KEEP:
            del self._reports[0]
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text("\n".join(self._reports)[-_KEEP:])
        os.replace(temporary, self.path)

    def report_on_signal(self) -> None:
        """At SIGUSR1 append a report of all cores and links, and print it."""

        def asked(*_):
            links = "\n".join(self.links())
            self.report("asked for", links)
            print(f"[server] asked for a report\n{links}\n{self.cores()}", file=sys.stderr, flush=True)

        signal.signal(signal.SIGUSR1, asked)

    def cores(self) -> str:
        """Return one line for each core out of reset: chip in a mesh, tile, core, program counter, parked or not."""
        return "\n".join(f"  {line}" for _, line in self._standing())

    def _standing(self) -> Iterator[tuple[object, str]]:
        for chip, device in self._devices.items():
            where = "" if chip is None else f"chip {chip} "
            for tile in (*getattr(device, "tensix_tiles", ()), *getattr(device, "eth_tiles", ())):
                coordinate = tile.get_coord_pair()
                for label, attribute in _CORES:
                    core = getattr(tile, attribute, None)
                    if core is None or not core.soft_active:
                        continue
                    counter = core.pc_register.read_uint()
                    parked = ", parked in a poll loop" if core.spin_parked else ""
                    yield core, f"{where}tile {coordinate} {label} pc {counter:#x}{parked}"

    @contextlib.contextmanager
    def catch(self) -> Iterator[None]:
        """Record an exception that escapes the block, and let it pass."""
        try:
            yield
        except Exception as error:
            where = self.core_at(error)
            title = f"{type(error).__name__} in the simulator" + (f", {where}" if where else "")
            self.report(title, traceback.format_exc())
            print(f"[server] {title}: {error}", file=sys.stderr, flush=True)
            raise

    def core_at(self, error: BaseException) -> str:
        """Return the core that was executing when `error` was raised: chip in a mesh, tile, core, program counter; or
        ""."""
        running = None
        for frame, _ in traceback.walk_tb(error.__traceback__):
            candidate = frame.f_locals.get("self")
            if hasattr(candidate, "pc_register"):
                running = candidate
        return next((line for core, line in self._standing() if core is running), "")

    def listen_to_deadlock_watch(self, detector_class) -> None:
        """Record what the deadlock watch prints, besides printing it."""
        for name in ("_report", "_report_unit_stall", "_report_unit_wedged"):
            original = getattr(detector_class, name)

            def recording(detector, *arguments, _original=original, **named):
                printed = io.StringIO()
                try:
                    with contextlib.redirect_stderr(printed):
                        return _original(detector, *arguments, **named)
                finally:
                    if text := printed.getvalue():
                        sys.stderr.write(text)
                        self.report("deadlock watch", text)

            setattr(detector_class, name, recording)
