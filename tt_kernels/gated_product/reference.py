# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The reference of the gated product, in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def gated_product_reference(x: torch.Tensor, block: int) -> torch.Tensor:
    """Return silu(gate) * up in float64. x: [.., 2 * columns], `block` columns of gate, the same of up, and so on."""
    gate, up = x.double().unflatten(-1, (-1, 2, block)).unbind(-2)
    return (F.silu(gate) * up).flatten(-2)
