# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Precisions, what settings refuse before anything is opened or read, and a checkpoint's tensors on the host."""

import pytest
import torch

from models.llama31_8b.checkpoint.load import load_state_dict, read_config
from models.llama31_8b.tt.mesh import MeshError, MeshShape
from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings, SpeculationError
from models.llama31_8b.tt.weights import HostWeights
from tests.support.gguf_files import write_hf_folder
from tests.support.machines import set_ttnn_version


def check(shape, users=1, **settings) -> None:
    AttentionSettings(**{"policy": "alspec"} | settings).check(MeshShape(*shape), users, 256)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"users": 9}, "1 to 8 users together, got 9"),
        ({"chunk_size": 48}, "multiple of 32 up to the cache's capacity of 256, got 48"),
        ({"chunk_size": True}, "got True"),
        ({"threshold": float("nan")}, "got nan"),
        ({"threshold": 2e6}, "from 0 to 1e\\+06, or inf"),
        ({"threshold": True}, "got True"),
    ],
)
def test_what_is_refused(change, words):
    with pytest.raises(SpeculationError, match=words):
        check((2, 1), **change)


def test_the_guess_is_by_a_budget_unless_told_otherwise():
    guesses = {name: AttentionSettings("alspec", predictor=name).guess for name in (None, "ends", "budget")}
    assert guesses == {None: "budget", "ends": "ends", "budget": "budget"}
    assert AttentionSettings("exact").guess is None
    for wrong in ({"predictor": "ends", "budget": 0.9}, {"policy": "exact", "budget": 0.9}, {"predictor": "middle"}):
        with pytest.raises(ValueError, match="predictor"):
            AttentionSettings(**{"policy": "alspec"} | wrong)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    set_ttnn_version(monkeypatch, "1")  # a part of an entry's name
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "cache"))
    write_hf_folder(tmp_path / "tiny")
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
