# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Users of one batch with parameters of their own, sampled on the simulated chip, against the reference."""

import pytest
import torch

from models.llama31_8b.generation.sampling import SamplingParams, inverse_cdf, warp_logits
from tests.models.tt.sampling.sampling_programs import choose_per_user
from tests.support.tt_tolerances import BAND, margin

USERS, VOCAB, CALLS = 8, 150, 2
KINDS = [
    SamplingParams(),
    SamplingParams(2.0, top_k=6),
    SamplingParams(3.0, top_k=32, top_p=0.9),
    SamplingParams(0.7, top_k=20, top_p=0.5),
    SamplingParams(5.0, top_k=1),
    SamplingParams(1e-45, top_k=4),
    SamplingParams(2.0, top_k=32, top_p=1e-45),
]


@pytest.mark.sim
def test_each_user_is_drawn_by_its_own_parameters(sim_device):
    """Parameters change between calls; equal logits among the candidates of every user."""
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(USERS, VOCAB, generator=generator) * 3).bfloat16()
    batches = []
    for call in range(CALLS):
        numbers = torch.rand(USERS, generator=generator, dtype=torch.float64).tolist()
        batches.append([(KINDS[(user + call) % len(KINDS)], number) for user, number in enumerate(numbers)])
    *found, refused = sim_device("2x1").run(choose_per_user, logits, batches, timeout=1500)
    clear = 0
    for draws, tokens in zip(batches, found, strict=True):
        for user, (params, number) in enumerate(draws):
            masses, numbers = warp_logits(logits[user : user + 1], params), torch.tensor([number], dtype=torch.float64)
            if bool(margin(masses, numbers) >= BAND):
                clear += 1
                assert int(tokens[user]) == int(inverse_cdf(masses, numbers)), (user, params)
    assert clear > 0.9 * CALLS * USERS
    assert refused == "chips sample users greedily or with top_k up to 32; got top_k 33"
