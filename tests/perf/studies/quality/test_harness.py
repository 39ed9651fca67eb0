# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The LM Evaluation Harness on a transformers model under "alspec", and the paper's tables by it: on tiny tasks from
local files, without network."""

import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.load import load_model
from perf.studies.quality import paper_tables
from perf.studies.quality.forward import text_pass
from perf.studies.quality.paper_tables import TASKS, printed
from tests.support.gguf_files import edit_json, untied, write_hf_folder, write_reciting_folder


@pytest.fixture
def harness(model, tasks):
    """What makes lm-eval's model at threshold 0.1, S = 32, and its requests."""
    from lm_eval.api.instance import Instance

    from models.llama31_8b.huggingface import AttentionSpeculation
    from models.llama31_8b.huggingface.load import load_transformers
    from perf.studies.quality.harness import SpeculatingLM

    loaded = load_transformers(model, speculation=AttentionSpeculation(0.1, 32))

    def request(kind: str, *arguments: object):
        return Instance(request_type=kind, doc={}, arguments=arguments, idx=0, metadata=("t", 0, 1))

    return lambda size: SpeculatingLM(loaded, size), request


def test_likelihoods_and_texts_are_those_of_the_reference(harness, model):
    """Counts too: every token of a scored text is a decode step, and every written token after the first."""
    make, request = harness
    reference, lm = load_model(model), make(1)
    text = "the and the in 12 " * 12
    before, whole = (reference.tokenizer.encode(part) for part in (text.strip(), text.strip() + " the in"))
    ((found, _),) = lm.loglikelihood([request("loglikelihood", text.strip(), " the in")])
    policy = ALSpecAttention(0.1, 32)
    result = text_pass(reference.model, whole[:-1], policy)
    scores = text_pass(reference.model, whole, ALSpecAttention(0.1, 32)).losses
    assert whole[: len(before)] == before and found == pytest.approx(-float(scores[len(before) - 1 :].sum()), abs=1e-3)
    hits = int(result.accepted.sum())
    assert (lm.hits, lm.misses) == (hits, int(result.verified.sum()) * len(result.accepted) - hits) and lm.misses > 0
    lm, policy = make(1), ALSpecAttention(0.1, 32)
    (written,) = lm.generate_until([request("generate_until", text, {"until": [], "max_gen_toks": 8})])
    made = generate(
        reference.model, [reference.tokenizer.encode(text)], max_new_tokens=8, policy=policy, eos_token_ids=()
    )
    assert written == reference.tokenizer.decode(made.token_ids[0])
    assert (lm.hits, lm.misses) == (policy.statistics.hits, policy.statistics.misses)


def test_only_the_tokens_of_an_answer_count(harness):
    """Rows end at different tokens; a batch counts as much as its rows one by one."""
    make, request = harness
    contexts = ("the and the in 12 " * 12, "and in the " * 25, "in 12 the and " * 14)

    def generated(lm, stop: list[str]) -> list[str]:
        options = {"until": stop, "max_gen_toks": 24, "do_sample": False}
        return lm.generate_until([request("generate_until", text, options) for text in contexts], disable_tqdm=True)

    free = make(3)
    stop = generated(free, [])[1][:2]  # what the second row writes first, so that it ends long before the others
    counts = []
    for size in (1, 3):
        lm = make(size)
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

    from models.llama31_8b.huggingface import AttentionSpeculation
    from models.llama31_8b.huggingface.load import load_transformers
    from perf.studies.quality.harness import SpeculatingLM

    folder, config = tmp_path_factory.mktemp(request.param), untied(eos_token_ids=(), max_position_embeddings=300)
    if request.param == "random":
        write_hf_folder(folder, config)
    else:
        write_reciting_folder(folder, ["the", "<|im_start|>", "an", " the", "in"], config)
    edit_json(folder / "tokenizer_config.json", model_max_length=300)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    theirs = HFLM(pretrained=model, tokenizer=AutoTokenizer.from_pretrained(folder), batch_size=1)
    loaded = load_transformers(folder, speculation=AttentionSpeculation(0.0, 32))
    return theirs, lambda size, exact: SpeculatingLM(loaded, size, exact)


def answers(lm, kind: str, arguments: list[tuple]) -> list:
    from lm_eval.api.instance import Instance

    torch.manual_seed(0)
    asked = [Instance(request_type=kind, doc={}, arguments=given, idx=0, metadata=("t", 0, 1)) for given in arguments]
    return getattr(lm, kind)(asked, disable_tqdm=True)


@pytest.mark.parametrize("size, exact", [(1, True), (1, False), (3, False)])
@pytest.mark.parametrize("kind", REQUESTS)
def test_every_request_is_answered_as_by_lm_evals_own_model(models, kind, size, exact):
    """Rows of a batch end each at its own stop, as they do alone."""
    theirs, make = models
    for text, *more in REQUESTS[kind]:
        # Draws, and how long a prompt with its text may be, are those of a whole batch.
        of_batch = bool({"do_sample", "max_length"} & set(*more[-1:]))
        asked = [(text + last, *more) for last in LAST[: 1 if of_batch else size]]
        wanted = [answers(theirs, kind, [one])[0] for one in asked]
        found = answers(make(size, exact), kind, asked)
        if kind == "generate_until":
            assert found == wanted, (text[:30], *more)
        else:
            torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), atol=1e-4, rtol=1e-5)


def test_steps_after_a_special_token_that_stops_a_row_do_not_count(models):
    """Of the reciting model: each row's answer is two tokens, the second of a step; a beam search counts every beam."""
    lm = models[1](2, False)
    lm.speculation.threshold = float("inf")
    try:
        answers(lm, "generate_until", [(TEXT, {"until": ["<|im_start|>", "#"], "max_gen_toks": 5})] * 2)
        stopped, lm.hits = lm.hits, 0
        answers(lm, "generate_until", [(TEXT, {"max_gen_toks": 4, "num_beams": 3, "do_sample": False})])
    finally:
        lm.speculation.threshold = 0.0
    layers = 2
    recites = "reciting" in str(models[0].model.name_or_path)
    assert lm.hits == 3 * layers * 3 and stopped == (2 * layers * 1 if recites else 2 * layers * 4)


def arguments(model: str, tasks, *more: str) -> list[str]:
    own = ["--model", model, "--include-path", str(tasks), "--out", str(tasks / "out"), "--chunk-size", "32"]
    own += ["--dtype", "float32", "--batch-size", "2", "--torch-device", "cpu", "--parts", "1", "2"]
    return [*own, *more]


def test_both_tables_beside_the_printed_figures(model, tasks, capsys, monkeypatch) -> None:
    one = arguments(model, tasks, "--thresholds", "0.1", "--tasks", "GSM8K_COT")
    assert paper_tables.main(one) == 0
    results = tasks / "out" / "tables.csv"
    first = results.read_text()
    capsys.readouterr()
    given = arguments(model, tasks, "--thresholds", "0", "0.1", "0.25")
    assert paper_tables.main(given) == 0
    assert results.read_text().startswith(first), "a stopped run goes on"
    out = capsys.readouterr().out
    assert f"Table 1 (llama-3.1-8b) beside {Path(model).name} float32" in out and "Table 2 (llama-3.1-70b)" in out
    lines = [line for line in out.splitlines() if line.startswith("| GSM8K_COT")]
    assert [line.split(" | ")[2] for line in lines] == [
        *("0.823", "0.799 / 78.9%", "0.719 / 96.2%"),
        *("0.958", "0.951 / 86.6%", "0.897 / 98.3%"),
    ]
    ours = [line.split(" | ")[3].rstrip(" |") for line in lines]
    assert ours[:3] == ours[3:] and "/" not in ours[0] and ours[1].endswith("%") and ours[2].endswith("%")
    assert "| IFEVAL (inst_level_strict_acc,none) | 0.1 | 0.812 / 89.8% | not run: the harness has no" in out
    rows = pd.read_csv(results)
    assert set(rows.task) == {"gsm8k_cot", "gpqa_main_cot_n_shot"} and set(rows.requests) == {2}
    hits = rows[rows.task == "gsm8k_cot"].groupby("threshold").hits.first()
    assert hits[0] == 0 <= hits[0.1] < hits[0.25]

    before = results.read_text()
    load = "models.llama31_8b.huggingface.load.load_transformers"
    monkeypatch.setattr(load, lambda *_: pytest.fail("measured again"))
    assert paper_tables.main(given) == 0
    assert capsys.readouterr().out == out and results.read_text() == before


def test_every_printed_task_has_one_of_the_harness() -> None:
    assert set(printed().task) == set(TASKS) and len(printed()) == 12 * 6 + 3 * 6
    lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install -e perf/studies/quality")
    folder = Path(lm_eval.__file__).parent / "tasks"
    kinds = ("ifeval", "gpqa", "swde", "fda", "gsm8k", "mmlu_pro", "mgsm", "longbench")
    files = [file for kind in kinds for file in (folder / kind).rglob("*.yaml")]
    lines = {line.strip().replace('"', "") for file in files for line in file.read_text(encoding="utf-8").splitlines()}
    assert {f"task: {name}" for name, _ in TASKS.values()} <= lines


def test_other_tasks_of_the_harness(model, tasks, capsys) -> None:
    """All metrics of a task by its own name, and those of the paper's tables by lm-eval's."""
    names = ("--tasks", "tiny_choice", "tiny_text", "gsm8k_cot")
    assert paper_tables.main(arguments(model, tasks, *names, "--thresholds", "0", "0.1", "inf")) == 0
    out = capsys.readouterr().out
    assert "| tiny_choice (acc,none) | 0.1 | " in out and "| GSM8K_COT (" in out and "stderr" not in out
    for _, rows in pd.read_csv(tasks / "out" / "tables.csv").groupby("task"):
        never, some, every = (rows[rows.threshold == at].iloc[0] for at in (0, 0.1, float("inf")))
        assert never.hits == 0 < some.hits < every.hits and every.misses == 0
        assert some.task != "tiny_choice" or some.bypassed > 0
    half = arguments(model, tasks, "--tasks", "tiny_text", "--thresholds", "0.1", "--dtype", "bfloat16")
    assert paper_tables.main(half) == 0
    assert "| tiny_text (exact_match,flexible-extract) | 0.1 | " in capsys.readouterr().out


def test_what_cannot_be_run_is_refused(model, tasks, capsys, monkeypatch) -> None:
    assert paper_tables.main(arguments(model, tasks, "--tasks", "no_such_task")) == 2
    assert "no_such_task cannot be run: the harness has no such task" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "perf.studies.quality.harness")
    assert paper_tables.main(arguments(model, tasks, "--tasks", "tiny_text")) == 2
    assert "pip install -e perf/studies/quality" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--parts", "4"], "invalid choice: '4'"),
        (["--parts", "1", "--thresholds", "x"], "must be a number >= 0 or inf, got 'x'"),
    ],
)
def test_wrong_options(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit):
        paper_tables.parse_args(["--model", "x", *arguments])
    assert message in capsys.readouterr().err
