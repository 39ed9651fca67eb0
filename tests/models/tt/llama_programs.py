# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ops of a tensor-parallel Llama 3.1 8B decode step at full size, to be validated, allocated and
compiled.

Each function takes the mesh first and runs in a worker (see sim_worker.py). Tensors are allocated without
host
data: on a mock mesh contents mean nothing, and 16 GB of weights would have to be made. A shape given to
``allocate`` is the shard of one chip. n is the number of chips, one user batch is a tile of 32.

Each returns ``{"shape", "dtype", "programs"}``: the result as one chip holds it, and how many programs the
mesh has cached.
"""

from __future__ import annotations

import math

LAYERS, HIDDEN, FFN, VOCAB = 32, 4096, 14336, 128256
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
USERS = 32  # a tile
LM_HEAD_SPLITS = 4  # column blocks of a chip's part of the vocabulary

# name: (rows, columns, dtype) of the shard of one chip.
WEIGHTS = {
    "qkv": lambda n: (HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM // n, "bfloat8_b"),
    "wo": lambda n: (HEADS * HEAD_DIM // n, HIDDEN, "bfloat8_b"),
    "ff1": lambda n: (HIDDEN, FFN // n, "bfloat4_b"),
    "ff3": lambda n: (HIDDEN, FFN // n, "bfloat4_b"),
    "ff2": lambda n: (FFN // n, HIDDEN, "bfloat8_b"),
}


def lm_head_columns(n: int) -> list[int]:
    """Widths of the column blocks of the LM head on one of n chips: whole tiles, the last one smaller."""
    tile = 32
    total = -(-VOCAB // (n * tile))  # tiles a chip, the vocabulary padded to whole tiles on every chip
    block = -(-total // LM_HEAD_SPLITS)
    blocks = [min(block, total - start) for start in range(0, total, block)]
    return [tile * b for b in blocks]


def allocate(mesh, shape, dtype="bfloat16", memory="dram"):
    import ttnn

    memory_config = {"dram": ttnn.DRAM_MEMORY_CONFIG, "l1": ttnn.L1_MEMORY_CONFIG}[memory]
    layout = ttnn.ROW_MAJOR_LAYOUT if dtype in ("int32", "uint32") else ttnn.TILE_LAYOUT
    return ttnn.empty(list(shape), getattr(ttnn, dtype), layout, mesh, memory_config)


def _told(mesh, tensor) -> dict:
    dtype = str(tensor.dtype).rpartition(".")[2].lower()
    return {"shape": tuple(tensor.shape), "dtype": dtype, "programs": mesh.num_program_cache_entries()}


def _fidelity(mesh, dtype):
    import ttnn

    fidelity = {"bfloat4_b": ttnn.MathFidelity.LoFi, "bfloat8_b": ttnn.MathFidelity.HiFi2}[dtype]
    return ttnn.WormholeComputeKernelConfig(
        math_fidelity=fidelity, math_approx_mode=False, fp32_dest_acc_en=False, packer_l1_acc=True
    )


def matmul(mesh, name: str) -> dict:
    """[1, 1, 32, K/n] @ the shard of the named weight."""
    import ttnn

    rows, columns, dtype = WEIGHTS[name](mesh.get_num_devices())
    x, w = allocate(mesh, (1, 1, USERS, rows), memory="l1"), allocate(mesh, (1, 1, rows, columns), dtype)
    out = ttnn.linear(
        x,
        w,
        dtype=ttnn.bfloat16,
        memory_config=ttnn.L1_MEMORY_CONFIG,
        compute_kernel_config=_fidelity(mesh, dtype),
    )
    return _told(mesh, out)


def lm_head(mesh) -> dict:
    """[1, 1, 32, hidden] @ a chip's columns of the LM head, in blocks that are joined to its logits."""
    import ttnn

    x = allocate(mesh, (1, 1, USERS, HIDDEN), memory="l1")
    parts = []
    for columns in lm_head_columns(mesh.get_num_devices()):
        w = allocate(mesh, (1, 1, HIDDEN, columns), "bfloat8_b")
        parts.append(
            ttnn.linear(
                x,
                w,
                dtype=ttnn.bfloat8_b,
                memory_config=ttnn.DRAM_MEMORY_CONFIG,
                compute_kernel_config=_fidelity(mesh, "bfloat8_b"),
            )
        )
    return _told(mesh, ttnn.concat(parts, dim=3))


def rms_norm(mesh) -> dict:
    """RMS norm of the whole residual stream [1, 1, 32, hidden], which every chip holds."""
    import ttnn

    x, weight = allocate(mesh, (1, 1, USERS, HIDDEN), memory="l1"), allocate(mesh, (1, 1, 1, HIDDEN))
    return _told(mesh, ttnn.rms_norm(x, weight=weight, epsilon=1e-5))


def sdpa_decode(mesh, users: int, cached: int) -> dict:
    """Flash decode of a chip's heads over its bfloat8_b KV cache [users, kv heads / n, cached, head_dim]."""
    import ttnn

    n = mesh.get_num_devices()
    q = allocate(mesh, (1, users, HEADS // n, HEAD_DIM))
    k, v = (allocate(mesh, (users, KV_HEADS // n, cached, HEAD_DIM), "bfloat8_b") for _ in range(2))
    grid = mesh.compute_with_storage_grid_size()
    out = ttnn.transformer.scaled_dot_product_attention_decode(
        q,
        k,
        v,
        is_causal=True,
        cur_pos_tensor=allocate(mesh, (users,), "int32"),
        scale=HEAD_DIM**-0.5,
        program_config=ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=(grid.x, grid.y),
            q_chunk_size=32,
            k_chunk_size=128,
            exp_approx_mode=False,
        ),
        compute_kernel_config=_fidelity(mesh, "bfloat8_b"),
    )
    return _told(mesh, out)


def all_gather(mesh, axis: int | None, dtype: str) -> dict:
    """[1, 1, 32, hidden / n] of every chip, gathered along the columns of the residual."""
    import ttnn

    members = mesh.get_num_devices() if axis is None else list(mesh.shape)[axis]
    x = allocate(mesh, (1, 1, USERS, HIDDEN // members), dtype)
    return _told(mesh, ttnn.all_gather(x, dim=3, cluster_axis=axis))


def reduce_scatter(mesh, axis: int | None, dtype: str) -> dict:
    """Partial sums [1, 1, 32, hidden] of every chip, summed; each chip keeps its columns."""
    import ttnn

    x = allocate(mesh, (1, 1, USERS, HIDDEN), dtype)
    return _told(mesh, ttnn.reduce_scatter(x, dim=3, cluster_axis=axis, topology=ttnn.Topology.Linear))


def point_to_point(mesh, sender: tuple[int, int], receiver: tuple[int, int], dtype: str) -> dict:
    """The residual [1, 1, 32, hidden] of one chip sent to another over the fabric."""
    import ttnn

    x = allocate(mesh, (1, 1, USERS, HIDDEN), dtype)
    to, at = ttnn.MeshCoordinate(*receiver), ttnn.MeshCoordinate(*sender)
    return _told(mesh, ttnn.point_to_point(x, at, to, topology=ttnn.Topology.Linear))


def whole_model(mesh, users: int, cached: int) -> dict:
    """Allocate a chip's part of all weights and the KV cache: {"tensors", "bytes" of a chip's DRAM}."""
    n, kept = mesh.get_num_devices(), []
    for _ in range(LAYERS):
        kept += [
            allocate(mesh, (1, 1, rows, columns), dtype) for rows, columns, dtype in (w(n) for w in WEIGHTS.values())
        ]
        kept += [allocate(mesh, (1, 1, 1, HIDDEN)) for _ in range(2)]
        kept += [allocate(mesh, (users, KV_HEADS // n, cached, HEAD_DIM), "bfloat8_b") for _ in range(2)]
    kept += [allocate(mesh, (1, 1, VOCAB, HIDDEN // n)), allocate(mesh, (1, 1, 1, HIDDEN))]
    kept += [allocate(mesh, (1, 1, HIDDEN, sum(lm_head_columns(n))), "bfloat8_b")]
    tile_bytes = {"bfloat16": 2048, "bfloat8_b": 1088, "bfloat4_b": 576}
    used = 0
    for tensor in kept:
        *rest, rows, columns = tensor.padded_shape
        dtype = str(tensor.dtype).rpartition(".")[2].lower()
        used += math.prod(rest) * rows * columns // 1024 * tile_bytes[dtype]
    return {"tensors": len(kept), "bytes": used}


def description(mesh) -> dict:
    """What the runtime takes the mesh for."""
    import ttnn

    rows, columns = tuple(mesh.shape)
    grid = mesh.compute_with_storage_grid_size()
    nodes = [
        mesh.get_fabric_node_id(ttnn.MeshCoordinate(row, column)) for row in range(rows) for column in range(columns)
    ]
    return {
        "shape": (rows, columns),
        "grid": (grid.x, grid.y),
        "dram_banks": mesh.dram_grid_size().x,
        "cluster": str(ttnn.cluster.get_cluster_type()).rpartition(".")[2],
        "chips": [int(node.chip_id) for node in nodes] if hasattr(nodes[0], "chip_id") else [str(n) for n in nodes],
    }
