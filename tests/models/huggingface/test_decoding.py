# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of transformers models under "alspec" decide as the reference does, whatever the batch; and generate()
by them: batches, beams, drafts, static caches."""

from typing import Any

import pytest
import torch
from loguru import logger
from transformers import AutoModelForCausalLM

import models.llama31_8b.huggingface as alspec
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.load import load_model
from models.llama31_8b.reference.model.step import GuessRange
from perf.studies.quality.forward import text_pass
from perf.studies.quality.study import Texts
from tests.models.huggingface.tiny_transformers import CHUNK, DECODERS, THRESHOLD, decoded, texts, tiny_decoder

either_guess = pytest.mark.parametrize("threshold, budget", [(THRESHOLD, None), (0.25, 0.7)], ids=["ends", "budget"])


def left_padded(ids: torch.Tensor, padding: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, mask) with so many zeros before each row; rows end together, so the first tokens of some are cut."""
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        mask[row, :count] = 0
    return ids * mask, mask


@pytest.mark.parametrize("kind", DECODERS)
@either_guess
def test_rows_after_left_padding_decide_as_alone(kind: str, threshold: float, budget: float | None) -> None:
    model = tiny_decoder(kind)
    ids, mask = left_padded(texts(3, 150), [0, 37, 64])
    settings = {"threshold": threshold, "chunk_size": CHUNK, "budget": budget, "keep_decisions": True}
    together = alspec.AttentionSpeculation(**settings).attach(model)
    logits = decoded(model, ids, 90, mask)
    accepted, verified = together.decisions()
    assert accepted.shape == (3, 3, 60) and 0.02 < together.hit_rate < 0.98, "both outcomes must occur"
    for row in range(3):
        alone = alspec.AttentionSpeculation(**settings).attach(model)
        start = int((mask[row] == 0).sum())
        mine = decoded(model, ids[row : row + 1, start:], 90 - start)
        assert torch.equal(alone.decisions()[0][:, 0], accepted[:, row])
        assert torch.equal(alone.decisions()[1][0], verified[row])
        torch.testing.assert_close(mine[0], logits[row], rtol=1e-3, atol=1e-4)
    assert verified[0].all() and not verified[2, :10].any(), "26 cached tokens and more; 64 speculate"


@pytest.mark.parametrize(
    "chunk",
    [32, GuessRange.both_ends(16, 1), GuessRange(16, 48, 16), GuessRange.by_budget(32, 0.4)],
    ids=["32", "16-1", "chunk2", "chunk3"],
)
def test_drafts_decide_as_one_by_one(chunk) -> None:
    """Steps of several tokens, as assisted generation checks them, with and without padding."""
    model = tiny_decoder()
    ids, mask = left_padded(texts(2, 160), [0, 21])
    for given in (None, mask):
        found = {}
        for width in (1, 7):
            speculation = alspec.AttentionSpeculation(THRESHOLD, chunk, keep_decisions=True).attach(model)
            logits = decoded(model, ids, 60, given, width)
            found[width] = (*speculation.decisions(), logits)
        assert torch.equal(found[1][0], found[7][0]) and torch.equal(found[1][1], found[7][1])
        assert 0.02 < float(found[1][0].double().mean()) < 0.98
        torch.testing.assert_close(found[1][2], found[7][2], rtol=1e-3, atol=1e-4)


def test_long_steps_are_prefill() -> None:
    model, exact = tiny_decoder(), tiny_decoder(attention="sdpa")
    speculation = alspec.AttentionSpeculation(float("inf"), CHUNK, step_tokens=8).attach(model)
    ids = texts(1, 120)
    ours, theirs = decoded(model, ids, 80, width=9), decoded(exact, ids, 80, width=9)
    torch.testing.assert_close(ours[:, :36], theirs[:, :36])
    assert speculation.totals_per_layer().tolist() == [[4, 0, 0]] * 3, "the last step had 4 tokens"


@pytest.mark.parametrize("budget", [None, 0.5])
def test_threshold_0_is_sdpa_and_infinity_takes_every_guess(budget: float | None) -> None:
    model, exact = tiny_decoder(), tiny_decoder(attention="sdpa")
    ids, mask = left_padded(texts(2, 130), [0, 11])
    never = alspec.AttentionSpeculation(0.0, CHUNK, budget=budget).attach(model)
    assert torch.equal(decoded(model, ids, 70, mask), decoded(exact, ids, 70, mask))
    eligible = mask.cumsum(1)[:, 70:] >= 2 * CHUNK
    assert never.totals_per_row().tolist() == [[0, 3 * int(row.sum()), 3 * int((~row).sum())] for row in eligible]
    always = alspec.AttentionSpeculation(float("inf"), CHUNK, budget=budget).attach(model)
    assert not torch.allclose(decoded(model, ids, 70, mask), decoded(exact, ids, 70, mask))
    assert always.totals_per_layer().tolist() == [[int(eligible.sum()), 0, int((~eligible).sum())]] * 3


@pytest.mark.parametrize("dtype,agreement", [(torch.bfloat16, 0.9), (torch.float16, 0.97)])
def test_half_precision_decides_nearly_alike(dtype: torch.dtype, agreement: float) -> None:
    model = tiny_decoder()
    ids, mask = left_padded(texts(2, 140), [0, 9])
    found = []
    for kind in (torch.float32, dtype):
        model = model.to(kind)
        speculation = alspec.AttentionSpeculation(THRESHOLD, CHUNK, keep_decisions=True).attach(model)
        decoded(model, ids, 80, mask)
        found.append(speculation.decisions()[0])
    same = float((found[0] == found[1]).double().mean())
    logger.info("{}: {:.1%} of the decisions as in float32", dtype, same)
    assert same > agreement


@either_guess
def test_a_cropped_cache_decides_again_alike(threshold: float, budget: float | None) -> None:
    """With a budget the weights are forgotten: the second time as after the prompt."""
    model = tiny_decoder()
    ids = texts(1, 120)
    speculation = alspec.AttentionSpeculation(threshold, CHUNK, budget=budget, keep_decisions=True).attach(model)
    with torch.no_grad():
        cache = model(input_ids=ids[:, :100], use_cache=True).past_key_values
        found = []
        for _ in range(2):
            speculation.reset()
            parts = ids[:, 100:].split(1, dim=1)
            logits = [model(input_ids=part, past_key_values=cache, use_cache=True).logits for part in parts]
            found.append((speculation.decisions()[0], torch.cat(logits)))
            cache.crop(-20)
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    assert 0 < float(found[0][0].double().mean()) < 1


@pytest.fixture(scope="module")
def trained() -> tuple:
    """SmolLM2 in float32, by the reference and by transformers."""
    loaded = load_model()
    return loaded, AutoModelForCausalLM.from_pretrained(loaded.folder, attn_implementation="alspec").float().eval()


@pytest.mark.model
@pytest.mark.parametrize("budget", [None, 0.9])
def test_the_trained_model_decides_as_the_reference(trained, budget: float | None) -> None:
    """All layers, 60 tokens, two rows after left padding; a sixth of the tokens one by one, the others as drafts, which
    takes a third of the time."""
    chunk, padding, prefill, steps = 64, [0, 90], 190, 60
    reference, model = trained
    book = Texts().book_ids(reference.tokenizer)
    total = prefill + steps
    ids, mask = left_padded(torch.tensor([book[start : start + total] for start in (0, 700)]), padding)
    read = chunk if budget is None else GuessRange.by_budget(chunk, budget)
    speculation = alspec.AttentionSpeculation(0.10, read, keep_decisions=True).attach(model)
    logits = decoded(model, ids, prefill, mask, width=25, singles=10).log_softmax(-1)
    accepted, verified = speculation.decisions()
    for row, count in enumerate(padding):
        text = ids[row, count:].tolist()
        cache = reference.model.new_cache(1, len(text))
        reference.model.prefill([text[: prefill - count]], cache)
        expected = text_pass(reference.model, text[prefill - count :], ALSpecAttention(0.10, read), cache=cache)
        assert torch.equal(accepted[:, row], expected.accepted), f"row {row}"
        assert torch.equal(verified[row], expected.verified), f"row {row}"
        losses = -logits[row, range(steps - 1), text[prefill - count + 1 :]]
        torch.testing.assert_close(losses, expected.losses, rtol=1e-3, atol=1e-3)
    assert 0.2 < speculation.hit_rate < 0.9
    logger.info("hit rate {:.1%} of {} decisions", speculation.hit_rate, accepted.numel())


NEW = 40  # tokens


def prompts(rows: int, tokens: int, padding: list[int]) -> dict[str, torch.Tensor]:
    ids, mask = left_padded(texts(rows, tokens, seed=5), padding)
    return {"input_ids": ids, "attention_mask": mask}


def written(model: Any, inputs: dict[str, torch.Tensor], **options: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.generate(**inputs, **{"max_new_tokens": NEW, "do_sample": False, **options})


@pytest.fixture
def model() -> Any:
    return tiny_decoder()


@pytest.mark.parametrize("padding", [[0, 0], [0, 13]])
def test_beams_at_threshold_0_are_those_of_sdpa_and_speculate_else(model, padding) -> None:
    inputs = prompts(2, 100, padding)
    exact = tiny_decoder(attention="sdpa")
    beams = {"num_beams": 3, "max_new_tokens": 16}
    alspec.AttentionSpeculation(0.0, CHUNK).attach(model)
    assert torch.equal(written(model, inputs, **beams), written(exact, inputs, **beams))
    loose = alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    written(model, inputs, **beams)
    assert loose.totals().shape == (3, 6, 3) and loose.hits > 0 and loose.misses > 0


@pytest.mark.parametrize("drafts", ["assistant", "prompt lookup"])
def test_checked_drafts_give_the_text_without_them(model, drafts) -> None:
    inputs = prompts(1, 100, [0])
    speculation = alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    plain = written(model, inputs)
    steps = speculation.totals_per_row().sum()
    speculation.reset()
    helper = tiny_decoder(num_hidden_layers=1, attention="sdpa")
    # 4.57's prompt lookup needs the id of an end, here one that no token has.
    lookup = {"prompt_lookup_num_tokens": 6, "eos_token_id": 1000}
    options = {"assistant_model": helper} if drafts == "assistant" else lookup
    assert torch.equal(written(model, inputs, **options), plain)
    assert 0 < speculation.hit_rate < 1
    assert speculation.totals_per_row().sum() >= steps, "drafts that are refused are counted too"


def test_a_static_cache_is_masked_and_writes_the_same(model) -> None:
    inputs = prompts(2, 90, [0, 11])
    dynamic = alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    expected, counts = written(model, inputs), dynamic.totals()
    static = alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    found = written(model, inputs, cache_implementation="static", disable_compile=True)
    assert torch.equal(found, expected) and torch.equal(static.totals(), counts)


def test_layers_that_accelerate_offloads_count_the_same(model, tmp_path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed: pip install -e perf/studies/quality")
    import transformers

    inputs = prompts(2, 90, [0, 11])
    together = alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(model)
    expected = written(model, inputs)
    model.save_pretrained(tmp_path / "model")
    places = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu", "lm_head": "cpu"}
    layers = {f"model.layers.{layer}": "disk" if layer == 1 else "cpu" for layer in range(3)}
    spread = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model",
        attn_implementation="alspec",
        device_map={**places, **layers},
        offload_folder=tmp_path / "offloaded",
    )
    apart = alspec.AttentionSpeculation(THRESHOLD, CHUNK).attach(spread)
    assert torch.equal(written(spread, inputs), expected) and torch.equal(apart.totals(), together.totals())
