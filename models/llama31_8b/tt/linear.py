# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Matrix products on a chip."""

from __future__ import annotations

from functools import cache

import ttnn

from .device.precision import FIDELITY
from .parallel.mesh import TILE


@cache
def kernel_config(dtype: str):
    """Return the compute configuration for weights of this format: the fewest passes that use all its bits."""
    return ttnn.WormholeComputeKernelConfig(
        math_fidelity=getattr(ttnn.MathFidelity, FIDELITY[dtype]),
        math_approx_mode=False,
        fp32_dest_acc_en=dtype == "bfloat16",
        packer_l1_acc=True,
    )


def dtype_name(tensor: ttnn.Tensor) -> str:
    """Return a tensor's dtype as bfloat16, bfloat8_b and so on."""
    return str(tensor.dtype).rpartition(".")[2].lower()


def linear(x: ttnn.Tensor, weight: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
    """Multiply x [1, 1, rows, inputs] by a chip's weight [1, 1, inputs, outputs] -> bfloat16, interleaved."""
    config = kernel_config(dtype_name(weight))
    return ttnn.linear(x, weight, dtype=ttnn.bfloat16, memory_config=memory, compute_kernel_config=config)


class Projection:
    """A chip's matrix. weight: [1, 1, inputs, outputs], interleaved in DRAM."""

    def __init__(self, weight: ttnn.Tensor) -> None:
        self.weight = weight

    def decode(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """Multiply a decode step's rows, [1, 1, users, inputs] -> bfloat16; both placed by the decode sharding."""
        return self.rows(x, ttnn.L1_MEMORY_CONFIG)

    def decode_into(self, x: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        """Do `decode` with an interleaved result."""
        return self.rows(x, memory)

    def rows(self, x: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        """Multiply any number of interleaved rows -> bfloat16, interleaved."""
        return linear(x, self.weight, memory)


class BankedProjection(Projection):
    """A weight whose columns are split over the DRAM banks, for rows one tile high, sharded by columns in L1. program:
    of the product; source, result: memory of the rows and of their product."""

    def __init__(self, weight: ttnn.Tensor, program, source: ttnn.MemoryConfig, result: ttnn.MemoryConfig) -> None:
        super().__init__(weight)
        self.program, self.source, self.result = program, source, result

    def decode(self, x):
        return ttnn.linear(
            x,
            self.weight,
            dtype=ttnn.bfloat16,
            memory_config=self.result,
            program_config=self.program,
            compute_kernel_config=kernel_config(dtype_name(self.weight)),
        )

    def decode_into(self, x, memory):
        return ttnn.sharded_to_interleaved(self.decode(x), memory)

    def rows(self, x, memory):
        """Multiply a tile of rows as in a decode step; more rows by ttnn's own choice of product, which needs an
        interleaved copy of the weight."""
        if x.padded_shape[2] == TILE:
            return self.decode_into(ttnn.interleaved_to_sharded(x, self.source), memory)
        weight = ttnn.to_memory_config(self.weight, ttnn.DRAM_MEMORY_CONFIG)
        out = linear(x, weight, memory)
        ttnn.deallocate(weight)
        return out
