# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ttnn program of the op: kernels, circular buffers and semaphores."""

from __future__ import annotations

from collections.abc import Sequence

from tt_kernels.common.circular_buffers import circular_buffer
from tt_kernels.common.cores import core_set
from tt_kernels.common.ungated import require_ungated
from tt_kernels.speculative_flash_decode.buffers import EXCHANGE, INDICES, OUTPUT, WORKER
from tt_kernels.speculative_flash_decode.checks import Problem
from tt_kernels.speculative_flash_decode.kernel_set import KernelSet
from tt_kernels.speculative_flash_decode.layout import Layout
from tt_kernels.speculative_flash_decode.member import Member, Settings
from tt_kernels.speculative_flash_decode.work_split import TILE, CoreAssignment

MAX_SEMAPHORES = 16
# The last is the first of one a user.
SEMAPHORES = {"sem_arrived": 0, "sem_credit": 1, "sem_outgoing": 2, "sem_delivery": 3, "sem_user": 4}


def constants(problem: Problem, settings: Settings, member: Member) -> dict[str, int]:
    """The compile-time constants of every kernel: what selects its code."""
    flags = {
        "head_tiles": problem.head_tiles,
        "speculate": int(settings.speculate),
        "has_peer": int(member.peer is not None),
    }
    return flags | INDICES | SEMAPHORES


def shapes(problem: Problem, settings: Settings, layout: Layout) -> dict[str, int]:
    """The common runtime arguments of every kernel: what changes without another binary (kernels/config.hpp)."""
    return {
        "users": problem.users,
        "kv_heads": problem.kv_heads,
        "query_heads": problem.query_heads,
        "cache_tiles": problem.max_tokens // TILE,
        "guess_first": problem.guess.first_tiles,
        "guess_last": problem.guess.last_tiles,
        "guess_whole_tail": int(problem.guess.whole_tail),
        "guess_alone": int(settings.guess_alone),
        "workers": layout.plan.workers_per_group,
        "rows_per_head": problem.query_heads // problem.kv_heads,
        "key_tiles": layout.key_tiles,
    }


def empty_program(problem: Problem, plans: Sequence[CoreAssignment]):
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

    kernels = KernelSet(
        members,
        settings,
        constants(problem, settings, members[0]),
        shapes(problem, settings, layout),
        noc_core,
    )
    built = kernels.workers()
    if settings.speculate:
        built += kernels.output()
    built += kernels.exchange()
    workers = [core for member in members for core in member.plan.workers]
    cores = {
        WORKER: workers,
        OUTPUT: [member.plan.output for member in members if member.plan.output],
        EXCHANGE: [member.plan.exchange for member in members if member.plan.exchange],
    }
    program.kernels = built
    program.cbs = [circular_buffer(buffer, cores) for buffer in sorted(layout.buffers.values(), key=lambda b: b.index)]
    return require_ungated(program, "speculative_flash_decode")
