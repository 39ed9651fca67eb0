# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Models and prompts whose first decode steps under attention-level speculation have layers that hit and layers
that miss in several patterns, none near the bound, and no two best logits close to each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from models.llama31_8b.checkpoint import load as weights
from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.checkpoint.tokenizer import Tokenizer
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.tiny import TINY

CHUNK_SIZE, CAPACITY = 32, 128
# The first step has 96 cached tokens: a guess reads 32 at the start and, up to 127, those from 64 on.
PROMPT_TOKENS = 95
SAMPLE = Path(weights.__file__).parents[1] / "demo" / "sample_prompt.txt"


@dataclass(frozen=True)
class PairCase:
    """threshold: of the acceptance. grid: cores of each chip. first: outcomes by layer of the first steps."""

    config: LlamaConfig
    state: dict[str, torch.Tensor]
    prompt: list[int]
    threshold: float
    grid: str
    first: list[list[bool]]


def tiny() -> PairCase:
    """Random weights, a random prompt."""
    generator = torch.Generator().manual_seed(2985)
    prompt = torch.randint(0, TINY.vocab_size, (PROMPT_TOKENS,), generator=generator).tolist()
    first = [[True, False], [False, True], [True, True]]
    return PairCase(TINY, random_state_dict(TINY, 0), prompt, 0.39, "2x2", first)


def smollm2() -> PairCase:
    """Two trained layers of SmolLM2-135M on English text, with those ids of its vocabulary that the sample prompt
    has, and a few more: a head of all 49152 would take the simulator hours."""
    folder, _ = weights.resolve_source(None)
    whole = weights.read_config(folder, name="smollm2")
    state = weights.load_state_dict(folder, whole, layers=2)
    ids = Tokenizer.from_folder(folder, eos_token_ids=()).encode(SAMPLE.read_text(encoding="utf-8"))
    used = set(ids)
    unused = (token for token in range(whole.vocab_size) if token not in used)
    kept = sorted([*used, *(next(unused) for _ in range(-len(used) % 32))])
    number = {token: index for index, token in enumerate(kept)}
    state = {
        name: tensor[kept].clone() if tensor.shape[0] == whole.vocab_size else tensor for name, tensor in state.items()
    }
    config = replace(whole.with_layers(2), vocab_size=len(kept), eos_token_ids=())
    prompt = [number[token] for token in ids[500 : 500 + PROMPT_TOKENS]]
    first = [[False, True], [False, False], [False, False], [True, True]]
    return PairCase(config, state, prompt, 0.1031, "4x4", first)


CASES = {"tiny": tiny, "smollm2": smollm2}
