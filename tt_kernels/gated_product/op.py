# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Gate the MLP of a decode step: silu(gate) * up on the rows that hold users, on the cores that hold the shards.

A step has one row per user in tiles of 32, and stock ops take the exponential of all rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tt_kernels.common.cores import check_on_device
from tt_kernels.common.kernel import kernel_descriptor
from tt_kernels.common.tensor_facts import UnsupportedError, check_user_rows, unsupported_if_refused, width_shards

if TYPE_CHECKING:
    import ttnn

KERNEL = Path(__file__).parent / "kernels" / "product.cpp"
TILE = 32
_BUFFERS = ("cb_gate", "cb_up", "cb_product")


def gated_product(gate: ttnn.Tensor, up: ttnn.Tensor) -> Any:
    """Return silu(gate) * up, rounded to bfloat16 once, in a new tensor with the shards of `gate`.

    gate, up: bfloat16 [1, 1, users, columns] with 1 to 32 users, TILE, width-sharded in L1 over the same cores, whole
        tiles on each.

    Of the padding rows, those in the users' last four hold the same product and the others those of `gate`, so they
    are finite where both inputs are. In a region of the compute gate the op is skipped. Errors: UnsupportedError.
    """
    import ttnn

    for name, tensor in (("gate", gate), ("up", up)):
        _check(name, tensor)
    found = [(tuple(tensor.shape), tensor.memory_config()) for tensor in (gate, up)]
    if found[0] != found[1]:
        raise UnsupportedError(f"gate and up must have one shape and the same shards: {_told(gate)}, {_told(up)}")
    unsupported_if_refused(check_on_device, "up", up, gate.device())
    product = ttnn.empty(list(gate.shape), gate.dtype, gate.layout, gate.device(), gate.memory_config())
    return ttnn.generic_op([gate, up, product], _program(gate, up, product))


def _check(name: str, tensor: Any) -> None:
    check_user_rows(name, tensor)
    rows, columns = width_shards(name, tensor).shape
    if rows != TILE or columns % TILE:
        raise UnsupportedError(f"shards of {name} must be {TILE} rows of whole tiles, got [{rows}, {columns}]")


def _told(tensor: Any) -> str:
    shards = tensor.memory_config().shard_spec
    return f"{tuple(tensor.shape)} in {shards.num_cores()} shards of {list(shards.shape)} on {shards.grid}"


def _program(gate: Any, up: Any, product: Any) -> Any:
    import ttnn

    shards = gate.memory_config().shard_spec
    kernel = kernel_descriptor(
        KERNEL,
        ttnn.ComputeConfigDescriptor(),
        cores=shards.grid,
        constants={name: index for index, name in enumerate(_BUFFERS)}
        | {"tiles": shards.shape[1] // TILE, "users": gate.shape[2]},
    )
    tensors = (gate, up, product)
    buffers = [ttnn.cb_descriptor_from_sharded_tensor(index, tensor) for index, tensor in enumerate(tensors)]
    return ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=buffers)
