# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stages whose kernels are compiled from changed sources, called by name in the children that the runner starts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from models.llama31_8b.check.bodies import ops
from models.llama31_8b.check.context import Context
from models.llama31_8b.check.findings import Check
from tt_kernels.common.kernel import INCLUDE_PATH


@contextmanager
def changed_kernel(source: str, old: str, new: str) -> Iterator[None]:
    """Let `source`, a kernel's file or a header below tt_kernels, be compiled from a copy with `old` replaced by
    `new`."""
    import ttnn

    descriptor = ttnn.KernelDescriptor
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tt_kernels"
        shutil.copytree(INCLUDE_PATH / "tt_kernels", copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        changed = copy / source
        text = changed.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{source} has {text.count(old)} times {old!r}")
        changed.write_text(text.replace(old, new), encoding="utf-8")

        def chosen(*, kernel_source: str, **named):
            place = Path(kernel_source)
            if place.is_relative_to(INCLUDE_PATH / "tt_kernels"):
                place = Path(folder) / place.relative_to(INCLUDE_PATH)
                named["compiler_include_paths"] = [folder]
            return descriptor(kernel_source=str(place), **named)

        with mock.patch.object(ttnn, "KernelDescriptor", chosen):
            yield


def wrong_norm(context: Context) -> list[Check]:
    """The kernel that sums the squares of the exact result takes its first tile twice."""
    old, new = "copy_tile(exact, i, i);", "copy_tile(exact, 0, i);"
    with changed_kernel("common/kernels/guess_distance.hpp", old, new):
        return ops.flash_decode(context)


def endless_gate(context: Context) -> list[Check]:
    """The kernel that writes the gate waits for a value that nobody writes."""
    old, new = "while (*gate != value);", "while (*gate != value + 2);"
    with changed_kernel("compute_gate/kernels/set_gate.cpp", old, new):
        return ops.gate(context)
