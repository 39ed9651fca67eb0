# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode attention with a guess, verified on the device (ALSpec paper, section 4.1, appendices B and D)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tt_kernels.common.attention_program import SEMAPHORES as COMMON_SEMAPHORES
from tt_kernels.common.attention_program import (
    Decoded,
    KernelSet,
    NocCore,
    ProgramConfig,
    Rank,
    Settings,
    Tensors,
    config_of,
    empty_like_query,
    empty_outputs,
    launch,
    settings_of,
)
from tt_kernels.common.attention_split import WorkSplit
from tt_kernels.common.cores import l1_free as l1_free
from tt_kernels.common.kernel import Values, float_bits, require_ungated
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.speculative_chips import Peer, check_chips, gathered_of
from tt_kernels.common.tensor_facts import UnsupportedError, result_memory
from tt_kernels.common.tp_group import TpGroup
from tt_kernels.speculative_flash_decode.checks import Problem, check_problem
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.work_split import INDICES, choose_work_split

__all__ = [
    "Decoded",
    "GuessRange",
    "Peer",
    "ProgramConfig",
    "TpGroup",
    "UnsupportedError",
    "flash_decode",
    "guess_flash_decode",
    "speculative_flash_decode",
]

OP = "speculative_flash_decode"
KERNELS = Path(__file__).parent / "kernels"
SEMAPHORES = COMMON_SEMAPHORES | {"sem_outgoing": 3, "sem_user": 4}  # the last is the first of one per user


def speculative_flash_decode(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    cur_pos: ttnn.Tensor,
    *,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    chosen: ttnn.Tensor | None = None,
    tile_masses: ttnn.Tensor | None = None,
    page_table: ttnn.Tensor | None = None,
    threshold: float = 0.1,
    scale: float | None = None,
    priority: ttnn.Tensor | None = None,
    peer: Peer | None = None,
    tp_group: TpGroup | None = None,
    program_config: ProgramConfig | None = None,
) -> Decoded:
    """Compute the attention of one token per user over its cache, and a guess of it: attention over the first
    `chunk_size` cached tokens and the last `chunk_size` to `chunk_size` + 31 (whole tiles of 32, up to the tile that
    holds the position).

    q: [1, users, heads, head_dim] bfloat16. k, v: caches [users, kv_heads, max_tokens, head_dim], bfloat16 or
        bfloat8_b. All TILE, interleaved. 1 to 8 users, up to 32 heads, head_dim 64 or 128.
    cur_pos: int32 [users], ROW_MAJOR: the position of each query, whose key and value are in the cache already; -1
        skips a user, whose outputs are zeros. Read on the device. Positions past the cache count as its last.
    chunk_size: tokens of the guess at either end (see above), a multiple of 32.
    page_table: int32 [users, blocks of a user], ROW_MAJOR: the caches are then [blocks, kv_heads, 32, 64 or 128,
        head_dim] (common/page_table.py). Read on the device.
    guess_range: what the guess attends to instead: other sizes at the two ends, or a tail of at most `last` tokens.
    chosen: uint32 [users, kv_heads, W], ROW_MAJOR, the tiles that each head's guess reads besides, a bit a tile
        (guess_range.py). Read on the device.
    tile_masses: uint32 [users, kv_heads, max_tokens / 32], ROW_MAJOR, updated by the sender: each word becomes the mean
        of what it was and of the mass, how much of the exact softmax lies on a tile of 32 keys, summed over the query
        heads of a key/value head, in units of 2^-24. So it is a moving average over this chip's own exact passes, with
        a decay of 1/2. The words of skipped users and of tiles without cached tokens stay what they are.
    threshold: the guess is accepted where ||guess - exact|| < threshold * ||exact||; 0 accepts nothing.
    scale: of the scores, 1e-4 to 100, default 1 / sqrt(head_dim). Scaled scores may reach 10000 either way.
    priority: this chip's priorities (common/priority.py), updated in place. The sender sets YIELDED (accepted) or
        HOLDS_EXACT (rejected, or its guess found no peer), HOLDS_EXACT_UNVERIFIED below 2 * chunk_size cached tokens
        (first + last of the guess_range); the receiver sets HOLDS_GUESS, or YIELDED without a guess. A skipped user's
        is YIELDED.
    peer: the chip that receives the guess, or sends it, by the gathered priorities. Without one this chip sends to
        nobody.
    tp_group: the chips that hold the other heads of the same users (tensor parallelism). They decide together, from
        distance and norm summed over the group; `distance_sq` and `norm_sq` return those sums. A group in which a chip
        stays silent accepts nothing, and `tp_group.check()` says so. Needed with a peer on a mesh that has more than
        one chip along the other axis.

    What the caches hold past the position does not matter. Errors: UnsupportedError (a ValueError) and
    GatedRegionError, before any launch.
    """
    others = {"priority": priority, "gathered": gathered_of(peer), "pages": page_table, "chosen": chosen}
    given = Tensors(q, k, v, cur_pos, **others, masses=tile_masses)
    problem, config = problem_of(given, chunk_size, guess_range), config_of(program_config, ProgramConfig)
    settings = settings_of(problem.head_dim, config, scale, threshold, speculate=True)
    check_chips(OP, peer, tp_group, priority, q.device())
    outputs = empty_outputs(q, problem.users)
    launch(replace(given, **outputs._asdict()), *how_to_run(problem, settings, config), peer, tp_group)
    return outputs


def flash_decode(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    cur_pos: ttnn.Tensor,
    *,
    chunk_size: int,
    page_table: ttnn.Tensor | None = None,
    scale: float | None = None,
    program_config: ProgramConfig | None = None,
    memory_config: ttnn.MemoryConfig | None = None,
) -> ttnn.Tensor:
    """Compute the exact attention alone, by the same kernels with speculation compiled out.

    Arguments, shapes and errors are those of `speculative_flash_decode`. memory_config: of the result, interleaved in
    L1 or DRAM (default). Returns exact, bfloat16 [1, users, heads, head_dim], TILE.
    """
    given = Tensors(q, k, v, cur_pos, pages=page_table)
    return _one_result(given, problem_of(given, chunk_size), scale, program_config, memory_config)


def guess_flash_decode(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    cur_pos: ttnn.Tensor,
    *,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    chosen: ttnn.Tensor | None = None,
    page_table: ttnn.Tensor | None = None,
    scale: float | None = None,
    program_config: ProgramConfig | None = None,
    memory_config: ttnn.MemoryConfig | None = None,
) -> ttnn.Tensor:
    """Compute the guess alone, by the kernels of `flash_decode`: nothing else of the cache is read, nothing is
    verified, and the first workers of a head share the guess's tiles.

    Arguments, shapes and errors are those of `speculative_flash_decode`, memory_config that of `flash_decode`. Returns
    guess, bfloat16 [1, users, heads, head_dim], TILE: the exact result below 2 * chunk_size cached tokens (first + last
    of the guess_range).
    """
    given = Tensors(q, k, v, cur_pos, pages=page_table, chosen=chosen)
    problem = problem_of(given, chunk_size, guess_range)
    return _one_result(given, problem, scale, program_config, memory_config, guess_alone=True)


def _one_result(
    given: Tensors, problem: Problem, scale: Any, program_config: Any, memory: Any, guess_alone: bool = False
) -> ttnn.Tensor:
    """Run the kernels with speculation compiled out."""
    config = config_of(program_config, ProgramConfig)
    settings = settings_of(problem.head_dim, config, scale, guess_alone=guess_alone)
    result = empty_like_query(given.q, result_memory(memory))
    launch(replace(given, exact=result), *how_to_run(problem, settings, config))
    return result


def problem_of(given: Tensors, chunk_size: int, guess_range: GuessRange | None = None) -> Problem:
    """Check the tensors of a call and return their shapes. Errors: UnsupportedError."""
    problem = check_problem(**given.facts("cur_pos"), chunk_size=chunk_size, guess_range=guess_range)
    given.check_devices()
    return problem


def how_to_run(problem: Problem, settings: Settings, config: ProgramConfig) -> tuple[Any, ProgramConfig, int, Any]:
    """Return what `launch` needs to know of the op: how it chooses a split, its semaphores, how it fills a program."""
    mode = {"speculate": settings.speculate, "guess_alone": settings.guess_alone}
    semaphores = SEMAPHORES["sem_user"] + problem.users
    return partial(choose_work_split, problem, **mode), config, semaphores, partial(fill_program, problem, settings)


def fill_program(
    problem: Problem, settings: Settings, program: Any, ranks: Sequence[Rank], split: WorkSplit, noc_core: NocCore
) -> Any:
    """Add to an `empty_program` what runs each of `ranks` on its own cores of one chip; return the program.

    split: the split of one rank; the others' differ in the cores only. noc_core: Core -> (x, y) on the NoC.
    """
    kernels = KernelSet(
        *(KERNELS, problem, settings, ranks, split, noc_core),
        guess=problem.guess,
        constants=INDICES | SEMAPHORES,
        shapes={"guess_alone": int(settings.guess_alone)},
        ungated=True,
    )
    output = _output(kernels) if settings.speculate else []
    kernels.fill(program, kernels.workers("worker_", ("exact", "masses")) + output + kernels.exchange())
    return require_ungated(program, "speculative_flash_decode")


def _output(kernels: KernelSet) -> list[Any]:
    def reader(rank: Rank) -> Values:
        return kernels.control(rank) | rank.tensors.addresses("exact", "guess")

    threshold_sq = {"threshold_sq": float_bits(kernels.settings.threshold**2)}
    read = {"output": kernels.tensors.exact} | kernels.control_accessors()
    return [
        kernels.kernel("output_reader.cpp", "Reader", read, kernels.per_decider(reader)),
        kernels.deciding("output_writer.cpp"),
        kernels.kernel("output_compute.cpp", kernels.compute_config(), {}, kernels.per_decider(lambda _: threshold_sq)),
    ]
