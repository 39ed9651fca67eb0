# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What command lines of the project share: errors of one line, and readers that leave early."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Errors are one line without the usage text; exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def reader_left() -> int:
    """Exit code 0 after a BrokenPipeError: who reads standard output has enough of it (`| head`). Python must not
    flush into the closed pipe when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
