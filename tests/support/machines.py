# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Machines with and without boards, for tests of the demo."""

import importlib.metadata
import json
from pathlib import Path

from models.llama31_8b.demo import cli


class Boards:
    """The folders /dev/tenstorrent and sysfs of a machine, as tt-kmd lays them out."""

    def __init__(self, folder: Path) -> None:
        self.devices, self.sysfs, self.pci = folder / "dev", folder / "sys", folder / "pci"
        (self.devices / "by-id").mkdir(parents=True)

    def set(self, number: int, kind: str | None, pci_device: str | None = None) -> None:
        """Add a board, or change its type. Its type is the driver's name; None is one that sysfs does not tell."""
        (self.devices / str(number)).touch()
        pci, own = self.pci / f"0000:0{number}:00.0", self.sysfs / f"tenstorrent!{number}"
        if not own.is_dir():
            pci.mkdir(parents=True)
            own.mkdir(parents=True)
            (own / "device").symlink_to(pci)
        if pci_device is not None:
            (pci / "device").write_text(f"{pci_device}\n")
        if kind is not None:
            (own / "tt_card_type").write_text(f"{kind}\n")


def set_ttnn_version(monkeypatch, value: str) -> None:
    """Set the version of ttnn, whether it is installed or not."""
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: value if name == "ttnn" else version(name))


def refused(capsys, *arguments, prompt: str | None = "hello") -> str:
    """Run the demo, which must end with 2, one line of error and no output; return the line."""
    try:
        code = cli.main([*(["--prompt", prompt] if prompt else []), *arguments])
    except SystemExit as stop:
        code = stop.code
    shown = capsys.readouterr()
    lines = [line for line in shown.err.splitlines() if "error:" in line]
    assert code == 2 and not shown.out and len(lines) == 1, shown
    assert shown.err.endswith(lines[0] + "\n") and lines[0].startswith("llama-alspec: error: ")
    return lines[0].removeprefix("llama-alspec: error: ")


def run_json(capsys, model: str, *arguments: str) -> dict:
    """Run the demo, which must print one line; return the object in it."""
    assert cli.main(["--model", model, "--json", *arguments]) == 0
    out = capsys.readouterr().out
    assert out.endswith("}\n") and out.count("\n") == 1
    return json.loads(out)
