# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention of the nodes of token trees, with masks from two integers per node (FlashSpecInfer, section 5.1), alone or
with a guess that is verified on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tt_kernels.common import attention_program
from tt_kernels.common.attention_checks import check_attention_tensors
from tt_kernels.common.attention_program import SEMAPHORES as COMMON_SEMAPHORES
from tt_kernels.common.attention_program import (
    Decoded,
    KernelSet,
    NocCore,
    Rank,
    Settings,
    Tensors,
    config_of,
    empty_like_query,
    empty_outputs,
    launch,
    settings_of,
)
from tt_kernels.common.kernel import float_bits, require_ungated
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.speculative_chips import ALONE, Peer, check_chips, gathered_of
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.common.tp_group import TpGroup
from tt_kernels.speculative_flash_decode.checks import check_chunk
from tt_kernels.speculative_flash_decode.guess_range import GuessRange, check_guess_range
from tt_kernels.tree_attention.checks import (
    Problem,
    check_intervals,
    check_prefill,
    check_problem,
    check_room,
    pass_tiles,
)
from tt_kernels.tree_attention.work_split import INDICES, JobSplit, choose_work_split, rest_tiles, times_tiles

__all__ = [
    "Decoded",
    "GuessRange",
    "Peer",
    "ProgramConfig",
    "TpGroup",
    "UnsupportedError",
    "check_intervals",
    "check_room",
    "prefill_attention",
    "speculative_tree_attention",
    "tree_attention",
]

OP = "speculative_tree_attention"
KERNELS = Path(__file__).parent / "kernels"
SEMAPHORES = COMMON_SEMAPHORES | {"sem_guessed": 3, "sem_measured": 4}


@dataclass(frozen=True)
class ProgramConfig(attention_program.ProgramConfig):
    """query_tiles: tiles of 32 queries (node x query head of one key/value head) that a core takes through the cache at
    once; by default, with workers_per_head, the fastest for the shapes."""

    query_tiles: int | None = None


def tree_attention(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    prefix: ttnn.Tensor,
    intervals: ttnn.Tensor,
    *,
    page_table: ttnn.Tensor | None = None,
    scale: float | None = None,
    program_config: ProgramConfig | None = None,
) -> ttnn.Tensor:
    """Compute the attention of every node of each user's token tree over the user's cached prefix, the node's ancestors
    and itself (FlashSpecInfer, section 5.1). Node i sees node j where enter[j] <= enter[i] and leave[j] >= leave[i].

    q: bfloat16 [1, heads, users * nodes, head_dim]: row u * nodes + n is node n of user u. head_dim 64 or 128.
    k, v: caches [users, kv_heads, max_tokens, head_dim], bfloat16 or bfloat8_b. 1 to 8 users. Keys and values of node n
        of user u are at position prefix[u] + n already. All three TILE, interleaved, in DRAM or L1.
    prefix: int32 [users], ROW_MAJOR: cached tokens before the tree, which all nodes see; 0 or more, -1 skips the user.
    intervals: int32 [users, 2, nodes], ROW_MAJOR: when a depth-first walk enters each node, then the last time inside
        its subtree, inclusive; 1 to 256 nodes. Narrower trees have further nodes with an interval of their own.
    page_table: int32 [users, blocks of a user], ROW_MAJOR: the caches are then [blocks, kv_heads, 32, 64 or 128,
        head_dim] (common/page_table.py). Read on the device.
    scale: of the scores, 1e-4 to 100, default 1 / sqrt(head_dim). Scaled scores may reach 10000 either way.

    Returns bfloat16 [1, heads, users * nodes, head_dim], TILE, in DRAM; rows of skipped users are zeros.

    Prefixes and intervals are read on the device, so one program (and one trace) serves all of them. They are not
    checked there: `check_intervals` and `check_room` do it on the host. What the caches hold after prefix + nodes does
    not matter. Errors: UnsupportedError (a ValueError), before any launch.
    """
    given = Tensors(q, k, v, prefix, pages=page_table, intervals=intervals)
    problem, config = problem_of(given, program_config)
    return _one_result(given, problem, scale, config)


def prefill_attention(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    start: ttnn.Tensor,
    page_table: ttnn.Tensor,
    *,
    scale: float | None = None,
    math_fidelity: str = "HiFi2",
) -> ttnn.Tensor:
    """Compute the causal attention of a prefill chunk over one user's cache. The chunk is cut into pieces of 32 tokens
    or more, which are token trees without branches, each after those before it.

    q: bfloat16 [1, heads, tokens, head_dim], a multiple of 32 tokens. head_dim 64 or 128.
    k, v: caches in blocks, [blocks, kv heads of a block, 32, 64 or 128, head_dim], bfloat16 or bfloat8_b, which hold
        the keys and values of all tokens of the chunk already. All three TILE, interleaved, in DRAM or L1.
    start: int32 [1], ROW_MAJOR: the position of the chunk's first token, read on the device.
    page_table: int32 [groups, blocks of the user], ROW_MAJOR: a row for each group of as many key/value heads as a
        block has, so one for all heads or one for each. Read on the device.
    scale: of the scores, 1e-4 to 100, default 1 / sqrt(head_dim).

    Returns bfloat16 [1, heads, tokens, head_dim], TILE, in DRAM. What the caches hold behind the chunk does not matter.
    Errors: UnsupportedError (a ValueError), before any launch.
    """
    given = Tensors(q, k, v, start, pages=page_table)
    facts = given.facts("start")
    check_attention_tensors(facts["q"], facts["k"], facts["v"])
    grid = q.device().compute_with_storage_grid_size()
    cores = grid.x * grid.y
    problem = check_prefill(**facts, cores=cores)
    given.check_devices()
    config = ProgramConfig(workers_per_head=1, query_tiles=pass_tiles(problem, cores), math_fidelity=math_fidelity)
    return _one_result(given, problem, scale, config)


def problem_of(given: Tensors, program_config: Any) -> tuple[Problem, ProgramConfig]:
    """Check the tensors of a call and its configuration; return their shapes, and it. Errors: UnsupportedError."""
    config = config_of(program_config, ProgramConfig)
    problem = check_problem(**given.facts("prefix"))
    given.check_devices()
    return problem, config


def how_to_run(problem: Problem, settings: Settings, config: ProgramConfig) -> tuple[Any, ProgramConfig, int, Any]:
    """Return what `launch` needs to know of the op: how it chooses a split, its semaphores, how it fills a program."""
    choose = partial(choose_work_split, problem, query_tiles=config.query_tiles)
    return choose, config, len(SEMAPHORES), partial(fill_program, problem, settings)


def _one_result(given: Tensors, problem: Problem, scale: float | None, config: ProgramConfig) -> ttnn.Tensor:
    settings, result = settings_of(problem.head_dim, config, scale), empty_like_query(given.q)
    launch(replace(given, exact=result), *how_to_run(problem, settings, config))
    return result


def speculative_tree_attention(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    prefix: ttnn.Tensor,
    intervals: ttnn.Tensor,
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
    """Compute `tree_attention`, and before it a guess that attends to the first, the last and chosen cached tokens
    only, and to all nodes that a node sees.

    q, k, v, prefix, intervals, page_table, scale, program_config: as for `tree_attention`; one core of the grid
        decides. chunk_size, guess_range: what the guess reads of the tokens up to the tree's root, prefix + 1, as in
        `speculative_flash_decode`.
    chosen: the tiles that the guess of each key/value head reads besides, for all nodes of a user: as for
        `speculative_flash_decode`; bits of the ends and past the root count for nothing.
    tile_masses: uint32 [users, kv_heads, max_tokens / 32], ROW_MAJOR, updated by the sender as by
        `speculative_flash_decode` with the tree's root, node 0, as a user's query: the masses are of its exact softmax
        alone, and words of tiles past it stay what they are. A core then takes all queries of a key/value head through
        the cache at once, so `query_tiles` cannot be fewer; and the program takes up to 80 KB of a core's L1, for
        which a device is opened with a `worker_l1_size` below ttnn's default.
    threshold: a user's guess is accepted where ||guess - exact|| < threshold * ||exact|| over all nodes and heads; 0
        accepts nothing. Nodes outside the tree of the user's first one do not count: they fill narrower trees up.
    priority: this chip's priorities (common/priority.py), updated in place as by the sender of
        `speculative_flash_decode`: YIELDED (accepted, or skipped), HOLDS_EXACT, or HOLDS_EXACT_UNVERIFIED where
        prefix + 1 is below what the guess reads (2 * chunk_size); as the receiver HOLDS_GUESS, or YIELDED without one.
    peer, tp_group: the chip that receives the guess, or sends it; the chips that hold the other heads: as for
        `speculative_flash_decode`. A receiver's exact result is the peer's guess; its guess is undefined.

    Returns exact and guess, bfloat16 [1, heads, users * nodes, head_dim], TILE, and distance_sq and norm_sq, float32
    [1, 1, 1, users], ROW_MAJOR, all in DRAM. Errors: UnsupportedError (a ValueError) and GatedRegionError, before any
    launch.
    """
    others = {"priority": priority, "gathered": gathered_of(peer), "pages": page_table, "chosen": chosen}
    given = Tensors(q, k, v, prefix, **others, masses=tile_masses, intervals=intervals)
    problem, config = problem_of(given, program_config)
    if guess_range is None:
        check_chunk(chunk_size, problem.max_tokens)
        guess_range = GuessRange.both_ends(chunk_size)
    check_guess_range(guess_range, problem.max_tokens)
    problem = replace(problem, guess=guess_range)
    settings = settings_of(problem.head_dim, config, scale, threshold, speculate=True)
    check_chips(OP, peer, tp_group, priority, q.device())
    outputs = empty_outputs(q, problem.users)
    launch(replace(given, **outputs._asdict()), *how_to_run(problem, settings, config), peer, tp_group)
    return outputs


def fill_program(
    problem: Problem, settings: Settings, program: Any, ranks: Sequence[Rank], split: JobSplit, noc_core: NocCore
) -> Any:
    """Add to a program with semaphores what runs a call on one chip; return it. noc_core: Core -> (x, y) on the NoC."""
    ungated = ranks[0].chip != ALONE
    key_tiles = split.key_tiles + rest_tiles(problem, split.key_tiles)
    kernels = KernelSet(
        *(KERNELS, problem, settings, ranks, split, noc_core),
        guess=problem.guess,
        constants=INDICES | SEMAPHORES | {"prefills": int(problem.block_heads > 0)},
        shapes={
            "users": problem.users if problem.block_heads == 0 else 1,
            "trees": problem.users,
            "block_heads": problem.block_heads,
            "nodes": problem.nodes,
            "query_tiles": split.query_tiles,
            "passes": split.passes,
            "chunk_tiles": split.key_tiles,
            "key_tiles": key_tiles,
            "tree_tiles": times_tiles(problem, key_tiles),
        },
        ungated=ungated,
    )
    written = ("exact", "guess", "intervals", "masses")
    built = kernels.workers("", written, threshold_sq=float_bits(settings.threshold**2))
    if settings.speculate:
        built.append(kernels.deciding("decision.cpp"))
    kernels.fill(program, built + kernels.exchange())
    return require_ungated(program, "speculative_tree_attention") if ungated else program
