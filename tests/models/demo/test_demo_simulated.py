# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""--device sim: what is refused or named as not used, when its check fails, and a whole run."""

import json
import math
from types import SimpleNamespace

import pytest

from models.llama31_8b.demo import cli
from models.llama31_8b.demo.backends.sim import backend as sim
from models.llama31_8b.demo.backends.sim import checked_steps
from models.llama31_8b.demo.options import DemoOptions
from models.llama31_8b.tt.layer_parallel import LayerAssignment
from models.llama31_8b.tt.mesh import MeshShape
from runtime_patches.simulated_n150 import doctor, environment
from tests.support.machines import refused


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--model", "x"], "give --layers, such as --layers 2"),
        (["--layers", "2"], "give --model"),
        (["--max-new-tokens", "217"], "--max-new-tokens 217 need 257"),
        (["--mesh", "1x2"], "--mesh 1x2 does not go with"),
        (["--attention", "alspec", "--mesh", "1x1"], "needs a mesh of two rows, such as 2x1; 1x1 has 1"),
        (["--attention", "alspec", "--chunk-size", "160"], "a prompt of 351 tokens"),
        (["--attention", "static"], "needs --static-layers"),
        (["--attention", "static", "--static-layers", "2"], "names layer 2, but tiny has layers 0 to 1"),
        (["--stop", "x"], "--stop does not go with"),
        (["--draft", "self", "--tree", "2x2"], "--tree: on chips"),
        (["--raw"], "--raw does not go with"),
        (["--top-k", "5"], "--top-k does not go with"),
        (["--top-p", "0.5"], "--top-p does not go with"),
        (["--temperature", "1"], "--temperature does not"),
        (["--max-context", "50"], "--max-context does not go with"),
        (["--sample-on", "host"], "--sample-on does"),
        (["--threshold", "0.2"], "--threshold is what --attention alspec accepts a guess by"),
        (["--chunk-size", "256"], "--chunk-size is how many tokens a guess reads"),
        (["--prompt", "x"], "--prompt needs --model"),
        (["--draft", "ngram", "--attention", "sink"], "--draft ngram with --attention sink does not go with"),
        (["--draft", "ngram", "--no-adapt"], "--draft ngram with --no-adapt does not go with"),
        (["--draft", "tiny", "--fuzzy", "5"], "up to 4 layers in parallel, got --fuzzy 5"),
        (["--draft", "tiny", "--fuzzy", "2", "--draft-length", "1"], "--draft-length 1 would change nothing"),
        (["--draft", "tiny", "--mesh", "1x2"], "or on 1x2 with --draft tiny --fuzzy N"),
        (["--draft", "tiny", "--mesh", "1x4", "--fuzzy", "2"], "--mesh 1x4 does not go with"),
        (["--draft", "ngram", "--fuzzy", "2"], "--draft ngram has no model"),
        (["--draft", "self", "--fuzzy", "2"], "--fuzzy: on chips a model drafts chains for itself"),
        (["--draft", "tiny", "--tree", "auto"], "none grown by confidence"),
        (["--draft", "tiny", "--tree", "2x2", "--fuzzy", "2"], "--fuzzy 2 with --tree 2x2 would change nothing"),
        (["--draft", "ngram", "--draft-length", "0"], "--draft-length 0 drafts nothing"),
        (["--draft", "ngram", "--max-new-tokens", "213"], "--max-new-tokens 213 with trees of 5 nodes need 258"),
    ],
)
def test_what_the_simulated_chip_does_not_do_is_refused(capsys, arguments, words):
    assert words in refused(capsys, "--device", "sim", *arguments, prompt=None)


@pytest.mark.parametrize(
    "value, words",
    [
        ("banana", "MESH_DEVICE: cannot read the mesh 'banana'"),
        ("N150x2", "MESH_DEVICE=N150x2 does not go with"),
        ("T3K", "MESH_DEVICE: the mesh 'T3K' is of other boards"),
    ],
)
def test_a_mesh_of_the_environment_counts_for_the_simulated_chip_too(capsys, monkeypatch, value, words):
    monkeypatch.setenv("MESH_DEVICE", value)
    assert words in refused(capsys, "--device", "sim", prompt=None)


@pytest.mark.parametrize("asked, tokens", [([], "3"), (["--max-new-tokens", "5"], "5"), (["--draft", "ngram"], "8")])
def test_a_simulated_run_has_a_few_tokens_unless_asked(capsys, monkeypatch, asked, tokens):
    commands = []
    monkeypatch.setattr(doctor, "why_not", lambda mode, found=None: None)
    monkeypatch.setattr(environment, "simulated_environment", lambda *_, **__: {})
    monkeypatch.setattr(
        sim.subprocess,
        "run",
        lambda command, **_: commands.append(command) or SimpleNamespace(returncode=0),
    )
    assert cli.main(["--device", "sim", *asked]) == 0
    assert json.loads(commands[0][3])["tokens"] == int(tokens)
    said = f"checks {tokens} tokens unless" in capsys.readouterr().err
    assert said == ("--max-new-tokens" not in asked)


@pytest.mark.parametrize("mesh, grid", [("1x1", "2x1"), ("1x2", "4x2")])
def test_a_fuzzy_draft_is_of_the_whole_tiny_model(mesh, grid):
    """Which then has layers enough between the first and the last, and heads for every chip of the row."""
    options = sim.SUPPORT.resolved(DemoOptions(device="sim", draft="tiny", fuzzy=3, mesh=mesh))
    request, plan = sim.plan_request(options), MeshShape.parse(mesh)
    config = sim.tiny_model(request["fuzzy"], plan)
    assert (request["mesh"], request["grid"], config.num_hidden_layers) == (mesh, grid, 5)
    assert LayerAssignment.make(config, plan, 3).size == 3


def test_speculation_is_simulated_on_the_least_mesh_of_two_rows(capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(doctor, "why_not", lambda mode, found=None: None)
    monkeypatch.setattr(
        environment,
        "simulated_environment",
        lambda grid, _, mesh, dispatch: asked.append((grid, mesh, dispatch)) or {},
    )
    requests = []
    monkeypatch.setattr(
        sim.subprocess,
        "run",
        lambda command, **_: requests.append(json.loads(command[3])) or SimpleNamespace(returncode=0),
    )
    options = ["--attention", "alspec", "--threshold", "0.5", "--max-new-tokens", "4", "--json"]
    assert cli.main(["--device", "sim", *options]) == 0
    (request,) = requests
    assert asked == [("2x2", (2, 1), "slow")]
    assert (request["mesh"], request["threshold"], request["chunk_size"]) == ("2x1", 0.5, sim.CHUNK_SIZE)
    assert request["prompt_tokens"] == 95 and request["json"] and request["tokens"] == 4


@pytest.mark.parametrize(
    "found, code", [([1.0, 0.995], 0), ([1.0, 0.98], 1), ([math.nan, 1.0], 1), ([1.0, math.nan], 1)]
)
def test_every_step_has_to_agree(capsys, found, code):
    assert checked_steps.verdict(found, 0.99) == code
    lowest = "nan" if any(map(math.isnan, found)) else f"{min(found):.6f}"
    assert capsys.readouterr().out == f"lowest PCC {lowest}, required 0.99\n"


def test_logits_of_a_broken_model_have_no_pcc():
    import torch

    expected = torch.tensor([1.0, 2.0, 3.0])
    for broken in (torch.tensor([1.0, math.nan, 2.0]), torch.tensor([1.0, math.inf, 2.0]), torch.zeros(3)):
        assert math.isnan(checked_steps.step_figures("prefill", broken, expected)["pcc"])


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_a_simulated_run_prints_pcc_step_by_step(capfd):
    assert cli.main(["--max-new-tokens", "2", "--device", "sim", "--precision", "accuracy"]) == 0
    out = capfd.readouterr().out
    assert "a tiny random Llama, hidden 64, accuracy precision" in out
    lines = [line for line in out.splitlines() if " PCC " in line]
    assert [line.split()[0] for line in lines] == ["prefill", "decode", "lowest"]


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_a_simulated_run_verifies_drafted_trees(capfd):
    """The text repeats itself from its first token on: of the trees looked up in it one is accepted."""
    arguments = ["--draft", "ngram", "--tree", "3x2", "--max-new-tokens", "5", "--json"]
    assert cli.main(["--device", "sim", *arguments]) == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert [step["step"] for step in told["steps"]][0] == "prefill"
    assert all(step["pcc"] >= 0.99 and step["token"] == step["reference_token"] for step in told["steps"])
    drafted = told["speculation"]
    assert drafted["drafter"] == "ngram"
    assert drafted["num_accepted_tokens"] >= 1 and drafted["num_output_tokens"] == 4
    assert drafted["num_target_steps"] == len(told["steps"]) - 1 < 4


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(5400)
@pytest.mark.parametrize(
    "arguments, accepted, drafted",
    [
        # By seed 0 the logits of the first token lie nearer together than chip and reference.
        pytest.param(["self", "--draft-length", "2", "--max-new-tokens", "4", "--seed", "1"], 0, 3, id="self"),
        pytest.param(["tiny", "--fuzzy", "2", "--mesh", "1x2", "--max-new-tokens", "5"], 3, 3, id="fuzzy on a row"),
    ],
)
def test_a_simulated_run_verifies_drafts_of_models(capfd, arguments, accepted, drafted):
    """The target drafts over part of its cache; four layers draft on two chips, two at once, without the host."""
    assert cli.main(["--device", "sim", "--json", "--draft", *arguments]) == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert all(step["pcc"] >= 0.99 and step["token"] == step["reference_token"] for step in told["steps"])
    counts = told["speculation"]
    assert (counts["num_accepted_tokens"], counts["num_draft_tokens"]) == (accepted, drafted)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_a_simulated_pair_speculates_over_drafted_trees(capfd):
    """Both levels: decisions are the reference's, and the report has both."""
    arguments = ["--attention", "alspec", "--draft", "ngram", "--tree", "3x2", "--max-new-tokens", "5"]
    assert cli.main(["--device", "sim", "--json", *arguments]) == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert all(step["pcc"] >= 0.99 for step in told["steps"])
    assert [told["hits"], told["misses"]] == told["steps"][-1]["reference_counts"] and told["hits"] > 0
    assert told["both"]["hit_rate_per_step"] == told["hit_rate"] and 0 < told["both"]["hit_rate_of_roots_alone"] <= 1
    assert told["speculation"]["num_accepted_tokens"] >= 1 and not told["exchange"]["failures"]


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_a_simulated_run_verifies_drawn_drafts(capfd):
    arguments = ["--draft-length", "2", "--max-new-tokens", "6", "--temperature", "0.7"]
    assert cli.main(["--device", "sim", "--json", "--draft", "tiny", *arguments]) == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert all(step["pcc"] >= 0.99 for step in told["steps"])
    counts = told["speculation"]
    assert counts["num_output_tokens"] == 5 and counts["num_draft_tokens"] > 0
