# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The LM Evaluation Harness on a transformers model under "alspec", on tiny tasks from local files: no network."""

import re
import sys

import pytest
import torch

from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.load import load_model
from perf.studies.quality.forward import text_pass
from tests.support.gguf_files import edit_json, untied, write_hf_folder, write_reciting_folder


@pytest.fixture
def harness(model, tasks):
    """What makes lm-eval's model at threshold 0.1, S = 32."""
    from perf.studies.quality.harness import SpeculatingLM

    return lambda size: SpeculatingLM(model, 0.1, 32, batch_size=size, dtype="float32", device="cpu")


def answers(lm, kind: str, arguments: list[tuple]) -> list:
    from lm_eval.api.instance import Instance

    torch.manual_seed(0)
    asked = [Instance(request_type=kind, doc={}, arguments=given, idx=0, metadata=("t", 0, 1)) for given in arguments]
    return getattr(lm, kind)(asked, disable_tqdm=True)


def test_likelihoods_and_texts_are_those_of_the_reference(harness, model):
    """Counts too: every token of a scored text is a decode step, and every written token after the first."""
    reference, lm = load_model(model), harness(1)
    text = "the and the in 12 " * 12
    before, whole = (reference.tokenizer.encode(part) for part in (text.strip(), text.strip() + " the in"))
    ((found, _),) = answers(lm, "loglikelihood", [(text.strip(), " the in")])
    policy = ALSpecAttention(0.1, 32)
    result = text_pass(reference.model, whole[:-1], policy)
    scores = text_pass(reference.model, whole, ALSpecAttention(0.1, 32)).losses
    assert whole[: len(before)] == before and found == pytest.approx(-float(scores[len(before) - 1 :].sum()), abs=1e-3)
    hits = int(result.accepted.sum())
    assert (lm.hits, lm.misses) == (hits, int(result.verified.sum()) * len(result.accepted) - hits) and lm.misses > 0
    lm, policy = harness(1), ALSpecAttention(0.1, 32)
    (written,) = answers(lm, "generate_until", [(text, {"until": [], "max_gen_toks": 8})])
    made = generate(
        reference.model, [reference.tokenizer.encode(text)], max_new_tokens=8, policy=policy, eos_token_ids=()
    )
    assert written == reference.tokenizer.decode(made.token_ids[0])
    assert (lm.hits, lm.misses) == (policy.statistics.hits, policy.statistics.misses)


def test_only_the_tokens_of_an_answer_count(harness):
    """Rows end at different tokens; a batch counts as much as its rows one by one."""
    contexts = ("the and the in 12 " * 12, "and in the " * 25, "in 12 the and " * 14)

    def generated(lm, stop: list[str]) -> list[str]:
        options = {"until": stop, "max_gen_toks": 24, "do_sample": False}
        return answers(lm, "generate_until", [(text, options) for text in contexts])

    free = harness(3)
    stop = generated(free, [])[1][:2]  # what the second row writes first, so that it ends long before the others
    counts = []
    for size in (1, 3):
        lm = harness(size)
        counts.append((generated(lm, [stop]), lm.hits, lm.misses, lm.bypassed))
    assert counts[0] == counts[1] and 0 < counts[0][1] < free.hits
    assert counts[0][0][1] == "", "the second answer is cut before the stop"


# What lm-eval asks of a model, by all names of its task files; the last of `generate_until` are in none.
TEXT = "the and the in 12 " * 8
LAST = "", " the", "an"  # where the reciting model goes on elsewhere: rows of a batch stop apart
LONG = TEXT * 5 + "and in the end"  # than the context of 300
REQUESTS = {
    "loglikelihood": [("the and", " the in"), ("", "the end"), ("the  ", " in"), (LONG, " and 12"), ("é", "🎉")],
    "loglikelihood_rolling": [("the and the in",), ("a",), (LONG,)],
    "generate_until": [
        *((TEXT, {"until": ["#"], name: 6}) for name in ("max_gen_toks", "max_new_tokens", "max_tokens")),
        (TEXT, {"max_completion_tokens": 5, "max_new_tokens": 3}),
        (TEXT, {"until": "in", "max_gen_toks": 9}),
        (TEXT, {"until": ["<|im_start|>"], "max_gen_toks": 9}),
        (TEXT, {"until": ["e<|im_start|>an", ""], "max_gen_toks": 9}),
        (TEXT, {"until": ["thean", "n the"], "max_gen_toks": 9}),
        (TEXT, {"until": [], "max_gen_toks": 5, "do_sample": False, "temperature": 0.0}),
        (TEXT, {"until": ["."], "max_gen_toks": 8, "do_sample": True, "temperature": 0.8, "top_p": 0.95}),
        (TEXT, {"max_gen_toks": 6, "num_beams": 3}),
        (LONG, {"max_gen_toks": 4}),
        (TEXT, {"max_length": 96}),
    ],
}


@pytest.fixture(scope="module", params=["random", "reciting"])
def models(request, tmp_path_factory):
    """lm-eval's own model, and what makes ours that never takes a guess; of a context of 300 tokens."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install -e perf/studies/quality")
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from perf.studies.quality.harness import SpeculatingLM

    folder, config = tmp_path_factory.mktemp(request.param), untied(eos_token_ids=(), max_position_embeddings=300)
    if request.param == "random":
        write_hf_folder(folder, config)
    else:
        write_reciting_folder(folder, ["the", "<|im_start|>", "an", " the", "in"], config)
    edit_json(folder / "tokenizer_config.json", model_max_length=300)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    theirs = HFLM(pretrained=model, tokenizer=AutoTokenizer.from_pretrained(folder), batch_size=1)
    return theirs, lambda size: SpeculatingLM(folder, 0.0, 32, batch_size=size, dtype="float32", device="cpu")


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", REQUESTS)
def test_every_request_is_answered_as_by_lm_evals_own_model(models, kind, size):
    """Rows of a batch end each at its own stop, as they do alone."""
    theirs, make = models
    for text, *more in REQUESTS[kind]:
        # Draws, and how long a prompt with its text may be, are those of a whole batch.
        of_batch = bool({"do_sample", "max_length"} & set(*more[-1:]))
        asked = [(text + last, *more) for last in LAST[: 1 if of_batch else size]]
        wanted = [answers(theirs, kind, [one])[0] for one in asked]
        found = answers(make(size), kind, asked)
        if kind == "generate_until":
            assert found == wanted, (text[:30], *more)
        else:
            torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), atol=1e-4, rtol=1e-5)


def test_steps_after_a_special_token_that_stops_a_row_do_not_count(models):
    """Of the reciting model: each row's answer is two tokens, the second of a step; a beam search counts every beam."""
    lm = models[1](2)
    lm.speculation.threshold = float("inf")
    answers(lm, "generate_until", [(TEXT, {"until": ["<|im_start|>", "#"], "max_gen_toks": 5})] * 2)
    stopped, lm.hits = lm.hits, 0
    answers(lm, "generate_until", [(TEXT, {"max_gen_toks": 4, "num_beams": 3, "do_sample": False})])
    layers = 2
    recites = "reciting" in str(models[0].model.name_or_path)
    assert lm.hits == 3 * layers * 3 and stopped == (2 * layers * 1 if recites else 2 * layers * 4)


def test_the_command_is_lm_evals_with_hits_at_the_end(model, tasks, capsys, monkeypatch):
    """Every guess is taken at inf, and some at 0.1, in likelihoods and in texts."""
    from perf.studies.quality import harness

    given = f"pretrained={model},chunk_size=32,dtype=float32"
    more = ["--tasks", "tiny_choice,tiny_text", "--include_path", str(tasks), "--device", "cpu", "--batch_size", "2"]
    hits = {}
    for threshold in ("0.1", "inf"):
        monkeypatch.setattr(sys, "argv", ["harness"])  # is put back
        asked = ["run", "--model", "alspec", "--model_args", f"{given},threshold={threshold}", *more]
        assert harness.main(asked) == 0
        out = capsys.readouterr().out
        hits[threshold] = [int(count) for count in re.findall(r"(\d+) (?:hits|misses)", out)]
        assert "|tiny_choice" in out and "|tiny_text" in out
    assert 0 < hits["0.1"][0] < hits["inf"][0] and hits["inf"][1] == 0
