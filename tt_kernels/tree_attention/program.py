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
SEMAPHORES = {"sem_arrived": 0, "sem_credit": 1, "sem_guessed": 2, "sem_measured": 3}


@dataclass(frozen=True)
class Tensors:
    """The device tensors of a call. guess, distance_sq and norm_sq are None without speculation, priority also where
    there are none to update."""

    q: Any
    k: Any
    v: Any
    prefix: Any
    intervals: Any
    output: Any
    guess: Any = None
    distance_sq: Any = None
    norm_sq: Any = None
    priority: Any = None
    pages: Any = None

    def all(self) -> list[Any]:
        """List those that exist as ttnn.generic_op takes them: inputs, then outputs."""
        inputs = ("q", "k", "v", "prefix", "intervals", "pages", "priority")
        names = (*inputs, "guess", "distance_sq", "norm_sq", "output")
        return [tensor for name in names if (tensor := getattr(self, name)) is not None]

    def address(self, name: str) -> int:
        """Return where a tensor is, 0 for one that does not exist."""
        tensor = getattr(self, name)
        return 0 if tensor is None else tensor.buffer_address()

    def described(self, name: str) -> Any:
        """Return a tensor, or in its place another one, to describe to a kernel that will not use it."""
        tensor = getattr(self, name)
        return self.prefix if tensor is None else tensor


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
        "guess_first": 0 if problem.guess is None else problem.guess.first_tiles,
        "guess_last": 0 if problem.guess is None else problem.guess.last_tiles,
        "guess_whole_tail": 0 if problem.guess is None else int(problem.guess.whole_tail),
        **paging_values(problem.paging)[1],
    }


def build_program(
    problem: Problem,
    tensors: Tensors,
    split: WorkSplit,
    scale: float,
    math_fidelity: str,
    noc_core: Callable[[Core], tuple[int, int]],
    threshold: float = 0.0,
):
    """Return the ttnn.ProgramDescriptor of a call. noc_core: Core -> (x, y) on the NoC. threshold: of a guess."""
    import ttnn

    flags = {"head_tiles": problem.head_tiles, "speculate": int(problem.guess is not None)}
    constants = flags | paging_values(problem.paging)[0] | INDICES | SEMAPHORES
    common = shapes(problem, split)
    sources: dict[str, tuple[Any, dict[str, Any], Values]] = {
        "reader.cpp": (
            ttnn.ReaderConfigDescriptor(),
            {"query": tensors.q, "cache": tensors.k, "prefix": tensors.prefix, "pages": tensors.described("pages")},
            {
                "queries": tensors.q.buffer_address(),
                "keys": tensors.k.buffer_address(),
                "values": tensors.v.buffer_address(),
                "prefixes": tensors.prefix.buffer_address(),
                "pages": tensors.address("pages"),
            },
        ),
        "writer.cpp": (
            ttnn.WriterConfigDescriptor(),
            {
                "intervals": tensors.intervals,
                "output": tensors.output,
                "norm": tensors.described("distance_sq"),
                "priority": tensors.described("priority"),
            },
            {
                name: tensors.address(name)
                for name in ("intervals", "output", "guess", "distance_sq", "norm_sq", "priority")
            },
        ),
        "compute.cpp": (
            ttnn.ComputeConfigDescriptor(
                math_fidelity=getattr(ttnn.MathFidelity, math_fidelity), fp32_dest_acc_en=True
            ),
            {},
            {"scale": float_bits(scale), "threshold_sq": float_bits(threshold**2)},
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
            "reducer_core": noc_core(cores[0]),
            "deciding_core": noc_core(split.groups[0][0]),
            "group_cores": [part for other in cores for part in noc_core(other)],
        }
        for group, cores in enumerate(split.groups)
        for worker, core in enumerate(cores)
    }
