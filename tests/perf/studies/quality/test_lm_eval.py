# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The LM Evaluation Harness under attention policies, on tiny tasks from local files: no network."""

from __future__ import annotations

import pytest

from perf.studies.quality import lm_eval as command
from tests.support.harness_tasks import QUESTIONS, model, run_tasks, tasks  # noqa: F401  fixtures


def test_tasks_run_and_threshold_0_scores_as_exact_attention(model, tasks, capsys):  # noqa: F811
    exact = run_tasks(model, tasks, "--attention", "exact")
    never = run_tasks(model, tasks, "--threshold", "0")
    some = run_tasks(model, tasks, "--threshold", "0.9")
    assert set(exact) == {"tiny_choice", "tiny_text", "tiny_perplexity"}
    for name, result in exact.items():
        assert result["hit_rate"] is None and never[name]["hit_rate"] == 0
        assert result["scores"] == pytest.approx(never[name]["scores"], rel=1e-4, nan_ok=True)
        assert some[name]["hits"] > 0
    perplexity = "word_perplexity,none"
    ours, theirs = (result["tiny_perplexity"]["scores"][perplexity] for result in (some, exact))
    assert ours != pytest.approx(theirs, rel=1e-4), "taken guesses change the losses"
    assert "tiny_choice: acc,none" in capsys.readouterr().out


def test_likelihoods_are_those_of_the_model(model, tasks):  # noqa: F811
    import torch
    from lm_eval.api.instance import Instance

    from models.llama31_8b.checkpoint.load import load_model
    from models.llama31_8b.reference.alspec.policies import ALSpecAttention
    from perf.studies.quality.harness import PolicyLM

    loaded = load_model(model)
    lm = PolicyLM(loaded, ALSpecAttention(0.0, 32))
    context, continuation = QUESTIONS[0].strip(), " the in"
    request = Instance(
        request_type="loglikelihood", doc={}, arguments=(context, continuation), idx=0, metadata=("t", 0, 1)
    )
    ((found, _),) = lm.loglikelihood([request])
    before, whole = (loaded.tokenizer.encode(text) for text in (context, context + continuation))
    assert whole[: len(before)] == before
    logits = loaded.model.forward(
        torch.tensor([whole]), loaded.model.new_cache(1, len(whole)), logits="all"
    ).log_softmax(-1)
    places = range(len(before) - 1, len(whole) - 1)
    assert found == pytest.approx(sum(float(logits[0, p, whole[p + 1]]) for p in places), abs=1e-3)


def test_a_text_begins_with_one_bos_even_when_it_is_written_out(tasks):  # noqa: F811
    from types import SimpleNamespace

    from models.llama31_8b.reference.alspec.policies import ExactAttention
    from perf.studies.quality.harness import PolicyLM

    class WithBos:
        """Ids are characters, 1 the BOS, written <s>."""

        bos_token_id, adds_bos, eos_token_ids = 1, True, (2,)

        def encode(self, text, add_bos=None):
            ids = [1] * text.startswith("<s>") + [ord(letter) for letter in text.removeprefix("<s>")]
            return [1, *ids] if add_bos else ids

    lm = PolicyLM(SimpleNamespace(tokenizer=WithBos(), source="x"), ExactAttention())
    assert lm.tok_encode("ab") == lm.tok_encode("<s>ab") == [1, 97, 98]
    assert lm.tok_encode("ab", add_special_tokens=False) == [97, 98]
    assert lm.prefix_token_id == 1 and lm.eot_token_id == 2


def test_unknown_tasks_and_layers_without_a_policy_are_refused(model, tasks, capsys):  # noqa: F811
    given = ["--model", model, "--include-path", str(tasks)]
    assert command.main(["--tasks", "no_such_task", *given]) == 2
    assert "no task 'no_such_task'" in capsys.readouterr().err
    assert command.main(["--tasks", "tiny_choice", *given, "--static-layers", "1"]) == 2
    assert "go together" in capsys.readouterr().err


def test_without_lm_eval_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "lm_eval", None)
    assert command.main(["--tasks", "gsm8k"]) == 2
    assert "pip install -e perf/studies/quality" in capsys.readouterr().err
