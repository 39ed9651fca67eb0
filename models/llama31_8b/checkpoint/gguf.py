# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""GGUF files of the llama architecture, converted once into Hugging Face folders in the user's cache.

llama.cpp stores q and k projections with the rows of each head interleaved (its RoPE rotates neighbouring pairs);
Hugging Face rotates the two halves of a head. `GgufModel.tensor` returns the half-split layout.

transformers reads such files too, but drops the frequency factors of Llama 3.1 (`rope_freqs.weight`), keeps one of its
three ends of turn, and takes minutes and float32 for what is read here tensor by tensor; tests compare both.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import split_torch_state_dict_into_shards
from loguru import logger
from safetensors.torch import save_file
from tqdm import tqdm

from runtime_patches.board.runtime_root import project_cache_dir

from ..config import LlamaConfig, ModelLoadError, RopeScaling, inverse_frequencies
from .cache import made_once
from .gguf_tokenizer import LLAMA3_NAMES, build_tokenizer
from .tensor_shapes import check_finite, check_shapes, tensor_shapes
from .tokenizer import pointer

# Part of every key: raise it when the converted files change.
CONVERTER_VERSION = 4
_SHARD_BYTES = 2 * 1024**3


def converted_folder(gguf_path: str | Path) -> Path:
    """Return the Hugging Face folder of a GGUF file (config, tokenizer, safetensors), converted if need be. Progress
    goes to standard error.

    Raises what `GgufModel` raises, and ModelLoadError when the disk is too small for the result.
    """
    path = Path(gguf_path).resolve()
    stat = path.stat()
    key = f"{CONVERTER_VERSION} {path} {stat.st_size} {stat.st_mtime_ns}"  # not the content, of any size
    entry = project_cache_dir() / "gguf" / f"{path.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    return made_once(entry, lambda folder: _convert(path, folder))


def _convert(path: Path, folder: Path) -> None:
    logger.info("converting {} once into {}", path.name, folder.parent)
    source = GgufModel(path)
    tokenizer, tokenizer_config = build_tokenizer(source.metadata, path)
    needed, free = source.stored_bytes(), shutil.disk_usage(folder).free
    if needed > free:
        raise ModelLoadError(
            f"{path.name} takes {needed / 1e9:.1f} GB once dequantised, but {folder.parent} has "
            f"{free / 1e9:.1f} GB free; set LLAMA_ALSPEC_CACHE to a folder on a larger disk"
        )
    _write_json(folder / "config.json", source.config.to_hf_dict())
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", tokenizer_config)
    _write_shards(source, folder)


def _write_shards(source: GgufModel, folder: Path) -> None:
    sizes = {name: torch.empty(source.stored_bytes(name), dtype=torch.uint8, device="meta") for name in source.names}
    split = split_torch_state_dict_into_shards(sizes, max_shard_size=_SHARD_BYTES)
    with tqdm(total=len(source.names), desc=f"dequantise {source.path.name}", unit="tensor", disable=None) as bar:
        for file, names in split.filename_to_tensors.items():
            state = {}
            for name in names:
                state[name] = source.tensor(name)
                check_finite(state[name], name, source.path)
                bar.update()
            save_file(state, folder / file, metadata={"format": "pt"})
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        _write_json(folder / "model.safetensors.index.json", index)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


ROPE_FREQS = "rope_freqs.weight"
# Tokens by which a Llama 3 file ends a turn, beside the one end-of-sequence id its metadata can hold.
_LLAMA3_ENDS = ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")


class GgufModel:
    """An opened GGUF file of the llama architecture.

    `config`: LlamaConfig from the metadata. `names`: Hugging Face tensor names in file order.
    `metadata`: plain Python values by GGUF key.

    Raises ModelLoadError, naming the file, for a truncated or damaged one, one that lacks a tensor or has an unknown
    one, and for another architecture.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._reader = _open(self.path)
        self.metadata: dict[str, Any] = {key: f.contents() for key, f in self._reader.fields.items()}
        self._refuse_foreign()
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        try:
            self.config = self._read_config()
        except (TypeError, ValueError, ZeroDivisionError) as error:
            if str(self.path) in str(error):
                raise
            raise ModelLoadError(f"{self.path}: the GGUF metadata describe no model ({error})") from error
        self._source_names = self._map_names()

    @property
    def names(self) -> list[str]:
        """Hugging Face names of all tensors of the model."""
        return list(self._source_names)

    def stored_bytes(self, name: str | None = None) -> int:
        """Return the bytes that a tensor, or all of them, take once dequantised: two per weight for F16 and BF16, four
        for the rest."""
        if name is None:
            return sum(map(self.stored_bytes, self._source_names))
        tensor = self._tensors[self._source_names[name]]
        return int(tensor.n_elements) * (2 if tensor.tensor_type.name in ("F16", "BF16") else 4)

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor by its Hugging Face name, `[out, in]` or `[hidden]`; float32 unless F16 or BF16."""
        import gguf

        source = self._tensors[self._source_names[name]]
        kind = source.tensor_type.name
        if kind == "F16":
            value = torch.from_numpy(np.array(source.data))
        else:
            try:
                value = torch.from_numpy(np.array(gguf.dequantize(source.data, source.tensor_type), dtype=np.float32))
            except NotImplementedError as error:
                raise ModelLoadError(
                    f"{self.path}: tensor {source.name} is stored as {kind}, which the gguf library cannot dequantise"
                ) from error
            if kind == "BF16":
                value = value.to(torch.bfloat16)
        if source.name.endswith("attn_q.weight"):
            return half_split_rows(value, self.config.num_attention_heads)
        if source.name.endswith("attn_k.weight"):
            return half_split_rows(value, self.config.num_key_value_heads)
        return value

    def _refuse_foreign(self) -> None:
        architecture = self.metadata.get("general.architecture")
        if architecture != "llama":
            raise ModelLoadError(
                f"{self.path}: GGUF architecture {architecture!r} is not supported; supported: 'llama'"
            )
        if (kind := self.metadata.get("general.type", "model")) != "model":
            raise ModelLoadError(f"{self.path}: the GGUF file holds no model but its general.type is {kind!r}")
        experts = self.metadata.get("llama.expert_count", 0)
        if experts:
            raise ModelLoadError(f"{self.path}: mixture of {experts} experts is not supported")
        if self.metadata.get("split.count", 1) > 1:
            raise ModelLoadError(
                f"{self.path}: part of a model split into {self.metadata['split.count']} GGUF files; "
                "join them first with llama.cpp's llama-gguf-split --merge"
            )

    def _required(self, key: str) -> Any:
        if key not in self.metadata:
            raise ModelLoadError(f"{self.path}: GGUF metadata lacks {key}")
        return self.metadata[key]

    def _read_config(self) -> LlamaConfig:
        meta = self.metadata
        heads = int(self._required("llama.attention.head_count"))
        hidden = int(self._required("llama.embedding_length"))
        head_dim = int(meta.get("llama.attention.key_length", hidden // heads))
        rotated = int(meta.get("llama.rope.dimension_count", head_dim))
        if rotated != head_dim:
            raise ModelLoadError(f"{self.path}: RoPE on {rotated} of {head_dim} dimensions of a head is not supported")
        if "token_embd.weight" not in self._tensors:
            raise ModelLoadError(f"{self.path}: tensor token_embd.weight is missing")
        bos = meta.get("tokenizer.ggml.bos_token_id")
        config = LlamaConfig(
            vocab_size=int(self._tensors["token_embd.weight"].shape[1]),
            hidden_size=hidden,
            intermediate_size=int(self._required("llama.feed_forward_length")),
            num_hidden_layers=int(self._required("llama.block_count")),
            num_attention_heads=heads,
            num_key_value_heads=int(meta.get("llama.attention.head_count_kv", heads)),
            head_dim=head_dim,
            max_position_embeddings=int(self._required("llama.context_length")),
            # GGUF holds float32: seven digits bring back 1e-05 from 9.999999747378752e-06.
            rms_norm_eps=float(f"{self._required('llama.attention.layer_norm_rms_epsilon'):.7g}"),
            rope_theta=float(meta.get("llama.rope.freq_base", 10000.0)),
            tie_word_embeddings="output.weight" not in self._tensors,
            bos_token_id=None if bos is None else int(bos),
            eos_token_ids=self._eos_token_ids(),
            name=str(meta.get("general.name", self.path.stem)),
        )
        return replace(config, rope_scaling=self._rope_scaling(config))

    def _eos_token_ids(self) -> tuple[int, ...]:
        keys = ("eos_token_id", "eot_token_id", "eom_token_id")
        ids = [int(self.metadata[f"tokenizer.ggml.{key}"]) for key in keys if f"tokenizer.ggml.{key}" in self.metadata]
        if self.metadata.get("tokenizer.ggml.pre") in LLAMA3_NAMES:
            tokens = self.metadata.get("tokenizer.ggml.tokens", ())
            ids += [index for index, token in enumerate(tokens) if token in _LLAMA3_ENDS]
        return tuple(dict.fromkeys(ids))

    def _rope_scaling(self, config: LlamaConfig) -> RopeScaling:
        meta = self.metadata
        kind = meta.get("llama.rope.scaling.type", "linear")  # as llama.cpp, which scales by no factor if it is "none"
        factor = float(meta.get("llama.rope.scaling.factor", meta.get("llama.rope.scale_linear", 1.0)))
        if ROPE_FREQS in self._tensors:
            factors = np.array(self._tensors[ROPE_FREQS].data, dtype=np.float64).reshape(-1)
            original = int(meta.get("llama.rope.scaling.original_context_length", 8192))
            scaling = llama3_scaling_of(factors, config, original)
            if scaling is None:
                raise ModelLoadError(
                    f"{self.path}: the frequency factors in {ROPE_FREQS} are not llama3 RoPE scaling with "
                    f"low_freq_factor 1, high_freq_factor 4 and original context {original}"
                )
            return scaling
        if kind in ("none", "", "linear"):
            return RopeScaling() if factor == 1.0 or kind == "none" else RopeScaling("linear", factor=factor)
        raise ModelLoadError(f"{self.path}: RoPE scaling {kind!r} is not supported; supported: none, linear, llama3")

    def _map_names(self) -> dict[str, str]:
        import gguf

        layers = self.config.num_hidden_layers
        known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
        ours = {known.get_name(name, (".weight",)): name for name in tensor_shapes(self.config)}
        mapped: dict[str, str] = {}
        for name in self._tensors:
            if name in ours:
                mapped[ours[name]] = name
            elif name != ROPE_FREQS:
                raise ModelLoadError(f"{self.path}: unexpected tensor {name} in a llama GGUF of {layers} layers")
        # GGUF lists dimensions fastest first.
        shapes = {hf: tuple(int(n) for n in reversed(self._tensors[name].shape)) for hf, name in mapped.items()}
        check_shapes(self.config, shapes, str(self.path))
        return mapped


def half_split_rows(weight: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Put llama.cpp's interleaved rows of each head, [n_heads * head_dim, in], in Hugging Face's order.

    Row 2i of a head goes to i and row 2i + 1 to head_dim / 2 + i.
    """
    rows, columns = weight.shape
    pairs = weight.reshape(n_heads, rows // n_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns).contiguous()


def llama3_scaling_of(factors: np.ndarray, config: LlamaConfig, original: int) -> RopeScaling | None:
    """Return the llama3 RopeScaling by which `factors` [head_dim / 2] divide the frequencies of a config without any,
    or None if there is none with low_freq_factor 1 and high_freq_factor 4 (those of every released Llama 3.x)."""
    if factors.shape != (config.head_dim // 2,) or not np.isfinite(factors).all() or factors.max() < 1.0:
        return None
    if np.all(factors == 1.0):
        return RopeScaling()
    scaling = RopeScaling("llama3", float(f"{factors.max():.6g}"), 1.0, 4.0, original)
    scaled = inverse_frequencies(replace(config, rope_scaling=scaling))
    expected = (inverse_frequencies(config) / scaled).double()
    return scaling if torch.allclose(torch.from_numpy(factors), expected, rtol=1e-4, atol=0.0) else None


def _open(path: Path) -> Any:
    import gguf

    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            why = pointer(path) or "it does not begin with the letters GGUF"
            raise ModelLoadError(f"{path} is not a GGUF file: {why}")
        version = int.from_bytes(file.read(4), "little")
    if version and not version & 0xFFFF:
        raise ModelLoadError(f"{path}: a GGUF file in big-endian byte order; convert it to little-endian")
    supported = gguf.gguf_reader.READER_SUPPORTED_VERSIONS
    if version and version not in supported:
        raise ModelLoadError(f"{path}: GGUF version {version}; supported: {', '.join(map(str, supported))}")
    try:
        return gguf.GGUFReader(path)
    # The reader indexes a memory map without checks, so a short file ends in any of these.
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError, TypeError) as error:
        if unknown := re.search(r"(\S+) is not a valid GGMLQuantizationType", str(error)):
            raise ModelLoadError(
                f"{path}: tensors of type {unknown[1]}, which the gguf library does not know: a newer version may"
            ) from error
        raise ModelLoadError(f"{path} is a truncated or damaged GGUF file ({error})") from error
