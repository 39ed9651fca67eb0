# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Speculative sampling builds at full size on mock N150, where nothing executes."""

from __future__ import annotations

import pytest

from tests.kernels.speculative_sampling.sampling_cases import build_body
from tests.kernels.speculative_sampling.sampling_checks import EXACT, SIGMOID
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
        mock_mesh((1, 2)).run(build_body, 1, 1, 1_000_000, cores_a_user=1)
