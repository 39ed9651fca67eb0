# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Entries of the user's cache that are made once: a folder appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from safetensors import SafetensorError

from ..config import ModelLoadError


def make_cache_folder(folder: Path) -> None:
    """Make a folder of the cache. Raises ModelLoadError with the remedy when it cannot be made or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = None if os.access(folder, os.W_OK) else "it cannot be written"
    except OSError as error:
        why = error.strerror
    if why:
        raise unwritable(folder, why)


def unwritable(folder: Path, why: str | None) -> ModelLoadError:
    """Return the error of a cache folder that takes no more, with the remedy."""
    return ModelLoadError(f"the cache {folder}: {why}; LLAMA_ALSPEC_CACHE names another place")


def made_once(entry: Path, make: Callable[[Path], object]) -> Path:
    """Return the folder `entry`, made if need be: `make` fills an empty folder beside it, which is then renamed.

    A second process that wants an entry of the same kind, in the folder above, waits for the first. Raises
    ModelLoadError for a cache that cannot be written, and what `make` raises; then nothing is left.
    """
    if entry.is_dir():
        return entry
    make_cache_folder(entry.parent)
    with FileLock(entry.parent / ".lock"):
        if entry.is_dir():
            return entry
        partial = entry.with_name(entry.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            make(partial)
            partial.rename(entry)
        except SafetensorError as error:
            raise unwritable(entry.parent, str(error)) from error
        except OSError as error:
            if error.filename is None or Path(error.filename).is_relative_to(entry.parent):  # not a file that is read
                raise unwritable(entry.parent, error.strerror or str(error)) from error
            raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return entry
