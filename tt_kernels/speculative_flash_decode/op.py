# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode attention with a guess, verified on the device (ALSpec paper, section 4.1, appendices B and D)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tt_kernels.common.peer import CorePair
from tt_kernels.common.row import TpGroup
from tt_kernels.common.tensor_facts import UnsupportedError, result_memory
from tt_kernels.speculative_flash_decode.checks import check_fidelity, check_numbers
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.launch import (
    ProgramConfig,
    check_config,
    check_gathered_pair,
    check_peer,
    launch,
    launch_pair,
    problem_of,
)
from tt_kernels.speculative_flash_decode.member import Settings, Tensors
from tt_kernels.speculative_flash_decode.peer import Peer

if TYPE_CHECKING:
    import ttnn

__all__ = [
    "TpGroup",
    "Decoded",
    "PairMember",
    "Peer",
    "GuessRange",
    "ProgramConfig",
    "UnsupportedError",
    "flash_decode",
    "guess_flash_decode",
    "speculative_flash_decode",
    "speculative_flash_decode_pair",
]


class Decoded(NamedTuple):
    """exact, guess: bfloat16 [1, users, heads, head_dim], TILE. distance_sq, norm_sq: float32 [1, 1, 1,
    users], ROW_MAJOR: the squared distance of the two and the squared norm of the exact one, over all heads
    of a user. On the receiver of a pair both results are the peer's guess, and the numbers are 0."""

    exact: ttnn.Tensor
    guess: ttnn.Tensor
    distance_sq: ttnn.Tensor
    norm_sq: ttnn.Tensor


@dataclass(frozen=True)
class PairMember:
    """One side of a virtual pair: its own tensors, as of `speculative_flash_decode`, and its part of the
    chip."""

    q: ttnn.Tensor
    k: ttnn.Tensor
    v: ttnn.Tensor
    cur_pos: ttnn.Tensor
    priority: ttnn.Tensor
    program_config: ProgramConfig


def speculative_flash_decode(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    cur_pos: ttnn.Tensor,
    *,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    threshold: float = 0.1,
    scale: float | None = None,
    priority: ttnn.Tensor | None = None,
    peer: Peer | None = None,
    row: TpGroup | None = None,
    program_config: ProgramConfig | None = None,
) -> Decoded:
    """Attention of one token a user over its cache, and the guess that attends to the first `chunk_size` cached
    tokens and the last `chunk_size` to `chunk_size` + 31: whole tiles of 32, up to the one that holds the position.

    q: [1, users, heads, head_dim] bfloat16. k, v: caches [users, kv_heads, max_tokens, head_dim], bfloat16 or
        bfloat8_b. All TILE, interleaved. 1 to 8 users, up to 32 heads, head_dim 64 or 128.
    cur_pos: int32 [users], ROW_MAJOR: the position of each query, whose key and value are in the cache
        already; -1 skips a user, whose outputs are zeros. Read on the device. Positions past the cache count
        as its last.
    chunk_size: tokens of the guess at either end (see above), a multiple of 32.
    guess_range: what the guess attends to instead: other sizes at the two ends, a tail of at most so many tokens.
    threshold: the guess is accepted where |guess - exact| < threshold * |exact|; 0 accepts nothing.
    scale: of the scores, 1e-4 to 100, default 1 / sqrt(head_dim). Scaled scores may reach 10000 either way.
    priority: this chip's row of priorities (common/priority.py), updated in place: YIELDED or HOLDS_EXACT (also
        where its guess found no peer) by the sender, HOLDS_EXACT_UNVERIFIED below 2 * chunk_size cached tokens (the two
        sizes of guess_range), HOLDS_GUESS by a receiver; YIELDED if skipped, and by a receiver without a guess.
    peer: the chip that receives the guess, or sends it, by the gathered priorities. Without one this chip
        sends to nobody.
    row: the chips of the mesh that hold the other heads of the same users (tensor parallelism). All chips of a row
        take one decision, by distances and norms summed over the row, which `distance_sq` and `norm_sq` are then. A
        row in which a chip stays silent accepts nothing; `row.check()` says so. Needed with a peer on a mesh that has
        more than one chip along the other axis.

    What the caches hold past the position does not matter. Errors: UnsupportedError (a ValueError) and
    GatedRegionError, before any launch.
    """
    if peer is not None:
        check_peer(peer)
    problem = problem_of(q, k, v, cur_pos, priority, chunk_size, guess_range)
    settings = _settings(q, threshold, scale, True, program_config)
    outputs = _outputs(q)
    gathered = None if peer is None else peer.gathered
    tensors = Tensors(q, k, v, cur_pos, *outputs, priority, gathered)
    launch(problem, tensors, settings, program_config or ProgramConfig(), peer, row)
    return outputs


def speculative_flash_decode_pair(
    members: Sequence[PairMember],
    *,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    peer: Peer,
    threshold: float = 0.1,
    scale: float | None = None,
    present: Sequence[int] = (0, 1),
) -> list[Decoded]:
    """Both members of a virtual pair in one program, on disjoint cores of one chip; see
    `speculative_flash_decode`.

    present: which members run; one alone has a silent peer, and gives up on it. Returns the outputs of both.
    Errors: UnsupportedError, GatedRegionError.
    """
    if not isinstance(members, Sequence) or not all(isinstance(member, PairMember) for member in members):
        raise UnsupportedError(f"members must be a list of PairMember, got {members!r}")
    check_peer(peer)
    for member in members:
        check_config(member.program_config)
    problems = [problem_of(m.q, m.k, m.v, m.cur_pos, m.priority, chunk_size, guess_range) for m in members]
    if len(problems) != 2 or problems[0] != problems[1]:
        raise UnsupportedError(f"a pair has two members of the same shapes, got {problems}")
    pairs = peer.pairs
    if not isinstance(pairs, CorePair):
        raise UnsupportedError(f"peer.pairs must be a CorePair, it is a {type(pairs).__name__}")
    check_gathered_pair(peer)
    settings = _settings(members[0].q, threshold, scale, True, members[0].program_config)
    outputs = [_outputs(member.q) for member in members]
    tensors = [
        Tensors(member.q, member.k, member.v, member.cur_pos, *out, member.priority, peer.gathered_of(index))
        for index, (member, out) in enumerate(zip(members, outputs, strict=True))
    ]
    configs = [member.program_config for member in members]
    launch_pair(problems[0], tensors, configs, settings, peer, pairs, present)
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
    memory_config: ttnn.MemoryConfig | None = None,
) -> ttnn.Tensor:
    """The exact attention alone: the same kernels with speculation compiled out. Arguments, shapes and errors
    as of `speculative_flash_decode`; returns exact, bfloat16 [1, users, heads, head_dim], TILE.

    memory_config: where the result lies, interleaved in L1 or DRAM (default). Sharded: UnsupportedError."""
    problem = problem_of(q, k, v, cur_pos, None, chunk_size)
    return _one_result(problem, q, k, v, cur_pos, scale, program_config, memory_config)


def guess_flash_decode(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    cur_pos: ttnn.Tensor,
    *,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    scale: float | None = None,
    program_config: ProgramConfig | None = None,
    memory_config: ttnn.MemoryConfig | None = None,
) -> ttnn.Tensor:
    """The guess alone, by the kernels of `flash_decode`: nothing else of the cache is read and nothing is verified; all
    workers of a head share the guess's tiles. Arguments, shapes and errors as of `speculative_flash_decode`,
    memory_config as of `flash_decode`; returns guess, bfloat16 [1, users, heads, head_dim], TILE, which below
    2 * chunk_size cached tokens (the guess_range's two sizes) is the exact result."""
    problem = problem_of(q, k, v, cur_pos, None, chunk_size, guess_range)
    return _one_result(problem, q, k, v, cur_pos, scale, program_config, memory_config, guess_alone=True)


def _one_result(
    problem, q, k, v, cur_pos, scale, config: ProgramConfig | None, memory, guess_alone: bool = False
) -> ttnn.Tensor:
    """By the kernels with speculation compiled out."""
    settings = _settings(q, 0.0, scale, False, config, guess_alone)
    result = _empty_like_query(q, result_memory(memory))
    launch(problem, Tensors(q, k, v, cur_pos, result), settings, config or ProgramConfig(), None)
    return result


def _settings(q, threshold, scale, speculate, config: ProgramConfig | None, guess_alone: bool = False) -> Settings:
    if config is not None:
        check_config(config)
    threshold, scale = check_numbers(threshold, scale, tuple(q.shape)[-1])
    fidelity = check_fidelity((config or ProgramConfig()).math_fidelity)
    return Settings(threshold, scale, speculate, fidelity, guess_alone)


def _empty_like_query(q, memory):
    import ttnn

    return ttnn.empty(list(q.shape), ttnn.bfloat16, ttnn.TILE_LAYOUT, q.device(), memory)


def _outputs(q) -> Decoded:
    import ttnn

    def row():
        shape = [1, 1, 1, tuple(q.shape)[1]]
        return ttnn.empty(shape, ttnn.float32, ttnn.ROW_MAJOR_LAYOUT, q.device(), ttnn.DRAM_MEMORY_CONFIG)

    exact, guess = (_empty_like_query(q, ttnn.DRAM_MEMORY_CONFIG) for _ in range(2))
    return Decoded(exact, guess, row(), row())
