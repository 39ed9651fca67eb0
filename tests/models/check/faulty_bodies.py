# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of stages with faults, called by name in the children that the runner starts: each reads only what it needs,
since torch takes seconds to import."""

import os
import signal
import time
from pathlib import Path
from unittest import mock

from models.llama31_8b.check.findings import Check, Context, CouldNotRun


def passes(context: Context) -> list[Check]:
    return [Check("sum", 4, 4, True)]


def wrong_value(context: Context) -> list[Check]:
    return [Check("sum", 4, 4, True), Check("product", 5, 4, False)]


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
    from models.llama31_8b.check import on_chips

    missing = Path("/sys/module/tenstorrent_not_loaded")
    return on_chips.driver_checks(missing / "version", missing / "hugepages", missing / "iommu")


# On the device.


def tiny_layer(context: Context) -> list[Check]:
    """A layer of the tiny model, which takes a third of the stage's time on simulated chips."""
    from models.llama31_8b.check import with_model

    with mock.patch.object(with_model, "BANKED", with_model.TINY.with_layers(1)):
        return with_model.interleaved(context)


def wrong_ones(context: Context) -> list[Check]:
    """An addition that gives one wrong value."""
    import ttnn

    from models.llama31_8b.check import on_chips

    add = ttnn.add
    ttnn.add = lambda a, b: add(a, add(b, b))
    return on_chips.stock_op(context)


def cut_link(context: Context) -> list[Check]:
    """The exchange with the cable unplugged before it."""
    from models.llama31_8b.check import on_chips
    from runtime_patches.simulated_n150.links import Links

    Links(os.getpid()).cut()
    return on_chips.exchange(context)


def wrong_sum(context: Context) -> list[Check]:
    """The sum counts one part of it twice."""
    import ttnn

    from models.llama31_8b.check import on_chips

    summed = ttnn.reduce_scatter
    with mock.patch.object(ttnn, "reduce_scatter", lambda x, **named: summed(ttnn.add(x, x), **named)):
        return on_chips.collectives(context)


def every_guess_accepted(context: Context) -> list[Check]:
    """The chips verify with a threshold that no guess misses."""
    from models.llama31_8b.check import with_model
    from models.llama31_8b.tt import settings

    make = settings.AttentionSettings
    with mock.patch.object(settings, "AttentionSettings", lambda policy, chunk, threshold: make(policy, chunk, 1e6)):
        return with_model.speculating_pair(context)


def nothing_moved(context: Context) -> list[Check]:
    """Accepted keys and values stay where the tree's nodes were."""
    from models.llama31_8b.check import with_model
    from models.llama31_8b.tt.kv_cache import KVCache

    with mock.patch.object(KVCache, "commit", lambda *given, **named: None):
        return with_model.token_trees(context)
