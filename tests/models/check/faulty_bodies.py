# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of stages with faults, called by name in the children that the runner starts."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch

from models.llama31_8b.check.bodies.host import driver_checks
from models.llama31_8b.check.context import Context
from models.llama31_8b.check.expectations import Expectations, pack, versions
from models.llama31_8b.check.findings import Check, CouldNotRun

RECORDED = torch.linspace(-1, 1, 64)


def passes(context: Context) -> list[Check]:
    return [Check("sum", 4, 4, True)]


def wrong_value(context: Context) -> list[Check]:
    """One element of an output is off by the last bit."""
    context.expectations = Expectations(versions(), {"op": pack(RECORDED)})
    values = RECORDED.clone()
    values[7] = torch.nextafter(values[7], torch.tensor(2.0))
    return [context.check_output("op", values, exact=True)]


def other_version(context: Context) -> list[Check]:
    context.expectations = Expectations({"ttnn": "0.0.1"}, {"op": pack(RECORDED)})
    return [context.check_output("op", RECORDED, exact=True)]


def gives(context: Context) -> list[Check]:
    return [context.check_output("op", RECORDED, exact=True)]


def hangs(context: Context) -> list[Check]:
    """Leave a grandchild too, as a runtime leaves a simulator."""
    if os.fork() == 0:
        time.sleep(1000)
    time.sleep(1000)
    return []


def dies(context: Context) -> list[Check]:
    print("the last words of a runtime", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    return []


def raises(context: Context) -> list[Check]:
    raise RuntimeError("Failed to allocate hugepage on /home/someone/x\nbacktrace:\n 0x1234")


def lacks(context: Context) -> list[Check]:
    raise CouldNotRun("no compiler")


def without_driver(context: Context) -> list[Check]:
    """A host whose driver is not loaded, and so has none of its files."""
    missing = Path("/sys/module/tenstorrent_not_loaded")
    return driver_checks(missing / "version", missing / "hugepages", missing / "iommu")


def wrong_ones(context: Context) -> list[Check]:
    """An addition that gives one wrong value, on the device."""
    import ttnn

    from models.llama31_8b.check.bodies import device

    add = ttnn.add
    ttnn.add = lambda a, b: add(a, add(b, b))
    return device.stock_op(context)


def cut_link(context: Context) -> list[Check]:
    """The exchange of `links.exchange` with the cable unplugged before it."""
    from models.llama31_8b.check.bodies import links
    from runtime_patches.simulated_n150.links import Links

    Links(os.getpid()).cut()
    return links.exchange(context)
