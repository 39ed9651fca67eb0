# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ttnn program of the op: its kernels with what each is given by name (common/kernel.py), circular buffers and
semaphores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime_patches.sgdc import UNGATED_DEFINE
from tt_kernels.common import merge_tree
from tt_kernels.common.attention_checks import TILE
from tt_kernels.common.circular_buffers import circular_buffer
from tt_kernels.common.cores import core_set
from tt_kernels.common.kernel import Core, Values, float_bits, kernel_descriptor, require_ungated
from tt_kernels.common.page_table import paging_values
from tt_kernels.common.speculative_chips import PeerArgs, TpArgs
from tt_kernels.speculative_flash_decode.checks import Problem
from tt_kernels.speculative_flash_decode.work_split import (
    EXCHANGE,
    INDICES,
    OUTPUT,
    WORKER,
    CoreAssignment,
    WorkSplit,
)

if TYPE_CHECKING:
    import ttnn

KERNELS = Path(__file__).parent / "kernels"
MAX_SEMAPHORES = 16
# The last is the first of one per user.
SEMAPHORES = {"sem_arrived": 0, "sem_credit": 1, "sem_outgoing": 2, "sem_delivery": 3, "sem_user": 4}


@dataclass(frozen=True)
class Tensors:
    """The device tensors of one rank. guess, distance_sq and norm_sq are None without speculation; priority,
    gathered, pages (the page table), chosen (guess_range.py) and masses are None where they are not used."""

    q: Any
    k: Any
    v: Any
    cur_pos: Any
    exact: Any
    guess: Any = None
    distance_sq: Any = None
    norm_sq: Any = None
    priority: Any = None
    gathered: Any = None
    pages: Any = None
    chosen: Any = None
    masses: Any = None

    def all(self) -> list[Any]:
        """List those that exist, as ttnn.generic_op takes them: inputs, then outputs."""
        names = "q k v cur_pos pages chosen priority gathered masses guess distance_sq norm_sq exact"
        return [tensor for name in names.split() if (tensor := getattr(self, name)) is not None]


@dataclass(frozen=True)
class Rank:
    """One speculative rank on one chip: its tensors and cores. sp_rank: 0 or 1; rank 0 sends when the priorities are
    equal. peer: the other rank, if there is one. tp: the TP group that shares the users' heads, if there is one."""

    tensors: Tensors
    assignment: CoreAssignment
    sp_rank: int = 0
    peer: PeerArgs | None = None
    tp: TpArgs | None = None


@dataclass(frozen=True)
class Settings:
    """The numbers of a run and how its kernels are built. guess_alone: compute only the guess; needs
    speculate=False."""

    threshold: float
    scale: float
    speculate: bool
    math_fidelity: str
    guess_alone: bool = False


def constants(problem: Problem, settings: Settings, rank: Rank) -> dict[str, int]:
    """Return the compile-time constants of every kernel: what selects its code."""
    flags = {
        "head_tiles": problem.head_tiles,
        "speculate": int(settings.speculate),
        "with_chosen": int(problem.with_chosen),
        "masses": int(rank.tensors.masses is not None),
        "has_peer": int(rank.peer is not None),
    }
    return flags | paging_values(problem.paging)[0] | INDICES | SEMAPHORES


def shapes(problem: Problem, settings: Settings, split: WorkSplit) -> dict[str, int]:
    """Return the common runtime arguments of every kernel: what changes without another binary (kernels/config.hpp)."""
    return {
        "users": problem.users,
        "kv_heads": problem.kv_heads,
        "query_heads": problem.query_heads,
        "cache_tiles": problem.max_tokens // TILE,
        "guess_first": problem.guess.first_tiles,
        "guess_last": problem.guess.last_tiles,
        "guess_whole_tail": int(problem.guess.whole_tail),
        "guess_alone": int(settings.guess_alone),
        "workers": split.assignment.workers_per_group,
        "rows_per_head": problem.group_heads,
        "key_tiles": split.key_tiles,
    } | paging_values(problem.paging)[1]


def empty_program(problem: Problem, assignments: Sequence[CoreAssignment]) -> Any:
    """Return a ttnn.ProgramDescriptor with the op's semaphores only, to which a fabric connection may add its own."""
    import ttnn

    cores = core_set(*(core for assignment in assignments for core in assignment.cores))
    count = SEMAPHORES["sem_user"] + problem.users
    assert count <= MAX_SEMAPHORES
    semaphores = [ttnn.SemaphoreDescriptor(id=i, core_ranges=cores, initial_value=0) for i in range(count)]
    return ttnn.ProgramDescriptor(kernels=[], semaphores=semaphores, cbs=[])


def fill_program(
    program: ttnn.ProgramDescriptor,
    problem: Problem,
    settings: Settings,
    ranks: Sequence[Rank],
    split: WorkSplit,
    noc_core: Any,
) -> Any:
    """Add to an `empty_program` what runs each of `ranks` on its own cores of one chip; return the program.

    split: the split of one rank; the others' differ in the cores only. noc_core: Core -> (x, y) on the NoC.
    """
    kernels = KernelSet(
        ranks,
        settings,
        constants(problem, settings, ranks[0]),
        shapes(problem, settings, split),
        noc_core,
    )
    built = kernels.workers()
    if settings.speculate:
        built += kernels.output()
    built += kernels.exchange()
    workers = [core for rank in ranks for core in rank.assignment.workers]
    cores = {
        WORKER: workers,
        OUTPUT: [rank.assignment.output for rank in ranks if rank.assignment.output],
        EXCHANGE: [rank.assignment.exchange for rank in ranks if rank.assignment.exchange],
    }
    program.kernels = built
    program.cbs = [circular_buffer(buffer, cores) for buffer in sorted(split.buffers.values(), key=lambda b: b.index)]
    return require_ungated(program, "speculative_flash_decode")


class KernelSet:
    """The kernels of `ranks`, which share one chip and differ in addresses and cores only.

    constants, shapes: compile-time constants and common runtime arguments of all kernels. noc_core: Core -> (x, y) on
    the NoC.
    """

    def __init__(
        self,
        ranks: Sequence[Rank],
        settings: Settings,
        constants: Mapping[str, int],
        shapes: Values,
        noc_core: Callable[[Core], tuple[int, int]],
    ):
        self.ranks, self.settings = ranks, settings
        self.constants, self.shapes, self.noc_core = constants, shapes, noc_core

    def workers(self) -> list[Any]:
        import ttnn

        tensors = self.ranks[0].tensors
        pages = {name: _present(getattr(tensors, name), tensors.cur_pos) for name in ("pages", "chosen")}
        read = {"query": tensors.q, "cache": tensors.k} | pages | self._source_accessors()
        written = {"output": tensors.exact, "masses": _present(tensors.masses, tensors.cur_pos)}
        return [
            self._kernel("worker_reader.cpp", ttnn.ReaderConfigDescriptor(), read, self._per_worker(self._reader)),
            self._kernel("worker_writer.cpp", ttnn.WriterConfigDescriptor(), written, self._per_worker(self._writer)),
            self._kernel("worker_compute.cpp", self._compute_config(), {}, self._per_worker(self._compute)),
        ]

    def output(self) -> list[Any]:
        import ttnn

        tensors = self.ranks[0].tensors
        read = {"output": tensors.exact} | self._source_accessors()
        written = {"norm": tensors.distance_sq, "priority": _present(tensors.priority, tensors.distance_sq)}
        tp = self.ranks[0].tp
        threshold_sq = float_bits(self.settings.threshold**2)

        def per_rank(values: Callable[[Rank], Values]) -> dict[Any, Values]:
            return {rank.assignment.output: values(rank) for rank in self.ranks}

        return [
            self._kernel("output_reader.cpp", ttnn.ReaderConfigDescriptor(), read, per_rank(self._output_reader)),
            self._kernel(
                "output_writer.cpp",
                ttnn.WriterConfigDescriptor(),
                written,
                per_rank(self._output_writer),
                () if tp is None else tp.defines,
            ),
            self._kernel(
                "output_compute.cpp",
                self._compute_config(),
                {},
                per_rank(lambda _: {"threshold_sq": threshold_sq}),
            ),
        ]

    def exchange(self) -> list[Any]:
        """Return the kernel that talks to the peer, if there is a peer."""
        import ttnn

        tensors, peer = self.ranks[0].tensors, self.ranks[0].peer
        if peer is None:
            return []
        accessors = {
            "output": tensors.exact,
            "norm": tensors.distance_sq,
            "priority": tensors.priority,
        } | self._source_accessors()
        per_core = {
            rank.assignment.exchange: self._exchange(rank, rank.peer) for rank in self.ranks if rank.peer is not None
        }
        config = ttnn.WriterConfigDescriptor()
        return [self._kernel("exchange.cpp", config, accessors, per_core, peer.all_defines())]

    def _reader(self, rank: Rank, group: int, worker: int) -> Values:
        tensors = rank.tensors
        return {
            **_place(rank, group, worker),
            "queries": tensors.q.buffer_address(),
            "keys": tensors.k.buffer_address(),
            "values": tensors.v.buffer_address(),
            "pages": _address(tensors.pages),
            "chosen": _address(tensors.chosen),
            **_sources(rank),
            "group_cores": self._group_cores(rank, group),
        }

    def _group_cores(self, rank: Rank, group: int) -> list[int]:
        return [part for core in rank.assignment.groups[group] for part in self.noc_core(core)]

    def _writer(self, rank: Rank, group: int, worker: int) -> Values:
        assignment = rank.assignment
        return {
            **_place(rank, group, worker),
            "exact": rank.tensors.exact.buffer_address(),
            "receiver_core": self.noc_core(assignment.groups[group][merge_tree.parent_of(worker)]),
            "output_core": self._noc_core_or_none(assignment.output),
            "exchange_core": self._noc_core_or_none(assignment.exchange),
            "masses": _address(rank.tensors.masses),
            "scale_log2e": float_bits(self.settings.scale * math.log2(math.e)),
        }

    def _compute(self, rank: Rank, group: int, worker: int) -> Values:
        return {**_place(rank, group, worker), "scale": float_bits(self.settings.scale)}

    def _output_reader(self, rank: Rank) -> Values:
        tensors = rank.tensors
        return {
            **_sources(rank),
            "exact": tensors.exact.buffer_address(),
            "guess": tensors.guess.buffer_address(),
        }

    def _output_writer(self, rank: Rank) -> Values:
        tensors = rank.tensors
        return {
            "distance_sq": tensors.distance_sq.buffer_address(),
            "norm_sq": tensors.norm_sq.buffer_address(),
            "priority": _address(tensors.priority),
            **({} if rank.tp is None else rank.tp.values()),
        }

    def _exchange(self, rank: Rank, peer: PeerArgs) -> Values:
        tensors = rank.tensors
        return {
            **_sources(rank),
            "state": peer.state,
            "timeout": peer.timeout,
            "output_core": self._noc_core_or_none(rank.assignment.output),
            "peer_exact": peer.exact.buffer_address(),
            "exact": tensors.exact.buffer_address(),
            "guess": tensors.guess.buffer_address(),
            "distance_sq": tensors.distance_sq.buffer_address(),
            "norm_sq": tensors.norm_sq.buffer_address(),
            "priority": tensors.priority.buffer_address(),
            "link": peer.link,
        }

    def _per_worker(self, values: Callable[[Rank, int, int], Values]) -> dict[Core, Values]:
        return {
            core: values(rank, group, worker)
            for rank in self.ranks
            for group, cores in enumerate(rank.assignment.groups)
            for worker, core in enumerate(cores)
        }

    def _source_accessors(self) -> dict[str, Any]:
        tensors = self.ranks[0].tensors
        return {"positions": tensors.cur_pos, "gathered": _present(tensors.gathered, tensors.cur_pos)}

    def _noc_core_or_none(self, core: Core | None) -> tuple[int, int]:
        return (0, 0) if core is None else self.noc_core(core)

    def _compute_config(self) -> Any:
        import ttnn

        fidelity = getattr(ttnn.MathFidelity, self.settings.math_fidelity)
        return ttnn.ComputeConfigDescriptor(math_fidelity=fidelity, fp32_dest_acc_en=True)

    def _kernel(self, source: str, config: Any, accessors: Any, per_core: Any, defines: Any = ()) -> Any:
        return kernel_descriptor(
            KERNELS / source,
            config,
            constants=self.constants,
            accessors=accessors,
            common=self.shapes,
            per_core=per_core,
            defines=[UNGATED_DEFINE, *defines],
        )


def _place(rank: Rank, group: int, worker: int) -> dict[str, int]:
    return {"group": group, "groups": len(rank.assignment.groups), "worker": worker}


def _sources(rank: Rank) -> dict[str, int]:
    """Return what a control page is made from (kernels/fetch_control.hpp)."""
    tensors = rank.tensors
    return {
        "positions": tensors.cur_pos.buffer_address(),
        "gathered_priorities": _address(tensors.gathered),
        "sp_rank": rank.sp_rank,
    }


def _present(tensor: ttnn.Tensor, otherwise: Any) -> Any:
    """Return `tensor`, or if it is None another one, to describe to a kernel that will not read it."""
    return otherwise if tensor is None else tensor


def _address(tensor: ttnn.Tensor) -> int:
    return 0 if tensor is None else tensor.buffer_address()
