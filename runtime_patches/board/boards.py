# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Find the boards that the driver shows this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

BOARDS = Path("/dev/tenstorrent")
# Numbers of boards, separated by commas; the runtime opens no other.
VISIBLE = "TT_VISIBLE_DEVICES"


def visible_boards(folder: Path | None = None, environment: Mapping[str, str] | None = None) -> list[int]:
    """Return the numbers of the driver's nodes in `folder` (default: BOARDS), only those that $TT_VISIBLE_DEVICES names
    where it is set. An N150 is one node."""
    folder = BOARDS if folder is None else folder
    environment = os.environ if environment is None else environment
    chosen = {part.strip() for part in environment.get(VISIBLE, "").split(",") if part.strip()}
    numbers = sorted(int(node.name) for node in folder.glob("[0-9]*") if node.name.isdecimal())
    if chosen and all(part.isdecimal() for part in chosen):
        numbers = [number for number in numbers if str(number) in chosen]
    return numbers
