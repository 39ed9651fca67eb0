# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Speculative sampling builds at full size on mock N150, where nothing executes."""

from __future__ import annotations

import pytest

from tests.tt_kernels.speculative_sampling.sampling_cases import build_body
from tests.tt_kernels.speculative_sampling.sampling_checks import EXACT, SIGMOID
from tt_kernels.common.tensor_facts import UnsupportedError

pytestmark = pytest.mark.mock_mesh

VOCAB = 128256


def test_the_whole_vocabulary_fits_each_chip(mock_mesh):
    assert mock_mesh((1, 2)).run(build_body, 8, 8, VOCAB) == (8, 4 + 2 * 8)


@pytest.mark.parametrize("chips", (1, 2, 4, 8))
def test_the_vocabulary_over_the_chips_of_a_row(mock_mesh, chips):
    for op in (EXACT, SIGMOID):
        shape = mock_mesh((1, chips)).run(build_body, 8, 8, VOCAB // chips, split=chips > 1, op=op)
        assert shape == (8, 4 + 2 * 8)


def test_a_vocabulary_that_does_not_fit_is_refused(mock_mesh):
    with pytest.raises(UnsupportedError, match="a vocabulary of 1000000 needs 40.* bytes of L1 on each core"):
        mock_mesh((1, 2)).run(build_body, 1, 1, 1_000_000, cores_per_user=1)


def test_refused_rows_and_warpers(mock_mesh):
    """Before any launch, with the values found."""
    mesh = mock_mesh((1, 2))
    for split, vocab, options, said in (
        (False, 64, {"tp_group": "here"}, "tp_group must be a VocabTpGroup, it is a str"),
        (True, 600_000, {}, "vocab of 600000 on each of 2 chips is more than 1048576"),
        (True, 64, {"grid": (1, 1)}, r"1 cores per user needs these and a hub, \(0, 0\)"),
        (True, 64, {"cores_per_user": 2}, "cores_per_user must be from 1 to 1, .* got 2"),
        (True, 64, {"top_p": 0.9}, "top_p=0.9: the op verifies the whole vocabulary"),
        (True, 64, {"op": SIGMOID, "top_k": 40}, "top_k=40: the op verifies the whole vocabulary"),
        (True, 64, {"op": SIGMOID, "alpha": 1.0}, "alpha=1.0 and beta=1000.0"),
    ):
        with pytest.raises(UnsupportedError, match=said):
            mesh.run(build_body, 1, 2, vocab, split=split, **options)
