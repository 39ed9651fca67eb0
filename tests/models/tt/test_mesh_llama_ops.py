# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Every op of a Llama 3.1 8B decode step at full size on meshes of 1, 2, 4 and 8 mock N150.

The real ttnn validates each op, allocates its tensors in L1 and DRAM, builds its programs and compiles their
kernels; nothing executes. Kernels are compiled once for all mesh sizes that share a shard."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.models.tt import test_mesh_llama_ops as llama

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


pytestmark = pytest.mark.mock_mesh

# Compute ops on one shape for each number of chips: the shards are those of any other mesh of as many. The
# same shapes stand at the same places of both lists, which is what pytest groups tests by: each mesh is
# opened once.
COMPUTE_SHAPES = [(1, 2), (2, 2), (2, 4), (1, 1)]
FABRIC_SHAPES = [(1, 2), (2, 2), (2, 4), (1, 4), (1, 8)]
LONGEST = 131072  # Llama 3.1's context
GB = 1 << 30


def name(shape) -> str:
    return f"{shape[0]}x{shape[1]}"


class Mesh(NamedTuple):
    shape: tuple[int, int]
    chips: int
    run: Callable  # run(program, *args): a function of llama_programs on this mesh


@pytest.fixture(scope="module")
def mesh(request, mock_mesh) -> Mesh:
    shape = request.param
    # The worker is asked for at each call: a crash in one test must not fail the next.
    return Mesh(shape, math.prod(shape), lambda *call, **named: mock_mesh(shape).run(*call, **named))


on_compute_shapes = pytest.mark.parametrize("mesh", COMPUTE_SHAPES, indirect=True, ids=name)
on_fabric_shapes = pytest.mark.parametrize("mesh", FABRIC_SHAPES, indirect=True, ids=name)


def axes_of(shape) -> list[int]:
    """The axes of a mesh along which there is more than one chip."""
    return [axis for axis in (0, 1) if shape[axis] > 1]


def check(result: dict, shape: tuple, dtype: str) -> None:
    assert result["shape"] == shape and result["dtype"] == dtype
    assert result["programs"] >= 1, "no program was built"


@on_fabric_shapes
def test_runtime_sees_the_mesh(mesh):
    seen = mesh.run(llama.description)
    assert seen["shape"] == mesh.shape and seen["chips"] == list(range(mesh.chips))
    assert seen["grid"] == (8, 8), "an N150 leaves 64 cores to ops"
    assert seen["dram_banks"] == 12
    assert seen["cluster"] == "N150"


@on_compute_shapes
@pytest.mark.parametrize("weight", llama.WEIGHTS)
def test_matmul_with_the_models_weights(mesh, weight):
    _, out, _ = llama.WEIGHTS[weight](mesh.chips)
    check(mesh.run(llama.matmul, weight), (1, 1, llama.USERS, out), "bfloat16")


@on_compute_shapes
def test_lm_head_as_column_blocks(mesh):
    logits = sum(llama.lm_head_columns(mesh.chips))
    assert logits * mesh.chips >= llama.VOCAB and logits % 32 == 0
    check(mesh.run(llama.lm_head), (1, 1, llama.USERS, logits), "bfloat8_b")


@on_compute_shapes
def test_rms_norm(mesh):
    check(mesh.run(llama.rms_norm), (1, 1, llama.USERS, llama.HIDDEN), "bfloat16")


@on_compute_shapes
@pytest.mark.parametrize("users, cached", [(32, 1024), (1, LONGEST)], ids=["32users-1K", "1user-128K"])
def test_sdpa_decode_over_a_bfloat8_cache(mesh, users, cached):
    check(
        mesh.run(llama.sdpa_decode, users, cached),
        (1, users, llama.HEADS // mesh.chips, llama.HEAD_DIM),
        "bfloat16",
    )


@on_compute_shapes
def test_the_whole_model_fits(mesh):
    """All weights of 32 layers, embedding, LM head and one user's cache; 128K need two chips."""
    told = mesh.run(llama.whole_model, users=1, cached=LONGEST if mesh.chips > 1 else LONGEST // 4)
    assert told["tensors"] == 32 * 9 + 3
    assert told["bytes"] * mesh.chips > 5 * GB, "less than the model's weights was allocated"
    assert told["bytes"] < 12 * GB


@on_compute_shapes
def test_a_cache_beyond_the_dram_is_refused(mesh):
    with pytest.raises(RuntimeError, match="[Oo]ut of [Mm]emory"):
        mesh.run(llama.whole_model, users=2 * mesh.chips, cached=LONGEST)


@on_fabric_shapes
@pytest.mark.parametrize("dtype", ["bfloat16", "bfloat8_b"])
def test_all_gather(mesh, dtype):
    for axis in axes_of(mesh.shape):
        check(mesh.run(llama.all_gather, axis, dtype), (1, 1, llama.USERS, llama.HIDDEN), dtype)


@on_fabric_shapes
@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_reduce_scatter(mesh, dtype):
    for axis in axes_of(mesh.shape):
        check(
            mesh.run(llama.reduce_scatter, axis, dtype),
            (1, 1, llama.USERS, llama.HIDDEN // mesh.shape[axis]),
            dtype,
        )


@on_fabric_shapes
def test_an_axis_the_mesh_lacks_is_refused(mesh):
    with pytest.raises(RuntimeError, match="TT_FATAL|TT_THROW"):
        mesh.run(llama.reduce_scatter, 5, "bfloat16")


# In fast dispatch the mock devices of ttnn 0.81.1 crash when a program leaves out a chip of the mesh.
@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (2, 4)], ids=name)
def test_point_to_point(mock_mesh, shape):
    slow = {} if shape == (1, 2) else {"TT_METAL_SLOW_DISPATCH_MODE": "1"}
    rows, columns = shape
    pairs = {((0, 0), (0, 1)), ((0, columns - 1), (0, 0)), ((0, 0), (rows - 1, 0))}
    for sender, receiver in sorted(p for p in pairs if p[0] != p[1]):
        result = mock_mesh(shape, variables=slow).run(llama.point_to_point, sender, receiver, "bfloat16")
        check(result, (1, 1, llama.USERS, llama.HIDDEN), "bfloat16")
