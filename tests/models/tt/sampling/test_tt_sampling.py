# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens chosen on the simulated chip from given logits, against the reference's distribution and draws."""

import pytest
import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams, inverse_cdf, warp_logits
from tests.models.tt.sampling.sampling_programs import build_steps, choose, host_side, likeliest, pick_among
from tests.support.tt_tolerances import BAND, margin

ROWS, VOCAB = 32, 150
ORIGIN = 2**24
CASES = [
    SamplingParams(2.0, top_k=6),
    SamplingParams(3.0, top_k=32, top_p=0.9),
    SamplingParams(5.0, top_k=1),
    SamplingParams(0.7, top_k=20, top_p=1e-45),
]


@pytest.mark.sim
def test_choices_are_the_references(sim_device):
    """Candidates exact, ties included; distributions to 2.5e-4; tokens by the same numbers. Two blocks of the
    vocabulary are merged, the first widened to a power of two."""
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(ROWS, VOCAB, generator=generator) * 3).bfloat16()
    cases = [(params, torch.rand(ROWS, generator=generator, dtype=torch.float64)) for params in CASES]
    told = sim_device("2x1").run(choose, logits, cases, 3, timeout=1500)

    ordered, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    assert (ordered[:, 1:32] == ordered[:, :31]).any(), "no ties among the candidates"
    assert torch.equal(told["argmax"], order[:, 0])
    assert torch.equal(told["values"], ordered[:, :32]) and torch.equal(ORIGIN - told["keys"].long(), order[:, :32])
    for (params, numbers), drawn in zip(cases, told["draws"], strict=True):
        masses = warp_logits(logits, params)
        keys, up_to, total = (part.double() for part in drawn["borders"])
        ids, some = (ORIGIN - keys).long().clamp(max=VOCAB - 1), keys > 0
        assert torch.equal(torch.zeros_like(masses).scatter(1, ids, some.float()), (masses > 0).float())
        wrong = (up_to / total - masses.double().cumsum(-1).gather(1, ids))[some].abs().max()
        logger.info("{}: borders are off by up to {:.1e}", params, wrong)
        assert wrong < BAND
        clear = margin(masses, numbers) >= BAND
        assert clear.float().mean() > 0.9
        assert torch.equal(drawn["tokens"][clear], inverse_cdf(masses, numbers)[clear])
        if params.top_k == 1 or params.top_p < 1e-3:
            assert torch.equal(drawn["tokens"], order[:, 0])


@pytest.mark.slow
@pytest.mark.sim
def test_two_chips_choose_the_likeliest_token_of_all(sim_mesh):
    """The lowest id wins among equal logits, within a chip and between chips; also for negative ones, and never
    padding."""
    generator = torch.Generator().manual_seed(4)
    logits = (torch.randn(32, VOCAB, generator=generator) * 3).bfloat16()
    logits[0, [20, 40]] = logits[1, [70, 90]] = logits[2, [130, 149]] = 20.0
    logits[3] = -abs(logits[3]) - 1
    logits[4] = 1.5
    told = sim_mesh((1, 2), "4x2").run(likeliest, logits, timeout=1500)
    assert told == [[20, 70, 130, *logits[3:].argmax(-1).tolist()]] * 2
    assert told[0][4] == 0


@pytest.mark.sim
def test_ids_of_a_large_vocabulary_are_exact(sim_device):
    generator = torch.Generator().manual_seed(1)
    ids = torch.stack([torch.randperm(128256, generator=generator)[:32] for _ in range(8)]).sort(-1).values
    ids[0, -1] = 128255
    numbers = [(place + 0.5) / 32 for place in (31, 0, 1, 30, 17, 8, 13, 22)]
    found = sim_device("2x1").run(pick_among, ids, numbers)
    assert found == [int(row[int(number * 32)]) for row, number in zip(ids, numbers, strict=True)]


@pytest.mark.sim
def test_wrong_numbers_and_the_first_ids_of_blocks(sim_device):
    told = sim_device("2x1").run(host_side)
    assert told["starts"] == [0, 96, 160, 256, 320, 416]
    assert told["one"] == "uniform numbers must be in [0, 1), got 1.0"
    assert told["many"].endswith("with top_k up to 32, or by temperature alone; got top_k 33 and top_p 0.9")


@pytest.mark.mock_mesh
@pytest.mark.parametrize(
    "shape, blocks",
    [pytest.param((1, 1), [32064] * 4, marks=pytest.mark.slow, id="1x1"), pytest.param((1, 8), [16032], id="1x8")],
)
def test_a_step_of_llama_31_8b_chooses_its_tokens_without_the_host(mock_mesh, shape, blocks):
    """It builds, fits, and moves nothing to or from the host, as a trace demands; new numbers are one write before."""
    told = mock_mesh(shape).run(build_steps, 32, timeout=1500)
    for name, row in told.items():
        logger.info("{} {}: {}", shape, name, row)
        assert row["ids"] == (1, 32) and (row["blocks"] == blocks or name == "by temperature")
        assert row["step"] == []
    assert told["greedy"]["draw"] == []
    assert all("tt::tt_metal::copy_to_device" in told[name]["draw"] for name in ("sampled", "by temperature"))
