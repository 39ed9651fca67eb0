# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`llama-alspec hits FILE`, and its function: a text of one's own, every token a decode step."""

from __future__ import annotations

import json

import pytest
import torch

from models.llama31_8b.checkpoint.errors import ContextLengthError
from models.llama31_8b.demo import hits
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.hits import measure_hits
from models.llama31_8b.reference.model.model import ReferenceLlama
from tests.support.gguf_files import untied, write_hf_folder

TEXT = "the and the in 12 " * 30


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_hf_folder(folder, untied())
    return str(folder)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "mine.txt").write_text(TEXT, encoding="utf-8")
    return str(tmp_path / "mine.txt")


def test_decisions_are_those_of_decoding_token_by_token():
    model = ReferenceLlama.random(untied(), seed=3)
    ids = torch.randint(0, model.config.vocab_size, (200,), generator=torch.Generator().manual_seed(1)).tolist()
    done: list[int] = []
    found = measure_hits(model, ids, 0.6, 32, done.append)
    policy, cache = ALSpecAttention(0.6, 32), model.new_cache(1, len(ids))
    for token in ids:
        model.forward(torch.tensor([[token]]), cache, policy=policy, logits="none")
    assert found.decisions_per_token() == policy.statistics.decisions_per_token()
    assert found.hits and found.misses and found.bypassed_positions == 63 and done == [128, 200]


@pytest.mark.parametrize(
    "ids, settings, error, words",
    [
        ([], {}, ValueError, "the text has no tokens"),
        ([1] * 1025, {}, ContextLengthError, "cache capacity 1025 exceeds the context"),
        ([1], {"threshold": -1.0}, ValueError, "threshold must be a number >= 0"),
        ([1], {"chunk_size": 33}, ValueError, "chunk_size 33 is not a multiple"),
    ],
)
def test_what_cannot_be_measured_is_refused(ids, settings, error, words):
    with pytest.raises(error, match=words):
        measure_hits(ReferenceLlama.random(untied()), ids, **settings)


def test_the_command_reports_a_file(model, file, capsys):
    arguments = [file, "--model", model, "--chunk-size", "32", "--threshold", "0.9", "--tokens", "150"]
    assert hits.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == 150 < found["tokens_of_file"] and found["bypassed_positions"] == 63
    assert found["hits"] + found["misses"] == 2 * (150 - 63) and len(found["hit_rate_per_layer"]) == 2
    assert hits.main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"150 of {found['tokens_of_file']} tokens" in shown and "hit rate by layer" in shown
    assert f"hit rate {found['hit_rate']:.1%} ({found['hits']} hits, {found['misses']} misses" in shown
    assert "as fast as without any" in shown


def test_a_text_that_is_too_short_to_speculate(model, file, capsys):
    assert hits.main([file, "--model", model, "--tokens", "200"]) == 0
    assert "No guess was verified: speculation starts at 256 tokens, 2S." in capsys.readouterr().out


@pytest.mark.parametrize(
    "change, words",
    [
        (["--tokens", "0"], "--tokens must be at least 1, got 0"),
        (["--threshold", "-1"], "threshold must be a number >= 0"),
        (["--model", "absent"], "no model absent"),
        (["--chunk-size", "5"], "chunk_size 5 is not a multiple"),
    ],
)
def test_bad_requests_are_one_line(model, file, capsys, change, words):
    assert hits.main([file, "--model", model, *change]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("llama-alspec hits: error: ") and words in shown.err and not shown.out


def test_files_that_cannot_be_read(tmp_path, capsys):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    for name, words in {"absent.txt": "No such file", "latin.txt": "latin.txt is not UTF-8 text"}.items():
        assert hits.main([str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err
