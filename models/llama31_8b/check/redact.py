# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Take names of people, machines and boards out of a report, which is meant to be published.

Paths keep their last part; host and user names, home folders, addresses and serial numbers become placeholders.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PATH = re.compile(r"(?<![\w./:-])(?:~|\.{1,2})?/(?:[^\s/:;,'\"()<>|\[\]{}]+/)*([^\s/:;,'\"()<>|\[\]{}]*)")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
# A board's serial number is 16 hexadecimal digits, with or without 0x; other identifiers are longer.
_SERIAL = re.compile(r"(?<![0-9a-zA-Z])(?:0x)?[0-9a-fA-F]{12,}(?![0-9a-zA-Z])")
# Without a slash before or after, these are not paths of a person: they tell a maintainer which file is meant.
_PUBLIC = ("/dev/", "/sys/", "/proc/")
MIN_NAME = 2  # shorter names would take letters out of words


def private_names() -> list[str]:
    """Return the names of this machine and this user, and the home folder, longest first."""
    names = {socket.gethostname(), socket.getfqdn(), os.environ.get("USER", ""), os.environ.get("LOGNAME", "")}
    names |= {os.environ.get("SUDO_USER", ""), os.environ.get("HOSTNAME", ""), str(Path.home())}
    try:
        names.add(getpass.getuser())
    except (OSError, KeyError):
        pass  # a container's user may have no name
    names |= {name.split(".")[0] for name in names if "/" not in name}
    return usable(names - {"root", "localhost"})


def usable(names: Iterable[str]) -> list[str]:
    """Return the names that can be taken out, longest first."""
    return sorted({name for name in names if len(name) >= MIN_NAME}, key=len, reverse=True)


def redact(text: str, names: Iterable[str] | None = None) -> str:
    """Return `text` without `names` (default: `private_names`), absolute paths, addresses and serial numbers."""
    text = _PATH.sub(_shortened, text)
    for name in usable(private_names() if names is None else names):
        text = re.sub(re.escape(name), "<name>", text, flags=re.IGNORECASE)
    text = _MAIL.sub("<mail>", text)
    return _SERIAL.sub("<number>", _ADDRESS.sub("<address>", text))


def _shortened(match: re.Match[str]) -> str:
    whole = match[0]
    if whole.startswith(_PUBLIC) or whole == "/":
        return whole
    return f"<path>/{match[1]}" if match[1] and whole.count("/") > 2 else "<path>"


def redact_all(value: Any, names: Iterable[str] | None = None) -> Any:
    """Return a JSON value whose strings, keys included, are redacted."""
    names = private_names() if names is None else list(names)
    if isinstance(value, str):
        return redact(value, names)
    if isinstance(value, dict):
        return {redact(key, names): redact_all(item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(item, names) for item in value]
    return value
