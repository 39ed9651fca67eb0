# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The fabric variant at Llama 3.1 8B shapes on mock meshes: it validates, fits L1 and compiles; nothing
executes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

pytestmark = pytest.mark.mock_mesh

# (mesh, axis of the pairs); the other axis is tensor parallel, and the heads are split over it.
MESHES = [((1, 2), 1), ((2, 2), 0), ((2, 4), 0)]
HEAD_DIM, GROUP = 128, 4
EXCHANGE, OUTPUT = (7, 7), (6, 7)


@dataclass(frozen=True)
class Shape:
    """A call. variant: "pair", "alone" (no peer) or "exact"."""

    kv_heads: int
    context: int
    chunk_size: int
    users: int = 1
    cache: str = "bfloat8_b"
    variant: str = "pair"


class Calls:
    """The op on a mesh, its pairs along `pair_axis`."""

    def __init__(self, mesh, pair_axis: int):
        import torch
        import ttnn

        from tt_kernels.common.peer import ChipPairs
        from tt_kernels.common.priority import HOLDS_EXACT, MAX_USERS, priority_row
        from tt_kernels.common.tp_group import TpGroup

        self.mesh = mesh
        tensor_parallel = tuple(mesh.shape)[1 - pair_axis] > 1
        self.tp_group = TpGroup(mesh, 1 - pair_axis, OUTPUT) if tensor_parallel else None
        self.pairs = ChipPairs(mesh, pair_axis, EXCHANGE)
        gathered, row = (
            ttnn.from_torch(
                values,
                dtype=ttnn.uint32,
                layout=ttnn.ROW_MAJOR_LAYOUT,
                device=mesh,
                mesh_mapper=ttnn.ReplicateTensorToMesh(mesh),
            )
            for values in (torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int32), priority_row(HOLDS_EXACT))
        )
        self.gathered, self.priority = gathered, row

    def empty(self, shape, dtype: str, layout: str = "TILE", memory: str = "DRAM"):
        import ttnn

        layout, memory = getattr(ttnn, f"{layout}_LAYOUT"), getattr(ttnn, f"{memory}_MEMORY_CONFIG")
        return ttnn.empty(list(shape), getattr(ttnn, dtype), layout, self.mesh, memory)

    def run(self, shape: Shape, **options) -> list[tuple[int, ...]]:
        """The shapes of the outputs."""
        import ttnn

        from tt_kernels.speculative_flash_decode.op import Peer, flash_decode, speculative_flash_decode

        q = self.empty((1, shape.users, shape.kv_heads * GROUP, HEAD_DIM), "bfloat16")
        cache = (shape.users, shape.kv_heads, shape.context, HEAD_DIM)
        k, v = (self.empty(cache, shape.cache) for _ in range(2))
        inputs = [q, k, v, self.empty((shape.users,), "int32", "ROW_MAJOR")]
        try:
            if shape.variant == "exact":
                outputs = [flash_decode(*inputs, chunk_size=shape.chunk_size, **options)]
            else:
                if shape.variant == "pair":
                    peer = Peer(self.pairs, self.gathered)
                    options = {"peer": peer, "priority": self.priority, "tp_group": self.tp_group} | options
                outputs = speculative_flash_decode(*inputs, chunk_size=shape.chunk_size, **options)
            return [tuple(tensor.shape) for tensor in outputs]
        finally:
            for tensor in inputs:
                ttnn.deallocate(tensor)


def build_body(mesh, pair_axis: int, shapes: list[Shape]) -> tuple[int, list]:
    """Programs built for `shapes`, and the shapes of each one's outputs."""
    calls = Calls(mesh, pair_axis)
    before = mesh.num_program_cache_entries()
    outputs = [calls.run(shape) for shape in shapes]
    return mesh.num_program_cache_entries() - before, outputs


def check_outputs(shapes: list[Shape], outputs: list) -> None:
    for shape, found in zip(shapes, outputs, strict=True):
        row, numbers = (1, shape.users, shape.kv_heads * GROUP, HEAD_DIM), (1, 1, 1, shape.users)
        assert found == ([row] if shape.variant == "exact" else [row, row, numbers, numbers]), shape


@pytest.mark.parametrize("mesh, pair_axis", MESHES, ids=["1x2", "2x2", "2x4"])
def test_llama_shapes_build_on_every_pair(mock_mesh, mesh, pair_axis):
    tensor_parallel = mesh[0] * mesh[1] // 2
    kv_heads = 8 // tensor_parallel
    shapes = [Shape(kv_heads, context, chunk) for context in (1024, 32768, 131072) for chunk in (128, 256, 512)]
    shapes.append(Shape(kv_heads, 1024, 128, users=8))  # the most semaphores
    programs, outputs = mock_mesh(mesh).run(build_body, pair_axis, shapes, timeout=900)
    assert 3 <= programs <= len(shapes)  # buffers depend on the chunk, contexts may share a program
    check_outputs(shapes, outputs)


def test_defaults_serve_what_l1_does_not_hold_at_once(mock_mesh):
    """One key/value head on the whole grid, large chunks of bfloat16 caches, several users."""
    shapes = [
        Shape(1, 131072, 128),
        Shape(1, 131072, 512, cache="bfloat16"),
        Shape(2, 4096, 512, cache="bfloat16"),
        Shape(8, 2048, 1024, cache="bfloat16"),
        Shape(8, 1024, 512, users=8, cache="bfloat16"),
        Shape(2, 1024, 128, users=3),
    ]
    check_outputs(shapes, mock_mesh((1, 2)).run(build_body, 1, shapes, timeout=900)[1])


def test_without_a_peer_and_without_speculation(mock_mesh):
    """On every chip of the mesh alone."""
    shapes = [
        Shape(*size, variant=variant)
        for variant in ("alone", "exact")
        for size in ((8, 1024, 128), (8, 1024, 128, 4), (1, 131072, 256))
    ]
    check_outputs(shapes, mock_mesh((1, 2)).run(build_body, 1, shapes, timeout=900)[1])


def l1_in_use_body(mesh) -> tuple[str, list]:
    """With 864 KB of L1 taken on every core: the error of a configuration that would fit else, and the outputs of the
    default."""
    import ttnn

    from tt_kernels.speculative_flash_decode.launch import l1_free
    from tt_kernels.speculative_flash_decode.op import ProgramConfig, UnsupportedError

    calls, shape = Calls(mesh, 1), Shape(8, 2048, 512, cache="bfloat16")
    config = ProgramConfig(workers_per_head=7, key_chunk=512)
    calls.run(replace(shape, cache="bfloat8_b"), program_config=config)
    before = l1_free(mesh)
    held = [calls.empty((1, 1, 64 * 32, 216 * 32), "bfloat16", memory="L1") for _ in range(2)]
    assert l1_free(mesh) == before - 2 * 216 * 2048, "216 tiles of each on every core"
    try:
        calls.run(replace(shape, cache="bfloat8_b"), program_config=config)
        message = "nothing was refused"
    except UnsupportedError as error:
        message = str(error)
    outputs = calls.run(shape)
    for tensor in held:
        ttnn.deallocate(tensor)
    return message, outputs


def test_l1_that_is_in_use_counts(mock_mesh):
    message, outputs = mock_mesh((1, 2)).run(l1_in_use_body, timeout=900)
    assert "key_chunk 512 with head_dim 128, 1 user(s) and 7 worker(s) per head needs" in message
    check_outputs([Shape(8, 2048, 512)], [outputs])


def refusals_body(mesh) -> list[tuple[str, str]]:
    """The errors of calls with a peer that must not be launched."""
    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.compute_gate.region import GatedRegionError, gated_region
    from tt_kernels.speculative_flash_decode.op import Peer

    calls = Calls(mesh, 1)
    pairs, gathered = calls.pairs, calls.gathered

    def call(**options):
        try:
            calls.run(Shape(8, 512, 128), **options)
        except (ValueError, GatedRegionError) as error:
            return type(error).__name__, str(error)
        return "", "nothing was refused"

    found = [
        call(priority=None),
        call(peer=Peer(pairs, calls.priority)),
        call(peer=Peer(pairs, [gathered])),
        call(peer=Peer(CorePair(mesh), [gathered, gathered])),
        *(call(peer=Peer(pairs, gathered, seconds)) for seconds in (0, float("inf"), float("nan"))),
    ]
    with gated_region():
        found.append(call())
    return found


def row_refusals_body(mesh) -> list[tuple[str, str]]:
    """The errors of calls on a 2x2 mesh whose chips would not decide together."""
    from tt_kernels.common.tp_group import TpGroup
    from tt_kernels.compute_gate.region import GatedRegionError, gated_region

    calls = Calls(mesh, 0)

    def call(**options):
        try:
            calls.run(Shape(4, 512, 128), **options)
        except (ValueError, GatedRegionError) as error:
            return type(error).__name__, str(error)
        return "", "nothing was refused"

    found = [
        call(tp_group=None),
        call(tp_group="the other chips"),
        call(tp_group=TpGroup(mesh, 0, OUTPUT)),
        call(tp_group=TpGroup(mesh, 1, EXCHANGE)),
    ]
    with gated_region(shared_gate_axis=1):
        found.append(call())
    return found


def test_rows_that_would_not_decide_together_are_refused(mock_mesh):
    texts = [
        "the chips along axis 1 share each user's heads and must decide together: give tp_group=TpGroup",
        "tp_group must be a TpGroup, it is a str",
        "peer.pairs and tp_group both use axis 0 of the mesh",
        "core (7, 7) cannot be both the exchange core of the pairs and the output core of the TP group",
        "speculative_flash_decode (cluster_axis=0) is a cross-chip op",
    ]
    found = mock_mesh((2, 2)).run(row_refusals_body)
    for text, (kind, message) in zip(texts, found, strict=True):
        assert kind == ("GatedRegionError" if "cross-chip" in text else "UnsupportedError") and text in message


def test_calls_that_would_hang_a_pair_are_refused(mock_mesh):
    *unsupported, (gated, message) = mock_mesh((1, 2)).run(refusals_body)
    texts = [
        "give priority=",
        "(1, 1, 2, 32), interleaved, on device; it is UINT32 ROW_MAJOR (1, 1, 1, 32)",
        "peer.gathered must be a ttnn.Tensor, it is a list",
        "peer.pairs must be a ChipPairs, it is a CorePair",
        *(f"a positive, finite number of seconds, not {seconds}" for seconds in ("0", "inf", "nan")),
    ]
    for text, (kind, found) in zip(texts, unsupported, strict=True):
        assert kind == "UnsupportedError" and text in found
    assert gated == "GatedRegionError"
    assert "speculative_flash_decode (cluster_axis=1) is a cross-chip op" in message
