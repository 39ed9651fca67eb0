# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""--device n150, auto and sim: which device is taken, what a run asks of the chips, and what is refused before a board
is opened or a simulator started."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from models.llama31_8b import simulated
from models.llama31_8b.checkpoint.load import load_state_dict
from models.llama31_8b.config import preset
from models.llama31_8b.demo import cli
from models.llama31_8b.demo.backends import n150, sim
from models.llama31_8b.demo.options import DemoOptions, UserError, parse, with_attention
from models.llama31_8b.reference.load import load_model
from models.llama31_8b.tt.dram_budget import most_positions
from models.llama31_8b.tt.mesh import MeshError, MeshShape
from runtime_patches.board import doctor
from runtime_patches.board import environment as driver
from runtime_patches.simulated_n150 import doctor as simulators_doctor
from tests.support.gguf_files import TINY, edit_json, write_gguf, write_hf_folder
from tests.support.machines import refused

LLAMA = preset("llama-3.1-8b")
SMALL = preset("llama-3.2-1b")


@pytest.fixture
def checkpoint(folder) -> list[str]:
    """Arguments of a board's run with a tiny model."""
    return ["--device", "n150", "--raw", "--model", folder, "--max-new-tokens", "2"]


def plan(options=DemoOptions(), mesh=(1, 1), prompt=10, draft=None, users=1, config=LLAMA) -> n150.Plan:
    return n150.plan_run(config, options, MeshShape(*mesh), prompt, draft, users)


# Which device.


def test_a_machine_without_boards_is_told_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "why_not", lambda mode, found=None: f"no {mode} here")
    assert "--device n150: no silicon here" in refused(capsys, "--device", "n150")


@pytest.mark.parametrize("kind", ["n300", "p150a"])
def test_cards_of_another_type_are_refused_by_what_they_are(capsys, boards, kind):
    boards.set(1, kind)
    assert f"/dev/tenstorrent has 1: {kind} (" in refused(capsys, "--device", "n150")
    device, why = n150.choose_device()
    assert device == "cpu" and f"1: {kind}" in why


def test_the_machine_decides_the_device_and_it_is_said(capsys, monkeypatch, boards, tmp_path):
    """Boards and all they need: n150, whose next refusal shows that it was taken."""
    assert "--simulator does not go with --device n150: " in refused(capsys, "--simulator", "libttsim_wh.so")
    assert n150.choose_device() == ("n150", "2 Tenstorrent chips")
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "1")
    assert n150.choose_device() == ("n150", "1 Tenstorrent chip")
    monkeypatch.setattr(doctor, "why_not", lambda mode, found=None: "SFPI compiler: not installed")
    assert n150.choose_device() == ("cpu", "1 Tenstorrent chip, but SFPI compiler: not installed")
    monkeypatch.setattr(driver, "BOARDS", tmp_path / "none")
    assert n150.choose_device() == ("cpu", f"no Tenstorrent board in {tmp_path / 'none'}")
    monkeypatch.setenv("TT_METAL_SIMULATOR", "here")
    assert n150.choose_device() == ("n150", "simulated chips")


@pytest.mark.parametrize("mesh, attention", [("2x2", "alspec"), ("1x2", "exact"), (None, "exact"), ("3x3", "exact")])
def test_two_rows_speculate_unless_told_otherwise(monkeypatch, mesh, attention):
    if mesh is not None:
        monkeypatch.setenv("MESH_DEVICE", mesh)
    assert with_attention(DemoOptions(device="n150")).attention == attention
    assert with_attention(DemoOptions(device="n150", attention="exact")).attention == "exact"
    drafted = with_attention(DemoOptions(device="n150", draft="ngram"))
    drafted.check_device()
    assert drafted.attention_settings().guess == ("budget" if attention == "alspec" else None)
    assert with_attention(DemoOptions(device="cpu")).attention == "alspec"


@pytest.mark.parametrize("mesh, words", [("1x8", "mesh 1x8 needs 8 chips, this machine has 2"), ("5x5", "no mesh 5x5")])
@pytest.mark.parametrize("by_option", [False, True])
def test_a_mesh_this_machine_does_not_have(capsys, monkeypatch, boards, mesh, words, by_option):
    monkeypatch.setenv("MESH_DEVICE", "1x2" if by_option else mesh)
    assert words in refused(capsys, "--device", "n150", *(["--mesh", mesh] if by_option else []))


@pytest.mark.parametrize(
    "given, chosen",
    [
        ({}, ("1x2", "exact")),
        ({"attention": "exact"}, ("1x2", "exact")),
        ({"attention": "alspec"}, ("2x1", "alspec")),
        ({"max_new_tokens": 65536}, ("2x2", "alspec")),
    ],
)
def test_auto_takes_the_fastest_mesh_that_attention_and_memory_allow(monkeypatch, boards, tmp_path, given, chosen):
    """Tensor parallelism; over four chips the model's two key/value heads do not allow it, and at 65,536 tokens two
    rows of two that speculate are the next."""
    write_hf_folder(tmp_path, replace(TINY, max_position_embeddings=65536))
    if "max_new_tokens" in given:
        for number in (2, 3):
            boards.set(number, "n150")
    options = DemoOptions(device="n150", mesh="auto", model=str(tmp_path), chat_template=False, **given)
    found, _ = n150.with_mesh(options, ["the"])
    assert (found.mesh, found.attention) == chosen
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "1")
    if given.get("attention") == "alspec":
        with pytest.raises(UserError, match="takes two rows of chips, this machine has 1"):
            n150.with_mesh(options, ["the"])
    else:
        assert n150.with_mesh(options, ["the"])[0].mesh == "1x1"


# What chips refuse.


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--draft", "self", "--sample-on", "host"], "--draft self with --sample-on"),
        (["--draft", "ngram", "--temperature", "1", "--top-k", "9"], "--draft ngram with --top-k"),
        (["--draft", "ngram", "--temperature", "1", "--top-p", "0.5"], "--draft ngram with --top-p"),
    ],
)
@pytest.mark.parametrize("device", ["n150", "sim"])
def test_what_chips_do_not_do_is_refused(capsys, boards, device, arguments, words):
    assert f"{words} does not go with --device {device}: " in refused(capsys, "--device", device, *arguments)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"draft": "self", "tree": "2x2"}, "--tree: on chips"),
        ({"draft": "self", "fuzzy": 2}, "--fuzzy: on chips"),
        ({"draft": "a", "tree": "auto"}, "none grown by confidence"),
        ({"draft": "a", "tree": "2x2", "fuzzy": 2}, "--fuzzy 2 with --tree 2x2 would change nothing"),
        ({"draft": "a", "draft_length": 1, "fuzzy": 2}, "--draft-length 1 would change nothing"),
        ({"draft": "a", "fuzzy": 15}, "--fuzzy 15: .* from 1 to 14 for a model of 16 layers"),
        ({"draft": "ngram", "draft_length": 0}, "--draft-length 0 drafts nothing"),
        ({"attention": "alspec"}, "needs a mesh of two rows, such as 2x1; 1x4 has 1"),
    ],
)
def test_a_plan_that_chips_cannot_follow_names_the_option(options, words):
    with pytest.raises(UserError, match=words):
        plan(DemoOptions(**options), (1, 4), draft=SMALL)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"num_key_value_heads": 1}, r"num_key_value_heads = 1, which 2 chips \(TP of 1x2\) cannot share"),
        ({"num_attention_heads": 128, "num_key_value_heads": 8}, "leaves 64 query heads per chip"),
        ({"intermediate_size": 2**20, "num_hidden_layers": 80}, r"needs \d{11} bytes per chip .* has 12884901888"),
    ],
)
def test_a_model_the_mesh_cannot_take_is_refused_before_its_weights_are_read(
    capsys, monkeypatch, boards, tmp_path, change, words
):
    write_hf_folder(tmp_path)
    edit_json(tmp_path / "config.json", **change)
    monkeypatch.setattr("models.llama31_8b.tt.weights.load_state_dict", lambda *_, **__: pytest.fail("read"))
    assert re.search(words, refused(capsys, "--device", "n150", "--mesh", "1x2", "--model", str(tmp_path), "--raw"))


def test_a_draft_model_with_another_vocabulary_is_refused(capsys, boards, checkpoint, tmp_path):
    write_hf_folder(tmp_path / "draft")
    tokenizer = tmp_path / "draft" / "tokenizer.json"
    words = json.loads(tokenizer.read_text())
    vocabulary = words["model"]["vocab"]
    first, second = list(vocabulary)[:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    tokenizer.write_text(json.dumps(words))
    for device in ("n150", "cpu"):
        arguments = [*checkpoint, "--device", device, "--draft", str(tmp_path / "draft")]
        assert "vocabular" in refused(capsys, *arguments, prompt="the")


def test_a_conversation_without_a_template_is_refused_before_a_board_is_opened(capsys, boards, terminal, tmp_path):
    write_hf_folder(tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text("{}")
    terminal("hello")
    error = refused(capsys, "--device", "n150", "--model", str(tmp_path / "model"), prompt=None)
    assert "has no chat template to chat with; give --prompt" in error


@pytest.mark.parametrize(
    "error, words",
    [
        (MeshError("mesh 1x2 needs 2 chips, this machine has 1"), "needs 2 chips, this machine has 1"),
        (RuntimeError("TT_THROW @ fabric.cpp:7\ninfo:\nno links\nbacktrace:\n --- a\n"), "info: no links"),
    ],
)
def test_boards_that_do_not_open_are_one_line(capsys, monkeypatch, boards, checkpoint, error, words):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(MeshShape, "open", refuse)
    line = refused(capsys, *checkpoint, "--mesh", "1x2")
    assert "--device n150: the boards do not open as a 1x2 mesh: " in line and line.endswith(words)
    # Weights do not depend on --max-context: they are not converted again for another.
    from runtime_patches.board.runtime_root import project_cache_dir

    refused(capsys, *checkpoint, "--mesh", "1x2", "--max-context", "100")
    assert len(list((project_cache_dir() / "tt_weights").iterdir())) == 1


@pytest.mark.parametrize("device, what", [("cpu", "cache"), ("n150", "cache"), ("n150", "cache/tt_weights")])
def test_a_cache_that_cannot_be_made_is_one_line(capsys, boards, folder, tmp_path, device, what):
    (tmp_path / what).parent.mkdir(exist_ok=True)
    (tmp_path / what).touch()
    write_gguf(tmp_path / "tiny.gguf")
    model = str(tmp_path / "tiny.gguf") if what == "cache" else folder
    error = refused(capsys, "--device", device, "--raw", "--model", model)
    assert re.search(r"/cache.*: (File exists|Not a directory); LLAMA_ALSPEC_CACHE names another place", error)


# What a run asks of the chips.


@pytest.mark.parametrize("users, most", [(1, 73088), (8, 9088)])
def test_without_a_context_asked_for_the_longest_that_fits_is_taken(users, most):
    """For texts and conversations; one block more would not fit, and neither does a longer prompt."""
    options = DemoOptions(max_new_tokens=100000)
    run = plan(options, users=users)
    assert run.target.capacity == run.limit == most
    assert f"{most} positions" in run.notice and "131072" in run.notice
    needs = r"needs \d{11} bytes per chip.*; the longest context that fits has " + str(most)
    with pytest.raises(UserError, match=needs):
        plan(replace(options, max_context=most + 1), users=users)
    assert plan(options, prompt=most - 1, users=users).limit == most
    with pytest.raises(UserError, match=needs):
        plan(options, prompt=most, users=users)
    drafted = DemoOptions(draft="ngram")
    talk, nodes = plan(drafted, prompt=None, users=users), n150.chip_tree_nodes(drafted, users)
    assert (talk.limit, talk.target.capacity) == (most - nodes, most), "a tree's nodes follow a full conversation"
    short = plan(DemoOptions(max_new_tokens=20), users=users)
    assert (short.target.capacity, short.limit, short.notice) == (128, LLAMA.max_position_embeddings, None)


@pytest.mark.parametrize(
    "context, prompt, asked, capacity, limit",
    [
        (131072, 30000, None, 30208, 131072),  # attention takes 128 keys at once
        (131072, 10, None, 256, 131072),
        (131072, 131072, None, 131072, 131072),
        (131072, 40, 50, 128, 50),
        (131072, 30000, 30017, 30080, 30017),
        (1030, 1000, None, 1056, 1030),  # whole tiles of a context that is not in blocks
        (50, 40, None, 64, 50),
        (131072, None, None, 131072, 131072),  # a conversation
        (131072, None, 300, 384, 300),
        (131072, None, 20000, 20096, 20000),
    ],
)
def test_capacity_is_in_blocks_within_the_context(context, prompt, asked, capacity, limit):
    config = replace(LLAMA, max_position_embeddings=context)
    run = plan(DemoOptions(max_context=asked), (1, 2), prompt, config=config)
    assert (run.target.capacity, run.limit) == (capacity, limit)


def test_trees_take_positions_after_the_text_and_a_draft_model_takes_memory():
    assert plan(DemoOptions(max_new_tokens=100), prompt=28).target.capacity == 128
    assert plan(DemoOptions(max_new_tokens=100, draft="ngram", tree="4x2"), prompt=28).target.capacity == 256
    options = DemoOptions(draft="a-model", precision="accuracy")
    run = plan(options, draft=SMALL)
    assert run.draft.formats(SMALL).of_layer(15).gate_up == "bfloat8_b"
    longer = replace(options, max_new_tokens=40000)
    with pytest.raises(UserError, match=r"llama-3.1-8b with llama-3.2-1b as its draft on 1x1 .* needs \d{11} bytes"):
        plan(replace(longer, max_context=131072), draft=SMALL)
    beside = plan(longer, draft=SMALL)
    assert beside.notice and beside.limit + beside.target.capacity % 128 < 40000
    assert not plan(replace(longer, draft=None)).notice
    with pytest.raises(UserError, match="has a context of 131072, this run takes 131095"):
        context = replace(LLAMA, max_position_embeddings=140000)
        more = replace(options, max_new_tokens=131090, max_context=140000)
        plan(more, (1, 8), 5, SMALL, config=context)


@pytest.mark.parametrize("context", [131072, 1030, 50])
@pytest.mark.parametrize("drafts", [{"draft": "ngram"}, {"draft": "self"}, {"draft": "a-model", "tree": "3x2"}])
def test_a_prompt_that_fills_the_context_goes_with_drafts_as_without(context, drafts):
    """The nodes of a step follow a full context, in the cache of the target and of a draft with the same context."""
    options, small = DemoOptions(**drafts), None
    config = replace(LLAMA, max_position_embeddings=context)
    if drafts["draft"] == "a-model":
        small = replace(SMALL, max_position_embeddings=context)
    for users in (1, 2):
        for prompt in (context, context - 1, None):
            run, nodes = plan(options, (1, 8), prompt, small, users, config), n150.chip_tree_nodes(options, users)
            assert run.limit == context <= run.target.capacity - nodes and run.notice is None
            assert run.target.capacity <= most_positions(config, 32)


def test_layers_that_chips_have_to_themselves_are_counted_before_loading():
    options = DemoOptions(draft="a-model", fuzzy=4, max_new_tokens=4000)
    run = plan(options, (1, 4), draft=SMALL)
    assert len(run.draft.layer_assignment.parallel_stages) == 4
    for sequential in (None, 1):
        assert plan(replace(options, fuzzy=sequential), (1, 4), draft=SMALL).draft.layer_assignment is None
    # Two models of a long context fit beside each other, but not the draft's second copy.
    longer, small = (replace(config, max_position_embeddings=200000) for config in (LLAMA, SMALL))
    tight = replace(options, max_new_tokens=160000)
    assert plan(replace(tight, fuzzy=None), (1, 2), draft=small, config=longer).target.capacity > 160000
    with pytest.raises(UserError, match="llama-3.2-1b as its draft, 4 of its layers in parallel, on 1x2 .* needs"):
        plan(replace(tight, max_context=200000), (1, 2), draft=small, config=longer)


def test_users_take_memory_and_rows():
    """Eight caches of a long context need a mesh; sharded decode steps take so many users, and a draft model's chains
    of all of them are calibrated in one tile of rows."""
    options = DemoOptions(max_new_tokens=20000, max_context=131072)
    assert plan(options, (1, 2), users=8).target.users == 8 and plan(options).target.users == 1
    with pytest.raises(UserError, match=r"20096 positions for 20010 for each of 8 users needs \d{11} b"):
        plan(options, users=8)
    drafted = DemoOptions(draft="a-model", draft_length=3)
    assert plan(drafted, (1, 2), draft=SMALL, users=8).draft is not None
    with pytest.raises(UserError, match="8 users and drafts of 4 tokens .* need 40 rows per pass"):
        plan(replace(drafted, draft_length=4), (1, 2), draft=SMALL, users=8)
    fast = DemoOptions(decode_sharding="sharded", attention="exact", draft="ngram", tree="4x2")
    assert plan(fast, (1, 2), users=3).target.users == 3
    with pytest.raises(UserError, match="sharded decode steps do not support trees of 36 nodes in all"):
        plan(fast, (1, 2), users=4)


# Simulated chips.


def started(monkeypatch, *arguments: str, stdin: str = "") -> tuple[list[str], DemoOptions]:
    """Return the simulator's part of the command line that a simulated run starts, and the options of the program."""
    found: list[list[str]] = []
    monkeypatch.setattr(sim, "run_command", lambda command, talks: found.append(command) or 0)
    monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    assert cli.main(["--device", "sim", *arguments]) == 0
    split = found[0].index("--")
    assert found[0][split + 2 : split + 4] == ["-m", "models.llama31_8b.demo"]
    return found[0][1:split], parse(found[0][split + 4 :])


def test_a_simulated_run_is_a_board_run_of_a_tiny_model_under_the_simulators_command(monkeypatch, folder, tmp_path):
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path))
    simulator, options = started(monkeypatch)
    started_by = ["-m", "runtime_patches.simulated_n150", "run", "--patch", "runtime_patches.sgdc"]
    assert simulator == [*started_by, "--grid", "4x2", "--dispatch", "fast"]
    assert (options.device, options.mesh, options.chunk_size, options.max_new_tokens) == ("n150", "1x1", 32, 8)
    assert options.prompt and load_model(options.model).config.num_hidden_layers == 2
    simulator, options = started(monkeypatch, "--attention", "alspec", "--json", "--draft", "tiny", stdin="a text\n")
    assert simulator[-2:] == ["--mesh", "2x1"] and options.prompt == ("a text",) and options.json
    whole, draft = (load_state_dict(source) for source in (options.model, options.draft))
    assert set(draft) < set(whole) and all((whole[name] == part).all() for name, part in draft.items())
    simulator, options = started(monkeypatch, "--draft", "tiny", "--fuzzy", "2", "--mesh", "1x2", "--prompt", "b")
    assert options.draft == options.model and load_model(options.model).config.num_hidden_layers == 4
    simulator, _ = started(monkeypatch, "--decode-sharding", "sharded")
    assert "8x8" in simulator
    library = ["--simulator", "libttsim_wh.so", "--prompt", "c"]
    simulator, options = started(monkeypatch, *library, "--model", folder)
    assert simulator[-2:] == ["--simulator", "libttsim_wh.so"] and "--mesh" not in simulator
    assert (options.simulator, options.layers, options.chunk_size, options.mesh) == (None, None, 128, "1x1")
    simulator, options = started(monkeypatch, "--model", folder, "--layers", "1")
    assert options.layers == 1 and options.model == folder and options.chunk_size == 128


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--model", "{folder}"], "--layers"),
        (["--layers", "2"], "--model"),
        (["--mesh", "5x5"], "no mesh 5x5"),
        (["--draft", "tiny", "--fuzzy", "5"], "up to 4 layers in parallel, got 5"),
        (["--simulator", "libttsim_wh.so", "--mesh", "2x1"], "one chip, got --mesh 2x1"),
        (["--simulator", "libttsim_wh.so", "--precision", "bfloat16"], "float32 sums of --precision bfloat16"),
    ],
)
def test_what_is_not_simulated_is_refused(capsys, folder, arguments, words):
    asked = [argument.format(folder=folder) for argument in arguments]
    assert words in refused(capsys, "--device", "sim", *asked)


# What stands for the simulator's process: it is known by its command line.
_PROGRAM = """
import subprocess, sys, time
chip = subprocess.Popen([sys.executable, "-c", {chip!r}, "runtime_patches.simulated_n150.simulator"])
time.sleep({seconds})
sys.exit(7)
"""


def test_a_simulated_chip_that_is_gone_ends_the_program(monkeypatch):
    monkeypatch.setattr(simulated, "LOST_S", 0.5)
    lost = _PROGRAM.format(chip="import time; time.sleep(2)", seconds=600)
    with pytest.raises(simulated.SimulatorError, match=r"the process \d+ of a simulated chip ended before"):
        simulated.run([sys.executable, "-c", lost])
    slow = _PROGRAM.format(chip="import time; time.sleep(600)", seconds=600)
    with pytest.raises(simulated.SimulatorError, match="did not end within 2 s"):
        simulated.run([sys.executable, "-c", slow], limit_s=2)
    whole = _PROGRAM.format(chip="import time; time.sleep(600)", seconds=2)
    assert simulated.run([sys.executable, "-c", whole.replace("sys.exit", "chip.kill(); sys.exit")]) == 7


# A program that compiles in a process of its own, and what starts it, each as a command line of Python.
_COMPILING = """
import pathlib, signal, subprocess, sys, time
def ask(number, frame):
    pathlib.Path(sys.argv[1], "asked").touch()
    {then}
signal.signal(signal.SIGINT, ask)
code = "import pathlib, sys, time\\npathlib.Path(sys.argv[1], 'ready').touch()\\ntry: time.sleep(600)\\n"
code += "except KeyboardInterrupt: pathlib.Path(sys.argv[1], 'compiler').touch()"
compiler = subprocess.Popen([sys.executable, "-c", code, sys.argv[1]])
time.sleep(600)
"""
# A shell's background jobs, of which this test may be one, ignore SIGINT.
_STARTED = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from models.llama31_8b import simulated
from runtime_patches.board.command_line import run_command
starter = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', *sys.argv[1:]]))"
command = [sys.executable, "-c", starter, *sys.argv[1:]]
sys.exit(run_command("x", lambda: simulated.run(command, talks=False)))
"""


@pytest.mark.parametrize("then, presses", [("compiler.kill(); sys.exit(130)", 1), ("pass", 2)])
def test_ctrl_c_asks_a_simulated_program_alone_and_once_more_ends_all(tmp_path, then, presses):
    """The terminal sends it to the whole group of processes; compilers and simulators would print tracebacks."""
    command = [sys.executable, "-c", _STARTED, _COMPILING.format(then=then), str(tmp_path)]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    for file in ("ready", "asked")[:presses]:
        while not (tmp_path / file).exists():
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1].split("\n")
    told = ["", "ends after what is being computed; Ctrl-C once more ends it now"]
    assert process.returncode == 130 and said == [*told, *["", "interrupted"][: 2 * (presses - 1)], ""]
    assert (tmp_path / "asked").exists() and not (tmp_path / "compiler").exists()
    assert str(tmp_path) not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


@pytest.mark.sim
def test_simulated_chips_write_the_text_of_the_reference(capfd, monkeypatch):
    """A pair that speculates, with hits and misses, by the whole command."""
    from models.llama31_8b.reference.alspec import policies
    from models.llama31_8b.reference.generate import generate

    if why := simulators_doctor.why_not("simulator"):
        pytest.skip(f"the simulator needs: {why}")
    monkeypatch.setattr(sys, "stdin", None)
    asked = ["--attention", "alspec", "--precision", "bfloat16", "--max-new-tokens", "3", "--json"]
    assert cli.main(["--device", "sim", *asked]) == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    loaded = load_model(told["options"]["model"])
    ids = loaded.tokenizer.apply_chat_template([{"role": "user", "content": sim.SENTENCE}])
    policy = policies.by_name("alspec", told["options"]["chunk_size"])
    expected = generate(loaded.model, [ids], max_new_tokens=3, policy=policy)
    assert told["token_ids"] == expected.token_ids[0]
    assert (told["hits"], told["misses"]) == (policy.statistics.hits, policy.statistics.misses) == (3, 1)
    assert not told["exchange"]["failures"]
