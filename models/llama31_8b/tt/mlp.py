# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The gated MLP of a layer (SwiGLU): down(silu(gate(x)) * up(x))."""

from __future__ import annotations

import ttnn

from .linear import Projection


class MLP:
    """gate (ff1), up (ff3): [1, 1, hidden, intermediate / tp] on each chip; down (ff2): [1, 1, intermediate / tp,
    hidden]."""

    def __init__(self, ff1: Projection, ff3: Projection, ff2: Projection) -> None:
        self.ff1, self.ff3, self.ff2 = ff1, ff3, ff2

    def __call__(self, x: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        """x: bfloat16 [1, 1, rows, hidden] -> partial sums of the same shape, which the decoder reduces."""
        hidden = _gated(self.ff1.rows(x, memory), self.ff3.rows(x, memory))
        out = self.ff2.rows(hidden, memory)
        ttnn.deallocate(hidden)
        return out

    def decode(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """x: a decode step's rows -> partial sums of the same shape; both placed by the decode sharding."""
        hidden = _gated(self.ff1.decode(x), self.ff3.decode(x))
        out = self.ff2.decode(hidden)
        ttnn.deallocate(hidden)
        return out


def _gated(gate: ttnn.Tensor, up: ttnn.Tensor) -> ttnn.Tensor:
    """Return silu(gate) * up in gate's memory; both inputs are freed."""
    out = ttnn.mul(gate, up, input_tensor_a_activations=[ttnn.UnaryOpType.SILU], memory_config=gate.memory_config())
    ttnn.deallocate(gate)
    ttnn.deallocate(up)
    return out
