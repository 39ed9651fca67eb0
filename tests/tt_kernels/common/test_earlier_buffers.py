# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""No op of ours uses a circular buffer that its program lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support.run_op import Call, In, priorities, words
from tests.tt_kernels.attention import CHIP, CHOOSING, CHOOSING_AT, SHORT, Case, blank_masses, chosen_tiles
from tests.tt_kernels.common.earlier_buffers import touched_body

pytestmark = pytest.mark.sim


def attention_calls(nodes: int, workers: int) -> dict[str, Call]:
    if nodes > 1:
        case, at = Case(nodes, max_tokens=256, workers=workers, grid=(4, 1)), [150]
        inputs = case.inputs(*case.random())
        more = {"chosen": chosen_tiles(case, [[[1, 3]]]), "tile_masses": blank_masses(case)}
        return {
            "speculate": case.call("speculate", inputs, at, guess_range=SHORT),
            "chosen, masses": case.call("speculate", inputs, at, guess_range=SHORT, **more),
            "exact": case.call("exact", inputs, at),
        }
    case, at = replace(CHOOSING, workers=workers), CHOOSING_AT
    inputs, chosen = case.inputs(*case.random()), {"chosen": chosen_tiles()}
    masses = {"priority": priorities(2), "tile_masses": blank_masses(case)}
    calls = {"chosen, masses": case.call("speculate", inputs, at, **masses, **chosen)}
    return calls | {
        "exact": case.call("exact", inputs, at),
        "speculate": case.call("speculate", inputs, at),
        "chosen alone": case.call("guess", inputs, at, **chosen),
    }


def check_untouched(worker, calls: dict[str, Call]) -> None:
    for name, call in calls.items():
        assert worker.run(touched_body, [call], timeout=600) == {}, name


@pytest.mark.parametrize(("nodes", "workers"), [(1, 3), (8, 2)])
def test_attention(sim_device, nodes, workers):
    check_untouched(sim_device(CHIP), attention_calls(nodes, workers))


def test_tile_selection_and_tree_cache(sim_device):
    masses, chosen = (words(torch.full((1, 2, words_), value), "uint32") for words_, value in ((16, 1), (8, 0)))
    select = "tt_kernels.tile_selection.op:select_tiles"
    calls = {"selection": Call(select, [masses], [chosen], words([400]), SHORT, 0.98)}
    caches, new = ([In(torch.randn(1, 2, size, 64)) for _ in range(2)] for size in (64, 8))
    prefix, path = words([30]), words([[2, 3, -1, -1, -1, -1, -1, -1]])
    calls["nodes"] = Call("tt_kernels.tree_cache.op:write_nodes", *caches, *new, prefix, 8)
    calls["path"] = Call("tt_kernels.tree_cache.op:commit_path", caches, prefix, path, 8)
    check_untouched(sim_device(CHIP), calls)
