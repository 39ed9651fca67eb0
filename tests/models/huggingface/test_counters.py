# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Counters by layer and row: what they add up to, whose they are, that no step waits for the device; copies of a model
count for themselves, and wrappers are seen through."""

import copy
import io

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import models.llama31_8b.huggingface as alspec
from models.llama31_8b.huggingface.attention import alspec_attention
from models.llama31_8b.reference.model.step import GuessRange
from tests.models.huggingface.tiny_transformers import CHUNK, THRESHOLD, Layer, decoded, texts, tiny_decoder


def test_counts_are_the_sums_of_the_decisions() -> None:
    model = tiny_decoder()
    counted = alspec.AttentionSpeculation(THRESHOLD, CHUNK, keep_decisions=True).attach(model)
    decoded(model, texts(2, 100), 40)
    accepted, verified = counted.decisions()
    assert accepted.shape == (3, 2, 60) and verified.shape == (2, 60)
    assert not (accepted & ~verified).any()
    hits = accepted.sum(2)
    expected = torch.stack((hits, verified.sum(1) - hits, (~verified).sum(1).expand(3, -1)), dim=2)
    assert torch.equal(counted.totals(), expected)
    assert torch.equal(counted.totals_per_layer(), expected.sum(1))
    assert torch.equal(counted.totals_per_row(), expected.sum(0))
    assert (counted.hits, counted.misses, counted.bypassed) == tuple(expected.sum((0, 1)).tolist())
    assert counted.hit_rate == counted.hits / (counted.hits + counted.misses)
    assert counted.hit_rate_per_layer == [h / (h + m) for h, m, _ in expected.sum(1).tolist()]
    counted.reset()
    assert counted.hit_rate is None and counted.totals().shape == (0, 0, 3)


def test_rows_come_and_go() -> None:
    model = tiny_decoder()
    counted = alspec.AttentionSpeculation(THRESHOLD, CHUNK, keep_decisions=True).attach(model)
    for rows in (1, 3, 2):
        decoded(model, texts(rows, 100), 90)
    assert counted.totals().sum((0, 2)).tolist() == [3 * 30, 3 * 20, 3 * 10]
    with pytest.raises(ValueError, match=r"the number of rows changed between steps \(\[1, 2, 3\]\)"):
        counted.decisions()


@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_no_step_waits_for_the_device(queries: int, masked: bool) -> None:
    """By torch's fake tensors, which have no values to wait for and refuse tensors of two devices. Layer 0 is on the
    host and layer 1 on a GPU, as accelerate spreads a model; counts of both add up where they are read."""
    counted = alspec.AttentionSpeculation(THRESHOLD, CHUNK)
    shapes = ((2, 4, queries, 16), (2, 2, 100, 16), (2, 2, 100, 16))
    with FakeTensorMode():
        for layer, device in enumerate(("cpu", "cuda")):
            mask = torch.ones(2, 1, queries, 100, dtype=torch.bool, device=device)
            states = [torch.randn(shape, device=device) for shape in shapes]
            out, _ = alspec_attention(
                Layer(counted, layer), *states, mask if masked or queries > 1 else None, scaling=0.25
            )
            assert out.device.type == device
        assert counted.totals().shape == (2, 2, 3)
        with pytest.raises(DataDependentOutputException):
            counted.totals().tolist()


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
    mine = alspec.AttentionSpeculation(
        THRESHOLD, GuessRange.both_ends(CHUNK, 1), step_tokens=7, keep_decisions=True
    ).attach(model)
    wanted = decoded(model, texts(1, 100), 70)
    counts = mine.totals()
    twin = make(model)
    theirs = alspec.speculation_of(twin)
    assert theirs is not mine and repr(theirs) == repr(mine) and theirs.hit_rate is None
    assert (theirs.step_tokens, theirs.keep_decisions) == (7, True)
    assert torch.equal(decoded(twin, texts(1, 100), 70), wanted)
    assert torch.equal(theirs.totals(), counts) and 0 < theirs.hit_rate < 1
    assert torch.equal(mine.totals(), counts), "the copy counts for itself, all of its layers together"


def test_a_model_that_is_loaded_again_is_attached_again(tmp_path) -> None:
    from transformers import AutoModelForCausalLM

    model = tiny_decoder()
    alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="alspec", dtype=torch.float32)
    with pytest.raises(alspec.UnsupportedAttentionError, match="LlamaAttention has no settings .*attach"):
        decoded(again, texts(1, 100), 70)
    counted = alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(again)
    decoded(again, texts(1, 100), 70)
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
    model, ids = tiny_decoder(vocab_size=vocabulary), texts(1, 100)[0] % vocabulary
    mine = alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    wanted = alspec.score(model, ids)
    wrapped = wrap(model)
    assert alspec.speculation_of(wrapped) is mine
    found = alspec.score(wrapped, ids)
    torch.testing.assert_close(found.losses, wanted.losses, rtol=1e-5, atol=1e-5)
    assert torch.equal(found.choices, wanted.choices) and torch.equal(found.accepted, wanted.accepted)
    other = alspec.AttentionSpeculation(0.0, CHUNK).attach(wrapped)
    assert alspec.speculation_of(model) is other and alspec.score(wrapped, ids).hit_rate == 0


def test_what_cannot_be_scored_is_refused() -> None:
    model = tiny_decoder()
    alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    peft = pytest.importorskip("peft", reason="peft is not installed: make setup-test")
    prompted = peft.get_peft_model(model, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    with pytest.raises(alspec.UnsupportedAttentionError, match="cannot be scored: .*learned prompts"):
        alspec.score(prompted, texts(1, 100)[0])
    with pytest.raises(alspec.UnsupportedAttentionError, match="Linear holds no model of transformers"):
        alspec.AttentionSpeculation().attach(torch.nn.Linear(2, 2))
