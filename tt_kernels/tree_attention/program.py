# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ttnn program of the op: its kernels, what each is given by name, and its circular buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tt_kernels.common import merge_tree
from tt_kernels.common.circular_buffers import circular_buffer
from tt_kernels.common.cores import core_set
from tt_kernels.common.kernel import Core, Values, float_bits, kernel_descriptor
from tt_kernels.common.page_table import paging_values
from tt_kernels.tree_attention.checks import Problem
from tt_kernels.tree_attention.work_split import INDICES, WORKER, WorkSplit, times_tiles

KERNELS = Path(__file__).parent / "kernels"
SEMAPHORES = {"sem_arrived": 0, "sem_credit": 1}


@dataclass(frozen=True)
class Tensors:
    """The device tensors of a call."""

    q: Any
    k: Any
    v: Any
    prefix: Any
    intervals: Any
    output: Any
    pages: Any = None

    def all(self) -> list[Any]:
        """List them as ttnn.generic_op takes them: inputs, then the output."""
        pages = [] if self.pages is None else [self.pages]
        return [self.q, self.k, self.v, self.prefix, self.intervals, *pages, self.output]


def shapes(problem: Problem, split: WorkSplit) -> dict[str, int]:
    """Return the common runtime arguments of every kernel: what changes without another binary (kernels/config.hpp)."""
    return {
        "users": problem.users,
        "kv_heads": problem.kv_heads,
        "group_heads": problem.group_heads,
        "nodes": problem.nodes,
        "cache_tiles": problem.max_tokens // 32,
        "query_tiles": split.query_tiles,
        "passes": split.passes,
        "workers": split.workers_per_group,
        "key_tiles": split.key_tiles,
        "tree_tiles": times_tiles(problem, split.key_tiles),
    } | paging_values(problem.paging)[1]


def build_program(
    problem: Problem,
    tensors: Tensors,
    split: WorkSplit,
    scale: float,
    math_fidelity: str,
    noc_core: Callable[[Core], tuple[int, int]],
):
    """Return the ttnn.ProgramDescriptor of a call. noc_core: Core -> (x, y) on the NoC."""
    import ttnn

    constants = {"head_tiles": problem.head_tiles} | paging_values(problem.paging)[0] | INDICES | SEMAPHORES
    pages = tensors.prefix if tensors.pages is None else tensors.pages
    common = shapes(problem, split)
    sources: dict[str, tuple[Any, dict[str, Any], Values]] = {
        "reader.cpp": (
            ttnn.ReaderConfigDescriptor(),
            {"query": tensors.q, "cache": tensors.k, "prefix": tensors.prefix, "pages": pages},
            {
                "queries": tensors.q.buffer_address(),
                "keys": tensors.k.buffer_address(),
                "values": tensors.v.buffer_address(),
                "prefixes": tensors.prefix.buffer_address(),
                "pages": pages.buffer_address(),
            },
        ),
        "writer.cpp": (
            ttnn.WriterConfigDescriptor(),
            {"intervals": tensors.intervals, "output": tensors.output},
            {
                "intervals": tensors.intervals.buffer_address(),
                "output": tensors.output.buffer_address(),
            },
        ),
        "compute.cpp": (
            ttnn.ComputeConfigDescriptor(
                math_fidelity=getattr(ttnn.MathFidelity, math_fidelity), fp32_dest_acc_en=True
            ),
            {},
            {"scale": float_bits(scale)},
        ),
    }
    kernels = [
        kernel_descriptor(
            KERNELS / source,
            config,
            constants=constants,
            accessors=accessors,
            common=common,
            per_core=_per_worker(split, values, noc_core),
        )
        for source, (config, accessors, values) in sources.items()
    ]
    buffers = sorted(split.buffers.values(), key=lambda buffer: buffer.index)
    cbs = [circular_buffer(buffer, {WORKER: split.workers}) for buffer in buffers]
    on = core_set(*split.workers)
    semaphores = [ttnn.SemaphoreDescriptor(id=index, core_ranges=on, initial_value=0) for index in SEMAPHORES.values()]
    return ttnn.ProgramDescriptor(kernels=kernels, semaphores=semaphores, cbs=cbs)


def _per_worker(split: WorkSplit, values: Values, noc_core: Callable[[Core], tuple[int, int]]) -> dict[Core, Values]:
    groups = len(split.groups)
    return {
        core: {
            "group": group,
            "groups": groups,
            "worker": worker,
            **values,
            "receiver_core": noc_core(cores[merge_tree.parent_of(worker)]),
            "group_cores": [part for other in cores for part in noc_core(other)],
        }
        for group, cores in enumerate(split.groups)
        for worker, core in enumerate(cores)
    }
