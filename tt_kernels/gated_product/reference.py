# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The reference of the gated product, in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def gated_product_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up in float64."""
    return F.silu(gate.double()) * up.double()
