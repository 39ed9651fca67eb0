# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Exchange and gate on two connected chips, boards or simulated ones, and the layers to run there."""

from __future__ import annotations

import random

import torch

from tt_kernels.common import reference as common_reference

SHAPE = (32, 4096)  # Llama 3.1 8B's residual stream in decode
USERS = 2


def layers_body(mesh, layers, shape=SHAPE, pair_axis=1):
    """Run each of `layers` (each chip's priorities and value); return what both chips hold after it, the priorities
    each gathered, and a sum that only the chips with a priority above 0 have computed; then who gave up, and who sent.
    """
    import ttnn

    from tt_kernels.common.peer import ChipPairs, PeerError
    from tt_kernels.common.priority import priority_row
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute
    from tt_kernels.device_exchange.op import DeviceExchange

    def a_chip_each(parts, dtype, layout, **place):
        mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
        return ttnn.from_torch(torch.cat(parts), dtype=dtype, layout=layout, mesh_mapper=mapper, **place)

    def tiles(values, **place):
        parts = [torch.full((1, 1, *shape), float(value)) for value in values]
        return a_chip_each(parts, ttnn.bfloat16, ttnn.TILE_LAYOUT, **place)

    def rows(values, **place):
        return a_chip_each([priority_row(row) for row in values], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, **place)

    def read(tensor):
        return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(tensor)]

    clear_compute_gate(mesh)
    exchange = DeviceExchange(ChipPairs(mesh, pair_axis), users=USERS)
    residual, total = tiles((0, 0), device=mesh), tiles((0, 0), device=mesh)
    priority = rows(([0] * USERS, [0] * USERS), device=mesh)
    found = []
    for priorities, values in layers:
        ttnn.copy_host_to_device_tensor(rows(priorities), priority)
        ttnn.copy_host_to_device_tensor(tiles(values), residual)
        ttnn.copy_host_to_device_tensor(tiles((0, 0)), total)
        gathered = exchange(residual, priority)
        with skip_compute(priority, users=USERS):
            ttnn.add(residual, residual, output_tensor=total)
        held, summed = ([part.unique().tolist() for part in read(tensor)] for tensor in (residual, total))
        found.append((held, [part[0, 0, :, :USERS].tolist() for part in read(gathered)], summed))
    try:
        exchange.check()
        failure = None
    except PeerError as error:
        failure = str(error)
    return found, failure, [state.sent for state in exchange.pairs.states()]


def draw_layers(count: int):
    """Draw priorities by the rules of algorithm 2 under random outcomes, and a value per chip that bfloat16 holds."""
    draw, rows, layers = random.Random(9), [[2, 2], [0, 0]], []
    for layer in range(count):
        layers.append((rows, (2 * layer % 128 + 1, 2 * layer % 128 + 2)))
        rows = common_reference.after_verification(rows, USERS, [draw.random() < 0.7, draw.random() < 0.7])
    return layers
