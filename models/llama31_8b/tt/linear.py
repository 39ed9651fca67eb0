# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Matrix products and the collectives around them."""

from __future__ import annotations

from functools import cache

import ttnn

from .mesh import TP_AXIS, MeshPlan
from .precision import FIDELITY


@cache
def kernel_config(dtype: str):
    """The compute configuration for weights of that format: the fewest passes that use all its bits."""
    return ttnn.WormholeComputeKernelConfig(
        math_fidelity=getattr(ttnn.MathFidelity, FIDELITY[dtype]),
        math_approx_mode=False,
        fp32_dest_acc_en=dtype == "bfloat16",
        packer_l1_acc=True,
    )


def dtype_name(tensor: ttnn.Tensor) -> str:
    """bfloat16, bfloat8_b, ..."""
    return str(tensor.dtype).rpartition(".")[2].lower()


def linear(x: ttnn.Tensor, weight: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
    """x [1, 1, rows, inputs] @ weight [1, 1, inputs, outputs] of a chip -> bfloat16, interleaved."""
    config = kernel_config(dtype_name(weight))
    return ttnn.linear(x, weight, dtype=ttnn.bfloat16, memory_config=memory, compute_kernel_config=config)


def gather(x: ttnn.Tensor, plan: MeshPlan) -> ttnn.Tensor:
    """The columns of all chips of a row, on each: [1, 1, rows, columns / tp] -> [1, 1, rows, columns]."""
    return x if plan.tp == 1 else ttnn.all_gather(x, dim=3, cluster_axis=TP_AXIS)


def reduce(x: ttnn.Tensor, plan: MeshPlan) -> ttnn.Tensor:
    """The sum over the chips of a row, a part each: [1, 1, rows, columns] -> [1, 1, rows, columns / tp]."""
    if plan.tp == 1:
        return x
    return ttnn.reduce_scatter(x, dim=3, cluster_axis=TP_AXIS, topology=ttnn.Topology.Linear)
