# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""No op of ours uses a circular buffer that its program lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.tt_kernels.common.earlier_buffers import touched_body
from tests.tt_kernels.speculative_flash_decode import flash_decode_programs as flash
from tests.tt_kernels.speculative_flash_decode.listed_tiles import CASE as LISTED
from tests.tt_kernels.speculative_flash_decode.listed_tiles import POSITIONS, RANGE, list_words
from tests.tt_kernels.tile_selection.selection_programs import CHIP as selection_chip
from tests.tt_kernels.tile_selection.selection_programs import selection_body
from tests.tt_kernels.tree_attention import tree_programs as tree
from tests.tt_kernels.tree_cache.tree_cache_programs import move_body
from tt_kernels.speculative_flash_decode.guess_range import GuessRange

pytestmark = pytest.mark.sim
LIMIT_S = 600
RUN = {"positions": POSITIONS}
MASSES = {"masses": torch.zeros((LISTED.users, LISTED.kv_heads, LISTED.max_tokens // 32), dtype=torch.int32)}
LISTS = {"guess_range": RANGE, "lists": list_words()}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("body", "run"),
    [
        pytest.param(flash.exact_body, RUN, id="exact"),
        pytest.param(flash.guess_body, RUN, id="guess"),
        pytest.param(flash.speculative_body, RUN, id="speculative"),
        pytest.param(flash.speculative_body, RUN | LISTS, id="lists"),
        pytest.param(flash.speculative_body, RUN | MASSES, id="masses"),
    ],
)
def test_flash_decode(sim_device, body, run, workers):
    case = replace(LISTED, workers=workers)
    assert sim_device(flash.CHIP).run(touched_body, body, case, *case.random(), [run], timeout=LIMIT_S) == {}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("speculates", [False, True])
def test_tree_attention(sim_device, speculates, workers):
    case = tree.Case(max_tokens=256, workers=workers, grid=(4, 1))
    call = {"prefix": [150], "parents": [tree.binary(case.nodes)], "threshold": 0.5}
    body, more = (tree.speculative_body, [GuessRange(32, 32)]) if speculates else (tree.tree_body, [])
    touched = sim_device(tree.CHIP).run(touched_body, body, case, *case.random(), [call], *more, timeout=LIMIT_S)
    assert touched == {}


def test_tile_selection(sim_device):
    masses, before = torch.ones(2, 1, 2, 16), torch.zeros(2, 1, 2, 16, dtype=torch.int32)
    arguments = selection_body, masses.int(), before, [400], GuessRange(32, 32, tiles=2)
    assert sim_device(selection_chip).run(touched_body, *arguments, timeout=LIMIT_S) == {}


def test_tree_cache(sim_device):
    rows = [torch.randn(1, 2, size, 64).bfloat16() for size in (64, 8)]
    arguments = move_body, "bfloat16", [rows[0]] * 2, [rows[1]] * 2, [([30], [[2, 3]])], 4
    assert sim_device("2x1").run(touched_body, *arguments, timeout=LIMIT_S) == {}
