# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ttnn program of the op: kernels, circular buffers, semaphores and their arguments."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime_patches.sgdc import UNGATED_DEFINE
from tt_kernels.common.cores import core_set
from tt_kernels.common.ungated import require_ungated
from tt_kernels.speculative_flash_decode.buffers import EXCHANGE, INDICES, OUTPUT, TILE_BYTES, WORKER, Buffer
from tt_kernels.speculative_flash_decode.checks import Problem
from tt_kernels.speculative_flash_decode.layout import Layout
from tt_kernels.speculative_flash_decode.work_split import TILE, Core, CorePlan

KERNELS = Path(__file__).parent / "kernels"
# Kernels include each other's headers by their path in this repository.
INCLUDE_PATH = Path(__file__).parents[2]
MAX_SEMAPHORES = 16
# The last is the first of one a user.
SEMAPHORES = {"sem_arrived": 0, "sem_credit": 1, "sem_outgoing": 2, "sem_delivery": 3, "sem_user": 4}


@dataclass(frozen=True)
class Tensors:
    """The device tensors of one member. guess, distance_sq and norm_sq are None without speculation, the
    priorities where there are none."""

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

    def all(self) -> list[Any]:
        """Those there are, as ttnn.generic_op takes them: inputs, then outputs."""
        names = ("q", "k", "v", "cur_pos", "priority", "gathered", "guess", "distance_sq", "norm_sq", "exact")
        return [tensor for name in names if (tensor := getattr(self, name)) is not None]


@dataclass(frozen=True)
class PeerArgs:
    """What a member's exchange core needs of its peer. state: address of the session state, the same on both;
    exact: the peer's output tensor; timeout: two words of cycles; link: runtime arguments of its PeerLink."""

    defines: Sequence[tuple[str, str]]
    max_write: int
    state: int
    exact: Any
    timeout: Sequence[int]
    link: Sequence[int]


@dataclass(frozen=True)
class Member:
    """One side of a pair, or the only one: its tensors and cores. index: member of the pair; member 0 sends
    when the priorities are equal."""

    tensors: Tensors
    plan: CorePlan
    index: int = 0
    peer: PeerArgs | None = None


@dataclass(frozen=True)
class Common:
    """What all kernels are given: named compile-time arguments and common runtime arguments."""

    named: list[tuple[str, int]]
    shapes: list[int]


@dataclass(frozen=True)
class Settings:
    """Numbers of a run: threshold, scale; and how it is built."""

    threshold: float
    scale: float
    speculate: bool
    math_fidelity: str


def float_bits(value: float) -> int:
    """`value` as the word of a float32, which kernels take it as."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


def constants(problem: Problem, settings: Settings, member: Member) -> list[tuple[str, int]]:
    """The named compile-time arguments of every kernel: what selects its code."""
    flags = {
        "head_tiles": problem.head_tiles,
        "speculate": int(settings.speculate),
        "has_peer": int(member.peer is not None),
    }
    return list((flags | INDICES | SEMAPHORES).items())


def shape_args(problem: Problem, layout: Layout) -> list[int]:
    """The common runtime arguments of every kernel, in the order of kernels/config.hpp."""
    return [
        problem.users,
        problem.kv_heads,
        problem.query_heads,
        problem.max_tokens // TILE,
        problem.chunk_tiles,
        layout.plan.workers_a_group,
        problem.query_heads // problem.kv_heads,
        layout.key_tiles,
    ]


def empty_program(problem: Problem, plans: Sequence[CorePlan]):
    """A ttnn.ProgramDescriptor with the semaphores of the op alone, to which a fabric connection may add its
    own."""
    import ttnn

    cores = core_set(*(core for plan in plans for core in plan.cores))
    count = SEMAPHORES["sem_user"] + problem.users
    assert count <= MAX_SEMAPHORES
    semaphores = [ttnn.SemaphoreDescriptor(id=i, core_ranges=cores, initial_value=0) for i in range(count)]
    return ttnn.ProgramDescriptor(kernels=[], semaphores=semaphores, cbs=[])


def fill_program(
    program,
    problem: Problem,
    settings: Settings,
    members: Sequence[Member],
    layout: Layout,
    noc_core,
):
    """Add to an `empty_program` what runs every member of `members` on its own cores of one chip; returns it.

    layout: of one member; the others' differ in the cores only. noc_core: Core -> (x, y) on the NoC.
    """
    import ttnn

    first = members[0]
    common = Common(constants(problem, settings, first), shape_args(problem, layout))
    workers = [core for member in members for core in member.plan.workers]
    readers = _per_core(members, _worker_reader_args, noc_core)
    writers = _per_core(members, _worker_writer_args, noc_core)
    scale = float_bits(settings.scale)
    computes = _per_core(members, lambda m, g, w, _: [g, len(m.plan.groups), w, scale], noc_core)
    seen = _worker_reader_accessors(first)
    exact = _accessor(first.tensors.exact)
    kernels = [
        _kernel("worker_reader.cpp", workers, common, seen, ttnn.ReaderConfigDescriptor(), readers),
        _kernel("worker_writer.cpp", workers, common, exact, ttnn.WriterConfigDescriptor(), writers),
        _kernel("worker_compute.cpp", workers, common, [], _compute_config(settings), computes),
    ]
    if settings.speculate:
        kernels += _output_kernels(members, common, settings)
    if first.peer is not None:
        kernels.append(_exchange_kernel(members, common, noc_core))
    cores = {
        WORKER: workers,
        OUTPUT: [member.plan.output for member in members if member.plan.output],
        EXCHANGE: [member.plan.exchange for member in members if member.plan.exchange],
    }
    program.kernels = kernels
    program.cbs = [
        _circular_buffer(buffer, cores) for buffer in sorted(layout.buffers.values(), key=lambda b: b.index)
    ]
    return require_ungated(program, "speculative_flash_decode")


def _output_kernels(members: Sequence[Member], common: Common, settings: Settings) -> list:
    import ttnn

    first = members[0].tensors
    cores = [member.plan.output for member in members]

    def per_member(args):
        return [(member.plan.output, args(member)) for member in members]

    reader = per_member(
        lambda m: [*_source_args(m), m.tensors.exact.buffer_address(), m.tensors.guess.buffer_address()]
    )
    writer = per_member(
        lambda m: [
            m.tensors.distance_sq.buffer_address(),
            m.tensors.norm_sq.buffer_address(),
            _address(m.tensors.priority),
        ]
    )
    bound = per_member(lambda m: [float_bits(settings.threshold**2)])
    gathered, priority = _present(first.gathered, first.cur_pos), _present(first.priority, first.distance_sq)
    read = _accessor(first.exact) + _accessor(first.cur_pos) + _accessor(gathered)
    written = _accessor(first.distance_sq) + _accessor(priority)
    return [
        _kernel("output_reader.cpp", cores, common, read, ttnn.ReaderConfigDescriptor(), reader),
        _kernel("output_writer.cpp", cores, common, written, ttnn.WriterConfigDescriptor(), writer),
        _kernel("output_compute.cpp", cores, common, [], _compute_config(settings), bound),
    ]


def _exchange_kernel(members: Sequence[Member], common: Common, noc_core):
    import ttnn

    tensors, peer = members[0].tensors, members[0].peer
    parts = (tensors.exact, tensors.distance_sq, tensors.cur_pos, tensors.gathered, tensors.priority)
    return _kernel(
        "exchange.cpp",
        [member.plan.exchange for member in members],
        common,
        [value for tensor in parts for value in _accessor(tensor)],
        ttnn.WriterConfigDescriptor(),
        [(member.plan.exchange, _exchange_args(member, noc_core)) for member in members],
        [*peer.defines, ("PEER_MAX_WRITE", str(min(peer.max_write, TILE_BYTES["BFLOAT16"])))],
    )


def _exchange_args(member: Member, noc_core) -> list[int]:
    tensors, peer = member.tensors, member.peer
    outputs = (
        peer.exact,
        tensors.exact,
        tensors.guess,
        tensors.distance_sq,
        tensors.norm_sq,
        tensors.priority,
    )
    addresses = [tensor.buffer_address() for tensor in outputs]
    output = noc_core(member.plan.output)
    return [*_source_args(member), peer.state, peer.state, *peer.timeout, *output, *addresses, *peer.link]


def _present(tensor, otherwise):
    """`tensor`, or where the program has none another to describe to a kernel that will not read it."""
    return otherwise if tensor is None else tensor


def _address(tensor) -> int:
    return 0 if tensor is None else tensor.buffer_address()


def _accessor(tensor) -> list[int]:
    import ttnn

    return list(ttnn.TensorAccessorArgs(tensor).get_compile_time_args())


def _source_args(member: Member) -> list[int]:
    tensors = member.tensors
    return [tensors.cur_pos.buffer_address(), _address(tensors.gathered), member.index]


def _worker_reader_accessors(member: Member) -> list[int]:
    tensors = member.tensors
    gathered = _present(tensors.gathered, tensors.cur_pos)
    return _accessor(tensors.q) + _accessor(tensors.k) + _accessor(tensors.cur_pos) + _accessor(gathered)


def _worker_reader_args(member: Member, group: int, worker: int, noc_core) -> list[int]:
    tensors = member.tensors
    args = [group, len(member.plan.groups), worker]
    args += [tensor.buffer_address() for tensor in (tensors.q, tensors.k, tensors.v)]
    args += _source_args(member)
    return args + [value for core in member.plan.groups[group] for value in noc_core(core)]


def _worker_writer_args(member: Member, group: int, worker: int, noc_core) -> list[int]:
    plan = member.plan
    args = [group, len(plan.groups), worker, member.tensors.exact.buffer_address()]
    for core in (plan.groups[group][0], plan.output, plan.exchange):
        args += noc_core(core) if core else (0, 0)
    return args


def _per_core(members: Iterable[Member], args, noc_core) -> list[tuple[Core, list[int]]]:
    return [
        (core, args(member, group, worker, noc_core))
        for member in members
        for group, cores in enumerate(member.plan.groups)
        for worker, core in enumerate(cores)
    ]


def _compute_config(settings: Settings):
    import ttnn

    return ttnn.ComputeConfigDescriptor(
        math_fidelity=getattr(ttnn.MathFidelity, settings.math_fidelity), fp32_dest_acc_en=True
    )


def _kernel(
    source: str, cores: list[Core], common: Common, accessors: list[int], config, per_core, defines=()
):
    import ttnn

    arguments = ttnn.RuntimeArgs()
    for (x, y), values in per_core:
        arguments[x][y] = values
    return ttnn.KernelDescriptor(
        kernel_source=str(KERNELS / source),
        core_ranges=core_set(*cores),
        compile_time_args=accessors,
        named_compile_time_args=common.named,
        common_runtime_args=common.shapes,
        defines=[UNGATED_DEFINE, *defines],
        runtime_args=arguments,
        config=config,
        compiler_include_paths=[str(INCLUDE_PATH)],
    )


def _circular_buffer(buffer: Buffer, cores: dict[str, list[Core]]):
    import ttnn

    names = {
        "BFLOAT16": ttnn.bfloat16,
        "BFLOAT8_B": ttnn.bfloat8_b,
        "FLOAT32": ttnn.float32,
        "UINT32": ttnn.uint32,
    }
    page = ttnn.CBFormatDescriptor(
        buffer_index=buffer.index, data_format=names[buffer.dtype], page_size=buffer.page_bytes
    )
    on = [core for role in sorted(buffer.roles) for core in cores[role]]
    return ttnn.CBDescriptor(total_size=buffer.bytes, core_ranges=core_set(*on), format_descriptors=[page])
