# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What attention-level speculation refuses before anything is opened."""

import pytest

from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.settings import AttentionSettings, SpeculationError


def check(shape, users=1, **settings) -> None:
    AttentionSettings(**{"policy": "alspec"} | settings).check(MeshShape(*shape), users, 256, layers=2)


@pytest.mark.parametrize("shape", [(2, 1), (2, 2), (2, 4)])
@pytest.mark.parametrize(
    "change", [{}, {"users": 8}, {"threshold": 0}, {"threshold": float("inf")}, {"chunk_size": 256}]
)
def test_what_is_supported(shape, change):
    check(shape, **change)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"users": 9}, "1 to 8 users together, got 9"),
        ({"users": 0}, "got 0"),
        ({"chunk_size": 48}, "multiple of 32 up to the cache's capacity of 256, got 48"),
        ({"chunk_size": 288}, "got 288"),
        ({"chunk_size": True}, "got True"),
        ({"chunk_size": 32.0}, "got 32.0"),
        ({"threshold": -0.1}, "got -0.1"),
        ({"threshold": float("nan")}, "got nan"),
        ({"threshold": float("-inf")}, "got -inf"),
        ({"threshold": 2e6}, "from 0 to 1e\\+06, or inf"),
        ({"threshold": True}, "got True"),
        ({"policy": "static", "static_layers": frozenset({1, 2})}, "layers \\[2\\] of a model with 2"),
        ({"policy": "sink", "chunk_size": 33}, "got 33"),
    ],
)
def test_what_is_refused(change, words):
    with pytest.raises(SpeculationError, match=words):
        check((2, 1), **change)


def test_the_guess_is_by_a_budget_unless_told_otherwise():
    guesses = {name: AttentionSettings("alspec", predictor=name).guess for name in (None, "ends", "budget")}
    assert guesses == {None: "budget", "ends": "ends", "budget": "budget"}
    assert AttentionSettings("sink").guess is None
    for wrong in ({"predictor": "ends", "budget": 0.9}, {"policy": "exact", "budget": 0.9}, {"predictor": "middle"}):
        with pytest.raises(ValueError, match="predictor"):
            AttentionSettings(**{"policy": "alspec"} | wrong)


@pytest.mark.parametrize("shape", [(1, 1), (1, 8)])
def test_one_row_cannot_speculate(shape):
    with pytest.raises(SpeculationError, match="needs a mesh of two rows, such as 2x1; 1x. has 1"):
        check(shape)
