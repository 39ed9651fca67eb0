# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Gate an MLP: silu(gate) * up of the one product that has both side by side.

Of a decode step only the rows that hold users are computed, on the cores that hold the shards. Interleaved rows, such
as a prefill's, are dealt to all cores in tiles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, circular_buffer
from tt_kernels.common.cores import core_list, core_set, grid_cores
from tt_kernels.common.kernel import kernel_descriptor, program_of
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import MAX_USERS, UnsupportedError, check_rows, check_user_rows, width_shards

KERNELS = Path(__file__).parent / "kernels"
TILE = 32
PAIRS = 4  # tiles of gate and of up that half of the bfloat16 registers hold
GROUPS = 2  # of these in L1 in either direction: one is computed, one is moved
CB_ROWS, CB_PRODUCT = 0, 1


def gated_product(x: ttnn.Tensor, block: int, dtype: str = "bfloat16") -> Any:
    """Return silu(gate) * up, rounded to bfloat16 once, in a new tensor [1, 1, rows, columns].

    x: bfloat16 [1, 1, rows, 2 * columns], TILE: `block` columns of gate, the same of up, and so on. Interleaved, with
        any number of rows; or width-sharded in L1, 1 to 32 rows and 2 * block columns on each core.
    block: a multiple of 32.
    dtype: of the result; of interleaved rows also bfloat8_b, to which it is rounded then.

    The result is interleaved in x's kind of memory, or sharded over the cores of x. Of padding rows, those in the last
    four rows of up to 32 hold the same product and the others those of gate: they are finite where x is. In a region
    of the compute gate the op is skipped. Errors: UnsupportedError.
    """
    sharded = _check(x, block, dtype)
    rows, columns = x.shape[2], x.shape[3] // 2
    device, memory = x.device(), x.memory_config()
    if sharded:
        grid = memory.shard_spec.grid
        spec = ttnn.ShardSpec(grid, [TILE, block], memory.shard_spec.orientation)
        memory = ttnn.MemoryConfig(memory.memory_layout, memory.buffer_type, spec)
        cores = core_list(grid)
        tiles = [block // TILE] * len(cores)
    else:
        total = -(-rows // TILE) * columns // TILE
        cores = list(grid_cores(device)[:total])
        count = len(cores)
        tiles = [total // count + (index < total % count) for index in range(count)]
    product = ttnn.empty([1, 1, rows, columns], getattr(ttnn, dtype), x.layout, device, memory)
    return ttnn.generic_op([x, product], _program(x, product, block, sharded, dict(zip(cores, tiles, strict=True))))


def _check(x: Any, block: int, dtype: str) -> bool:
    """Return whether x is sharded. Errors: UnsupportedError."""
    found = check_rows("x", x)
    if type(block) is not int or block < TILE or block % TILE or found.shape[3] % (2 * block):
        raise UnsupportedError(f"x must be blocks of gate and up, [.., 2 * block], got {found.shape}, block {block!r}")
    if dtype not in ("bfloat16", "bfloat8_b") or (dtype != "bfloat16" and not found.interleaved):
        raise UnsupportedError(
            f"the result must be bfloat16, of interleaved rows bfloat16 or bfloat8_b, got {dtype!r} of "
            f"{'interleaved' if found.interleaved else 'sharded'} rows"
        )
    if found.interleaved:
        return False
    check_user_rows("x", x)
    shard = list(width_shards("x", x.memory_config()).shape)
    if shard != [TILE, 2 * block]:
        raise UnsupportedError(f"shards of x must be [{TILE}, {2 * block}], a block of gate and one of up, got {shard}")
    return True


def _program(x: Any, product: Any, block: int, sharded: bool, tiles: dict[tuple[int, int], int]) -> Any:
    """tiles: of the product, by core in the order of the tiles."""
    constants = {
        "cb_rows": CB_ROWS,
        "cb_product": CB_PRODUCT,
        "pairs": PAIRS,
        "block": block // TILE,
        "users": min(x.shape[2], MAX_USERS),
        "sharded": sharded,
    }
    first, parts = 0, {}
    for core, count in tiles.items():
        parts[core] = {"first": first, "tiles": count}
        first += count
    if sharded:
        held = ((CB_ROWS, x), (CB_PRODUCT, product))
        buffers = [ttnn.cb_descriptor_from_sharded_tensor(index, tensor) for index, tensor in held]
        moved: dict[str, Any] = {}
    else:
        roles, size = frozenset({"all"}), GROUPS * PAIRS
        buffers = [
            circular_buffer(Buffer(index, of, TILE_BYTES[of], count, roles), {"all": list(tiles)})
            for index, of, count in ((CB_ROWS, x.dtype.name, 2 * size), (CB_PRODUCT, product.dtype.name, size))
        ]
        moved = {
            "read.cpp": ("Reader", "rows", x),
            "write.cpp": ("Writer", "product", product),
        }
    cores, compute = core_set(*tiles), ttnn.ComputeConfigDescriptor()
    compute.bfp8_pack_precise = True  # else bfloat8_b is cut off, not rounded
    kernels = [kernel_descriptor(KERNELS / "multiply.cpp", compute, cores=cores, constants=constants, per_core=parts)]
    kernels += [
        kernel_descriptor(
            KERNELS / source,
            config,
            cores=cores,
            constants=constants,
            accessors={name: tensor},
            common={name: tensor.buffer_address()},
            per_core=parts,
        )
        for source, (config, name, tensor) in moved.items()
    ]
    return program_of(kernels, buffers)
