# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""RMS norm over the whole hidden dimension, which every chip of a TP group holds."""

from __future__ import annotations

import ttnn


class RMSNorm:
    """weight: bfloat16 [1, 1, 1, hidden], TILE, the same on every chip."""

    def __init__(self, weight: ttnn.Tensor, epsilon: float) -> None:
        self.weight, self.epsilon = weight, epsilon

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """x: bfloat16 [1, 1, rows, hidden] -> the same shape, in the same memory."""
        return ttnn.rms_norm(x, weight=self.weight, epsilon=self.epsilon, memory_config=x.memory_config())

    def decode(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """x: a decode step's rows -> the same; both placed by the decode sharding."""
        return self(x)


class ShardedRMSNorm(RMSNorm):
    """RMS norm of rows sharded by columns in L1, whose cores add up their squares by multicast. program: of that
    norm."""

    def __init__(self, weight: ttnn.Tensor, epsilon: float, program) -> None:
        super().__init__(weight, epsilon)
        self.program = program

    def decode(self, x):
        return ttnn.rms_norm(
            x,
            weight=self.weight,
            epsilon=self.epsilon,
            memory_config=x.memory_config(),
            program_config=self.program,
        )
