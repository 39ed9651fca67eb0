# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Write a run as report.json for programs and report.md to paste into an issue; nothing is uploaded."""

from __future__ import annotations

import json
import platform
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .expectations import Expectations, versions
from .findings import PASS, Finding, exit_code
from .redact import redact_all

SCHEMA = 1
MAX_CHARACTERS = 6000  # of report.md: what a prefilled issue takes
ROOT = Path(__file__).resolve().parents[3]


def new_run_id() -> str:
    """Return a name that ties report.md to report.json."""
    return f"check-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def make(findings: Sequence[Finding], kind: str, level: str, description: str, run_id: str) -> dict[str, Any]:
    """Return a report, redacted: JSON values only."""
    said = {
        "schema": SCHEMA,
        "run": run_id,
        "device": kind,
        "level": level,
        "description": description,
        "commit": _commit(),
        "versions": {"python": platform.python_version(), "kernel": platform.release(), **versions()},
        "recorded_with": getattr(Expectations.read(), "versions", {}),
        "exit_code": exit_code(findings),
        "stages": [asdict(finding) for finding in findings],
    }
    return redact_all(said)


def _commit() -> str | None:
    try:
        command = ["git", "rev-parse", "--short=9", "HEAD"]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def markdown(report: dict[str, Any]) -> str:
    """Return report.md: a line per stage, then what each that did not pass says; at most MAX_CHARACTERS. The more there
    is to say, the shorter each is, so that no stage is missing."""
    texts = (_markdown(report, width) for width in (160, 80, 40, 20))
    text = next((text for text in texts if len(text) <= MAX_CHARACTERS), _markdown(report, 20))
    cut = "\n(cut; report.json has all)\n"
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - len(cut)] + cut


def _markdown(report: dict[str, Any], width: int) -> str:
    """Return the text with at most `width` characters of what each stage measured, and twice as many of why it did not
    pass and of each advice."""
    named = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        f"### llama-alspec check: {report['run']}",
        "",
        report["description"][:500] or "(no description was given)",
        "",
        f"{report['device']}, level {report['level']}; commit {report['commit'] or 'unknown'}; {named}",
        "",
        "| stage | status | s | measured |",
        "|---|---|---:|---|",
    ]
    for stage in report["stages"]:
        shown = "; ".join(f"{check['name']}: {check['measured']}" for check in stage["checks"]) or stage["why"]
        lines.append(f"| {stage['stage']} | {stage['status']} | {stage['seconds']} | {_cell(shown, width)} |")
    for stage in report["stages"]:
        if stage["status"] != PASS and stage["advice"]:
            lines += ["", f"**{stage['stage']}**, {stage['status']}: {_short(stage['why'], 2 * width)}"]
            lines += [f"- {_short(text, 2 * width)}" for text in stage["advice"]]
    return "\n".join(lines) + "\n"


def _cell(text: str, width: int) -> str:
    return _short(text, width).replace("|", "/")


def _short(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 3]}..."


def write(folder: Path, report: dict[str, Any]) -> None:
    """Write both files, for this user only. Errors: OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in (("report.json", json.dumps(report, indent=1) + "\n"), ("report.md", markdown(report))):
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
