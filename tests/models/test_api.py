# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The public names: light to import, and the same texts as the loop's. On simulated chips: tests/examples."""

import subprocess
import sys

import pytest

import models.llama31_8b as public
from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.spec_decode.draft_settings import DraftShape
from models.llama31_8b.tiny import TINY
from tests.support.tt_programs import repeating

PROMPTS = [repeating(48), repeating(9)]


def test_an_import_needs_no_torch_and_a_name_neither_ttnn_nor_transformers():
    code = (
        "import sys, models.llama31_8b as public; heavy = {'torch', 'ttnn', 'transformers'}; "
        "print(sorted(heavy & set(sys.modules))); public.load; print(sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split("\n")[:2] == ["[]", "['torch']"]


def test_every_name_is_there_and_documented():
    assert 6 <= len(public.__all__) <= 10
    for name in public.__all__:
        assert getattr(public, name).__doc__ and name in public.__doc__ and name in dir(public)
    with pytest.raises(AttributeError, match="no attribute 'generator'"):
        public.generator  # noqa: B018 (the attribute is what is asked for)


@pytest.mark.parametrize(
    "draft",
    [None, public.Draft(), public.Draft("self", DraftShape(3), window=32), public.Draft("random", DraftShape(2, 2))],
    ids=["plain", "ngram", "self", "model"],
)
def test_texts_on_the_cpu_are_the_references(draft):
    reference = ReferenceLlama.from_state_dict(TINY, random_state_dict(TINY))
    expected = generate(reference, PROMPTS, max_new_tokens=9, eos_token_ids=())
    with public.load("random", draft=draft) as llama:
        result = llama.generate(PROMPTS, max_new_tokens=9)
    assert result.token_ids == expected.token_ids and result.texts == []
    assert (result.speculation is None) == (draft is None)


def test_settings_reach_the_attention():
    for attention, some in ((public.Attention("alspec", 32, 0.0), 0), (public.Attention("alspec", 32, 5.0), 1)):
        statistics = public.load("random", attention=attention).generate([[1] * 90], max_new_tokens=4).statistics
        assert (statistics.hits > 0) == some and statistics.hits + statistics.misses == 3 * TINY.num_hidden_layers
    assert public.load("random").generate([[1]], max_new_tokens=2).statistics is None


@pytest.mark.parametrize(
    "options, prompts, words",
    [
        ({}, "a text", "no tokenizer: give token ids"),
        ({"mesh": "3x1"}, [[1]], "no mesh 3x1"),
        ({"attention": public.Attention("alspec", 48)}, [[1]], "48 is not a multiple"),
    ],
)
def test_refusals(options, prompts, words):
    with pytest.raises(ValueError, match=words):
        public.load("random", **options).generate(prompts, max_new_tokens=1)
