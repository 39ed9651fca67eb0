# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The tree attention kernels on the simulated N150 against the torch reference, and against plain decoding."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loguru import logger

from tests.support.pcc import correlation
from tests.tt_kernels.tree_attention.tree_programs import (
    CHIP,
    REFUSED,
    Case,
    binary,
    chain,
    count_programs_body,
    decode_body,
    forget_programs_body,
    padded,
    random_tree,
    refused_body,
    star,
    trace_body,
    tree_body,
)
from tt_kernels.tree_attention.reference import path_of, tree_attention_reference

pytestmark = pytest.mark.sim

LIMIT_S = 900
PCC = {"bfloat16": 0.999, "bfloat8_b": 0.99}


def check_rows(name: str, found: torch.Tensor, expected: torch.Tensor, least: float) -> None:
    """All elements together, and each row [heads, head_dim] of its own: one wrong node must not pass."""
    error = (found.double() - expected).abs()
    relative = (error / expected.abs().clamp_min(1e-2)).max().item()
    rows = [correlation(found[0, :, row], expected[0, :, row]) for row in range(found.shape[2])]
    logger.info(
        f"{name}: PCC {correlation(found, expected):.6f}, of a row {min(rows):.6f}, largest error "
        f"{error.max().item():.2e}, relative {relative:.2e}"
    )
    assert found.isfinite().all() and min(rows) >= least, name


def check_calls(device, case: Case, calls: list[dict], seed: int = 0, l1: bool = False) -> list[torch.Tensor]:
    """Each user's rows against the reference; zeros in those of a skipped user and behind the last node."""
    q, k, v = case.random(seed)
    results, caches = device.run(tree_body, case, q, k, v, calls, l1=l1, timeout=LIMIT_S)
    for call, found in zip(calls, results, strict=True):
        assert found.shape[2] % 32 == 0 and not found[:, :, q.shape[2] :].any()
        expected = tree_attention_reference(q, *caches, call["prefix"], call["parents"], scale=call.get("scale"))
        for user, prefix in enumerate(call["prefix"]):
            rows = slice(user * case.nodes, (user + 1) * case.nodes)
            if prefix < 0:
                assert not found[:, :, rows].any()
            else:
                name = f"{case} prefix {prefix}"
                check_rows(name, found[:, :, rows], expected[:, :, rows], PCC[case.cache])
    return results


FIVE = [binary(5), chain(5), padded(star(3), 5)]
CASES = {
    # Tiles hold the rows of several users; the queries of a head are less than a tile, or a little more than one.
    "4/1": (
        Case(4, 1, 64, 96, 9, users=6),
        [
            {
                "prefix": [0, 1, 31, 32, 33, -1],
                "parents": [
                    random_tree(9, 0),
                    binary(9),
                    star(9),
                    chain(9),
                    random_tree(9, 1, 0.4),
                    chain(9),
                ],
            },
            {
                "prefix": [33, -1, 0, 60, 87, 23],
                "parents": [chain(9), star(9), 9 * [-1], random_tree(9, 2), padded(binary(6), 9), binary(9)],
            },
        ],
    ),
    "8/2": (
        Case(8, 2, 128, 96, 5, users=3, cache="bfloat8_b", grid=(3, 1)),
        [{"prefix": [33, 0, 61], "parents": FIVE}],
    ),
    # Several passes of several query tiles, the last of them of fewer; more jobs than cores. A chain of 64.
    "passes": (
        Case(2, 1, 64, 160, 70, users=2, query_tiles=2, grid=(4, 1)),
        [{"prefix": [33, 90], "parents": [padded(chain(64), 70), random_tree(70, 3, 0.02)]}],
    ),
    "1000": (
        Case(4, 1, 64, 1024, 12, key_chunk=256, grid=(1, 1)),
        [{"prefix": [1000], "parents": [random_tree(12, 4)]}],
    ),
}


@pytest.mark.parametrize("case, calls", CASES.values(), ids=CASES)
def test_against_the_reference(sim_device, case, calls):
    check_calls(sim_device(CHIP), case, calls)


def test_the_most_nodes_at_the_lowest_fidelity(sim_device):
    """Visiting times of 8 bits, all rows of the mask; nodes that see nothing in the first chunks of an empty prefix."""
    case = Case(1, 1, 64, 288, 256, query_tiles=4, key_chunk=96, fidelity="HiFi2")
    parents = padded(random_tree(200, 5, 0.05), 256)
    check_calls(sim_device(CHIP), case, [{"prefix": [0], "parents": [parents]}])


def test_queries_in_l1_and_another_scale(sim_device):
    case = Case(nodes=4)
    call = {"prefix": [40], "parents": [binary(4)], "scale": 0.5}
    check_calls(sim_device(CHIP), case, [call], l1=True)


WORKERS = {
    # Workers without keys, which the prefix of a user decides; more heads than groups.
    "4": (
        Case(4, 1, 64, 160, 9, users=4, workers=4, grid=(4, 1), key_chunk=32),
        [{"prefix": [120, 5, -1, 60], "parents": [random_tree(9, 7), binary(9), chain(9), star(9)]}],
    ),
    # Slots of two query tiles, of which the last pass fills one; two groups of three.
    "3 and passes": (
        Case(4, 1, 128, 160, 20, users=2, workers=3, query_tiles=2, grid=(3, 2), key_chunk=64),
        [{"prefix": [130, 90], "parents": [random_tree(20, 8), binary(20)]}],
    ),
}


@pytest.mark.parametrize("case, calls", WORKERS.values(), ids=WORKERS)
def test_several_workers_share_a_head(sim_device, case, calls):
    check_calls(sim_device(CHIP), case, calls)


@st.composite
def trees(draw, nodes: int) -> list[int]:
    parents = [-1] + [draw(st.integers(-1, node - 1)) for node in range(1, draw(st.integers(1, nodes)))]
    return padded(parents, nodes)


@settings(max_examples=2)
@given(
    parents=st.lists(trees(10), min_size=8, max_size=8),
    prefix=st.lists(st.integers(-1, 54), min_size=8, max_size=8),
)
def test_any_trees(sim_device, parents, prefix):
    """Eight users with trees and prefixes of their own."""
    case = Case(2, 1, 64, 64, 10, users=8, grid=(4, 2))
    check_calls(sim_device(CHIP), case, [{"prefix": prefix, "parents": parents}])


@pytest.mark.parametrize("cache", ["bfloat16", "bfloat8_b"])
def test_what_lies_behind_the_nodes_does_not_matter(sim_device, cache):
    """Finite garbage, infinities and NaN in keys and values, bit for bit; in the last node's tile and behind it."""
    case = Case(2, 1, 64, 96, 6, users=2, cache=cache)
    q, k, v = case.random(11)
    call = {"prefix": [3, 30], "parents": [binary(6), padded(star(4), 6)]}
    clean, dirty = [], []
    for part in (k, v):
        clean.append(part.clone())
        dirty.append(part.clone())
        for user, prefix in enumerate(call["prefix"]):
            behind = slice(prefix + case.nodes, None)
            clean[-1][user, :, behind] = 0
            garbage = torch.tensor([1e8, -1e38, math.inf, -math.inf, math.nan]).bfloat16()
            if cache == "bfloat8_b":
                garbage = garbage[:2]  # it has no others
            rows = dirty[-1][user, :, behind]
            rows[...] = garbage[torch.arange(rows.numel()) % len(garbage)].view(rows.shape)
    found = [sim_device(CHIP).run(tree_body, case, q, *kv, [call], timeout=LIMIT_S)[0][0] for kv in (clean, dirty)]
    assert found[0].isfinite().all() and found[0].any() and torch.equal(*found)


def test_a_node_that_is_hidden_changes_nothing(sim_device):
    """A node's result is the same, bit for bit, whatever the keys and values of nodes it does not see."""
    case = Case(2, 1, 64, 64, 7)
    q, k, v = case.random(5)
    call = {"prefix": [20], "parents": [binary(7)]}
    others = [part.clone() for part in (k, v)]
    for part in others:
        part[0, :, [20 + 2, 20 + 5, 20 + 6]] *= -3  # the root's second child and its children
    found = [sim_device(CHIP).run(tree_body, case, q, *kv, [call], timeout=LIMIT_S)[0][0] for kv in ((k, v), others)]
    for node in range(7):
        assert torch.equal(found[0][:, :, node], found[1][:, :, node]) == (node in (0, 1, 3, 4)), node


def test_one_node_equals_flash_decode(sim_device):
    """Bit for bit, in chunks of as many keys; a chunk, two and a half, tile boundaries, no prefix."""
    case = Case(4, 1, 64, 160, 1, users=8)
    q, k, v = case.random(6)
    prefix = [0, 1, 31, 32, 33, 63, 150, -1]
    device = sim_device(CHIP)
    (found,), _ = device.run(tree_body, case, q, k, v, [{"prefix": prefix, "parents": 8 * [[-1]]}], timeout=LIMIT_S)
    decoded = device.run(decode_body, case, q.transpose(1, 2), k, v, prefix, timeout=LIMIT_S)
    assert torch.equal(found[:, :, :8], decoded.transpose(1, 2))


def test_every_node_equals_plain_decoding_of_its_path(sim_device):
    """flash_decode of each node in a cache that holds the prefix and the node's path."""
    case = Case(4, 1, 64, 96, 8)
    q, k, v = case.random(7)
    prefix, parents = 45, random_tree(8, 6)
    device = sim_device(CHIP)
    (found,), _ = device.run(tree_body, case, q, k, v, [{"prefix": [prefix], "parents": [parents]}], timeout=LIMIT_S)
    paths = [path_of(parents, node) for node in range(8)]
    assert len({len(path) for path in paths}) > 2
    caches = []
    for part in (k, v):
        cache = torch.zeros(8, *part.shape[1:], dtype=part.dtype)
        for node, path in enumerate(paths):
            cache[node, :, :prefix] = part[0, :, :prefix]
            cache[node, :, prefix : prefix + len(path)] = part[0, :, [prefix + n for n in path]]
        caches.append(cache)
    positions = [prefix + len(path) - 1 for path in paths]
    decoded = device.run(decode_body, replace(case, users=8), q.transpose(1, 2), *caches, positions, timeout=LIMIT_S)
    check_rows("plain decoding", found[:, :, :8], decoded.transpose(1, 2).double(), 0.9999)


def test_prefixes_trees_and_shapes_are_arguments_of_one_program(sim_device):
    """The second call must not run with the first's numbers, neither data nor what leaves the buffers alone."""
    device = sim_device(CHIP)
    device.run(forget_programs_body)
    case = Case(2, 1, 64, 64, 4, users=2)
    calls = [
        {"prefix": [5, 33], "parents": [chain(4), star(4)]},
        {"prefix": [33, -1], "parents": [star(4), binary(4)]},
    ]
    check_calls(device, case, calls)
    assert device.run(count_programs_body) == 1
    check_calls(device, replace(case, heads=4, max_tokens=128), [{"prefix": [90, 0], "parents": [star(4), chain(4)]}])
    assert device.run(count_programs_body) == 1


def test_one_trace_serves_all_prefixes_and_trees(sim_device):
    case = Case(2, 1, 64, 64, 5, grid=(1, 1))
    q, k, v = case.random(8)
    calls = [{"prefix": [prefix], "parents": [parents]} for prefix, parents in ((40, chain(5)), (7, star(5)))]
    found = sim_device("1x1", dispatch="fast").run(trace_body, case, q, k, v, calls, timeout=LIMIT_S)
    for call, each in zip(calls, found, strict=True):
        check_rows("trace", each, tree_attention_reference(q, k, v, **call), PCC[case.cache])


def test_refused_before_anything_runs(sim_device):
    messages = {
        "host query": "q must be on device, it is in host memory",
        "deallocated": "prefix has been deallocated",
        "torch intervals": "intervals must be a ttnn.Tensor, it is a Tensor",
        "tiled intervals": "intervals must be INT32 ROW_MAJOR (1, 2, nodes), it is BFLOAT16 TILE (1, 2, 8)",
        "rows": "q must be [1, heads, users * nodes, head_dim] with 1 * 7 = 7 rows, its shape is (1, 4, 8, 64)",
        "config in words": "program_config must be a ProgramConfig, it is a str",
        "three workers": "3 workers per head need 3 cores, the grid has 2",
        "grid": "a grid of 9x1 cores at (0, 0) is not within the device's 4x2",
        "fidelity": "math_fidelity must be one of HiFi2, HiFi3, got 'LoFi'",
        "scale": "scale must be from 0.0001 to 100, got 0",
        "too many keys at once": "query_tiles 1 and key_chunk 4096 with head_dim 128 and 1 worker(s) per head need",
    }
    assert messages.keys() == REFUSED.keys()
    for build, text in messages.items():
        found = sim_device(CHIP).run(refused_body, build)
        assert found is not None and found[0] == "UnsupportedError" and text in found[1], (build, found)
