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
    """Let `source`, a path below tt_kernels, be compiled from a copy with `old` replaced by `new`."""
    import ttnn

    original = INCLUDE_PATH / "tt_kernels" / source
    text = original.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{source} has {text.count(old)} times {old!r}")
    descriptor = ttnn.KernelDescriptor
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(original.parent, Path(folder) / "kernels")) / original.name
        copy.write_text(text.replace(old, new), encoding="utf-8")

        def chosen(*, kernel_source: str, **named):
            changed = Path(kernel_source) == original
            return descriptor(kernel_source=str(copy if changed else kernel_source), **named)

        with mock.patch.object(ttnn, "KernelDescriptor", chosen):
            yield


def wrong_norm(context: Context) -> list[Check]:
    """The kernel that sums the squares of the exact result takes its first tile twice."""
    old, new = "copy_tile(config::cb_exact, i, i);", "copy_tile(config::cb_exact, 0, i);"
    with changed_kernel("speculative_flash_decode/kernels/output_compute.cpp", old, new):
        return ops.flash_decode(context)


def endless_gate(context: Context) -> list[Check]:
    """The kernel that writes the gate waits for a value that nobody writes."""
    old, new = "while (*gate != value);", "while (*gate != value + 2);"
    with changed_kernel("compute_gate/kernels/set_gate.cpp", old, new):
        return ops.gate(context)
