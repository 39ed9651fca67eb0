# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's tensors on the host, and settings that are refused before any is read."""

import pytest
import torch

from models.llama31_8b.checkpoint.load import load_state_dict, read_config
from models.llama31_8b.config import preset
from models.llama31_8b.tt.mesh import MeshError, MeshShape
from models.llama31_8b.tt.precision import PrecisionError
from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings
from models.llama31_8b.tt.sharding import ShardingError
from models.llama31_8b.tt.weights import HostWeights
from tests.support.gguf_files import untied, write_hf_folder

LLAMA = preset("llama-3.1-8b")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    pytest.importorskip("ttnn")  # its version is part of an entry's name
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "cache"))
    write_hf_folder(tmp_path / "tiny", untied())
    return tmp_path / "tiny"


def test_a_checkpoint_or_its_first_layers_with_an_entry_for_each(folder):
    settings = ModelSettings(precision="bfloat16")
    whole, again, first = (HostWeights.load(folder, MeshShape(), settings, layers) for layers in (None, None, 1))
    config = read_config(folder, name="tiny")
    expected = load_state_dict(folder, config)
    assert whole.config == config and all(torch.equal(whole.state[name], expected[name]) for name in expected)
    assert first.config == config.with_layers(1) and set(first.state) < set(whole.state)
    assert whole.entry == again.entry != first.entry and whole.entry.is_dir()
    other = HostWeights.cached(whole.config, whole.state, MeshShape(), ModelSettings(precision="accuracy"))
    assert other.entry != whole.entry


def test_settings_are_refused_before_weights_are_read(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(MeshError, match="8 chips .* cannot share"):
        HostWeights.load(folder, MeshShape(1, 8), ModelSettings())


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        ({"decode_sharding": "fast"}, ShardingError, "no decode sharding 'fast'; shardings: interleaved, sharded"),
        ({"precision": "double"}, PrecisionError, "no precision 'double'"),
    ],
)
def test_what_settings_refuse(wrong, error, words):
    settings = ModelSettings(**wrong)
    with pytest.raises(error, match=words):
        settings.check(LLAMA, MeshShape())


def test_an_unknown_attention_policy():
    with pytest.raises(ValueError, match="no attention policy 'window'; policies: exact, sink, static, alspec"):
        AttentionSettings("window")
