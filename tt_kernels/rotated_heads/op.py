# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Split the fused product of a decode step into queries, keys and values, and rotate queries and keys on the way: each
head on the core that holds its columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, circular_buffer
from tt_kernels.common.cores import Core, check_on_device, core_list, core_set
from tt_kernels.common.kernel import kernel_descriptor
from tt_kernels.common.tensor_facts import UnsupportedError, check_user_rows, unsupported_if_refused, width_shards

if TYPE_CHECKING:
    import ttnn

KERNELS = Path(__file__).parent / "kernels"
MAX_HEADS = TILE = 32
HEAD_DIMS = (64, 128)
_BUFFERS = ("cb_fused", "cb_cos", "cb_sin", "cb_rotated")


class RotatedHeads(NamedTuple):
    """queries: [1, users, heads, head_dim]; keys, values: [1, users, kv_heads, head_dim]; bfloat16, TILE."""

    queries: Any
    keys: Any
    values: Any


def rotated_heads(
    fused: ttnn.Tensor,
    cos: ttnn.Tensor,
    sin: ttnn.Tensor,
    heads: int,
    kv_heads: int,
    *,
    q_memory: ttnn.MemoryConfig,
    k_memory: ttnn.MemoryConfig,
    v_memory: ttnn.MemoryConfig,
) -> RotatedHeads:
    """Return the heads of a fused product, queries and keys rotated.

    fused: bfloat16 [1, 1, users, (heads + 2 kv_heads) * head_dim], TILE, width-sharded in L1 with one head per core, of
        1 to 32 users; queries come first, then keys, then values.
    cos, sin: bfloat16 [1, 1, users, head_dim], TILE, interleaved: each angle twice in succession, as the partners of a
        rotation, columns 2 i and 2 i + 1, are side by side.
    heads, kv_heads: of the chip, up to 32. head_dim: 64 or 128.
    q_memory, k_memory, v_memory: of the results, interleaved or sharded.

    Rotated numbers are rounded once. Padding rows of the results are undefined. In a region of the compute gate the op
    is skipped. Errors: UnsupportedError.
    """
    import ttnn

    head_dim = _check(fused, cos, sin, heads, kv_heads)
    device, users = fused.device(), fused.shape[2]
    results = {
        part: ttnn.empty([1, users, count, head_dim], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)
        for part, count, memory in (("q", heads, q_memory), ("k", kv_heads, k_memory), ("v", kv_heads, v_memory))
    }
    program = _program(fused, cos, sin, results, (heads, kv_heads, kv_heads))
    ttnn.generic_op([fused, cos, sin, *results.values()], program)
    return RotatedHeads(*results.values())


def _check(fused: Any, cos: Any, sin: Any, heads: Any, kv_heads: Any) -> int:
    """Return head_dim."""
    for name, count in (("heads", heads), ("kv_heads", kv_heads)):
        if type(count) is not int or not 1 <= count <= MAX_HEADS:
            raise UnsupportedError(f"{name} must be 1 to {MAX_HEADS}, got {count!r}")
    for name, tensor in (("fused", fused), ("cos", cos), ("sin", sin)):
        found = check_user_rows(name, tensor)
        if name != "fused":
            unsupported_if_refused(check_on_device, name, tensor, fused.device())
            if not found.interleaved or found.shape[2] != fused.shape[2] or found.shape[3] not in HEAD_DIMS:
                raise UnsupportedError(
                    f"{name} must be interleaved, {fused.shape[2]} users of {HEAD_DIMS[0]} or {HEAD_DIMS[1]} columns, "
                    f"got {found.shape}"
                )
    head_dim, all_heads = cos.shape[3], heads + 2 * kv_heads
    if sin.shape[3] != head_dim or fused.shape[3] != all_heads * head_dim:
        raise UnsupportedError(
            f"{heads} + 2 x {kv_heads} heads of {head_dim} do not fit fused {tuple(fused.shape)} and sin "
            f"{tuple(sin.shape)}"
        )
    shards = width_shards("fused", fused)
    if list(shards.shape) != [TILE, head_dim] or shards.orientation.name != "ROW_MAJOR":
        raise UnsupportedError(f"shards of fused must be [{TILE}, {head_dim}] row by row, got {list(shards.shape)}")
    return int(head_dim)


def _program(fused: Any, cos: Any, sin: Any, results: dict[str, Any], counts: tuple[int, int, int]) -> Any:
    import ttnn

    cores, users = core_list(fused.memory_config().shard_spec.grid), fused.shape[2]
    tiles, (heads, kv_heads, _) = cos.shape[3] // TILE, counts
    rotating = cores[: heads + kv_heads]
    constants = {name: index for index, name in enumerate(_BUFFERS)} | {"tiles": tiles, "users": users}
    angles = {"cos": cos, "sin": sin}
    kernels = [
        kernel_descriptor(
            KERNELS / "read_angles.cpp",
            ttnn.ReaderConfigDescriptor(),
            cores=core_set(*rotating),
            constants=constants,
            accessors=angles,
            common={name: tensor.buffer_address() for name, tensor in angles.items()},
        ),
        kernel_descriptor(
            KERNELS / "rotate.cpp", ttnn.ComputeConfigDescriptor(), cores=core_set(*rotating), constants=constants
        ),
    ]
    first = 0
    for (part, result), count in zip(results.items(), counts, strict=True):
        own: dict[Core, Any] = {core: {"head": head} for head, core in enumerate(cores[first : first + count])}
        first += count
        kernels.append(
            kernel_descriptor(
                KERNELS / "write_head.cpp",
                ttnn.WriterConfigDescriptor(),
                constants=constants | {"rotated": int(part != "v")},
                accessors={"result": result},
                common={"result": result.buffer_address()},
                per_core=own,
            )
        )
    page = TILE_BYTES["BFLOAT16"]
    buffers = [ttnn.cb_descriptor_from_sharded_tensor(0, fused)]
    buffers += [
        circular_buffer(Buffer(index, "BFLOAT16", page, tiles, frozenset({"rotating"})), {"rotating": rotating})
        for index in range(1, len(_BUFFERS))
    ]
    return ttnn.ProgramDescriptor(kernels=kernels, semaphores=[], cbs=buffers)
