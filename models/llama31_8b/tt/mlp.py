# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The gated MLP of a layer (SwiGLU): down(silu(gate(x)) * up(x))."""

from __future__ import annotations

import ttnn

from .linear import linear


class MLP:
    """gate (ff1), up (ff3): [1, 1, hidden, intermediate / tp] of each chip; down (ff2): [1, 1, intermediate /
    tp, hidden]."""

    def __init__(self, ff1: ttnn.Tensor, ff3: ttnn.Tensor, ff2: ttnn.Tensor) -> None:
        self.ff1, self.ff3, self.ff2 = ff1, ff3, ff2

    def __call__(self, x: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        """x: bfloat16 [1, 1, rows, hidden] -> partial sums of the same shape, which the decoder reduces."""
        gate, up = linear(x, self.ff1, memory), linear(x, self.ff3, memory)
        hidden = ttnn.mul(gate, up, input_tensor_a_activations=[ttnn.UnaryOpType.SILU], memory_config=memory)
        ttnn.deallocate(gate)
        ttnn.deallocate(up)
        out = linear(hidden, self.ff2, memory)
        ttnn.deallocate(hidden)
        return out
