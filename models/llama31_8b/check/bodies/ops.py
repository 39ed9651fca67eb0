# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Our ops on one chip, against the recorded outputs of the simulator."""

from __future__ import annotations

import torch

from ..context import Context
from ..findings import Check

GRID = (2, 1)  # of the simulated chips, and so of the recorded outputs


def _put(context: Context, values: torch.Tensor, dtype: str = "bfloat16", layout: str = "TILE_LAYOUT"):
    import ttnn

    return ttnn.from_torch(values, dtype=getattr(ttnn, dtype), layout=getattr(ttnn, layout), device=context.device)


def _attention(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, *shape, generator=generator) for shape in shapes]


def flash_decode(context: Context) -> list[Check]:
    """Decode one token of four heads over 201 cached ones: guess, exact result, distance and norm."""
    import ttnn

    from tt_kernels.speculative_flash_decode.op import ProgramConfig, speculative_flash_decode

    q, k, v = _attention(0, (1, 4, 64), (1, 256, 64), (1, 256, 64))
    position = _put(context, torch.tensor([200], dtype=torch.int32), "int32", "ROW_MAJOR_LAYOUT")
    q, k, v = (_put(context, part) for part in (q, k, v))
    found = speculative_flash_decode(
        q, k, v, position, chunk_size=64, threshold=0.1, program_config=ProgramConfig(grid=GRID)
    )
    parts = ("guess", "exact", "distance_sq", "norm_sq")
    outputs = {part: ttnn.to_torch(getattr(found, part)).float().flatten() for part in parts}
    return [context.check_output(f"flash decode, {part}", values, exact=False) for part, values in outputs.items()]


def tree_attention(context: Context) -> list[Check]:
    """Attend to a chain of four nodes after 40 cached tokens."""
    import ttnn

    from tt_kernels.tree_attention.op import ProgramConfig
    from tt_kernels.tree_attention.op import tree_attention as op

    nodes = 4
    q, k, v = _attention(1, (4, nodes, 64), (1, 64, 64), (1, 64, 64))
    prefix = _put(context, torch.tensor([40], dtype=torch.int32), "int32", "ROW_MAJOR_LAYOUT")
    steps = torch.arange(nodes, dtype=torch.int32)
    chain = torch.stack([steps, torch.full((nodes,), nodes - 1, dtype=torch.int32)])[None]
    intervals = _put(context, chain, "int32", "ROW_MAJOR_LAYOUT")
    q, k, v = (_put(context, part) for part in (q, k, v))
    found = op(q, k, v, prefix, intervals, program_config=ProgramConfig(grid=GRID))
    return [context.check_output("tree attention", ttnn.to_torch(found).float(), exact=False)]


def verification(context: Context) -> list[Check]:
    """Verify a chain of four nodes greedily, two of which the target agrees with."""
    import ttnn

    from tt_kernels.speculative_sampling.op import greedy_verification

    tokens, target = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[6, 7, 9, 4]])
    parents = torch.tensor([[-1, 0, 1, 2]], dtype=torch.int32)
    row = "ROW_MAJOR_LAYOUT"
    found = greedy_verification(
        _put(context, tokens.int(), "uint32", row), _put(context, parents, "int32", row),
        _put(context, target.int(), "uint32", row), 32,
    )  # fmt: skip
    (result,) = found.read()
    words = ttnn.to_torch(found.result)
    return [
        Check("accepted nodes", str(result), None),
        context.check_output("greedy verification", words.long(), exact=True),
    ]


def gate(context: Context) -> list[Check]:
    """Negate ones with the gate closed (priority 0), then open (priority 1): only the second happens."""
    import ttnn

    from tt_kernels.common.priority import HOLDS_GUESS, YIELDED, priority_row
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute

    clear_compute_gate(context.device)
    checks = []
    for name, priority, expected in (("closed", YIELDED, 1.0), ("open", HOLDS_GUESS, -1.0)):
        tile = _put(context, torch.ones(1, 1, 32, 32))
        with skip_compute(_put(context, priority_row(priority), "uint32", "ROW_MAJOR_LAYOUT"), users=1):
            ttnn.neg(tile, output_tensor=tile)
        values = ttnn.to_torch(tile).float()
        checks.append(Check(f"gate {name}", float(values.mean()), expected, bool((values == expected).all())))
    return checks
