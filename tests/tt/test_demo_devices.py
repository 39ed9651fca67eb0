# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""--device sim and --device n150: what is refused before any device work, and a whole simulated run."""

from dataclasses import replace

import pytest

from models.llama31_8b.config import preset
from models.llama31_8b.demo import board, demo
from models.llama31_8b.demo.options import DemoOptions, UserError
from models.llama31_8b.tt.mesh import MeshPlan
from runtime_patches.simulated_n150 import doctor

LLAMA = preset("llama-3.1-8b")


@pytest.fixture
def boards(monkeypatch, tmp_path):
    """As if this machine had two chips and all they need; opening them would fail."""
    for number in range(2):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(doctor, "why_not", lambda mode, found=None: None)
    monkeypatch.setattr(board.count_boards, "__defaults__", (tmp_path,))
    monkeypatch.setattr(MeshPlan, "open", lambda *_, **__: pytest.fail("a board was opened"))


def run(capsys, *arguments) -> str:
    """The one line of error of a demo run that must end with 2."""
    assert demo.main(["--prompt", "hello", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    return err.splitlines()[-1]


def test_a_machine_without_boards_is_told_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "why_not", lambda mode, found=None: f"no {mode} here")
    assert "--device n150: no silicon here" in run(capsys, "--device", "n150")


def test_more_chips_than_boards(capsys, monkeypatch, boards):
    monkeypatch.setenv("MESH_DEVICE", "1x8")
    assert "mesh 1x8 needs 8 chips, this machine has 2" in run(capsys, "--device", "n150")


def test_a_mesh_that_does_not_exist(capsys, monkeypatch, boards):
    monkeypatch.setenv("MESH_DEVICE", "5x5")
    assert "no mesh 5x5" in run(capsys, "--device", "n150")


@pytest.mark.parametrize("arguments", [["--json"], ["--stop", "x"], ["--draft", "ngram"]])
def test_what_boards_do_not_do_is_refused(capsys, monkeypatch, boards, arguments):
    monkeypatch.delenv("MESH_DEVICE", raising=False)
    assert "--device n150 does not do" in run(capsys, "--device", "n150", *arguments)


def test_a_model_too_large_names_the_bytes():
    with pytest.raises(UserError, match=r"needs \d{11} bytes a chip.*an N150 has 12884901888"):
        board.plan_run(preset("llama-3.1-70b"), DemoOptions(), MeshPlan(1, 2), 10)
    options = DemoOptions(max_new_tokens=100000)
    with pytest.raises(UserError, match="with 100010 positions needs"):
        board.plan_run(LLAMA, options, MeshPlan(), 10)
    assert board.plan_run(LLAMA, options, MeshPlan(1, 2), 10).capacity == 100032


def test_heads_the_mesh_cannot_share():
    with pytest.raises(UserError, match="num_key_value_heads = 3, which 2 chips"):
        board.plan_run(replace(LLAMA, num_attention_heads=6, num_key_value_heads=3), DemoOptions(), MeshPlan(1, 2), 10)


@pytest.mark.parametrize(
    "arguments, words",
    [(["--model", "x"], "--model does not go with"), (["--json"], "--json does not go with"),
     (["--max-new-tokens", "89"], "up to 88, got 89")],
)  # fmt: skip
def test_what_the_simulated_chip_does_not_do_is_refused(capsys, arguments, words):
    assert words in run(capsys, "--device", "sim", *arguments)


@pytest.mark.sim
@pytest.mark.timeout(1500)
def test_a_simulated_run_prints_pcc_step_by_step(capfd):
    assert demo.main(["--prompt", "unused", "--device", "sim", "--max-new-tokens", "2"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if " PCC " in line] == ["prefill", "decode", "lowest"]
