# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tree attention that emits a guess of its result and decides on it: attention-level speculation (ALSpec paper, section
4.1) over token trees."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tt_kernels.common.cores import check_on_device
from tt_kernels.common.priority import check_priority_tensor
from tt_kernels.common.speculative_chips import Peer, check_chips, gathered_of
from tt_kernels.common.tensor_facts import unsupported_if_refused
from tt_kernels.common.tp_group import TpGroup
from tt_kernels.speculative_flash_decode.checks import check_chunk, check_numbers
from tt_kernels.speculative_flash_decode.guess_range import GuessRange, check_guess_range
from tt_kernels.speculative_flash_decode.op import Decoded
from tt_kernels.tree_attention.op import ProgramConfig, empty_like_query, launch, problem_of
from tt_kernels.tree_attention.program import Tensors

if TYPE_CHECKING:
    import ttnn

__all__ = ["Decoded", "GuessRange", "Peer", "ProgramConfig", "TpGroup", "speculative_tree_attention"]

OP = "speculative_tree_attention"


def speculative_tree_attention(
    q: ttnn.Tensor,
    k: ttnn.Tensor,
    v: ttnn.Tensor,
    prefix: ttnn.Tensor,
    intervals: ttnn.Tensor,
    *,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    page_table: ttnn.Tensor | None = None,
    threshold: float = 0.1,
    scale: float | None = None,
    priority: ttnn.Tensor | None = None,
    peer: Peer | None = None,
    tp_group: TpGroup | None = None,
    program_config: ProgramConfig | None = None,
) -> Decoded:
    """Compute `tree_attention`, and before it a guess that attends to the first and the last cached tokens only, and to
    all nodes that a node sees.

    q, k, v, prefix, intervals, page_table, scale, program_config: as for `tree_attention`; one core of the grid
        decides. chunk_size, guess_range: what the guess reads of the tokens up to the tree's root, prefix + 1, as in
        `speculative_flash_decode`.
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
    import ttnn

    gathered = gathered_of(peer)
    problem = problem_of(q, k, v, prefix, intervals, program_config, page_table)
    if guess_range is None:
        check_chunk(chunk_size, problem.max_tokens)
        guess_range = GuessRange.both_ends(chunk_size)
    check_guess_range(guess_range, problem.max_tokens)
    threshold, scale = check_numbers(threshold, scale, problem.head_dim)
    if priority is not None:
        unsupported_if_refused(check_priority_tensor, priority)
        unsupported_if_refused(check_on_device, "priority", priority, q.device())
    check_chips(OP, peer, tp_group, priority, q.device())

    def numbers():
        shape = [1, 1, 1, problem.users]
        return ttnn.empty(shape, ttnn.float32, ttnn.ROW_MAJOR_LAYOUT, q.device(), ttnn.DRAM_MEMORY_CONFIG)

    decoded = Decoded(empty_like_query(q), empty_like_query(q), numbers(), numbers())
    tensors = Tensors(q, k, v, prefix, intervals, *decoded, priority, page_table, gathered)
    launch(replace(problem, guess=guess_range), tensors, scale, program_config, threshold, peer, tp_group)
    return decoded
