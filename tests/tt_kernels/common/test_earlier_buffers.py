# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""No op of ours uses a circular buffer that its program lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support.run_op import Call, In, priorities, words
from tests.tt_kernels.attention import CHIP, LISTED, LISTED_AT, LISTED_RANGE, SHORT, Case, blank_masses, list_words
from tests.tt_kernels.common.earlier_buffers import touched_body

pytestmark = pytest.mark.sim


def attention_calls(nodes: int, workers: int) -> dict[str, Call]:
    if nodes > 1:
        case, at = Case(nodes, max_tokens=256, workers=workers, grid=(4, 1)), [150]
        more: dict[str, dict] = {"speculate": {"guess_range": SHORT}, "exact": {}}
    else:
        case, at = replace(LISTED, workers=workers), LISTED_AT
        more = {"guess": {}, "exact": {}, "speculate": {}}
    inputs = case.inputs(*case.random())
    calls = {mode: case.call(mode, inputs, at, **options) for mode, options in more.items()}
    if nodes == 1:
        lists = words(list_words(), "uint32")
        calls["lists"] = case.call("speculate", inputs, at, guess_range=LISTED_RANGE, tile_lists=lists)
        masses = {"priority": priorities(2), "tile_masses": blank_masses(case)}
        calls["masses"] = case.call("speculate", inputs, at, **masses)
    return calls


def check_untouched(worker, calls: dict[str, Call]) -> None:
    for name, call in calls.items():
        assert worker.run(touched_body, [call], timeout=600) == {}, name


@pytest.mark.parametrize(("nodes", "workers"), [(1, 1), (1, 3), (8, 1), (8, 2)])
def test_attention(sim_device, nodes, workers):
    check_untouched(sim_device(CHIP), attention_calls(nodes, workers))


def test_tile_selection_and_tree_cache(sim_device):
    masses, lists = (words(torch.full((1, 2, 16), value), "uint32") for value in (1, 0))
    calls = {
        "selection": Call("tt_kernels.tile_selection.op:select_tiles", [masses], [lists], words([400]), LISTED_RANGE),
    }
    caches, new = ([In(torch.randn(1, 2, size, 64)) for _ in range(2)] for size in (64, 8))
    prefix, path = words([30]), words([[2, 3, -1, -1, -1, -1, -1, -1]])
    calls["nodes"] = Call("tt_kernels.tree_cache.op:write_nodes", *caches, *new, prefix, 8)
    calls["path"] = Call("tt_kernels.tree_cache.op:commit_path", caches, prefix, path, 8)
    check_untouched(sim_device(CHIP), calls)
