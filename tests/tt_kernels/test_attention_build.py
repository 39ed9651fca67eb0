# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention at Llama 3.1 8B shapes on mock meshes: calls validate, fit L1 and compile; nothing executes."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch

from tests.support.run_op import Call, In, Make, World, blank, gathered, priorities, refusals
from tests.tt_kernels.attention import FLASH, OPS
from tt_kernels.common.priority import HOLDS_EXACT
from tt_kernels.speculative_flash_decode.guess_range import chosen_words

pytestmark = pytest.mark.mock_mesh

# (mesh, axis of the pairs); the other axis is tensor parallel, and the heads are split over it.
MESHES = [((1, 2), 1), ((2, 2), 0), ((2, 4), 0)]
HEAD_DIM, GROUP = 128, 4
EXCHANGE, OUTPUT = (7, 7), (6, 7)
PEER = "tt_kernels.common.speculative_chips:Peer"


def tp_group(axis: int, core=OUTPUT) -> Make:
    return Make("tt_kernels.common.tp_group:TpGroup", axis, core, device=True)


def pairs(axis: int) -> Make:
    return Make("tt_kernels.common.peer:ChipPairs", axis, EXCHANGE, device=True)


def call(kv_heads, context, chunk_size, users=1, cache="bfloat8_b", axis=1, tp=None, **options) -> Call:
    """Return a call of pairs along an axis."""
    given = [blank((1, users, kv_heads * GROUP, HEAD_DIM), "bfloat16")]
    given += [blank((users, kv_heads, context, HEAD_DIM), cache) for _ in range(2)]
    given.append(blank((users,), "int32", "ROW_MAJOR"))
    peer = Make(PEER, pairs(axis), gathered(()))
    by_default: dict[str, Any] = {"peer": peer, "priority": priorities(HOLDS_EXACT), "tp_group": tp}
    return Call(f"{FLASH}:speculative_flash_decode", *given, chunk_size=chunk_size, **by_default | options)


def check_built(worker, calls: list[Call]) -> None:
    """Assert that each call builds."""
    found = refusals(worker, {str(number): each for number, each in enumerate(calls)}, timeout=900)
    assert set(found.values()) == {"nothing"}, found


@pytest.mark.parametrize("mesh, axis", MESHES, ids=["1x2", "2x2", "2x4"])
def test_llama_shapes_build_on_every_pair(mock_mesh, mesh, axis):
    columns = mesh[0] * mesh[1] // 2
    kv_heads, tp = 8 // columns, tp_group(1 - axis) if columns > 1 else None
    sizes = [(*size, 1) for size in itertools.product((1024, 32768, 131072), (128, 256, 512))]
    sizes.append((1024, 128, 8))  # the most semaphores
    check_built(mock_mesh(mesh), [call(kv_heads, *size, axis=axis, tp=tp) for size in sizes])


def test_trees_of_a_pair_that_hand_out_masses_build(mock_mesh):
    """The exchange core has another buffer where workers hand masses out."""
    kv_heads, sizes = 8, ((1, 16, 131072), (1, 64, 8192), (8, 4, 8192))
    calls = []
    for users, nodes, context in sizes:
        given = [blank((1, kv_heads * GROUP, users * nodes, HEAD_DIM), "bfloat16")]
        given += [blank((users, kv_heads, context, HEAD_DIM), "bfloat8_b") for _ in range(2)]
        given += [blank(shape, "int32", "ROW_MAJOR") for shape in ((users,), (users, 2, nodes))]
        of_heads = {"chosen": chosen_words(context), "tile_masses": context // 32}
        more: dict[str, Any] = {
            name: blank((users, kv_heads, words), "uint32", "ROW_MAJOR") for name, words in of_heads.items()
        }
        more |= {"peer": Make(PEER, pairs(1), gathered(())), "priority": priorities(HOLDS_EXACT)}
        calls.append(Call(OPS[True, "speculate"], *given, chunk_size=128, **more))
    check_built(mock_mesh((1, 2)), calls)


@contextmanager
def taken_l1(device) -> Iterator[None]:
    """Hold 864 KB of L1 on every core."""
    import ttnn

    from tt_kernels.speculative_flash_decode.op import l1_free

    free, tensor = l1_free(device), blank((1, 1, 64 * 32, 216 * 32), "bfloat16", memory="L1")
    held = [World(device).of(tensor) for _ in range(2)]
    assert l1_free(device) == free - 2 * 216 * 2048, "216 tiles of each on every core"
    yield
    for each in held:
        ttnn.deallocate(each)


def test_l1_that_is_in_use_counts(mock_mesh):
    """A configuration is refused that would fit else; the default takes smaller chunks."""
    config = Make(f"{FLASH}:ProgramConfig", workers_per_head=7, key_chunk=512)
    calls = {name: call(8, 2048, 512, program_config=config) for name in ("free", "taken")}
    calls["default"] = call(8, 2048, 512, cache="bfloat16")
    calls["taken"].inside = calls["default"].inside = Make(f"{__name__}:taken_l1", device=True)
    found = refusals(mock_mesh((1, 2)), calls, timeout=900)
    assert found["free"] == found["default"] == "nothing"
    assert "key_chunk 512 with head_dim 128, 1 user(s) and 7 worker(s) per head needs" in found["taken"]


def test_calls_that_would_hang_a_pair_or_not_decide_together_are_refused(mock_mesh):
    region = "tt_kernels.compute_gate.region:gated_region"
    made = Make("perf.lib.virtual_pair:CorePair", device=True)
    words = In(torch.zeros(1, 1, 1, 32), "uint32")
    on_pair, on_row = partial(call, 8, 512, 128), partial(call, 4, 512, 128, axis=0)

    def told(*seen) -> Make:
        return Make(PEER, pairs(1), *seen)

    of_pairs = {
        "give priority=": on_pair(priority=None),
        "(1, 1, 2, 32), interleaved on the device, it is UINT32 ROW_MAJOR (1, 1, 1, 32)": on_pair(peer=told(words)),
        "peer.gathered must be a ttnn.Tensor, it is a list": on_pair(peer=told([words])),
        "peer.pairs must be a ChipPairs, it is a CorePair": on_pair(peer=Make(PEER, made, gathered(()))),
        "a positive, finite number of seconds, not 0": on_pair(peer=told(gathered(()), 0)),
        "speculative_flash_decode (cluster_axis=1) is a cross-chip op": on_pair(inside=Make(region)),
    }
    decide = "the chips along axis 1 share each user's heads and must decide together: give tp_group=TpGroup"
    both = "core (7, 7) cannot be both the exchange core of the pairs and the output core of the TP group"
    gated = "speculative_flash_decode (cluster_axis=0) is a cross-chip op"
    of_rows = {
        decide: on_row(),
        "tp_group must be a TpGroup, it is a str": on_row(tp="the other chips"),
        "peer.pairs and tp_group both use axis 0 of the mesh": on_row(tp=tp_group(0)),
        both: on_row(tp=tp_group(1, EXCHANGE)),
        gated: on_row(tp=tp_group(1), inside=Make(region, shared_gate_axis=1)),
    }
    for mesh, refused in (((1, 2), of_pairs), ((2, 2), of_rows)):
        for text, message in refusals(mock_mesh(mesh), refused, timeout=900).items():
            assert text in message
            assert message.startswith("GatedRegionError" if "cross-chip" in text else "UnsupportedError")
