# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Write a run as report.json for programs and report.md to paste into an issue; nothing is uploaded.

Both are meant to be published: paths keep their last part; names of host and user, home folders, addresses and serial
numbers become placeholders.
"""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import json
import os
import platform
import re
import secrets
import socket
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from runtime_patches.board.command_line import version

from .findings import PASS, Finding, exit_code

SCHEMA = 2
LINE = 300  # characters of what a stage of report.md measured, or why it did not pass
ROOT = Path(__file__).resolve().parents[3]

_PART = r"[^\s/:;,'\"()<>|\[\]{}]+"
# Blanks may be within a folder's name; a path in quotes may end with a name that holds some.
_PATH = re.compile(rf"(?<![\w./:>-])(?:~|\.{{1,2}})?/(?:{_PART}(?: {_PART}){{0,2}}/)*(?:{_PART})?")
_QUOTED = re.compile(r"(['\"])((?:~|\.{1,2})?/[^'\"\n]*)\1")
# Of a network: `ipaddress` or _MAC decides.
_ADDRESS = re.compile(r"(?:(?<![\w:.])|(?<=\w:)(?!:))[0-9a-fA-F:.]{3,}(?!\w)")
_MAC = re.compile(r"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
# A board's serial number is 16 hexadecimal digits, with or without 0x; other identifiers are longer.
_SERIAL = re.compile(r"(?<![0-9a-zA-Z])(?:0x)?[0-9a-fA-F]{12,}(?![0-9a-zA-Z])")
# These are not paths of a person: they tell a maintainer which file is meant.
_PUBLIC = ("/dev/", "/sys/", "/proc/")
MIN_NAME = 2  # shorter names would take letters out of words


def make(findings: Sequence[Finding], kind: str, level: str, description: str) -> dict[str, Any]:
    """Return a report, redacted: JSON values only."""
    said = {
        "schema": SCHEMA,
        "run": f"check-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        "device": kind,
        "level": level,
        "description": description,
        "commit": _commit(),
        "versions": {"python": platform.python_version(), "kernel": platform.release()}
        | {name: found for name in ("llama-alspec", "ttnn", "wolfpine") if (found := version(name))},
        "exit_code": exit_code(findings),
        "stages": [asdict(finding) for finding in findings],
    }
    return redact(said, private_names())


def _commit() -> str | None:
    try:
        command = ["git", "rev-parse", "--short=9", "HEAD"]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def private_names() -> list[str]:
    """Return the names of this machine and this user, and the home folder."""
    hosts = {socket.gethostname(), socket.getfqdn()}
    names = hosts | {host.partition(".")[2] for host in hosts} | {str(Path.home()), Path.home().name}
    names |= {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "HOSTNAME")}
    try:
        names.add(getpass.getuser())
    except (OSError, KeyError):
        pass  # a container's user may have no name
    names |= {name.split(".")[0] for name in names if "/" not in name}
    return list(names - {"root", "localhost", "localdomain"})


def redact(value: Any, names: Iterable[str]) -> Any:
    """Return a JSON value whose strings, keys included, are without `names`, absolute paths, addresses and serial
    numbers."""
    names = sorted({name for name in names if len(name) >= MIN_NAME}, key=len, reverse=True)
    if isinstance(value, dict):
        return {redact(key, names): redact(item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item, names) for item in value]
    if not isinstance(value, str):
        return value
    text = _QUOTED.sub(lambda match: match[0].replace(match[2], _shortened(match[2])), value)
    text = _PATH.sub(lambda match: _shortened(match[0]), text)
    for name in names:
        text = re.sub(re.escape(name), "<name>", text, flags=re.IGNORECASE)
    text = _MAIL.sub("<mail>", text)
    return _SERIAL.sub("<number>", _ADDRESS.sub(_without_address, text))


def _without_address(match: re.Match[str]) -> str:
    whole = match[0].rstrip(".")
    for found in (whole, whole.rpartition(":")[0]):  # a colon may follow, or a port
        with contextlib.suppress(ValueError):
            if not _MAC.fullmatch(found):
                ipaddress.ip_address(found)
            return "<address>" + match[0][len(found) :]
    return match[0]


def _shortened(path: str) -> str:
    last = path.rpartition("/")[2]
    if path.startswith((*_PUBLIC, "<path>")) or path == "/":
        return path
    # A folder of two or three parts may be a home.
    return f"<path>/{last}" if last and path.count("/") > (2 if "." in last else 3) else "<path>"


def markdown(report: dict[str, Any]) -> str:
    """Return report.md: a line per stage, then what each that did not pass says."""
    named = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        f"### llama-alspec check: {report['run']}",
        "",
        report["description"] or "(no description was given)",
        "",
        f"{report['device']}, level {report['level']}; commit {report['commit'] or 'unknown'}; {named}",
        "",
        "| stage | status | s | measured |",
        "|---|---|---:|---|",
    ]
    for stage in report["stages"]:
        shown = "; ".join(f"{check['name']}: {check['measured']}" for check in stage["checks"]) or stage["why"]
        cell = _short(shown).replace("|", "/")
        lines.append(f"| {stage['stage']} | {stage['status']} | {stage['seconds']} | {cell} |")
    for stage in report["stages"]:
        if stage["status"] != PASS and stage["advice"]:
            lines += ["", f"**{stage['stage']}**, {stage['status']}: {_short(stage['why'])}"]
            lines += [f"- {text}" for text in stage["advice"]]
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    """Return one line of at most LINE characters: report.json has all."""
    text = " ".join(text.split())
    return text if len(text) <= LINE else f"{text[: LINE - 3]}..."


def write(folder: Path, report: dict[str, Any]) -> None:
    """Write both files, for this user only. Errors: OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in (("report.json", json.dumps(report, indent=1) + "\n"), ("report.md", markdown(report))):
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
