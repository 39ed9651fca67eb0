# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""From a checkpoint's names, shapes and RoPE order to the matrices of the chips, and their cache on disk."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import LlamaConfig, ModelLoadError, RopeScaling, inverse_frequencies
from models.llama31_8b.reference.model.model import rotary_rows, rotate
from models.llama31_8b.tiny import TINY
from models.llama31_8b.tt import weights as weight_cache
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.precision import LayerPrecision, precision_config
from models.llama31_8b.tt.weights import WeightCache, WeightMap, adjacent_pairs, entry_folder
from tests.support.machines import set_ttnn_version
from tests.support.tt_programs import SMALL


def test_adjacent_rotation_is_the_checkpoints():
    """Scores of queries and keys rotated as neighbours equal those of the half-split layout."""
    config = replace(SMALL, num_attention_heads=1, num_key_value_heads=1)
    q, k = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0))
    cos, sin = rotary_rows(inverse_frequencies(config), torch.arange(5))
    expected = [rotate(x[:, None], cos, sin)[:, 0] for x in (q, k)]
    half = cos[:, 0, :32].repeat_interleave(2, 1), sin[:, 0, 32:].repeat_interleave(2, 1)
    turned = []
    for x in (q, k):
        pairs = adjacent_pairs(x.t(), 1).t()
        crossed = torch.stack((-pairs[:, 1::2], pairs[:, 0::2]), -1).flatten(1)
        turned.append(pairs * half[0] + crossed * half[1])
    torch.testing.assert_close(turned[0] @ turned[1].t(), expected[0] @ expected[1].t())
    torch.testing.assert_close(turned[1], adjacent_pairs(expected[1].t(), 1).t())


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("tied", [False, True])
def test_blocks_of_the_head_rebuild_its_vocabulary(tp, tied):
    config = replace(SMALL, tie_word_embeddings=tied)
    state, plan = random_state_dict(config), MeshShape(1, tp)
    weights, part = WeightMap(config, state, plan), plan.padded_vocab(config) // tp
    blocks = [weights.lm_head(start, 32).chunk(tp, dim=1) for start in range(0, part, 32)]
    rebuilt = torch.cat([block[chip] for chip in range(tp) for block in blocks], dim=1)
    head = state["model.embed_tokens.weight" if tied else "lm_head.weight"]
    assert torch.equal(rebuilt[:, :100], head.t()) and not rebuilt[:, 100:].any()


PLAN = precision_config("accuracy", 2)
OTHER_FIELDS = {
    "num_attention_heads": 2,
    "bos_token_id": 1,
    "eos_token_ids": (2,),
    "tie_word_embeddings": True,
    "rope_scaling": RopeScaling("linear", 2.0),
    "rope_theta": 5e5,
    "rms_norm_eps": 1e-6,
    "name": "other",
}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    """A cache folder, and a version of ttnn whether it is installed or not."""
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path))
    set_ttnn_version(monkeypatch, "1")


def weights(dtype=torch.bfloat16) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "matrix": torch.randn(2048, 1024, generator=generator).to(dtype),
        "norm": torch.ones(7, dtype=dtype),
        "scalar": torch.tensor(1.0, dtype=dtype),
    }


def folder(state=None, config=TINY, plan=MeshShape(), precision=PLAN) -> Path:
    return entry_folder(config, weights() if state is None else state, plan, precision)


@pytest.mark.parametrize("where", [1, 5, 1023, 1024, 1_000_001, 2048 * 1024 - 1])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_any_single_number_changes_the_entry(where, dtype):
    state, changed = weights(dtype), weights(dtype)
    assert folder(state) == folder(changed)
    number = changed["matrix"].view(-1)[where : where + 1]
    number.view(torch.uint8)[0] ^= 1  # the lowest bit
    assert folder(state) != folder(changed)


def test_names_shapes_and_formats_of_tensors_change_the_entry():
    state = weights()
    bits = state["matrix"].view(torch.int16)
    others = [
        {**state, "matrix": state["matrix"].view(1024, 2048)},
        {**state, "matrix": bits},
        {**state, "more": torch.zeros(0)},
        {"matrix2" if name == "matrix" else name: tensor for name, tensor in state.items()},
        {**state, "matrix": state["matrix"].t().contiguous().t() + 1},
    ]
    assert len({folder(state), *map(folder, others)}) == 1 + len(others)
    assert folder({**state, "matrix": state["matrix"].t().contiguous().t()}) == folder(state), "layout in memory"


@pytest.mark.parametrize("name", [field.name for field in fields(LlamaConfig)])
def test_every_field_of_the_config_changes_the_entry(name):
    config = replace(TINY, num_attention_heads=4)
    other = OTHER_FIELDS[name] if name in OTHER_FIELDS else getattr(config, name) * 2
    assert folder(config=replace(config, **{name: other})) != folder(config=config)


def test_precision_mesh_ttnn_and_layout_change_the_entry(monkeypatch):
    found = {
        folder(),
        folder(plan=MeshShape(1, 2)),
        folder(plan=MeshShape(2, 1)),
        folder(precision=precision_config("performance", 2)),
        folder(precision=replace(PLAN, layers={1: LayerPrecision(gate_up="bfloat16")})),
        folder(precision=replace(PLAN, lm_head="bfloat16")),
    }
    with monkeypatch.context() as patch:
        set_ttnn_version(patch, "2")
        found.add(folder())
    with monkeypatch.context() as patch:
        patch.setattr(weight_cache, "LAYOUT_VERSION", 99)
        found.add(folder())
    assert len(found) == 8


def test_long_and_strange_names_make_short_folders():
    name = folder(config=replace(TINY, name="a/b c" + 300 * "x"), precision=replace(PLAN, name=300 * "y")).name
    assert len(name) < 130 and name.startswith("a-b-cxxx")


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    """The error is that of ttnn.dump_tensor on a full disk."""

    def fail(file: Path) -> None:
        file.write_bytes(b"half")
        raise RuntimeError(
            "TT_FATAL @ tensor_file_layout.cpp:47: written == bytes\ninfo:\n"
            'Failed to write tensor data to "x": wrote 4/8 bytes (errno=28 "No space left on device")\nbacktrace:\n a'
        )

    with pytest.raises(ModelLoadError, match="No space left on device.*LLAMA_ALSPEC_CACHE") as raised:
        WeightCache(tmp_path).save("a", fail)
    assert "\n" not in str(raised.value) and "backtrace" not in str(raised.value)
    assert not list(tmp_path.glob("*.tensorbin")) and WeightCache(tmp_path).find("a") is None
