# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ttnn program of the op: its kernels, what each is given by name, and its circular buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_patches.sgdc import UNGATED_DEFINE
from tt_kernels.common import merge_tree
from tt_kernels.common.circular_buffers import circular_buffer
from tt_kernels.common.cores import core_set
from tt_kernels.common.kernel import Core, Values, float_bits, kernel_descriptor, require_ungated
from tt_kernels.common.page_table import paging_values
from tt_kernels.common.speculative_chips import ALONE, ChipArgs
from tt_kernels.tree_attention.checks import Problem
from tt_kernels.tree_attention.work_split import INDICES, WorkSplit, rest_tiles, times_tiles

if TYPE_CHECKING:
    import ttnn

KERNELS = Path(__file__).parent / "kernels"
SEMAPHORES = {"sem_arrived": 0, "sem_credit": 1, "sem_guessed": 2, "sem_measured": 3, "sem_delivery": 4}


@dataclass(frozen=True)
class Tensors:
    """The device tensors of a call. guess, distance_sq and norm_sq are None without speculation, priority also where
    there are none to update, gathered (both ranks' priorities) without a peer."""

    q: Any
    k: Any
    v: Any
    prefix: ttnn.Tensor
    intervals: Any
    output: Any
    guess: Any = None
    distance_sq: Any = None
    norm_sq: Any = None
    priority: Any = None
    pages: Any = None
    gathered: Any = None

    def all(self) -> list[Any]:
        """List those that exist as ttnn.generic_op takes them: inputs, then outputs."""
        inputs = ("q", "k", "v", "prefix", "intervals", "pages", "priority", "gathered")
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


@dataclass(frozen=True)
class Numbers:
    """The numbers of a run. threshold: of a guess."""

    scale: float
    math_fidelity: str
    threshold: float = 0.0


def shapes(problem: Problem, split: WorkSplit) -> dict[str, int]:
    """Return the common runtime arguments of every kernel: what changes without another binary (kernels/config.hpp)."""
    key_tiles = split.key_tiles + rest_tiles(problem, split.key_tiles)
    return {
        "users": problem.users,
        "kv_heads": problem.kv_heads,
        "group_heads": problem.group_heads,
        "nodes": problem.nodes,
        "cache_tiles": problem.max_tokens // 32,
        "query_tiles": split.query_tiles,
        "passes": split.passes,
        "workers": split.workers_per_group,
        "chunk_tiles": split.key_tiles,
        "key_tiles": key_tiles,
        "tree_tiles": times_tiles(problem, key_tiles),
        "guess_first": 0 if problem.guess is None else problem.guess.first_tiles,
        "guess_last": 0 if problem.guess is None else problem.guess.last_tiles,
        "guess_whole_tail": 0 if problem.guess is None else int(problem.guess.whole_tail),
        **paging_values(problem.paging)[1],
    }


def empty_program(split: WorkSplit) -> Any:
    """Return a ttnn.ProgramDescriptor with the op's semaphores only, to which a fabric connection may add its own."""
    import ttnn

    on = core_set(*(core for cores in split.cores.values() for core in cores))
    semaphores = [ttnn.SemaphoreDescriptor(id=index, core_ranges=on, initial_value=0) for index in SEMAPHORES.values()]
    return ttnn.ProgramDescriptor(kernels=[], semaphores=semaphores, cbs=[])


def fill_program(
    program: ttnn.ProgramDescriptor,
    problem: Problem,
    tensors: Tensors,
    split: WorkSplit,
    numbers: Numbers,
    noc_core: Callable[[Core], tuple[int, int]],
    chip: ChipArgs = ALONE,
) -> Any:
    """Add to an `empty_program` what runs a call on one chip; return the program. noc_core: Core -> (x, y) on the
    NoC."""
    import ttnn

    constants = {
        "head_tiles": problem.head_tiles,
        "speculate": int(problem.guess is not None),
        "has_peer": int(chip.peer is not None),
        **paging_values(problem.paging)[0],
        **INDICES,
        **SEMAPHORES,
    }
    common = shapes(problem, split)
    ungated = [] if chip == ALONE else [UNGATED_DEFINE]
    control = {"prefix": tensors.prefix, "gathered": tensors.described("gathered")}
    controls = {
        "prefixes": tensors.prefix.buffer_address(),
        "gathered_priorities": tensors.address("gathered"),
        "sp_rank": chip.sp_rank,
    }
    written = {"norm": tensors.described("distance_sq"), "priority": tensors.described("priority")}
    numbers_and_priority = {name: tensors.address(name) for name in ("distance_sq", "norm_sq", "priority")}
    core_or_none = {core: (0, 0) if core is None else noc_core(core) for core in (split.decider, split.exchange)}

    def kernel(
        source: str, config: Any, accessors: Mapping[str, Any], per_core: dict[Core, Values], defines: Any = ()
    ) -> Any:
        return kernel_descriptor(
            KERNELS / source,
            config,
            constants=constants,
            accessors=accessors,
            common=common,
            per_core=per_core,
            defines=[*ungated, *defines],
        )

    def on_workers(values: Values) -> dict[Core, Values]:
        return _per_worker(split, {**values, "exchange_core": core_or_none[split.exchange]}, noc_core)

    kernels = [
        kernel(
            "reader.cpp",
            ttnn.ReaderConfigDescriptor(),
            {"query": tensors.q, "cache": tensors.k, "pages": tensors.described("pages"), **control},
            on_workers(
                {
                    "queries": tensors.q.buffer_address(),
                    "keys": tensors.k.buffer_address(),
                    "values": tensors.v.buffer_address(),
                    "pages": tensors.address("pages"),
                    **controls,
                }
            ),
        ),
        kernel(
            "writer.cpp",
            ttnn.WriterConfigDescriptor(),
            {"intervals": tensors.intervals, "output": tensors.output},
            on_workers({name: tensors.address(name) for name in ("intervals", "output", "guess")}),
        ),
        kernel(
            "compute.cpp",
            ttnn.ComputeConfigDescriptor(
                math_fidelity=getattr(ttnn.MathFidelity, numbers.math_fidelity), fp32_dest_acc_en=True
            ),
            {},
            on_workers({"scale": float_bits(numbers.scale), "threshold_sq": float_bits(numbers.threshold**2)}),
        ),
    ]
    if split.decider is not None:
        decides = {**controls, **numbers_and_priority, **({} if chip.tp is None else chip.tp.values())}
        defines = () if chip.tp is None else chip.tp.defines
        config = ttnn.WriterConfigDescriptor()
        kernels.append(kernel("decision.cpp", config, control | written, {split.decider: decides}, defines))
    if split.exchange is not None and chip.peer is not None:
        peer = chip.peer
        talks = {
            **controls,
            **numbers_and_priority,
            "guess": tensors.address("guess"),
            "peer_exact": peer.exact.buffer_address(),
            "state": peer.state,
            "timeout": peer.timeout,
            "deciding_core": core_or_none[split.decider],
            "link": peer.link,
        }
        accessors = control | written | {"output": tensors.output}
        config = ttnn.WriterConfigDescriptor()
        kernels.append(kernel("exchange.cpp", config, accessors, {split.exchange: talks}, peer.all_defines()))
    program.kernels = kernels
    buffers = sorted(split.buffers.values(), key=lambda buffer: buffer.index)
    program.cbs = [circular_buffer(buffer, split.cores) for buffer in buffers]
    return require_ungated(program, "speculative_tree_attention") if ungated else program


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
            "deciding_core": (0, 0) if split.decider is None else noc_core(split.decider),
            "group_cores": [part for other in cores for part in noc_core(other)],
        }
        for group, cores in enumerate(split.groups)
        for worker, core in enumerate(cores)
    }
