# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A ttnn program of one's own that calls the speculative flash decode op:

python examples/flash_decode_on_the_simulated_chip.py
"""

import os

import torch


def decode(device) -> dict[str, float]:
    """Attend for one user at position 200: 4 query heads, 1 key/value head of 64, a guess of 64 + 64 tokens."""
    import ttnn

    from tt_kernels.speculative_flash_decode.op import ProgramConfig, speculative_flash_decode

    torch.manual_seed(0)
    q = torch.randn(1, 1, 4, 64)
    k, v = torch.randn(1, 1, 256, 64), torch.randn(1, 1, 256, 64)
    query, keys, values = (
        ttnn.from_torch(part, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device) for part in (q, k, v)
    )
    position = ttnn.from_torch(torch.tensor([200], dtype=torch.int32), device=device)
    found = speculative_flash_decode(
        query,
        keys,
        values,
        position,
        chunk_size=64,
        threshold=0.1,
        program_config=ProgramConfig(grid=(2, 1)),
    )
    exact = ttnn.to_torch(found.exact).float()
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k[:, :, :201].expand(-1, 4, -1, -1), v[:, :, :201].expand(-1, 4, -1, -1)
    ).transpose(1, 2)
    distance, norm = (ttnn.to_torch(part).flatten()[0].sqrt().item() for part in (found.distance_sq, found.norm_sq))
    pcc = torch.corrcoef(torch.stack([exact.flatten(), expected.flatten()]))[0, 1].item()
    return {"pcc of exact against torch": pcc, "relative distance of the guess": distance / norm}


if __name__ == "__main__":
    from runtime_patches.simulated_n150.environment import simulated_environment

    os.environ.update(simulated_environment("2x1"))  # before ttnn is imported; without these lines it runs on a board
    import ttnn

    device = ttnn.open_device(device_id=0)
    try:
        for name, value in decode(device).items():
            print(f"{name}: {value:.4f}")
    finally:
        ttnn.close_device(device)
