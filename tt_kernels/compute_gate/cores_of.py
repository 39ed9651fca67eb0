# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""On which cores a ttnn op would run, as far as ttnn says so without running it.

An op of generic_op names the cores of its kernels. Any other is called once under a graph capture that dispatches
nothing, which lists the circular buffers of its programs and their cores. Ops whose programs have none are
not seen, nor what moves or frees tensors, which a call without dispatch would do all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from runtime_patches.sgdc import UNGATED_DEFINE
from tt_kernels.common.cores import core_list

Core = tuple[int, int]

_NOT_LOOKED_AT = re.compile(
    r"(to|from)_(torch|device|host|numpy)|as_tensor|(de|re)allocate|^move$|copy_host|copy_device|load|dump"
    r"|synchronize|record"
)
_RANGE = re.compile(r"(\d+)-(\d+) - (\d+)-(\d+)")
_looking = False


def cores_of(name: str, call: Callable[[], Any], args: Sequence[Any]) -> set[Core]:
    """The cores the op of that fully qualified name would use; empty where ttnn does not say. call: calls it."""
    global _looking
    stem = name.rpartition(".")[2]
    if stem == "generic_op":
        return _cores_of_program(args[1]) if len(args) > 1 else set()
    if _looking or _NOT_LOOKED_AT.search(stem):
        return set()
    from ttnn._ttnn import graph

    _looking = True
    graph.begin_graph_capture(graph.RunMode.NO_DISPATCH)
    try:
        call()
    finally:
        nodes = graph.end_graph_capture()
        _looking = False
    ranges = [(node["params"] or {}).get("core_range_set", "") for node in nodes]
    return {core for text in ranges for core in parse_ranges(text)}


def parse_ranges(text: str) -> set[Core]:
    """The cores of a core range set as ttnn prints it: "{[0-0 - 1-0], [3-2 - 3-2]}", x first."""
    found = set()
    for match in _RANGE.finditer(text):
        left, top, right, bottom = map(int, match.groups())
        found |= {(x, y) for x in range(left, right + 1) for y in range(top, bottom + 1)}
    return found


def _cores_of_program(program) -> set[Core]:
    """Those of its kernels that obey the gate."""
    kernels = getattr(program, "kernels", [])  # a program of several chips has none of its own
    gated = [kernel for kernel in kernels if UNGATED_DEFINE not in list(kernel.defines)]
    return {core for kernel in gated for core in core_list(kernel.core_ranges)}
