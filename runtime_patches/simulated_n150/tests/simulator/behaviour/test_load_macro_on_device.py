# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""tt-metal's kernels that schedule instructions with SFPLOADMACRO, which the simulated chip leaves off by
default.
"""

import pytest
import torch


def where_and_maximum(device, condition, a, b):
    """ttnn.where and ttnn.maximum, whose vector code uses load macros unless told not to."""
    import ttnn

    def put(tensor):
        return ttnn.from_torch(tensor, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    chosen = ttnn.where(put(condition), put(a), put(b))
    larger = ttnn.maximum(put(a), put(b))
    return ttnn.to_torch(chosen), ttnn.to_torch(larger)


@pytest.mark.sim
def test_where_and_maximum_with_macros(sim_device):
    generator = torch.Generator().manual_seed(3)
    a, b, condition = (torch.randn(32, 32, generator=generator).bfloat16() for _ in range(3))
    condition = (condition > 0).bfloat16()
    device = sim_device("1x1", variables={"TT_METAL_DISABLE_SFPLOADMACRO": "0"})
    chosen, larger = device.run(where_and_maximum, condition, a, b)
    assert torch.equal(chosen, torch.where(condition > 0, a, b))
    assert torch.equal(larger, torch.maximum(a, b))
