# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Modules of the stand-in compiler, which run as a folder of scripts and not as a package."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import runtime_patches

FOLDER = Path(runtime_patches.__file__).parent / "simulated_n150" / "compiler"


def load(name: str) -> ModuleType:
    """The module `name` of the compiler's folder, its siblings found as when the compiler runs."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
