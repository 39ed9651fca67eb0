# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the project's command lines share: errors of one line, and standard output that is closed, full or unread."""

from __future__ import annotations

import argparse
import codecs
import io
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from .runtime_root import project_cache_dir


class OneLineParser(argparse.ArgumentParser):
    """Errors are one line without the usage text; exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print errors, help and version. Where standard output takes no more, say so and exit with 2; argparse says
        nothing."""

        def printed() -> int:
            print(message, end="")
            return 0

        if file is sys.stderr:
            super()._print_message(message, file)
        elif code := run_command(self.prog, printed):
            self.exit(code)


def version(distribution: str) -> str | None:
    """Return the version of an installed distribution, None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def log_to_stderr() -> None:
    """Show log messages as plain dim lines on standard error."""
    from loguru import logger

    logger.remove()
    if sys.stderr is not None:
        logger.add(sys.stderr, format="<dim>{message}</dim>", level="INFO")


def system_error(error: OSError) -> str:
    """Return what the system refused in one line: the file where one is known, and the variable that moves it."""
    if error.filename is None or error.strerror is None:
        return " ".join(str(error).split())
    path = Path(os.fsdecode(error.filename))
    movable = {"LLAMA_ALSPEC_CACHE": project_cache_dir(), "TMPDIR": Path(tempfile.gettempdir())}
    moved = [f"; {name} names another folder" for name, folder in movable.items() if path.is_relative_to(folder)]
    return f"{path}: {error.strerror}{moved[0] if moved else ''}"


def _drop_output() -> None:
    """Send what standard output still holds nowhere: Python would fail to flush it at its end, with exit code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_command(prog: str, command: Callable[[], int], refusals: tuple[type[Exception], ...] = ()) -> int:
    """Run `command` and return its exit code; 2 and one line for an OSError or one of `refusals`, 130 for Ctrl-C, 0
    where the reader of standard output has enough of it (`| head`).

    A closed standard output is refused before any work: the next file that is opened would take its place.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # it stays open as long as the process
    if sys.stdout is None:
        print(f"{prog}: error: standard output is closed", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # in a terminal without UTF-8 an emoji must not end the run
            stream.reconfigure(errors="replace")
    if isinstance(sys.stdin, io.TextIOWrapper) and codecs.lookup(sys.stdin.encoding).name == "ascii":
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # every text in ASCII is one in UTF-8
    expected: tuple[type[Exception], ...] = (OSError, *refusals)
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _drop_output()
        return 0
    except expected as error:
        told = system_error(error) if isinstance(error, OSError) else " ".join(str(error).split())
        try:
            # Errors of a write name no file: a line end tells whether standard output is what is full.
            nameless = isinstance(error, OSError) and error.errno and not error.filename
            print(end="\n" if nameless else "", flush=True)
        except OSError as unwritten:
            _drop_output()
            told = f"standard output: {unwritten.strerror}"
        print(f"{prog}: error: {told}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        # A second Ctrl-C while Python ends would print a traceback of whatever it interrupts.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("\ninterrupted", file=sys.stderr)
        return 130
