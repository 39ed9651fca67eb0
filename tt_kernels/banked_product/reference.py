# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The reference of the banked product, in torch."""

from __future__ import annotations

import torch


def banked_product_reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x @ weight in float64."""
    return x.double() @ weight.double()
