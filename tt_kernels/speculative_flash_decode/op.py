# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode attention with a guess, verified on the device (ALSpec paper, section 4.1 and appendices B and D)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tt_kernels.common.priority import check_priority_tensor
from tt_kernels.speculative_flash_decode.buffers import check_l1, plan_buffers
from tt_kernels.speculative_flash_decode.checks import (
    TensorFacts,
    UnsupportedError,
    check_fidelity,
    check_numbers,
    check_problem,
)
from tt_kernels.speculative_flash_decode.program import Member, Settings, Tensors, build_program
from tt_kernels.speculative_flash_decode.work_split import Core, plan_cores

if TYPE_CHECKING:
    import ttnn


@dataclass(frozen=True)
class ProgramConfig:
    """How a call is laid out on the chip.

    grid: (columns, rows) of cores to use, default all. origin: (x, y) of its first core.
    workers_a_head: cores that share one head, default by shapes. math_fidelity: name of a ttnn.MathFidelity.
    """

    grid: tuple[int, int] | None = None
    origin: Core = (0, 0)
    workers_a_head: int | None = None
    math_fidelity: str = "HiFi4"


class Decoded(NamedTuple):
    """exact, guess: bfloat16 [1, users, heads, head_dim], TILE. distance_sq, norm_sq: float32 [1, 1, 1, users],
    ROW_MAJOR: the squared distance of the two and the squared norm of the exact one, over all heads of a user."""

    exact: ttnn.Tensor
    guess: ttnn.Tensor
    distance_sq: ttnn.Tensor
    norm_sq: ttnn.Tensor


def speculative_flash_decode(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    cur_pos: ttnn.Tensor,
    *,
    chunk_size: int,
    threshold: float = 0.1,
    scale: float | None = None,
    priority: ttnn.Tensor | None = None,
    program_config: ProgramConfig | None = None,
) -> Decoded:
    """Attention of one token a user over its cache, and the guess that attends to the first and the last chunk.

    q: [1, users, heads, head_dim] bfloat16. k, v: caches [users, kv_heads, max_tokens, head_dim], bfloat16 or
        bfloat8_b. All TILE, interleaved. 1 to 8 users, up to 32 heads, head_dim 64 or 128.
    cur_pos: int32 [users], ROW_MAJOR: the position of each query, whose key and value are in the cache already;
        -1 skips a user, whose outputs are zeros. Read on the device. Positions past the cache count as its last.
    chunk_size: tokens of the guess at either end, a multiple of 32; also how many keys a worker takes at a time.
    threshold: the guess is accepted where |guess - exact| < threshold * |exact|.
    scale: of the scores, default 1 / sqrt(head_dim).
    priority: this chip's row of priorities (common/priority.py), updated in place.

    Cached values past the position must be finite. Errors: UnsupportedError (a ValueError), before any launch.
    """
    settings = _settings(q, threshold, scale, True, program_config)
    outputs = _outputs(q)
    tensors = Tensors(q, k, v, cur_pos, outputs.exact, outputs.guess, outputs.distance_sq, outputs.norm_sq, priority)
    _launch(tensors, chunk_size, settings, program_config or ProgramConfig())
    return outputs


def flash_decode(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    cur_pos: ttnn.Tensor,
    *,
    chunk_size: int,
    scale: float | None = None,
    program_config: ProgramConfig | None = None,
) -> ttnn.Tensor:
    """The exact attention alone: the same kernels with speculation compiled out. Arguments, shapes and errors as of
    `speculative_flash_decode`; returns exact, bfloat16 [1, users, heads, head_dim]."""
    settings = _settings(q, 0.0, scale, False, program_config)
    exact = _empty_like_query(q)
    _launch(Tensors(q, k, v, cur_pos, exact), chunk_size, settings, program_config or ProgramConfig())
    return exact


def _settings(q, threshold, scale, speculate, config: ProgramConfig | None) -> Settings:
    threshold, scale = check_numbers(threshold, scale, tuple(q.shape)[-1])
    return Settings(threshold, scale, speculate, check_fidelity((config or ProgramConfig()).math_fidelity))


def _launch(tensors: Tensors, chunk_size: int, settings: Settings, config: ProgramConfig) -> None:
    import ttnn

    problem = check_problem(*(_facts(t) for t in (tensors.q, tensors.k, tensors.v, tensors.cur_pos)), chunk_size)
    if tensors.priority is not None:
        check_priority_tensor(tensors.priority)
    device = tensors.q.device()
    plan = plan_cores(
        _cores(device, config),
        problem.items,
        speculate=settings.speculate,
        workers_a_head=config.workers_a_head,
    )
    buffers = plan_buffers(problem, plan.workers_a_group, speculate=settings.speculate, peer=False)
    check_l1(buffers, ttnn.get_max_worker_l1_unreserved_size(), problem, plan.workers_a_group)
    program = build_program(problem, settings, [Member(tensors, plan)], buffers, _noc_core(device))
    ttnn.generic_op(tensors.all(), program)


def _cores(device, config: ProgramConfig) -> list[Core]:
    """The cores of the program, row by row."""
    size = device.compute_with_storage_grid_size()
    x, y = config.origin
    columns, rows = config.grid or (size.x - x, size.y - y)
    if min(x, y) < 0 or min(columns, rows) < 1 or x + columns > size.x or y + rows > size.y:
        raise UnsupportedError(
            f"a grid of {columns}x{rows} cores at ({x}, {y}) is not within the device's {size.x}x{size.y}"
        )
    return [(x + column, y + row) for row in range(rows) for column in range(columns)]


def _noc_core(device):
    import ttnn

    def noc_core(core: Core) -> tuple[int, int]:
        found = device.worker_core_from_logical_core(ttnn.CoreCoord(*core))
        return found.x, found.y

    return noc_core


def _facts(tensor) -> TensorFacts:
    import ttnn

    return TensorFacts(
        tuple(tensor.shape),
        tensor.dtype.name,
        tensor.layout.name,
        tensor.storage_type() == ttnn.StorageType.DEVICE,
        not tensor.is_sharded(),
    )


def _empty_like_query(q):
    import ttnn

    return ttnn.empty(list(q.shape), ttnn.bfloat16, ttnn.TILE_LAYOUT, q.device(), ttnn.DRAM_MEMORY_CONFIG)


def _outputs(q) -> Decoded:
    import ttnn

    def row():
        shape = [1, 1, 1, tuple(q.shape)[1]]
        return ttnn.empty(shape, ttnn.float32, ttnn.ROW_MAJOR_LAYOUT, q.device(), ttnn.DRAM_MEMORY_CONFIG)

    return Decoded(_empty_like_query(q), _empty_like_query(q), row(), row())
