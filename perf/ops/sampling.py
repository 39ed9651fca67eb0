# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The bench of the verification of drafted tokens: cycles and bytes against stock ops.

Ways: the exact op and the lossy sigmoid op, where all drafted tokens are accepted and where the first is rejected; and
the same from stock ttnn ops, as one writes it without own kernels: softmax of both, gather, the residual of all rows,
its cumulative sum. The accepted length and the token would then still be the host's work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import torch
import ttnn

from perf.lib.data_file import Row
from perf.lib.tensors import sampling_inputs, tile
from runtime_patches.profiling.cycles import measure
from tt_kernels.speculative_sampling.op import lossy_sigmoid_sampling, speculative_sampling

LOGIT_BYTES, PIECE_BYTES = 2, 32


class Ledger:
    """Runs stock ops and counts the bytes that they move."""

    moved = 0

    def __call__(self, op, *tensors, **options):
        found = op(*tensors, **options)
        for tensor in (*tensors, found):
            if isinstance(tensor, ttnn.Tensor):
                self.moved += math.prod(tensor.padded_shape) * (2 if tensor.dtype == ttnn.bfloat16 else 4)
        return found


def verification(device, p: SimpleNamespace) -> Row:
    """Return by way its cycles (of the slowest core, summed over its programs) and the bytes moved to and from DRAM."""

    def cycles(run: Callable) -> int:
        return max(core.program.cycles for core in measure(device, run).values() if core.program is not None)

    target = (2 * torch.randn(p.users, p.drafted + 1, p.vocab)).bfloat16()
    tokens = torch.randint(0, p.vocab, (p.users, p.drafted + 1))
    # The drafted tokens are likely, or impossible, to the target.
    following = tokens.roll(-1, 1).unsqueeze(-1)
    rejected = target.scatter(-1, following, torch.tensor(-30.0).bfloat16().expand_as(following))
    moved, found = bytes_moved(p.users, p.drafted, p.vocab), Row()
    ops: dict[str, Callable] = {"exact": speculative_sampling, "sigmoid": lossy_sigmoid_sampling}
    for outcome, logits, uniform in (("accepted", target, 2**30), ("rejected", rejected, 2**32 - 1)):
        inputs = sampling_inputs(device, tokens, logits, target, uniform) | {"cores_per_user": p.cores or None}
        for name, op in ops.items():
            way = f"{name}, {outcome}"
            found[way] = {"cycles": cycles(partial(op, **inputs)), "moved": moved[way]}
    if p.ways == "all":
        ledger, stock = Ledger(), _stock(device, tokens, target)
        found["stock"] = {"cycles": cycles(partial(stock, ledger)), "moved": ledger.moved}
        for way in found.values():
            way["of_stock"] = way["cycles"] / found["stock"]["cycles"]
    return found | {"host": moved["host"]}


def _stock(device, tokens, logits):
    users, nodes = tokens.shape
    p_logits, q_logits = (tile(device, logits) for _ in range(2))
    following = tokens.roll(-1, 1).unsqueeze(-1).to(torch.int32)
    indices = ttnn.from_torch(following, dtype=ttnn.uint32, layout=ttnn.TILE_LAYOUT, device=device)
    uniforms = tile(device, torch.full((users, nodes, 1), 0.25))

    def run(do: Ledger):
        """Run the ops as a careful user does: no tensor is kept longer than it is needed."""
        p, q = (do(ttnn.softmax, values, dim=-1) for values in (p_logits, q_logits))
        p_tokens, q_tokens = (do(ttnn.gather, part, -1, indices) for part in (p, q))
        accepted = do(ttnn.lt, do(ttnn.multiply, uniforms, q_tokens), p_tokens)
        residual = do(ttnn.clamp, do(ttnn.subtract, p, q), min=0.0)
        del p, q
        whole = do(ttnn.reciprocal, do(ttnn.sum, residual, dim=-1, keepdim=True))
        residual = do(ttnn.multiply, residual, whole)
        sums = do(ttnn.cumsum, residual, dim=-1)
        del residual
        return accepted, do(ttnn.sum, do(ttnn.le, sums, uniforms), dim=-1)

    return run


def bytes_moved(users: int, drafted: int, vocab: int) -> dict[str, int]:
    """Return the bytes of logits that the ops read, by way, and of reading all logits to the host."""
    row, piece = vocab * LOGIT_BYTES, 2 * PIECE_BYTES
    one_user = {
        "exact, accepted": (2 * drafted + 1) * row,
        "exact, rejected": 2 * row,
        "sigmoid, accepted": drafted * piece + row,
        "sigmoid, rejected": piece + 2 * row,
        "host": 2 * (drafted + 1) * row,
    }
    return {name: users * count for name, count in one_user.items()}
