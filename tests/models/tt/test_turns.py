# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Turns of a draft model, of which a later one goes behind what its cache holds. No device: the reference is in the
place of the chips. Turns of the target on the simulated chip: test_tt_generator.py and test_tt_trace.py."""

import pytest

from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import TINY
from tests.support.reference_chips import ReferenceChips, stand_in_for_ttnn
from tests.support.tt_programs import prompt


def test_a_draft_model_goes_behind_what_its_cache_holds(monkeypatch):
    """Its cache is a round behind the target's: whole blocks of what both have are kept."""
    stand_in_for_ttnn(monkeypatch, pytest.importorskip("ttnn"))
    from models.llama31_8b.tt.spec_decode import drafters

    monkeypatch.setattr(drafters, "Sampler", lambda *_: None)
    model = ReferenceChips(ReferenceLlama.random(TINY, seed=3), 2, 128, 32)
    model.mesh_shape = None
    drafter = drafters.ModelDrafter(model, prefill_chunk=32)
    drafter.prefill([prompt(70, 1), prompt(64, 2)], [0, 0], 128)
    model.prefilled.clear()
    drafter.prefill([prompt(75, 1), prompt(70, 2)], [66, 65], 128)
    assert model.prefilled == [(0, 64, 11), (1, 64, 6)]
    model.prefilled.clear()
    drafter.prefill([prompt(33, 3)], [0], 128)
    assert model.prefilled == [(0, 0, 32), (0, 32, 1)]
