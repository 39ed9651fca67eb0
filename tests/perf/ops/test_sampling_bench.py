# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What bench_speculative_sampling says beside cycles: bytes, and how far sigmoids are from the target."""

from __future__ import annotations

import pytest
import torch

from perf.ops import bench_flash_decode, bench_speculative_sampling
from perf.ops.bench_speculative_sampling import WAYS, bytes_moved, paper_report, report, total_variation
from tt_kernels.speculative_sampling.reference import SigmoidModel

ROUNDS = 5_000


def test_total_variation_is_what_verifications_show():
    """Counts of the op's torch model, for drafts drawn from the draft's softmax. A count deviates by 0.005 of
    the whole, and their half sum over 12 tokens by less than 0.03."""
    generator = torch.Generator().manual_seed(3)
    target, draft = (torch.randn(12, generator=generator).bfloat16() for _ in range(2))
    found = total_variation(target.tolist(), draft.tolist(), -5.0, 5.0)
    model = SigmoidModel([-1, 0], target.expand(2, -1), draft.expand(2, -1), 1.0, -5.0, 5.0)
    drawn = torch.multinomial(torch.softmax(draft.double(), 0), ROUNDS, True, generator=generator)
    words = torch.randint(0, 2**32, (ROUNDS, 2), generator=generator)
    counts, accepted = torch.zeros(12), 0
    for token, uniforms in zip(drawn.tolist(), words.tolist(), strict=True):
        outcome = model.verify([0, token], uniforms)
        accepted += len(outcome.path)
        counts[token if outcome.path else outcome.bonus] += 1
    p = torch.softmax(target.double(), 0)
    assert (counts / ROUNDS - p).abs().sum() / 2 == pytest.approx(found["sigmoid"], abs=0.03)
    assert accepted / ROUNDS == pytest.approx(found["accepted"], abs=0.02)
    assert found["accepted, exact"] == pytest.approx(1 - found["draft"])


def test_no_variation_where_draft_and_target_are_equal():
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1)).tolist()
    found = total_variation(logits, logits, -1e3, 1e3)
    assert found["sigmoid"] == pytest.approx(0, abs=1e-12) and found["accepted"] == pytest.approx(1)


def test_bytes_moved():
    """Two drafted tokens take five rows of 2 bytes per id when all is accepted, two when the first is not."""
    moved = bytes_moved(3, 2, 1000)
    assert moved["exact, accepted"] == 3 * 5 * 2000 and moved["exact, rejected"] == 3 * 2 * 2000
    assert moved["sigmoid, accepted"] == 3 * (2 * 64 + 2000)
    assert moved["host"] == 3 * 6 * 2000


def test_report_judges_by_the_targets():
    cycles = dict(zip(WAYS, (60, 70, 40, 41, 100), strict=True))
    ways = {name: {"cycles": count, "moved": 1, "peak": 2} for name, count in cycles.items()}
    text = report([{"users": 1, "drafted": 2, "vocab": 2048, "ways": ways}])
    verdicts = [line for line in text.splitlines() if "met" in line or "MISSED" in line]
    assert [("MISSED" in line) for line in verdicts] == [False, True, False, True]
    assert "Gemma 7B, Gemma 2B, Xsum: 0.901, 0.365" in paper_report()


@pytest.mark.parametrize(
    "bench, options",
    [
        (bench_speculative_sampling, ["--mock", "--vocab", "4096"]),
        (bench_speculative_sampling, ["--mock", "--grid", "2x1"]),
        (bench_flash_decode, ["--long", "--predictors"]),
    ],
)
def test_options_that_would_change_nothing_are_refused(bench, options, monkeypatch, capsys):
    monkeypatch.setattr(bench, "run", lambda *_: pytest.fail("measured"))
    with pytest.raises(SystemExit, match="2"):
        bench.main(options)
    assert next(word for word in reversed(options) if word.startswith("--")) in capsys.readouterr().err
