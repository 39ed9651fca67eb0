# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Speculative sampling builds at full size on mock N150, where nothing executes."""

from __future__ import annotations

import pytest

from tests.kernels.speculative_sampling.sampling_cases import build_body
from tt_kernels.common.tensor_facts import UnsupportedError

pytestmark = pytest.mark.mock_mesh


def test_the_whole_vocabulary_fits_each_chip(mock_mesh):
    assert mock_mesh((1, 2)).run(build_body, 8, 8, 128256) == (8, 4 + 2 * 8)


def test_a_vocabulary_that_does_not_fit_is_refused(mock_mesh):
    with pytest.raises(UnsupportedError, match="a vocabulary of 1000000 needs 40.* bytes of L1 on each core"):
        mock_mesh((1, 2)).run(build_body, 1, 1, 1_000_000)
