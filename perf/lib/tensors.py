# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors that benches and sweeps give to ops, and the errors of what comes back. Inputs are random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from models.llama31_8b.spec_decode.tree import TokenTree
from models.llama31_8b.tt.mesh import MeshShape
from perf.lib.virtual_pair import CorePair, RankInputs, speculative_flash_decode_pair
from tt_kernels.common.attention_program import Tensors
from tt_kernels.common.priority import HOLDS_EXACT, MAX_USERS, YIELDED, priority_row
from tt_kernels.speculative_flash_decode.op import ProgramConfig

TREES = ("chain", "balanced", "skewed")


def tile(mesh, values: torch.Tensor | Sequence[int], dtype: str = "bfloat16", memory=None):
    """Return a tensor in tiles on every chip. values: numbers, or the shape of normal ones."""
    numbers = values if isinstance(values, torch.Tensor) else torch.randn(tuple(values))
    return MeshShape(*mesh.shape).put(mesh, numbers, dtype, memory=memory)


def words(mesh, values, dtype: str = "int32", on_device: bool = True):
    """Return integers in rows, on every chip or on the host for a copy to them."""
    numbers = torch.as_tensor(values).to(getattr(torch, dtype))
    return MeshShape(*mesh.shape).put(mesh, numbers, dtype, "ROW_MAJOR_LAYOUT", on_device=on_device)


class VirtualPair:
    """Both ranks of speculative flash decode on one chip, the sender above.

    tensors: q, k, v and positions. grids: columns and rows of the sender's cores and of the receiver's, below them.
    workers: per key/value head. tile_masses: makes what a rank writes them to. launch: returns both ranks' results.
    check: raises where a rank waited too long. exchange: the sender's core that sends the guess; masses: its own.
    """

    def __init__(
        self,
        mesh,
        tensors: Sequence[Any],
        grids: Sequence[tuple[int, int]],
        *,
        chunk_size: int,
        workers: int | None,
        timeout_s: float,
        guess_range=None,
        chosen=None,
        tile_masses: Callable[[], Any] = lambda: None,
    ) -> None:
        origins = ((0, 0), (0, grids[0][1]))
        exchange = [(x + grid[0] - 1, y + grid[1] - 1) for grid, (x, y) in zip(grids, origins, strict=True)]
        pairs = CorePair(mesh, (exchange[0], exchange[1]))
        gathered = torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int32)
        gathered[0, 0, 0] = HOLDS_EXACT
        seen = [words(mesh, gathered, "uint32") for _ in range(2)]
        ranks = []
        for rank, held in enumerate((HOLDS_EXACT, YIELDED)):
            more: dict[str, Any] = {"priority": words(mesh, priority_row(held), "uint32"), "gathered": seen[rank]}
            given = Tensors(*tensors, **more | {"chosen": chosen, "masses": tile_masses()})
            config = ProgramConfig(grids[rank], origins[rank], workers_per_head=workers)
            ranks.append(RankInputs(given, config, timeout_s))
        how: dict[str, Any] = {"chunk_size": chunk_size, "guess_range": guess_range}
        self.launch = partial(speculative_flash_decode_pair, ranks, pairs, **how)
        self.check, self.exchange, self.masses = pairs.check, exchange[0], ranks[0].tensors.masses


def parents_of(shape: str, nodes: int) -> list[int]:
    """Return the parents of a tree of one of TREES: a chain; balanced, with two children per node, level by level; or
    skewed, a chain of half of the nodes, each of which has a leaf beside it. Raises ValueError for another."""
    if shape == "chain":
        return list(range(-1, nodes - 1))
    if shape == "balanced":
        return [-1] + [(node - 1) // 2 for node in range(1, nodes)]
    if shape == "skewed":
        return [-1] + [(node - 1) // 2 * 2 - (node > 2) if node > 2 else 0 for node in range(1, nodes)]
    raise ValueError(f"shape must be one of {', '.join(TREES)}, got {shape!r}")


def intervals_of(parents: list[int]) -> tuple[list[int], list[int]]:
    """Return enter and leave times of nodes whose parents come before them."""
    tree = TokenTree.from_parents(parents)
    return tree.enter.tolist(), tree.leave.tolist()


def sampling_inputs(mesh, tokens: torch.Tensor, target: torch.Tensor, draft: torch.Tensor, uniform: int) -> dict:
    """Return the arguments of either op of tt_kernels/speculative_sampling for chains.

    Args:
        tokens: [users, nodes], int.
        target, draft: logits, bfloat16 [users, nodes, vocabulary].
        uniform: every uniform number, as 32 bits.
    """
    users, nodes = tokens.shape
    return {
        "tokens": words(mesh, tokens, "uint32"),
        "parents": words(mesh, torch.arange(-1, nodes - 1).expand(users, -1).contiguous()),
        "uniforms": words(mesh, torch.full((users, nodes), uniform), "uint32"),
        "target_logits": tile(mesh, target),
        "draft_logits": tile(mesh, draft),
    }


def errors_of(found: torch.Tensor, expected: torch.Tensor) -> dict[str, float]:
    """Return the errors of a result against a reference of its shape [..., width].

    Returns:
        pcc: Pearson's correlation. error: norm of the difference over the reference's. worst_head: the same of the
        worst row. norm_error: of the result's norm. bias: the difference along the reference. largest: the largest
        absolute error. largest_relative: of the largest absolute value of the reference.
    """
    found, expected = found.double(), expected.double()
    difference, norm = found - expected, expected.norm()
    a, b = ((values - values.mean()).flatten() for values in (found, expected))
    rows = difference.norm(dim=-1) / expected.norm(dim=-1)
    figures = {
        "pcc": a @ b / (a.norm() * b.norm()),
        "error": difference.norm() / norm,
        "worst_head": rows.max(),
        "norm_error": found.norm() / norm - 1,
        "bias": (difference * expected).sum() / norm**2,
        "largest": difference.abs().max(),
        "largest_relative": difference.abs().max() / expected.abs().max(),
    }
    return {name: value.item() for name, value in figures.items()}
