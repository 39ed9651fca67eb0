# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From checked tensors to a running program, on one chip or on every chip of a mesh."""

from __future__ import annotations

from dataclasses import dataclass

from tt_kernels.common.cores import check_on_device
from tt_kernels.common.kernel import Core
from tt_kernels.common.placement import grid_cores, noc_core_of
from tt_kernels.common.placement import l1_free as l1_free
from tt_kernels.common.priority import check_priority_tensor
from tt_kernels.common.speculative_chips import ChipArgs, Peer, check_chips, mesh_program
from tt_kernels.common.tensor_facts import UnsupportedError, facts, facts_or_none, unsupported_if_refused
from tt_kernels.common.tp_group import TpGroup
from tt_kernels.speculative_flash_decode.checks import Problem, check_problem
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.program import Rank, Settings, Tensors, empty_program, fill_program
from tt_kernels.speculative_flash_decode.work_split import WorkSplit, choose_work_split

OP = "speculative_flash_decode"


@dataclass(frozen=True)
class ProgramConfig:
    """How a call uses the chip.

    grid: (columns, rows) of cores to use, default all. origin: (x, y) of its first core.
    workers_per_head: cores that share one head, default by shapes. key_chunk: tokens whose keys a worker holds and
    processes at once, a multiple of 32; default chunk_size, a multiple of it in a long cache (key_chunks.py), or the
    most that fit L1.
    math_fidelity: name of a ttnn.MathFidelity.
    """

    grid: tuple[int, int] | None = None
    origin: Core = (0, 0)
    workers_per_head: int | None = None
    key_chunk: int | None = None
    math_fidelity: str = "HiFi3"


def launch(
    problem: Problem,
    tensors: Tensors,
    settings: Settings,
    config: ProgramConfig,
    peer: Peer | None,
    tp_group: TpGroup | None = None,
) -> None:
    """Run on every chip that holds the tensors. Errors: UnsupportedError, GatedRegionError."""
    import ttnn

    device = tensors.q.device()
    check_chips(OP, peer, tp_group, tensors.priority, device)
    exchange = None if peer is None else peer.pairs.core
    output = None if tp_group is None else tp_group.core
    split = split_of(device, problem, settings, config, exchange, output, tensors.masses is not None)
    noc_core = noc_core_of(device)

    def fill(program, chip: ChipArgs):
        rank = Rank(tensors, split.assignment, chip.sp_rank, chip.peer, chip.tp)
        return fill_program(program, problem, settings, [rank], split, noc_core)

    program = mesh_program(peer, tp_group, tensors.exact, lambda: empty_program(problem, [split.assignment]), fill)
    ttnn.generic_op(tensors.all(), program)


def problem_of(
    q,
    k,
    v,
    cur_pos,
    priority,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    page_table=None,
    tile_lists=None,
    tile_masses=None,
) -> Problem:
    """Check the tensors of a call and return their shapes. Errors: UnsupportedError."""
    named = {"q": q, "k": k, "v": v, "cur_pos": cur_pos}
    optional = {"page_table": page_table, "tile_lists": tile_lists, "tile_masses": tile_masses}
    problem = check_problem(
        facts("q", q),
        facts("k", k),
        facts("v", v),
        facts("cur_pos", cur_pos),
        chunk_size,
        guess_range,
        *(facts_or_none(name, tensor) for name, tensor in optional.items()),
    )
    named |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    if priority is not None:
        unsupported_if_refused(check_priority_tensor, priority)
        named["priority"] = priority
    for name, tensor in named.items():
        unsupported_if_refused(check_on_device, name, tensor, q.device())
    return problem


def check_config(config) -> None:
    """Raise UnsupportedError unless `config` is a ProgramConfig."""
    if not isinstance(config, ProgramConfig):
        raise UnsupportedError(f"program_config must be a ProgramConfig, it is a {type(config).__qualname__}")


def split_of(
    device,
    problem: Problem,
    settings: Settings,
    config: ProgramConfig,
    exchange: Core | None,
    output: Core | None = None,
    masses: bool = False,
) -> WorkSplit:
    """Choose the work split of one rank. exchange: the core that talks to the peer; output: the one that talks to the
    TP group; masses: those of key tiles are handed out. Errors: UnsupportedError."""
    return choose_work_split(
        problem,
        grid_cores(device, config.grid, config.origin),
        l1_free(device),
        speculate=settings.speculate,
        guess_alone=settings.guess_alone,
        peer=exchange is not None,
        exchange=exchange,
        output=output,
        workers_per_head=config.workers_per_head,
        key_chunk=config.key_chunk,
        masses=masses,
    )
