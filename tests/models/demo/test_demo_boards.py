# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""--device n150: what a run asks of the boards, and boards, caches and contexts that fail it."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from models.llama31_8b.config import preset
from models.llama31_8b.demo import cli
from models.llama31_8b.demo.backends.n150 import backend as n150
from models.llama31_8b.demo.backends.n150 import session as board_session
from models.llama31_8b.demo.options import DemoOptions, UserError
from models.llama31_8b.demo.support import chip_tree_nodes
from models.llama31_8b.tt.mesh import MeshError, MeshShape
from tests.support.gguf_files import write_hf_folder
from tests.support.machines import refused
from tests.support.reference_chips import stand_in_for_ttnn

LLAMA = preset("llama-3.1-8b")


@pytest.fixture
def checkpoint(tmp_path) -> list[str]:
    """Arguments of a board's run with a tiny model."""
    write_hf_folder(tmp_path / "model")
    return ["--device", "n150", "--raw", "--model", str(tmp_path / "model"), "--max-new-tokens", "2"]


def test_a_model_too_large_names_the_bytes():
    with pytest.raises(UserError, match=r"needs \d{11} bytes per chip.*an N150 has 12884901888"):
        n150.plan_run(preset("llama-3.1-70b"), DemoOptions(), MeshShape(1, 2), 10)
    options = DemoOptions(max_new_tokens=100000)
    with pytest.raises(
        UserError, match=r"a cache of 100096 positions for 100010 needs .* that fits has \d{5} positions"
    ):
        n150.plan_run(LLAMA, replace(options, max_context=131072), MeshShape(), 10)
    run = n150.plan_run(LLAMA, options, MeshShape(1, 2), 10)
    assert (run.capacity, run.limit, run.notice) == (100096, 131072, None)


@pytest.mark.parametrize("users, most", [(1, 73088), (8, 9088)])
def test_without_a_context_asked_for_the_longest_that_fits_is_taken(users, most):
    """For texts and conversations; one block more would not fit, and neither does a longer prompt."""
    options = DemoOptions(max_new_tokens=100000)
    run = n150.plan_run(LLAMA, options, MeshShape(), 10, users=users)
    whose = "" if users == 1 else " for each of 8 users"
    said = f"a context of {most} positions{whose} is the longest that fits; llama-3.1-8b has 131072"
    assert (run.capacity, run.limit, run.notice) == (most, most, said)
    needs = r"needs \d{11} bytes per chip.*; the longest context that fits has " + str(most)
    with pytest.raises(UserError, match=needs):
        n150.plan_run(LLAMA, replace(options, max_context=most + 1), MeshShape(), 10, users=users)
    assert n150.plan_run(LLAMA, options, MeshShape(), most - 1, users=users).limit == most
    with pytest.raises(UserError, match=needs):
        n150.plan_run(LLAMA, options, MeshShape(), most, users=users)
    short = n150.plan_run(LLAMA, DemoOptions(max_new_tokens=20), MeshShape(), 10, users=users)
    assert (short.capacity, short.limit, short.notice) == (128, LLAMA.max_position_embeddings, None)


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
    ],
)
def test_capacity_is_in_blocks_within_the_context(context, prompt, asked, capacity, limit):
    config = replace(LLAMA, max_position_embeddings=context)
    run = n150.plan_run(config, DemoOptions(max_context=asked), MeshShape(1, 2), prompt)
    assert (run.capacity, run.limit) == (capacity, limit)


def test_a_context_the_model_does_not_have_is_refused_as_on_the_cpu(capsys, boards, checkpoint):
    told = [refused(capsys, *checkpoint, "--device", device, "--max-context", "4000") for device in ("cpu", "n150")]
    assert all("max_context must be between 1 and 1024 for" in line and "got 4000" in line for line in told)


class ZerosLlama:
    """A TtLlama as far as the length of a text goes: every logit is 0."""

    users, mesh, cache = 1, None, SimpleNamespace(block=32)
    decode_modules = None
    decode_attention = SimpleNamespace(check=lambda: None, reset=lambda: None, statistics=lambda: None)

    def __init__(self, config, capacity):
        self.config, self.capacity = config, capacity

    def prefill(self, tokens, user, start, last, gather_logits):
        import torch

        return torch.zeros(1, 1, 32, self.config.vocab_size) if last else None

    def decode(self, inputs, gather_logits=True):
        import torch

        return torch.zeros(1, 1, 1, self.config.vocab_size)

    def step_inputs(self, tokens, positions, on_device=True):
        import torch

        from models.llama31_8b.tt.model import StepInputs

        where = torch.tensor(positions)
        return StepInputs(torch.tensor([tokens]), where, where.clone())


@pytest.fixture
def host_ttnn(monkeypatch):
    """ttnn with tensors of torch, for the generator's own calls."""
    ttnn = pytest.importorskip("ttnn")
    stand_in_for_ttnn(monkeypatch, ttnn)


@pytest.mark.parametrize("asked, tokens", [(50, 11), (64, 25), (None, 25), (1000, 25)])
def test_a_context_limit_ends_a_text_where_it_does_on_the_cpu(host_ttnn, asked, tokens):
    """A prompt of 40 tokens in a context of 50 leaves room for 11, whatever the cache of 64 holds."""
    from models.llama31_8b.generation.sequences import open_sequences
    from models.llama31_8b.tt.generator import Generator

    model = ZerosLlama(replace(LLAMA, vocab_size=8, eos_token_ids=()), capacity=64)
    result = Generator(model, sample_on="host", prefill_chunk=32).generate(
        [[1] * 40], max_new_tokens=100, context_limit=asked
    )
    assert len(result.token_ids[0]) == tokens and result.finish_reason == ["context"]
    if asked in (50, 64):
        assert open_sequences(model.config, [[1] * 40], 100, context_limit=asked)[0].room == tokens


def test_max_context_and_the_steps_that_compile_reach_the_report(capsys, monkeypatch, boards, checkpoint, host_ttnn):
    """The whole run but for the model: a context of 20 tokens, as on the CPU, and the first step left out."""
    monkeypatch.setattr(MeshShape, "open", lambda *_, **__: None)
    monkeypatch.setattr(MeshShape, "close", lambda *_: None)
    from models.llama31_8b.tt.model import TtLlama

    def stand_in(weights, device, settings):
        return ZerosLlama(weights.config, settings.capacity)

    monkeypatch.setattr(TtLlama, "from_host_weights", stand_in)
    asked = [
        *checkpoint,
        "--prompt",
        "the and the",
        "--max-new-tokens",
        "100",
        "--max-context",
        "20",
        "--json",
    ]
    told = []
    for more in (["--sample-on", "host"], ["--device", "cpu"]):
        assert cli.main([*asked, *more]) == 0
        told.append(json.loads(capsys.readouterr().out))
    for run in told:
        assert run["finish_reason"] == "context"
        assert run["prefill_tokens"] + len(run["token_ids"]) == 20 + 1  # the last is never cached
        assert run["time_to_first_token_s"] > 0
    assert [run["warm_up_tokens"] for run in told] == [1, 0] and told[0]["warm_up_s"] > 0


def test_trees_take_positions_behind_the_text_and_a_draft_model_takes_memory():
    plain = n150.plan_run(LLAMA, DemoOptions(max_new_tokens=100), MeshShape(), 28).capacity
    drafted = DemoOptions(max_new_tokens=100, draft="ngram", tree="4x2")
    assert (plain, n150.plan_run(LLAMA, drafted, MeshShape(), 28).capacity) == (128, 256)
    small = preset("llama-3.2-1b")
    options = DemoOptions(draft="a-model", precision="accuracy")
    run = n150.plan_run(LLAMA, options, MeshShape(), 10, small)
    assert run.draft_precision is not None and run.draft_precision.of_layer(15).ff1 == "bfloat8_b"
    longer = replace(options, max_new_tokens=40000)
    with pytest.raises(UserError, match=r"llama-3.1-8b with llama-3.2-1b as its draft on 1x1 .* needs \d{11} bytes"):
        n150.plan_run(LLAMA, replace(longer, max_context=131072), MeshShape(), 10, small)
    beside = n150.plan_run(LLAMA, longer, MeshShape(), 10, small)
    assert beside.notice and beside.limit + beside.capacity % 128 < 40000
    assert not n150.plan_run(LLAMA, replace(longer, draft=None), MeshShape(), 10).notice
    with pytest.raises(UserError, match="has a context of 131072, this run takes 131200"):
        context = replace(LLAMA, max_position_embeddings=140000)
        more = replace(options, max_new_tokens=131090)
        n150.plan_run(context, replace(more, max_context=140000), MeshShape(1, 8), 5, small)
    assert n150.plan_run(context, more, MeshShape(1, 8), 5, small).capacity == small.max_position_embeddings


def test_layers_that_chips_have_to_themselves_are_counted_before_loading():
    small, mesh = preset("llama-3.2-1b"), MeshShape(1, 4)
    options = DemoOptions(draft="a-model", fuzzy=4, max_new_tokens=4000)
    run = n150.plan_run(LLAMA, options, mesh, 10, small)
    assert run.draft_layers is not None and len(run.draft_layers.parallel_stages) == 4
    for sequential in (None, 1):
        assert n150.plan_run(LLAMA, replace(options, fuzzy=sequential), mesh, 10, small).draft_layers is None
    with pytest.raises(UserError, match="--fuzzy 15: .* from 1 to 14 for a model of 16 layers"):
        n150.plan_run(LLAMA, replace(options, fuzzy=15), mesh, 10, small)
    # Two models of a long context fit beside each other, but not the draft's second copy.
    longer, small, mesh = (
        *(replace(config, max_position_embeddings=200000) for config in (LLAMA, small)),
        MeshShape(1, 2),
    )
    tight = replace(options, max_new_tokens=160000)
    assert n150.plan_run(longer, replace(tight, fuzzy=None), mesh, 10, small).capacity > 160000
    with pytest.raises(UserError, match="llama-3.2-1b as its draft, 4 of its layers in parallel, on 1x2 .* needs"):
        n150.plan_run(longer, replace(tight, max_context=200000), mesh, 10, small)


def test_a_draft_model_with_another_vocabulary_is_refused(capsys, boards, checkpoint, tmp_path):
    write_hf_folder(tmp_path / "draft")
    tokenizer = tmp_path / "draft" / "tokenizer.json"
    words = json.loads(tokenizer.read_text())
    vocabulary = words["model"]["vocab"]
    first, second = list(vocabulary)[:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    tokenizer.write_text(json.dumps(words))
    error = refused(capsys, *checkpoint, "--prompt", "the", "--draft", str(tmp_path / "draft"))
    assert "--draft: the draft model draft and the target model both have" in error


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
    assert "--device n150: the boards do not open as a 1x2 mesh: " in line
    assert line.endswith(words)


@pytest.mark.parametrize("what", ["cache", "cache/tt_weights"])
def test_a_cache_that_cannot_be_made_is_refused_before_a_board_is_opened(capsys, boards, checkpoint, tmp_path, what):
    (tmp_path / what).parent.mkdir(exist_ok=True)
    (tmp_path / what).touch()
    assert re.search(
        r"the cache .*/cache.*: (File exists|Not a directory); LLAMA_ALSPEC_CACHE names another place",
        refused(capsys, *checkpoint),
    )


def test_the_entry_of_a_run_is_the_checkpoints_whatever_context_is_asked(
    capsys, monkeypatch, boards, checkpoint, tmp_path
):
    """Weights do not depend on --max-context: they are not converted again for another."""

    def refuse(*_, **__):
        raise MeshError("here")

    monkeypatch.setattr(MeshShape, "open", refuse)
    for asked in ("100", "200"):
        refused(capsys, *checkpoint, "--max-context", asked)
    assert len(list((tmp_path / "cache" / "tt_weights").iterdir())) == 1


def test_the_clock_of_a_text_measures_its_first_tokens(monkeypatch):
    times = iter([10.0, 13.0, 14.0, 14.5])
    monkeypatch.setattr(board_session.time, "perf_counter", lambda: next(times))
    clock = board_session.TokenClock(lambda user, token: token == 3)
    assert [clock.first_tokens(count) for count in (1, 2)] == [(0, 0.0)] * 2
    assert [clock(0, token) for token in range(4)] == [False, False, False, True]
    assert clock.first_tokens(1) == (1, 3.0) and clock.first_tokens(2) == (2, 4.0)
    assert clock.first_tokens(9) == (3, 4.5)


def test_the_clock_of_three_texts_begins_when_each_has_its_first_token(monkeypatch):
    """Prefills are no decode steps: of six tokens three are decoded, the first two by the step that compiles."""
    times = iter([10.0, 11.0, 12.0, 15.0, 15.5, 16.0])
    monkeypatch.setattr(board_session.time, "perf_counter", lambda: next(times))
    clock = board_session.TokenClock(lambda user, token: False, users=3)
    for user in (0, 1, 2, 0, 2, 0):
        clock(user, 1)
    assert [clock.first_tokens(count) for count in (0, 2, 9)] == [(0, 0.0), (2, 3.5), (3, 4.0)]


def test_users_take_memory_and_rows():
    """Eight caches of a long context need a mesh; sharded decode steps take so many users, and a draft model's chains
    of all of them are calibrated in one tile of rows."""
    options = DemoOptions(max_new_tokens=20000, max_context=131072)
    assert n150.plan_run(LLAMA, options, MeshShape(1, 2), 10, users=8).users == 8
    assert n150.plan_run(LLAMA, options, MeshShape(), 10).users == 1
    with pytest.raises(UserError, match=r"a cache of 20096 positions for 20010 for each of 8 users needs \d{11} b"):
        n150.plan_run(LLAMA, options, MeshShape(), 10, users=8)
    rows = DemoOptions(attention="alspec", max_new_tokens=300)
    assert n150.plan_run(LLAMA, rows, MeshShape(2, 4), 10, users=8).capacity == 384
    small, drafted = preset("llama-3.2-1b"), DemoOptions(draft="a-model", draft_length=3)
    assert n150.plan_run(LLAMA, drafted, MeshShape(1, 2), 10, small, users=8).draft_precision is not None
    with pytest.raises(
        UserError, match="8 users and drafts of 4 tokens with 1 candidates per node need 40 rows per pass"
    ):
        n150.plan_run(LLAMA, replace(drafted, draft_length=4), MeshShape(1, 2), 10, small, users=8)
    fast = DemoOptions(decode_sharding="sharded", attention="exact", draft="ngram", tree="4x2")
    assert n150.plan_run(LLAMA, fast, MeshShape(1, 2), 10, users=3).users == 3
    with pytest.raises(UserError, match="sharded decode steps do not support trees of 36 nodes in all"):
        n150.plan_run(LLAMA, fast, MeshShape(1, 2), 10, users=4)


def test_a_conversation_takes_the_context_that_fits_or_the_one_asked_for():
    asked = {None: 73088, 300: 300, 20000: 20000}
    plans = {n: n150.plan_run(LLAMA, DemoOptions(max_context=n), MeshShape(), None) for n in asked}
    assert {n: plan.limit for n, plan in plans.items()} == asked
    assert [plan.capacity for plan in plans.values()] == [73088, 384, 20096]
    assert [plan.notice is None for plan in plans.values()] == [False, True, True]
    options = DemoOptions(draft="ngram")
    drafted, nodes = n150.plan_run(LLAMA, options, MeshShape(), None), chip_tree_nodes(options, 1)
    assert (drafted.limit, drafted.capacity) == (73088 - nodes, 73088), "a tree's nodes go behind a full conversation"
    assert n150.plan_run(LLAMA, DemoOptions(), MeshShape(1, 8), None).limit == LLAMA.max_position_embeddings
    with pytest.raises(UserError, match="needs .* GB\\); the longest context that fits has 73088 positions"):
        n150.plan_run(LLAMA, DemoOptions(max_context=131072), MeshShape(), None)


@pytest.mark.parametrize(
    "mesh, options, words",
    [
        ((1, 2), {"attention": "alspec"}, "needs a mesh of two rows, such as 2x1; 1x2 has 1"),
        ((2, 1), {"attention": "alspec", "threshold": 2e6}, r"threshold must be from 0 to 1e\+06"),
        ((2, 1), {"attention": "alspec", "chunk_size": 1024}, "up to the cache's capacity of 256, got 1024"),
        ((1, 1), {"attention": "sink", "chunk_size": 1024}, "up to the cache's capacity of 256, got 1024"),
        ((1, 1), {"attention": "static", "static_layers": "31,32"}, "names layer 32"),
    ],
)
def test_what_chips_cannot_speculate_is_refused(mesh, options, words):
    with pytest.raises(UserError, match=words):
        n150.plan_run(LLAMA, DemoOptions(**options), MeshShape(*mesh), 10)


@pytest.mark.parametrize("mesh, attention", [("2x2", "alspec"), ("1x2", "exact"), (None, "exact"), ("3x3", "exact")])
def test_two_rows_speculate_unless_told_otherwise(monkeypatch, mesh, attention):
    if mesh is not None:
        monkeypatch.setenv("MESH_DEVICE", mesh)
    assert n150.SUPPORT.resolved(DemoOptions()).attention == attention
    assert n150.SUPPORT.resolved(DemoOptions(attention="sink")).attention == "sink"
