# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics by vLLM's definitions, worked out by hand."""

import json

import pytest

from models.llama31_8b.results import TokenSpeculationMetrics


def test_definitions():
    metrics = TokenSpeculationMetrics()
    for accepted in (3, 0, 1, 3):
        metrics.record_draft(depth=3, nodes=3, accepted=accepted)
    metrics.record_draft(depth=2, nodes=6, accepted=1)
    assert metrics.num_drafts == 5 and metrics.num_draft_tokens == 18 and metrics.num_accepted_tokens == 8
    assert metrics.num_accepted_tokens_per_pos == [4, 2, 2]
    assert metrics.mean_acceptance_length == pytest.approx(1 + 8 / 5)
    assert metrics.draft_acceptance_rate == pytest.approx(8 / 18)
    assert metrics.acceptance_histogram == [1, 2, 0, 2]
    data = json.loads(json.dumps(metrics.to_dict()))
    assert data["num_drafts"] == 5 and data["num_accepted_tokens_per_pos"] == [4, 2, 2]
    twice = TokenSpeculationMetrics.merged([metrics, TokenSpeculationMetrics(), metrics])
    assert twice.acceptance_histogram == [2, 4, 0, 4] and twice.num_draft_tokens == 36


def test_nothing_drafted():
    metrics = TokenSpeculationMetrics()
    assert metrics.mean_acceptance_length is None and metrics.draft_acceptance_rate is None
    assert metrics.acceptance_histogram == [] and metrics.tokens_per_target_step is None


@pytest.mark.parametrize("counts", [(2, 2, 3), (3, 2, 0), (2, 2, -1)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(ValueError, match="accepted <= depth <= nodes"):
        TokenSpeculationMetrics().record_draft(*counts)
