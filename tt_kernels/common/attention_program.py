# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What calls of attention ops and their programs share: how they use the chip and what they return; tensors and
settings of a run, the kernels with what each is given by name (common/kernel.py), semaphores, and the core that talks
to the peer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from runtime_patches.sgdc import UNGATED_DEFINE
from tt_kernels.common import merge_tree
from tt_kernels.common.attention_checks import AttentionShape, check_fidelity, check_numbers
from tt_kernels.common.attention_split import CoreAssignment, WorkSplit
from tt_kernels.common.circular_buffers import circular_buffer
from tt_kernels.common.cores import check_on_device, core_set, grid_cores, l1_free, noc_core_of
from tt_kernels.common.kernel import Core, Values, float_bits, kernel_descriptor, program_of, semaphores_on
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.page_table import paging_values
from tt_kernels.common.priority import check_priority_tensor
from tt_kernels.common.speculative_chips import ALONE, ChipArgs, Peer, mesh_program
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError, facts
from tt_kernels.common.tp_group import TpGroup


class Decoded(NamedTuple):
    """exact, guess: bfloat16, TILE, of q's shape. distance_sq, norm_sq: float32 [1, 1, 1, users], ROW_MAJOR: each
    user's ||guess - exact||^2 and ||exact||^2 over all heads. On the receiver of a pair the exact result is the peer's
    guess, `guess` is undefined and the numbers are 0."""

    exact: ttnn.Tensor
    guess: ttnn.Tensor
    distance_sq: ttnn.Tensor
    norm_sq: ttnn.Tensor


@dataclass(frozen=True)
class ProgramConfig:
    """How a call uses the chip.

    grid: (columns, rows) of cores to use, default all. origin: (x, y) of its first core. workers_per_head: cores that
        share the keys of one head, default by shapes. key_chunk: tokens whose keys a worker holds and processes at
        once, a multiple of 32; default chunk_size (token trees: 256), a multiple of it in a long cache (`lengthened`),
        or the most that fit L1. math_fidelity: name of a ttnn.MathFidelity.
    """

    grid: tuple[int, int] | None = None
    origin: Core = (0, 0)
    workers_per_head: int | None = None
    key_chunk: int | None = None
    math_fidelity: str = "HiFi3"


Config = TypeVar("Config", bound=ProgramConfig)


def config_of(given: Any, kind: type[Config]) -> Config:
    """Return the configuration of a call, the default for None. Errors: UnsupportedError for another `kind`."""
    if given is not None and type(given) is not kind:
        raise UnsupportedError(f"program_config must be a ProgramConfig, it is a {type(given).__qualname__}")
    return given or kind()


def empty_outputs(q: ttnn.Tensor, users: int) -> Decoded:
    """Allocate the outputs of a call in DRAM."""

    def numbers() -> Any:
        return ttnn.empty([1, 1, 1, users], ttnn.float32, ttnn.ROW_MAJOR_LAYOUT, q.device(), ttnn.DRAM_MEMORY_CONFIG)

    return Decoded(empty_like_query(q), empty_like_query(q), numbers(), numbers())


def empty_like_query(q: ttnn.Tensor, memory: Any = None) -> Any:
    """Allocate a result, in DRAM by default."""
    memory = memory or ttnn.DRAM_MEMORY_CONFIG
    return ttnn.empty(list(q.shape), ttnn.bfloat16, ttnn.TILE_LAYOUT, q.device(), memory)


NocCore = Callable[[Core], tuple[int, int]]
SEMAPHORES = {"sem_arrived": 0, "sem_credit": 1, "sem_delivery": 2}  # an op has others behind them


@dataclass(frozen=True)
class Tensors:
    """The device tensors of one rank. positions: of each user's first query. exact: the output, None before there is
    one. guess, distance_sq and norm_sq are None without speculation; priority, gathered (both ranks' priorities), pages
    (the page table), chosen and masses (guess_range.py), and intervals (of token trees) where they are not used."""

    q: Any
    k: Any
    v: Any
    positions: Any
    exact: Any = None
    guess: Any = None
    distance_sq: Any = None
    norm_sq: Any = None
    priority: Any = None
    gathered: Any = None
    pages: Any = None
    chosen: Any = None
    masses: Any = None
    intervals: Any = None

    def all(self) -> list[Any]:
        """List those that exist, as ttnn.generic_op takes them: inputs, then outputs."""
        names = "q k v positions intervals pages chosen priority gathered masses guess distance_sq norm_sq exact"
        return [tensor for name in names.split() if (tensor := getattr(self, name)) is not None]

    def facts(self, positions: str) -> dict[str, TensorFacts]:
        """Return what the checks need to know of the inputs that exist, by the names of the ops' arguments. positions:
        their name. Errors: UnsupportedError."""
        named = {"q": self.q, "k": self.k, "v": self.v, positions: self.positions, "intervals": self.intervals}
        named |= {"page_table": self.pages, "chosen": self.chosen, "tile_masses": self.masses}
        return {name: facts(name, tensor) for name, tensor in named.items() if tensor is not None}

    def check_devices(self) -> None:
        """Raise UnsupportedError unless all inputs, which are on devices, are on one mesh; and for a wrong priority
        tensor."""
        if self.priority is not None:
            check_priority_tensor(self.priority)
        for name in "k v positions intervals pages chosen masses priority".split():
            if (tensor := getattr(self, name)) is not None:
                check_on_device(name, tensor, self.q.device())

    def address(self, name: str) -> int:
        """Return where a tensor is, 0 for one that does not exist."""
        tensor = getattr(self, name)
        return 0 if tensor is None else tensor.buffer_address()

    def addresses(self, *names: str) -> dict[str, int]:
        return {name: self.address(name) for name in names}

    def described(self, name: str) -> Any:
        """Return a tensor, or in its place another one, to describe to a kernel that will not use it."""
        tensor = getattr(self, name)
        return self.positions if tensor is None else tensor


@dataclass(frozen=True)
class Settings:
    """The numbers of a run and how its kernels are built. threshold: of a guess. guess_alone: compute only the guess;
    needs speculate=False."""

    scale: float
    math_fidelity: str
    threshold: float = 0.0
    speculate: bool = False
    guess_alone: bool = False


def settings_of(
    head_dim: int, config: ProgramConfig, scale: float | None, threshold: float = 0.0, **mode: bool
) -> Settings:
    """Check the numbers of a call and return its Settings. mode: speculate, guess_alone. Errors: UnsupportedError."""
    threshold, scale = check_numbers(threshold, scale, head_dim)
    return Settings(scale, check_fidelity(config.math_fidelity), threshold, **mode)


@dataclass(frozen=True)
class Rank:
    """One speculative rank on one chip: its tensors and cores, and its place among other chips."""

    tensors: Tensors
    assignment: CoreAssignment
    chip: ChipArgs = ALONE


def empty_program(assignments: Iterable[CoreAssignment], semaphores: int) -> Any:
    """Return a ttnn.ProgramDescriptor with semaphores only, to which a fabric connection may add its own."""
    cores = core_set(*(core for assignment in assignments for core in assignment.cores))
    return program_of((), semaphores=semaphores_on(cores, *semaphores * [0]))


def split_of(
    choose: Callable[..., WorkSplit],
    device: ttnn.MeshDevice,
    config: ProgramConfig,
    exchange: Core | None,
    decider: Core | None = None,
) -> Any:
    """Choose the work split of one rank by an op's choose(cores, free bytes of L1, ...). exchange: the core that talks
    to the peer; decider: the one that talks to the TP group. Errors: UnsupportedError."""
    return choose(
        grid_cores(device, config.grid, config.origin),
        l1_free(device),
        exchange=exchange,
        decider=decider,
        workers_per_head=config.workers_per_head,
        key_chunk=config.key_chunk,
    )


def launch(
    tensors: Tensors,
    choose: Callable[..., WorkSplit],
    config: ProgramConfig,
    semaphores: int,
    fill: Callable[..., Any],
    peer: Peer | None = None,
    tp_group: TpGroup | None = None,
) -> None:
    """Run a call on every chip that holds the tensors. choose: as for split_of. fill(program, ranks, split, noc_core):
    adds to an empty_program with so many semaphores what runs the ranks of one chip. Errors: UnsupportedError."""
    device = tensors.q.device()
    exchange, decider = None if peer is None else peer.pairs.core, None if tp_group is None else tp_group.core
    split = split_of(choose, device, config, exchange, decider)
    assignment, noc_core = split.assignment, noc_core_of(device)
    program = mesh_program(
        *(peer, tp_group, tensors.exact),
        lambda: empty_program([assignment], semaphores),
        lambda program, chip: fill(program, [Rank(tensors, assignment, chip)], split, noc_core),
    )
    ttnn.generic_op(tensors.all(), program)


class KernelSet:
    """The kernels of `ranks`, which share one chip and differ in addresses and cores only.

    folder: of the kernels' sources. split: of one rank; the others' differ in the cores only. guess: what it reads.
    flags, indices, shapes: compile-time constants and common runtime arguments that the op has besides those of
    attention_config.hpp. ungated: whether they run whatever the compute gate says.
    """

    def __init__(
        self,
        folder: Path,
        problem: AttentionShape,
        settings: Settings,
        ranks: Sequence[Rank],
        split: WorkSplit,
        noc_core: NocCore,
        *,
        guess: Any,
        constants: Mapping[str, int],
        shapes: Mapping[str, int],
        ungated: bool,
    ) -> None:
        code, numbers = paging_values(problem.paging)
        self.folder, self.settings, self.ranks, self.split = folder, settings, ranks, split
        self.noc_core, self.ungated = noc_core, ungated
        self.tensors, self.chip = ranks[0].tensors, ranks[0].chip
        self.constants = {
            "head_tiles": problem.head_tiles,
            "speculate": int(settings.speculate),
            "has_peer": int(self.chip.peer is not None),
            "with_chosen": int(problem.with_chosen),
            "masses": int(problem.with_masses),
            **code,
            **constants,
        }
        self.shapes = {
            "users": problem.users,
            "kv_heads": problem.kv_heads,
            "group_heads": problem.group_heads,
            "cache_tiles": problem.cache_tiles,
            "guess_first": 0 if guess is None else guess.first_tiles,
            "guess_last": 0 if guess is None else guess.last_tiles,
            "guess_whole_tail": 0 if guess is None else int(guess.whole_tail),
            "workers": split.assignment.workers_per_group,
            "key_tiles": split.key_tiles,
            **numbers,
            **shapes,
        }

    def fill(self, program: Any, kernels: Sequence[Any]) -> Any:
        """Add kernels and circular buffers to a program, and return it."""
        cores = {
            role: [core for rank in self.ranks for core in rank.assignment.by_role.get(role, [])]
            for role in self.split.assignment.by_role
        }
        buffers = sorted(self.split.buffers.values(), key=lambda buffer: buffer.index)
        program.kernels, program.cbs = list(kernels), [circular_buffer(buffer, cores) for buffer in buffers]
        return program

    def kernel(
        self, source: str, config: Any, accessors: Mapping[str, Any], per_core: Any, defines: Sequence[Any] = ()
    ) -> Any:
        return kernel_descriptor(
            self.folder / source,
            config,
            constants=self.constants,
            accessors=accessors,
            common=self.shapes,
            per_core=per_core,
            defines=[*([UNGATED_DEFINE] if self.ungated else ()), *defines],
        )

    def compute_config(self) -> Any:
        fidelity = getattr(ttnn.MathFidelity, self.settings.math_fidelity)
        return ttnn.ComputeConfigDescriptor(math_fidelity=fidelity, fp32_dest_acc_en=True)

    def per_worker(self, values: Callable[[Rank], Values], *cores: str) -> dict[Core, Values]:
        """Return what each worker is given: its place, `values`, and of the cores on the NoC those named in `cores`:
        receiver_core, deciding_core, exchange_core, group_cores."""
        found: dict[Core, Values] = {}
        for rank in self.ranks:
            place, groups = rank.assignment, rank.assignment.groups
            for group, workers in enumerate(groups):
                on_noc = [self.noc_core(core) for core in workers]
                for worker, core in enumerate(workers):
                    places = {
                        "receiver_core": on_noc[merge_tree.parent_of(worker)],
                        "deciding_core": self.noc_core_or_none(place.decider),
                        "exchange_core": self.noc_core_or_none(place.exchange),
                        "group_cores": [part for other in on_noc for part in other],
                    }
                    own = {"group": group, "groups": len(groups), "worker": worker}
                    found[core] = {**own, **values(rank), **{name: places[name] for name in cores}}
        return found

    def workers(self, prefix: str, written: Sequence[str], **numbers: int) -> list[Any]:
        """Return the workers' kernels: reader, writer and compute. prefix: of their sources' names. written: what the
        writer knows, of which the guess lies as the exact result does. numbers: of compute, beside the scale."""

        def reader(rank: Rank) -> Values:
            caches = {"queries": "q", "keys": "k", "values": "v", "pages": "pages", "chosen": "chosen"}
            return {name: rank.tensors.address(of) for name, of in caches.items()} | self.control(rank)

        def writer(rank: Rank) -> Values:
            scale_log2e = float_bits(self.settings.scale * math.log2(math.e))
            return rank.tensors.addresses(*written) | {"scale_log2e": scale_log2e}

        read = {"query": self.tensors.q, "cache": self.tensors.k} | self.control_accessors()
        read |= {name: self.tensors.described(name) for name in ("pages", "chosen")}
        output = {"output": self.tensors.exact}
        output |= {name: self.tensors.described(name) for name in written if name not in ("exact", "guess")}
        reads = self.per_worker(reader, "group_cores")
        writes = self.per_worker(writer, "receiver_core", "deciding_core", "exchange_core")
        computes = self.per_worker(lambda _: {"scale": float_bits(self.settings.scale), **numbers})
        return [
            self.kernel(f"{prefix}reader.cpp", "Reader", read, reads),
            self.kernel(f"{prefix}writer.cpp", "Writer", output, writes),
            self.kernel(f"{prefix}compute.cpp", self.compute_config(), {}, computes),
        ]

    def per_decider(self, values: Callable[[Rank], Values]) -> dict[Core, Values]:
        return {core: values(rank) for rank in self.ranks if (core := rank.assignment.decider) is not None}

    def noc_core_or_none(self, core: Core | None) -> tuple[int, int]:
        return (0, 0) if core is None else self.noc_core(core)

    # What a control page is made from (kernels/fetch_control.hpp), and what numbers and priorities are written to.

    def control_accessors(self) -> dict[str, Any]:
        return {name: self.tensors.described(name) for name in ("positions", "gathered")}

    @staticmethod
    def control(rank: Rank) -> dict[str, int]:
        tensors, sp_rank = rank.tensors, rank.chip.sp_rank
        return {
            "positions": tensors.address("positions"),
            "gathered_priorities": tensors.address("gathered"),
            "sp_rank": sp_rank,
        }

    def verdict_accessors(self) -> dict[str, Any]:
        return {"norm": self.tensors.described("distance_sq"), "priority": self.tensors.described("priority")}

    def deciding(self, source: str) -> Any:
        """Return the kernel that decides on guesses (kernels/guess_verdict.hpp)."""

        def values(rank: Rank) -> Values:
            numbers = rank.tensors.addresses("distance_sq", "norm_sq", "priority")
            return {**self.control(rank), **numbers, **({} if rank.chip.tp is None else rank.chip.tp.values)}

        tp, accessors = self.chip.tp, self.control_accessors() | self.verdict_accessors()
        defines = () if tp is None else tp.defines
        return self.kernel(source, "Writer", accessors, self.per_decider(values), defines)

    def exchange(self) -> list[Any]:
        """Return the kernel that talks to the peer (kernels/guess_exchange.hpp), if there is a peer."""
        if self.chip.peer is None:
            return []
        per_core = {}
        for rank in self.ranks:
            peer, core = rank.chip.peer, rank.assignment.exchange
            if peer is not None and core is not None:
                per_core[core] = {
                    **self.control(rank),
                    **rank.tensors.addresses("guess", "distance_sq", "norm_sq", "priority"),
                    "deciding_core": self.noc_core_or_none(rank.assignment.decider),
                    **peer.values,
                }
        accessors = {"output": self.tensors.exact} | self.control_accessors() | self.verdict_accessors()
        defines = self.chip.peer.defines
        return [self.kernel("exchange.cpp", "Writer", accessors, per_core, defines)]
