# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""--device auto and --device n150: which is taken, and what is refused before any device work."""

import json
import re
from dataclasses import replace

import pytest

from models.llama31_8b.checkpoint import load as weights
from models.llama31_8b.config import preset
from models.llama31_8b.demo import cli
from models.llama31_8b.demo.backends.n150 import backend as n150
from models.llama31_8b.demo.backends.sim import backend as sim
from models.llama31_8b.demo.options import DemoOptions, UserError
from models.llama31_8b.tt.mesh import MeshShape
from runtime_patches.board import boards as driver
from runtime_patches.board import doctor
from tests.support.gguf_files import write_gguf, write_hf_folder
from tests.support.machines import refused

LLAMA = preset("llama-3.1-8b")


def test_a_machine_without_boards_is_told_what_is_missing(capsys, monkeypatch):
    monkeypatch.delenv("MESH_DEVICE", raising=False)
    monkeypatch.setattr(doctor, "why_not", lambda mode, found=None: f"no {mode} here")
    assert "--device n150: no silicon here" in refused(capsys, "--device", "n150")


@pytest.mark.parametrize("device", ["cpu", "n150"])
def test_a_cache_that_is_a_file_is_one_line(capsys, monkeypatch, boards, tmp_path, device):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "file"))
    write_gguf(tmp_path / "tiny.gguf")
    error = refused(capsys, "--device", device, "--model", str(tmp_path / "tiny.gguf"))
    assert "error: " in error and str(tmp_path / "file") in error


@pytest.mark.parametrize("kind", ["n300", "p150a"])
def test_cards_of_another_type_are_refused_by_what_they_are(capsys, boards, kind):
    boards.set(1, kind)
    error = refused(capsys, "--device", "n150")
    assert f"--device n150: N150 boards are needed, /dev/tenstorrent has 1: {kind} (" in error
    device, why = n150.choose_device()
    assert device == "cpu" and f"1: {kind}" in why


def test_cards_the_driver_does_not_name_are_taken_and_it_is_said(capsys, boards):
    boards.set(0, "unknown")
    assert cli.main(["--prompt", "hello", "--device", "n150", "--model", "absent"]) == 2
    err = capsys.readouterr().err
    assert "taken for N150, since the driver does not tell their type: board 0: a board of unknown type" in err
    assert "no model absent" in err


def test_the_machine_decides_the_device_and_it_is_said(capsys, monkeypatch, boards, tmp_path):
    """Boards and all they need: n150, whose next refusal shows that it was taken."""
    assert "--html does not go with --device n150: " in refused(capsys, "--html", str(tmp_path / "page.html"))
    assert n150.choose_device() == ("n150", "2 Tenstorrent chips")
    monkeypatch.setattr(doctor, "why_not", lambda mode, found=None: "SFPI compiler: not installed")
    assert n150.choose_device() == ("cpu", "2 Tenstorrent chips, but SFPI compiler: not installed")
    monkeypatch.setattr(driver, "BOARDS", tmp_path / "none")
    assert n150.choose_device() == ("cpu", f"no Tenstorrent board in {tmp_path / 'none'}")


def test_doctor_and_demo_count_the_boards_this_process_may_open(monkeypatch, boards):
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "1")
    assert n150.choose_device() == ("n150", "1 Tenstorrent chips")
    assert [f.found for f in doctor.findings() if f.part == "Tenstorrent boards"] == [f"1 in {boards.devices}"]


def test_the_choice_is_printed_and_reported(capsys, monkeypatch, tmp_path):
    write_hf_folder(tmp_path / "tiny")
    monkeypatch.setattr(driver, "BOARDS", tmp_path / "none")
    assert (
        cli.main(["--prompt", "the", "--raw", "--model", str(tmp_path / "tiny"), "--max-new-tokens", "1", "--json"])
        == 0
    )
    out, err = capsys.readouterr()
    assert f"--device cpu: no Tenstorrent board in {tmp_path / 'none'}" in err
    assert json.loads(out)["options"]["device"] == "cpu"


@pytest.mark.parametrize("mesh, words", [("1x8", "mesh 1x8 needs 8 chips, this machine has 2"), ("5x5", "no mesh 5x5")])
@pytest.mark.parametrize("by_option", [False, True])
def test_a_mesh_this_machine_does_not_have(capsys, monkeypatch, boards, mesh, words, by_option):
    monkeypatch.setenv("MESH_DEVICE", "1x2" if by_option else mesh)
    assert words in refused(capsys, "--device", "n150", *(["--mesh", mesh] if by_option else []))


@pytest.mark.parametrize(
    "flag, value",
    [("--mesh", "1x2"), ("--precision", "accuracy"), ("--sample-on", "host")],
)
def test_options_of_chips_are_refused_on_the_cpu(capsys, flag, value):
    words = f"{flag} does not go with --device cpu: it is for chips, on --device n150 or sim"
    assert words in refused(capsys, "--device", "cpu", flag, value)


def test_unknown_values_are_refused(capsys):
    assert "no precision 'fast'; available: performance, accuracy, bfloat16" in refused(capsys, "--precision", "fast")
    assert "no place to sample on 'chip'; available: device, host" in refused(capsys, "--sample-on", "chip")
    assert "no device 'gpu'; available: auto, cpu, sim, n150" in refused(capsys, "--device", "gpu")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"num_key_value_heads": 1}, r"num_key_value_heads = 1, which 2 chips \(TP of 1x2\) cannot share"),
        ({"num_attention_heads": 128, "num_key_value_heads": 8}, "leaves 64 query heads per chip"),
        (
            {"intermediate_size": 2**20, "num_hidden_layers": 80},
            r"needs \d{11} bytes per chip .* an N150 has 12884901888",
        ),
    ],
)
def test_a_model_the_mesh_cannot_take_is_refused_before_its_weights_are_read(
    capsys, monkeypatch, boards, tmp_path, change, words
):
    write_hf_folder(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    monkeypatch.setattr(weights, "load_state_dict", lambda *_: pytest.fail("the weights were read"))
    assert re.search(words, refused(capsys, "--device", "n150", "--mesh", "1x2", "--model", str(tmp_path), "--raw"))


def test_precision_of_a_run():
    plain = n150.plan_run(LLAMA, DemoOptions(), MeshShape(), 10).precision
    assert plain.name == "performance" and plain.of_layer(3).ff1 == "bfloat4_b"
    chosen = n150.plan_run(LLAMA, DemoOptions(precision="accuracy"), MeshShape(), 10).precision
    assert chosen.name == "accuracy" and chosen.of_layer(3).ff1 == "bfloat8_b"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--draft", "self", "--sample-on", "host"], "--draft self with --sample-on"),
        (["--draft", "ngram", "--attention", "sink"], "--draft ngram with --attention sink"),
        (["--draft", "ngram", "--temperature", "1", "--top-k", "9"], "--draft ngram with --top-k"),
        (["--draft", "ngram", "--sample-on", "host"], "--draft ngram with --sample-on"),
    ],
)
def test_what_boards_do_not_do_is_refused(capsys, boards, arguments, words):
    assert f"{words} does not go with --device n150: " in refused(capsys, "--device", "n150", *arguments)


def test_heads_the_mesh_cannot_share():
    with pytest.raises(UserError, match="num_key_value_heads = 3, which 2 chips"):
        n150.plan_run(replace(LLAMA, num_attention_heads=6, num_key_value_heads=3), DemoOptions(), MeshShape(1, 2), 10)


def test_the_decode_sharding_is_chosen_and_refused_before_a_board_is_opened():
    plan = n150.plan_run(LLAMA, DemoOptions(attention="exact", decode_sharding="sharded"), MeshShape(1, 8), 10)
    assert (
        plan.decode_sharding == "sharded"
        and n150.plan_run(LLAMA, DemoOptions(), MeshShape(), 10).decode_sharding == "interleaved"
    )
    pair = DemoOptions(attention="alspec", decode_sharding="sharded")
    assert n150.plan_run(LLAMA, pair, MeshShape(2, 1), 10).decode_sharding == "sharded"
    with pytest.raises(UserError, match="no decode sharding 'quick'; available: interleaved, sharded"):
        DemoOptions(decode_sharding="quick")
    drafted = DemoOptions(draft="ngram", tree="8x8", attention="exact", decode_sharding="sharded")
    assert n150.plan_run(LLAMA, drafted, MeshShape(), 10).decode_sharding == "sharded", (
        "a tree of the demo is a tile at most"
    )
    assert sim.plan_request(DemoOptions(attention="exact", decode_sharding="sharded", device="sim"))["grid"] == "8x8"


def test_padding_of_the_banks_counts_where_it_no_longer_fits():
    """A context that one chip holds beside interleaved weights, but not beside sharded ones."""
    options = DemoOptions(attention="exact", max_new_tokens=40000, precision="accuracy", max_context=131072)
    fits = next(n for n in range(60000, 0, -128) if _fits(replace(options, max_new_tokens=n)))
    with pytest.raises(UserError, match="needs .* bytes per chip"):
        n150.plan_run(LLAMA, replace(options, max_new_tokens=fits, decode_sharding="sharded"), MeshShape(), 10)


def _fits(options: DemoOptions) -> bool:
    try:
        n150.plan_run(LLAMA, options, MeshShape(), 10)
    except UserError:
        return False
    return True
