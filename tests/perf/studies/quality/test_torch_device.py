# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The study on a GPU: whole texts in one forward decide as blocks do, and nothing is left on the host. No GPU is
needed: one is pretended (tests/support/pretend_gpu.py)."""

from __future__ import annotations

import pytest
import torch

from models.llama31_8b.checkpoint.random_weights import random_state_dict
from models.llama31_8b.reference.alspec.policies import (
    ALSpecAttention,
    AttentionPolicy,
    SinkAttention,
    StaticAttention,
)
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from perf.studies.quality import cli, forward
from perf.studies.quality.forward import read, text_pass
from perf.studies.quality.predictors import ComparedGuesses
from tests.support.attention_cases import random_tokens, tiny_config
from tests.support.pretend_gpu import pretended_gpu

CONFIG = tiny_config(max_position_embeddings=1024)
POLICIES = {
    "alspec": lambda: ALSpecAttention(0.6, 32),
    "alignment 1": lambda: ALSpecAttention(0.6, 48, 1),
    "short tail": lambda: ALSpecAttention(0.6, GuessRange(32, 64, 32)),
    "sink": lambda: SinkAttention(64),
    "static": lambda: StaticAttention(32, [0, 2]),
    "exact in one softmax": lambda: None,
}


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return random_state_dict(CONFIG, seed=4)


@pytest.fixture(scope="module")
def host(weights) -> ReferenceLlama:
    return ReferenceLlama.from_state_dict(CONFIG, weights)


def on(device: torch.device, weights: dict[str, torch.Tensor]) -> ReferenceLlama:
    """Made within `with device`, which the rotary table is made on."""
    return ReferenceLlama.from_state_dict(CONFIG, {name: tensor.to(device) for name, tensor in weights.items()})


@pytest.mark.parametrize("name", POLICIES)
def test_a_text_in_one_forward_is_the_text_in_blocks(name: str, host, weights) -> None:
    ids = random_tokens(700, seed=9)
    blocks = text_pass(host, ids, POLICIES[name](), keep_scores=True)
    with pretended_gpu() as gpu, gpu:
        whole = text_pass(on(gpu, weights), ids, POLICIES[name](), blocks.scores.to(gpu))
        assert whole.losses.is_cuda and whole.states.is_cuda
        losses, divergence = whole.losses.cpu(), whole.divergence.cpu()
        accepted = None if whole.accepted is None else whole.accepted.cpu()
    torch.testing.assert_close(losses, blocks.losses, rtol=1e-4, atol=1e-4)
    assert float(divergence.abs().max()) < 1e-4
    if accepted is not None:
        assert torch.equal(accepted, blocks.accepted)
        assert 0.05 < blocks.hit_rate() < 0.95, "both outcomes must occur"


def test_a_text_in_one_forward_on_the_host(host, monkeypatch) -> None:
    """The same path without any pretence, a batch of two users in a cache of three."""
    monkeypatch.setattr(forward, "forward_size", lambda tokens, cache, policy: tokens)
    ids = random_tokens(300, seed=2)
    whole = text_pass(host, ids, ALSpecAttention(0.6, 32))
    monkeypatch.undo()
    assert torch.equal(whole.accepted, text_pass(host, ids, ALSpecAttention(0.6, 32)).accepted)
    policy, cache = ALSpecAttention(0.6, 32), host.new_cache(3, 300)
    both = torch.tensor([random_tokens(300, seed=7), ids])
    host.forward(both, cache.view([0, 2]), policy=policy)
    assert torch.equal(policy.statistics.steps[0].accepted[:, 1], whole.accepted)
    assert cache.lengths.tolist() == [300, 0, 300]


def test_a_text_after_a_cache_and_generation(host, weights) -> None:
    ids = random_tokens(200, seed=5)

    def run(model: ReferenceLlama) -> tuple[list[int], list[list[bool]]]:
        cache = model.new_cache(1, 400)
        read(model, ids, ALSpecAttention(0.6, 32), cache)
        after = text_pass(model, ids[:80], ALSpecAttention(0.6, 32), cache=cache)
        made = generate(model, [ids], max_new_tokens=12, policy=ALSpecAttention(0.6, 32), eos_token_ids=())
        return made.token_ids[0], after.accepted.tolist()

    expected = run(host)
    with pretended_gpu() as gpu, gpu:
        assert run(on(gpu, weights)) == expected


def test_guesses_are_compared_in_blocks_there_too(host, weights) -> None:
    ids = random_tokens(300, seed=6)

    def distances(model: ReferenceLlama) -> dict:
        cache = model.new_cache(1, len(ids))
        policy = ComparedGuesses(cache, (128,))
        read(model, ids, policy, cache)
        layers = range(model.config.num_hidden_layers)
        # By layer: a GPU's blocks have another size.
        return {
            name: torch.cat([part for at in layers for part in found[at :: len(layers)]]).cpu()
            for name, found in policy.distances.items()
        }

    expected = distances(host)
    with pretended_gpu() as gpu, gpu:
        found = distances(on(gpu, weights))
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-3, atol=1e-4, equal_nan=True)


def test_policies_say_whether_they_need_every_score() -> None:
    assert ComparedGuesses.needs_scores and not getattr(AttentionPolicy, "needs_scores", False)


@pytest.mark.parametrize(
    "name,message", [("cuda:7", "'cuda:7' is not here"), ("tpu", "got 'tpu'"), ("meta", "'meta' is not here")]
)
def test_devices_that_are_not_there(name: str, message: str, capsys) -> None:
    with pytest.raises(SystemExit):
        cli.parse_args(["--torch-device", name])
    assert message in capsys.readouterr().err


@pytest.mark.model
def test_results_in_half_precision_say_so(tmp_path) -> None:
    arguments = ["--quick", "--parts", "perplexity", "--thresholds", "0.1", "--out", str(tmp_path)]
    assert cli.main([*arguments, "--dtype", "bfloat16"]) == 0
    assert "SmolLM2-135M-Instruct bfloat16,story," in (tmp_path / "perplexity.csv").read_text(encoding="utf-8")
