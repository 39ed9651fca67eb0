# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Copies of a model have its settings and count for themselves; wrappers are seen through."""

from __future__ import annotations

import copy
import io

import pytest
import torch

import models.llama31_8b.huggingface as alspec
from tests.models.huggingface.tiny_transformers import decoded, tiny_decoder

THRESHOLD, CHUNK = 0.5, 32


def text(tokens: int) -> torch.Tensor:
    return torch.randint(1, 96, (1, tokens), generator=torch.Generator().manual_seed(2))


def saved(model):
    data = io.BytesIO()
    torch.save(model, data)
    data.seek(0)
    return torch.load(data, weights_only=False)


def averaged(model):
    return torch.optim.swa_utils.AveragedModel(model).module


@pytest.mark.parametrize("make", [copy.deepcopy, saved, averaged])
def test_a_copy_has_the_settings_and_counters_of_its_own(make) -> None:
    model = tiny_decoder()
    mine = alspec.AttentionSpeculation(THRESHOLD, CHUNK, 1, step_tokens=7, keep_decisions=True).attach(model)
    wanted = decoded(model, text(100), 70)
    counts = mine.totals()
    twin = make(model)
    theirs = alspec.speculation_of(twin)
    assert theirs is not mine and repr(theirs) == repr(mine) and theirs.hit_rate is None
    assert (theirs.step_tokens, theirs.keep_decisions) == (7, True)
    assert torch.equal(decoded(twin, text(100), 70), wanted)
    assert torch.equal(theirs.totals(), counts) and 0 < theirs.hit_rate < 1
    assert torch.equal(mine.totals(), counts), "the copy counts for itself, all of its layers together"


def test_a_model_that_is_loaded_again_is_attached_again(tmp_path) -> None:
    from transformers import AutoModelForCausalLM

    model = tiny_decoder()
    alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="alspec", dtype=torch.float32)
    with pytest.raises(alspec.UnsupportedAttentionError, match="LlamaAttention has no settings .*attach"):
        decoded(again, text(100), 70)
    counted = alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(again)
    decoded(again, text(100), 70)
    assert alspec.speculation_of(again) is counted and counted.totals().sum() == 3 * 30


def with_lora(model):
    peft = pytest.importorskip("peft", reason="peft is not installed: make setup-test")
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=4, task_type="CAUSAL_LM"))


def compiled(model):
    return torch.compile(model, backend="eager")


class Parallel(torch.nn.Module):
    """As DistributedDataParallel wraps."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.module = model


@pytest.mark.parametrize("vocabulary", [96, 64])  # the second: as many tokens as the hidden state has numbers
@pytest.mark.parametrize("wrap", [with_lora, compiled, Parallel])
def test_wrapped_models_are_scored_and_attached_to(wrap, vocabulary) -> None:
    model, ids = tiny_decoder(vocab_size=vocabulary), text(100)[0] % vocabulary
    mine = alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    wanted = alspec.score(model, ids)
    wrapped = wrap(model)
    assert alspec.speculation_of(wrapped) is mine
    found = alspec.score(wrapped, ids)
    torch.testing.assert_close(found.losses, wanted.losses, rtol=1e-5, atol=1e-5)
    assert torch.equal(found.choices, wanted.choices) and torch.equal(found.accepted, wanted.accepted)
    other = alspec.AttentionSpeculation(0.0, CHUNK).attach(wrapped)
    assert alspec.speculation_of(model) is other and alspec.score(wrapped, ids).hit_rate == 0


def test_an_adapter_counts_as_the_model_it_is_merged_into() -> None:
    """Its weights not 0: the text is another one, scored and decoded alike."""
    model = tiny_decoder()
    wrapped = with_lora(model)
    torch.manual_seed(3)
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(wrapped)
    wanted = alspec.score(wrapped, text(100)[0])
    merged = wrapped.merge_and_unload()
    assert alspec.speculation_of(merged) is alspec.speculation_of(model)
    torch.testing.assert_close(alspec.score(merged, text(100)[0]).losses, wanted.losses, rtol=1e-3, atol=1e-3)
    plain = tiny_decoder()
    alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(plain)
    assert (alspec.score(plain, text(100)[0]).losses - wanted.losses).abs().max() > 0.1


def test_what_cannot_be_scored_is_refused() -> None:
    model = tiny_decoder()
    alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    peft = pytest.importorskip("peft", reason="peft is not installed: make setup-test")
    prompted = peft.get_peft_model(model, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    with pytest.raises(alspec.UnsupportedAttentionError, match="cannot be scored: .*learned prompts"):
        alspec.score(prompted, text(100)[0])
    with pytest.raises(alspec.UnsupportedAttentionError, match="Linear holds no model of transformers"):
        alspec.AttentionSpeculation().attach(torch.nn.Linear(2, 2))
