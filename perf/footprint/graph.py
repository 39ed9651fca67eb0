# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a captured graph of ttnn tells of memory, and the records of it; needs no ttnn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MODEL = "llama-3.1-8b"
USERS, CAPACITY, CHUNK = 32, 1024, 512
Node = dict[str, Any]
# What programs take in L1 by node of a captured graph: the mark of those that are in a tensor's memory.
_PROGRAM_BUFFERS = {
    "circular_buffer_allocate": "globally_allocated",
    "dataflow_buffer_allocate": "borrows_memory",
    "scratchpad_allocate": None,
}


@dataclass(frozen=True)
class StepMemory:
    """What one step takes while it runs, beyond what the model holds, in bytes.

    Attributes:
        largest_program: buffers and scratchpads of a core in the program with the most; largest_op: its operation.
        l1_tensors: tensors of a core at once; l1_peak: these and programs together.
        dram_peak: tensors of a DRAM bank at once.
    """

    largest_program: int
    largest_op: str
    l1_tensors: int
    l1_peak: int
    dram_peak: int


@dataclass(frozen=True)
class MeshMemory:
    """One chip of a mesh with the whole model, in bytes.

    Attributes:
        dram_held: weights, tables and cache of a DRAM bank; dram_size: of a bank.
        l1_held: constants in the L1 of a core; l1_size: what a core has for tensors and circular buffers.
        decode, prefill: what these steps take.
        programs: made for both steps.
        logits: shapes of both.
    """

    dram_held: int
    dram_size: int
    dram_banks: int
    l1_held: int
    l1_size: int
    decode: StepMemory
    prefill: StepMemory
    programs: int
    logits: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def l1_peak(self) -> int:
        return self.l1_held + max(self.decode.l1_peak, self.prefill.l1_peak)

    @property
    def dram_peak(self) -> int:
        return self.dram_held + max(self.decode.dram_peak, self.prefill.dram_peak)


def peak_per_bank(graph: Iterable[Node], kind: str) -> int:
    """Return the most bytes of a bank that buffers of that kind ("DRAM", "L1") took at once."""
    most = now = 0
    for node in graph:
        if node["node_type"] in ("buffer_allocate", "buffer_deallocate") and node["params"]["type"] == kind:
            size = int(node["params"]["max_size_per_bank"])
            now += size if node["node_type"] == "buffer_allocate" else -size
            most = max(most, now)
    return most


def largest_program(graph: Iterable[Node]) -> tuple[int, str]:
    """Return the bytes of the program with the most buffers of its own, and its operation, such as
    MatmulDeviceOperation; (0, "") when there is none. Buffers of different cores are added up, so no core has more."""
    open_calls: list[str] = []
    size, most = 0, (0, "")
    for node in graph:
        kind, params = node["node_type"], node["params"]
        if kind == "function_start":
            open_calls.append(params["name"])
        elif kind == "function_end":
            open_calls.pop()
        elif kind == "circular_buffer_deallocate_all":  # stands before the buffers of each program
            size = 0
        elif kind in _PROGRAM_BUFFERS and not int(params.get(_PROGRAM_BUFFERS[kind] or "", 0)):
            size += int(params["size"])
            most = max(most, (size, next((name for name in reversed(open_calls) if "::" not in name), "")))
    return most
