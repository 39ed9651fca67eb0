# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of the silicon tests and `--device n150`, on the simulated chip with a tiny checkpoint."""

import os
from dataclasses import replace
from unittest import mock

import pytest
from loguru import logger

from tests.silicon import silicon_programs
from tests.silicon.silicon_programs import text
from tests.support.gguf_files import write_hf_folder
from tests.support.tt_programs import TINY

pytestmark = [pytest.mark.sim, pytest.mark.timeout(1500)]
# Bytes, a few words and control tokens.
CONFIG = replace(TINY, vocab_size=288, num_hidden_layers=1, max_position_embeddings=1024, eos_token_ids=(2,))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    write_hf_folder(folder, CONFIG)
    return str(folder)


def cached(mesh, cache: str, name: str, *arguments):
    """In the worker: a function of silicon_programs with its own weight cache."""
    with mock.patch.dict(os.environ, {"LLAMA_ALSPEC_CACHE": cache}):
        return getattr(silicon_programs, name)(mesh, *arguments)


def test_teacher_forced_body(sim_device, checkpoint, tmp_path):
    tokens = text(3, checkpoint)
    told = sim_device("2x1").run(
        cached, str(tmp_path), "teacher_forced", checkpoint, "bfloat16", tokens, 2, timeout=900
    )
    assert told == {"top1": 1.0, "top5": 1.0, "steps": 1}
    assert len(list((tmp_path / "tt_weights").glob("*/*.tensorbin"))) == 9, "weights went through the cache"


def test_decode_speed_body(sim_device, checkpoint, tmp_path):
    prompt = text(3, checkpoint)
    told = sim_device("2x1").run(cached, str(tmp_path), "decode_speed", checkpoint, "bfloat16", prompt, 2, timeout=900)
    logger.info("{}", told)
    assert told["tokens"] == 1 and told["tokens_per_s"] > 0 and told["eager_text"]
    assert told["replays"] == 0, "slow dispatch replays no traces"
