# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""One captured trace of a layer serves every outcome: on a chip, and on a pair, whose exchange precedes the gate."""

from typing import Any

import pytest
import torch

from runtime_patches import sgdc
from tests.support.run_op import Call, In, Make, priorities, run_ops
from tt_kernels.common import reference as common_reference
from tt_kernels.compute_gate import reference

pytestmark = pytest.mark.sim

USERS = 2
# Priorities of both ranks: chip 0 works and chip 1 skips, both work, chip 1 works and chip 0 skips, in turns.
ROWS = [([2, 2], [0, 0]), ([1, 1], [2, 0]), ([0, 0], [1, 2]), ([0, 3], [1, 1]), ([2, 2], [0, 0])]
# What a layer adds to the residual that it took, and what a tensor holds where it was skipped.
RIGHT: dict[str, tuple[float, float | None]] = {
    "residual": (0.0, None), "product": (0.0, 0.0), "total": (1.0, 0.0), "after": (2.0, 1.0)
}  # fmt: skip


def layer(exchange, residual, row, mean, ones, product, total, after):
    """Do an exchange, if any, a gated matmul and add, and an ungated add; return the priorities that both gathered."""
    import ttnn

    from tt_kernels.compute_gate.op import skip_compute

    told = None if exchange is None else exchange(residual, row)
    with skip_compute(row, users=USERS):
        ttnn.matmul(residual, mean, optional_output_tensor=product)
        ttnn.add(product, ones, output_tensor=total)
    ttnn.add(total, ones, output_tensor=after)
    return told


@pytest.mark.timeout(900)
@pytest.mark.parametrize("chips", [1, 2])
def test_one_trace_serves_every_outcome(sim_device, sim_mesh, chips):
    values = [(2.0 * i + 1, 2.0 * i + 2) for i in range(len(ROWS))]
    exchange = None
    if chips == 2:
        pairs = Make("tt_kernels.common.peer:ChipPairs", 1, device=True)
        exchange = Make("tt_kernels.device_exchange.op:DeviceExchange", pairs, users=USERS)

    def each(parts, dtype="bfloat16", name=None) -> In:
        return In(torch.cat(list(parts)[:chips], dim=1), dtype, split=(None, 1), read=name)

    def tiles(numbers, name=None) -> In:
        return each((torch.full((1, 1, 32, 32), value) for value in numbers), name=name)

    mean, ones, calls = tiles((1 / 32, 1 / 32)), tiles((1.0, 1.0)), []
    for rows, value in zip(ROWS, values, strict=True):
        given = each((priorities(row).values for row in rows), "uint32")
        blank = [tiles((0.0, 0.0), name) for name in ("product", "total", "after")]
        calls.append(Call(f"{__name__}:layer", exchange, tiles(value, "residual"), given, mean, ones, *blank))
    options: dict[str, Any] = {"overlays": sgdc.overlays(), "dispatch": "fast"}
    worker = sim_device("2x1", **options) if chips == 1 else sim_mesh((1, 2), "1x1", **options)
    results = run_ops(worker, calls, traced=True)
    for number, (rows, value, found) in enumerate(zip(ROWS, values, results, strict=True)):
        for chip in range(chips):
            held = {name: part if chips == 1 else part[0, chip] for name, part in found.items() if name in RIGHT}
            taken = value[0 if chips == 1 else common_reference.sender(rows, USERS)]
            skipped = reference.skips(rows[chip], USERS)
            for name, (ran, left) in RIGHT.items():
                assert held[name].unique().tolist() == [left if skipped and left is not None else taken + ran], (
                    f"replay {number}, chip {chip}: {name}"
                )
        if chips == 2:
            assert found["errors"]["ChipPairs"] is None
            assert [found["out"][0, chip][0, 0, :, :USERS].tolist() for chip in (0, 1)] == [list(map(list, rows))] * 2
    assert len({found["entries"] for found in results}) == 1
