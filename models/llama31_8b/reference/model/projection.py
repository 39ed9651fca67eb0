# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Matrix products with weights, in the form that reads the weights fastest on a CPU for the number of rows.

Decoding is bound by how fast weights stream from memory. On AVX2 machines torch's BLAS reaches 13 GB/s for W x when W
has short rows (576 inputs) and 24 GB/s for the same product from W transposed; for 2 to 128 rows W x^T takes a third to
nine tenths of the time of x W^T.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

SHORT_ROW = 1024  # inputs below which the transposed copy pays
FEW_ROWS = 128  # token rows up to which W x^T is the faster form


class Projection(nn.Module):
    """x [..., inputs] -> x W^T [..., outputs], for x of one or two dimensions.

    Wide matrices with short rows also keep a transposed copy, read when x is a single vector.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        """Keep `weight`, [outputs, inputs]."""
        super().__init__()
        outputs, inputs = weight.shape
        self.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
        single = weight.t().contiguous().t() if inputs < SHORT_ROW and inputs < outputs else self.weight
        self.register_buffer("single", single, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.ndim == 1:
            return F.linear(x, self.single)
        if len(x) <= FEW_ROWS:
            return torch.mm(self.weight, x.t()).t().contiguous()
        return F.linear(x, self.weight)
