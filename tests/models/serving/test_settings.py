# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter's own settings in the model's Hugging Face config."""

from __future__ import annotations

import pytest

from models.llama31_8b.serving.settings import Drafter, drafter, model_settings

USERS = 3


@pytest.mark.parametrize(
    "overrides, optimizations, message",
    [
        ({"drafts": 1}, None, "no setting 'drafts'"),
        ({"precision": "accuracy"}, "performance", "name one of them"),
        ({"precision": "fast"}, None, "no precision 'fast'"),
        ({"threshold": 0.1}, None, "threshold have no effect with exact attention"),
        ({"attention": "sink"}, None, "exact or alspec, got 'sink'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(overrides, optimizations, message):
    with pytest.raises(ValueError, match=message):
        model_settings(overrides, optimizations, USERS)


def test_settings_reach_the_model():
    found = model_settings({"attention": "alspec", "chunk_size": 64, "threshold": 0.2}, "accuracy", 4)
    assert (found["attention"].policy, found["attention"].chunk_size, found["attention"].threshold) == (
        "alspec",
        64,
        0.2,
    )
    assert (found["precision"], found["users"]) == ("accuracy", 4)


def test_what_drafts():
    assert drafter(None) is None and drafter({"draft": "folder"}) == Drafter("folder", None)
    assert drafter({"draft": "self"}) == Drafter("self", 256)
    assert drafter({"draft": "self", "draft_window": 64}) == Drafter("self", 64)
    with pytest.raises(ValueError, match="draft_window 64 has no effect without draft 'self'"):
        drafter({"draft": "folder", "draft_window": 64})
    assert drafter({"draft": "self", "attention": "alspec"}) == Drafter("self", 256)
