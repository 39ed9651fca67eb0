# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Define what a patch of the simulator is, and how a list of them is applied.

A patch replaces parts of the installed simulator in the memory of the running server; no installed file is written.
Each names the code it replaces and the SHA-256 of that code's source. When the installed code is not the code the patch
was written for, nothing is replaced and the server does not start.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

SIMULATOR_PACKAGE = "wolfpine"
SIMULATOR_VERSION = "2.2"


class PatchRefused(RuntimeError):
    """The installed simulator is not the one the patches were written for."""


@dataclass(frozen=True)
class Patch:
    """One patch.

    name: short, shown in the server's log.
    rule: one sentence. In `behaviour`: the rule of the hardware that the simulator breaks. In `speed`: what is computed
        less often; results and cycles stay those of the installed code.
    source: the public document that states the rule; in `speed`, what the results are equal to.
    targets: dotted path of each class, function or module that is replaced -> the first 16 hex digits of the
        SHA-256 of its source text.
    apply: performs the replacement; called once, before the simulated device is built.
    """

    name: str
    rule: str
    source: str
    targets: Mapping[str, str]
    apply: Callable[[], None]


def resolve(path: str):
    """Return the object a dotted path names: a module, or a class or function (also of a class) inside one."""
    parts = path.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for name in parts[split:]:
            found = inspect.getattr_static(found, name)
        return found
    raise PatchRefused(f"nothing is named {path!r} in the installed simulator")


def fingerprint(path: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of the source text of what `path` names."""
    target = resolve(path)
    if isinstance(target, (classmethod, staticmethod)):
        target = target.__func__
    return hashlib.sha256(inspect.getsource(target).encode()).hexdigest()[:16]


def check(patches: Iterable[Patch]) -> None:
    """Raise PatchRefused, naming every difference, unless each patch's targets are exactly as it expects."""
    try:
        version = importlib.metadata.version(SIMULATOR_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise PatchRefused(
            f"{SIMULATOR_PACKAGE} is not installed; pip install {SIMULATOR_PACKAGE}=={SIMULATOR_VERSION}"
        ) from error
    if version != SIMULATOR_VERSION:
        raise PatchRefused(
            f"the patches are for {SIMULATOR_PACKAGE} {SIMULATOR_VERSION}, but {version} is installed; "
            f"pip install {SIMULATOR_PACKAGE}=={SIMULATOR_VERSION}"
        )
    differences = []
    for patch in patches:
        for path, expected in patch.targets.items():
            try:
                found = fingerprint(path)
            except (AttributeError, OSError, PatchRefused) as error:
                differences.append(f"{patch.name}: {path} cannot be read ({error})")
                continue
            if found != expected:
                differences.append(f"{patch.name}: {path} has source {found}, expected {expected}")
    if differences:
        raise PatchRefused("the installed simulator differs from the one patched:\n  " + "\n  ".join(differences))


def apply_all(patches: Iterable[Patch]) -> list[str]:
    """Check all patches first, then apply them in order; return their names."""
    patches = list(patches)
    check(patches)
    for patch in patches:
        patch.apply()
    return [patch.name for patch in patches]
