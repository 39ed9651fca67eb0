# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A small model with random weights."""

import pytest

from models.llama31_8b.reference.model.model import ReferenceLlama
from tests.support.attention_cases import tiny_config


@pytest.fixture(scope="session")
def model() -> ReferenceLlama:
    return ReferenceLlama.random(tiny_config(), seed=2)
