# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Machines with and without boards, for tests of the demo."""

import importlib.metadata
from pathlib import Path

from models.llama31_8b.demo import cli


class Boards:
    """The folders /dev/tenstorrent and sysfs of a machine."""

    def __init__(self, folder: Path) -> None:
        self.devices, self.sysfs = folder / "dev", folder / "sys"
        self.devices.mkdir()

    def set(self, number: int, kind: str) -> None:
        """Add a board of this type, by the driver's name."""
        (self.devices / str(number)).touch()
        own = self.sysfs / f"tenstorrent!{number}"
        own.mkdir(parents=True, exist_ok=True)
        (own / "tt_card_type").write_text(f"{kind}\n")


def set_ttnn_version(monkeypatch, value: str) -> None:
    """Set the version of ttnn, whether it is installed or not."""
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: value if name == "ttnn" else version(name))


def refused(capsys, *arguments, prompt: str | None = "hello") -> str:
    """Run the demo, which must end with 2; return its one line of error."""
    assert cli.main([*(["--prompt", prompt] if prompt else []), *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    return err.splitlines()[-1]
