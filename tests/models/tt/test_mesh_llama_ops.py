# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Every op of a Llama 3.1 8B decode step at full size on meshes of 1, 2, 4 and 8 mock N150.

The real ttnn validates each op, allocates its tensors in L1 and DRAM, builds its programs and compiles their
kernels; nothing executes. Kernels are compiled once for all mesh sizes that share a shard.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.models.tt import llama_programs as llama

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
    assert 5 * GB < told["bytes"] * mesh.chips, "less than the model's weights was allocated"
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
