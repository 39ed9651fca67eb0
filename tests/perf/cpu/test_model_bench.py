# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The reference bench: turn order, ratios, and both comparisons on a tiny model. No speed is asserted."""

from __future__ import annotations

import copy

import pytest
import torch

from models.llama31_8b.checkpoint.load import LoadedModel
from models.llama31_8b.checkpoint.random_weights import random_state_dict
from models.llama31_8b.reference.model.model import ReferenceLlama
from perf.cpu import bench_reference as bench
from tests.support.attention_cases import random_tokens, tiny_config


def test_turns_alternate_and_ratios_are_medians_of_neighbours() -> None:
    calls: list[str] = []
    clock = {"slow": iter([4.0, 6.0, 90.0]), "fast": iter([2.0, 2.0, 3.0])}
    turns = {name: (lambda name=name: calls.append(name) or next(clock[name])) for name in clock}
    times = bench.interleave(turns, 3)
    assert calls == ["slow", "fast", "fast", "slow", "slow", "fast"]
    assert bench.median_ratio(times, "slow", "fast") == 3.0


def test_policies_are_compared_behind_the_prompt() -> None:
    model = ReferenceLlama.random(tiny_config(), seed=1)
    report = bench.bench_policies(model, random_tokens(140), tokens=3, chunk_size=32, threshold=0.5)
    assert report["cached_tokens"] == 140 and 0 <= report["hit_rate"] <= 1
    for key in ("alspec_time_over_exact", "sink_time_over_exact", "exact_tokens_per_s"):
        assert report[key] > 0
    assert report["met"] == (report["alspec_time_over_exact"] <= 1.10)
    short = bench.bench_policies(model, random_tokens(20), tokens=2, chunk_size=32, threshold=0.5)
    assert short["hit_rate"] is None


def test_transformers_decodes_the_same_tokens(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    config = tiny_config()
    weights = random_state_dict(config, seed=6)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config.to_hf_dict()))
    theirs.load_state_dict(weights)
    theirs.save_pretrained(tmp_path)
    loaded = LoadedModel(config, None, str(tmp_path), ReferenceLlama.from_state_dict(config, weights))
    report = bench.bench_transformers(loaded, str(tmp_path), random_tokens(12), tokens=10, rounds=1)
    assert report["greedy_tokens_agree"] and report["speedup"] > 0
    assert report["met"] == (report["speedup"] >= 1.2)

    other = LoadedModel(config, None, str(tmp_path), ReferenceLlama.random(config, seed=7))
    assert not bench.bench_transformers(other, str(tmp_path), [1, 2, 3], tokens=10, rounds=1)["greedy_tokens_agree"]


REPORT = {
    "model": "tiny",
    "threads": 2,
    "rounds": 3,
    "transformers": {
        "prompt_tokens": 64,
        "new_tokens": 32,
        "reference_tokens_per_s": 20.0,
        "transformers_tokens_per_s": 14.0,
        "speedup": 1.43,
        "target": 1.2,
        "met": True,
        "greedy_tokens_agree": True,
    },
    "policies": {
        "cached_tokens": 2048,
        "chunk_size": 128,
        "threshold": 0.1,
        "hit_rate": 0.25,
        "exact_tokens_per_s": 15.0,
        "alspec_tokens_per_s": 14.5,
        "sink_tokens_per_s": 18.0,
        "alspec_time_over_exact": 1.034,
        "sink_time_over_exact": 0.81,
        "target": 1.1,
        "met": True,
    },
}


def test_the_report_says_what_was_met(capsys: pytest.CaptureFixture) -> None:
    bench.print_report(REPORT)
    out = capsys.readouterr().out
    assert "1.43x  target at least 1.2x: met" in out and "greedy tokens agree" in out
    assert "1.034x time  target at most 1.10x: met" in out and "25.0% hits" in out
    worse = copy.deepcopy(REPORT)
    worse["transformers"].update(met=False, greedy_tokens_agree=False)
    worse["policies"].update(met=False, hit_rate=None)
    bench.print_report(worse)
    out = capsys.readouterr().out
    assert out.count("MISSED") == 2 and "DIFFER" in out and "nothing verified" in out


@pytest.mark.parametrize("option", [["--rounds", "0"], ["--cached-tokens", "-4"], ["--threads", "x"]])
def test_nonsense_options_are_refused(option: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        bench.main(option)
    assert stop.value.code == 2 and option[0] in capsys.readouterr().err


def test_prompts_repeat_the_text_to_length(tmp_path) -> None:
    class Words:
        def encode(self, text: str) -> list[int]:
            return [len(word) for word in text.split()]

    loaded = LoadedModel(tiny_config(), Words(), "words", None)
    text = tmp_path / "text.txt"
    text.write_text("a bb ccc")
    assert bench.prompt_ids(loaded, text, 7) == [1, 2, 3, 1, 2, 3, 1]
    text.write_text(" ")
    with pytest.raises(ValueError, match="holds no tokens"):
        bench.prompt_ids(loaded, text, 7)
    assert torch.tensor(bench.prompt_ids(loaded, None, 300)).shape == (300,)
