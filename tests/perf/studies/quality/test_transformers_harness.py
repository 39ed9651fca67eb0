# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The LM Evaluation Harness on a transformers model under "alspec", in batches, on the CPU and without a network."""

from __future__ import annotations

import pytest

from perf.studies.quality import lm_eval as command
from tests.support.harness_tasks import model, run_tasks, tasks  # noqa: F401  fixtures


def test_scores_are_those_of_the_reference(model, tasks):  # noqa: F811
    """lm-eval's class and ours begin a rolling text with another token, so its perplexity is compared with itself."""
    found = {}
    for arguments in (("--attention", "exact"), ("--threshold", "0"), ("--threshold", "0.9")):
        ours = run_tasks(model, tasks, *arguments, "--torch-device", "cpu", "--batch-size", "2")
        theirs = run_tasks(model, tasks, *arguments)
        for name in ("tiny_choice", "tiny_text"):
            assert ours[name]["scores"] == pytest.approx(theirs[name]["scores"], rel=1e-3, nan_ok=True)
        for count in ("hits", "misses", "bypassed", "hit_rate"):
            assert ours["tiny_text"][count] == theirs["tiny_text"][count], count
        found[arguments[1]] = ours["tiny_perplexity"]
    perplexity = {key: result["scores"]["word_perplexity,none"] for key, result in found.items()}
    assert perplexity["0"] == pytest.approx(perplexity["exact"], rel=1e-4)
    assert perplexity["0.9"] != pytest.approx(perplexity["exact"], rel=1e-4), "taken guesses change the losses"
    assert found["exact"]["hit_rate"] is None and found["0"]["hits"] == 0 < found["0.9"]["hits"]


def test_only_the_tokens_of_an_answer_count(model, tasks):  # noqa: F811
    """Rows end at different tokens; a batch counts as much as its rows one by one."""
    from lm_eval.api.instance import Instance

    from models.llama31_8b.huggingface import AttentionSpeculation
    from models.llama31_8b.huggingface.load import load_transformers
    from perf.studies.quality.transformers_harness import SpeculatingLM

    loaded = load_transformers(model, speculation=AttentionSpeculation(0.9, 32))
    contexts = ["the and the in 12 " * 12, "and in the " * 25, "in 12 the and " * 14]
    free = SpeculatingLM(loaded, 3)
    written = generated(free, contexts, [], Instance)
    stop = written[1][:2]  # what the second row writes first, so that it ends long before the others
    counts = []
    for size in (1, 3):
        lm = SpeculatingLM(loaded, size)
        texts = generated(lm, contexts, [stop], Instance)
        counts.append((texts, lm.hits, lm.misses, lm.bypassed))
    assert counts[0] == counts[1] and 0 < counts[0][1] < free.hits
    assert counts[0][0][1] == "", "the second answer is cut before the stop"


def generated(lm, contexts, stop, instance):
    options = {"until": stop, "max_gen_toks": 24, "do_sample": False}
    requests = [
        instance(request_type="generate_until", doc={}, arguments=(text, options), idx=n, metadata=("t", n, 1))
        for n, text in enumerate(contexts)
    ]
    return lm.generate_until(requests, disable_tqdm=True)


def test_half_precision_is_loaded(model, tasks):  # noqa: F811
    found = run_tasks(model, tasks, "--torch-device", "cpu", "--dtype", "bfloat16", "--threshold", "0.9")
    assert found["tiny_text"]["hits"] > 0


@pytest.mark.parametrize(
    "arguments,message",
    [
        (("--dtype", "bfloat16"), "--dtype and --batch-size go with --torch-device"),
        (("--batch-size", "2"), "--dtype and --batch-size go with --torch-device"),
        (
            ("--torch-device", "cpu", "--attention", "static", "--static-layers", "1"),
            "--attention static is the reference's",
        ),
    ],
)
def test_options_that_do_not_go_together(arguments, message, model, tasks, capsys):  # noqa: F811
    given = ["--model", model, "--tasks", "tiny_text", "--include-path", str(tasks), *arguments]
    assert command.main(given) == 2
    assert message in capsys.readouterr().err
