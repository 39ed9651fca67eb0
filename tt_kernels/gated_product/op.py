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
from tt_kernels.common.tensor_facts import UnsupportedError, facts, unsupported_if_refused

if TYPE_CHECKING:
    import ttnn

KERNEL = Path(__file__).parent / "kernels" / "product.cpp"
MAX_USERS = TILE = 32
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
    found = facts(name, tensor)
    if not found.on_device or (found.dtype, found.layout) != ("BFLOAT16", "TILE"):
        where = "on the device" if found.on_device else "on the host"
        raise UnsupportedError(
            f"{name} must be bfloat16 TILE on the device, it is {found.dtype} {found.layout} {where}"
        )
    if len(found.shape) != 4 or found.shape[:2] != (1, 1) or not 1 <= found.shape[2] <= MAX_USERS:
        raise UnsupportedError(f"{name} must be [1, 1, users, columns], 1 to {MAX_USERS} users, got {found.shape}")
    memory = tensor.memory_config()
    kind = (memory.memory_layout.name, memory.buffer_type.name)
    if kind != ("WIDTH_SHARDED", "L1") or memory.shard_spec is None:
        raise UnsupportedError(f"{name} must be width-sharded in L1, it is {kind[0]} in {kind[1]}")
    rows, columns = memory.shard_spec.shape
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
