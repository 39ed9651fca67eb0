# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""transformers' generate() under "alspec": batches, beams, drafts, static caches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import models.llama31_8b.huggingface as alspec
from tests.models.huggingface.tiny_transformers import tiny_decoder

THRESHOLD, CHUNK, NEW = 0.5, 32, 40


def prompts(rows: int, tokens: int, padding: list[int]) -> dict[str, torch.Tensor]:
    ids = torch.randint(1, 96, (rows, tokens), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        mask[row, :count] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


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
    exact.load_state_dict(model.state_dict())
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
