# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps over random walks: what the chips decided in the committed runs is what the reference decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from perf.step.shapes import random_walk, walked_caches, walked_embeddings
from tests.support.tt_programs import half_split

DATA = Path(__file__).parents[3] / "perf" / "data" / "steps"
SEED, VOCABULARY, HEAD_DIM = 0, 96, 64  # the bench's


def test_rows_of_a_walk_are_normal_and_forget_at_the_stride():
    rows = random_walk((20000, 4), 8.0, torch.Generator().manual_seed(1))
    assert rows.std().item() == pytest.approx(1, abs=0.05)
    for distance in (1, 8, 16):
        found = (rows[distance:] * rows[:-distance]).mean().item()
        assert found == pytest.approx(torch.tensor(-distance / 8).exp().item(), abs=0.06)


@torch.inference_mode()
def test_the_reference_hits_as_often_as_the_chips_did():
    """The mean of a committed run: of 12 decisions, so that one more or less shows."""
    data = json.loads((DATA / "walk_ends_4096.json").read_text())
    (row,) = data["rows"]
    threshold = float(data["command"].split("--own ")[1].split()[0])
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=row["hidden"],
        intermediate_size=row["intermediate"],
        num_hidden_layers=row["layers"],
        num_attention_heads=row["heads"],
        num_key_value_heads=row["kv_heads"],
        head_dim=HEAD_DIM,
        max_position_embeddings=row["context"],
        name="bench",
    )
    state = random_state_dict(config, SEED)
    state["model.embed_tokens.weight"] = walked_embeddings(config.vocab_size, config.hidden_size, SEED)
    model = ReferenceLlama.from_state_dict(config, state)
    cache = model.new_cache(1, row["context"])
    keys, values = walked_caches(row["layers"], (1, row["kv_heads"], row["context"], HEAD_DIM), SEED)
    for layer in range(row["layers"]):
        cache.keys[layer][0] = half_split(keys[layer][0])
        cache.values[layer][0] = values[layer][0]
    cache.lengths[0] = row["context"] - row["walk"]
    policy = ALSpecAttention(threshold, row["chunk_size"])
    for token in range(row["walk"]):
        model.forward(torch.tensor([[token]]), cache, policy=policy)
    hits = sum(int(step.accepted.sum()) for step in policy.statistics.steps)
    assert hits / (row["walk"] * row["layers"]) == row["hit_rate"]
