# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the project's command lines share: errors of one line, and standard output that is closed, full or unread."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any, NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Errors are one line without the usage text; exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")

    def print_help(self, file: Any = None) -> None:
        """Print the help. Where it cannot be written, say so and exit with 2; argparse exits with 0."""
        out = sys.stdout if file is None else file
        if out is None:
            self.error(CLOSED)
        try:
            out.write(self.format_help())
            out.flush()
        except BrokenPipeError:
            self.exit(reader_left())
        except OSError as error:
            drop_output()
            self.error(f"cannot write the help: {error.strerror}")


CLOSED = "standard output is closed"


def version() -> str:
    """Return the installed version of this project, "unknown" where it runs uninstalled."""
    try:
        return metadata.version("llama-alspec")
    except metadata.PackageNotFoundError:
        return "unknown"


def log_to_stderr() -> None:
    """Show log messages as plain dim lines on standard error."""
    from loguru import logger

    logger.remove()
    if sys.stderr is not None:
        logger.add(sys.stderr, format="<dim>{message}</dim>", level="INFO")


def drop_output() -> None:
    """Send what standard output still holds nowhere: Python would fail to flush it at its end, with exit code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reader_left() -> int:
    """Return exit code 0 after a BrokenPipeError: the reader of standard output has enough of it (`| head`)."""
    drop_output()
    return 0


def run_command(prog: str, command: Callable[[], int], refusals: tuple[type[Exception], ...] = ()) -> int:
    """Run `command` and return its exit code; 2 and one line for an OSError or one of `refusals`, 130 for Ctrl-C.

    A closed standard output is refused before any work: the next file that is opened would take its place.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # it stays open as long as the process
    if sys.stdout is None:
        print(f"{prog}: error: {CLOSED}", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # in a terminal without UTF-8 an emoji must not end the run
            stream.reconfigure(errors="replace")
    expected: tuple[type[Exception], ...] = (OSError, *refusals)
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return reader_left()
    except expected as error:  # of the system: a model's files, a full disk
        try:
            sys.stdout.flush()
        except OSError:
            drop_output()
        print(f"{prog}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        # A second Ctrl-C while Python ends would print a traceback of whatever it interrupts.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("\ninterrupted", file=sys.stderr)
        return 130
