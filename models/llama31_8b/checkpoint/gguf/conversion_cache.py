# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""GGUF files converted once into Hugging Face folders in the user's cache.

An entry appears whole or not at all: it is written beside its final place and renamed. It carries a manifest
of its files' sizes, and digests of the small ones; an entry that does not match is rebuilt.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from loguru import logger
from safetensors.torch import save_file
from tqdm import tqdm

from runtime_patches.board.runtime_root import project_cache_dir

from ..errors import ModelLoadError
from .loader import GgufModel
from .tokenizer import build_tokenizer

# Part of every key: raise it when the converted files change.
CONVERTER_VERSION = 2
_MANIFEST = "conversion.json"
_SHARD_BYTES = 2 * 1024**3
_SAMPLE_BYTES = 1024 * 1024
_DIGEST_LIMIT = 64 * 1024 * 1024


def make_cache_folder(folder: Path) -> None:
    """Make a folder of the cache. Raises ModelLoadError with the remedy when it cannot be made or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = None if os.access(folder, os.W_OK) else "it cannot be written"
    except OSError as error:
        why = error.strerror
    if why:
        raise ModelLoadError(f"the cache {folder}: {why}; LLAMA_ALSPEC_CACHE names another place")


def converted_folder(gguf_path: str | Path, verify_source: Callable[[Path], None] | None = None) -> Path:
    """Return the Hugging Face folder of a GGUF file (config, tokenizer, safetensors), converted if need be.

    `verify_source` is called with the file before a conversion, to refuse a wrong one. Progress goes to
    standard error. A second process that wants the same file waits for the first.

    Raises what `GgufModel` raises, and ModelLoadError when the disk is too small for the result.
    """
    path = Path(gguf_path).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"no GGUF file {gguf_path}")
    entry = project_cache_dir() / "gguf" / f"{path.stem}-{_key(path)}"
    if _is_whole(entry):
        return entry
    make_cache_folder(entry.parent)
    with _locked(entry.with_name(entry.name + ".lock")):
        if _is_whole(entry):
            return entry
        if entry.exists():
            logger.warning("{} is damaged: converting {} again", entry, path.name)
            shutil.rmtree(entry)
        if verify_source:
            verify_source(path)
        partial = entry.with_name(entry.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            _convert(path, partial)
            partial.rename(entry)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return entry


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock, and remove its file at the end, whether or not the work inside succeeded."""
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                held = path.stat().st_ino == os.fstat(file.fileno()).st_ino
            except FileNotFoundError:
                held = False
            if not held:
                continue  # who held it before has removed it: others may lock another file of that name
            try:
                yield
            finally:
                path.unlink()
            return


def _key(path: Path) -> str:
    """Return 16 hex digits of version, size, time, first and last megabyte: cheap for files of any size."""
    stat = path.stat()
    digest = hashlib.sha256(f"{CONVERTER_VERSION} {stat.st_size} {stat.st_mtime_ns}".encode())
    with path.open("rb") as file:
        digest.update(file.read(_SAMPLE_BYTES))
        file.seek(max(0, stat.st_size - _SAMPLE_BYTES))
        digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]


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
    files = sorted(file for file in folder.iterdir())
    manifest = {
        "converter_version": CONVERTER_VERSION,
        "source": path.name,
        "files": {file.name: {"bytes": file.stat().st_size, "sha256": _small_digest(file)} for file in files},
    }
    _write_json(folder / _MANIFEST, manifest)


def _write_shards(source: GgufModel, folder: Path) -> None:
    shards: list[list[str]] = []
    pending: dict[str, torch.Tensor] = {}
    size = 0

    def flush() -> None:
        nonlocal pending, size
        if pending:
            save_file(pending, folder / f"shard-{len(shards)}.safetensors", metadata={"format": "pt"})
            shards.append(list(pending))
            pending, size = {}, 0

    bar = tqdm(
        source.tensors(),
        total=len(source.names),
        desc=f"dequantise {source.path.name}",
        unit="tensor",
        file=sys.stderr,
    )
    for name, tensor in bar:
        if size + tensor.nbytes > _SHARD_BYTES:
            flush()
        pending[name] = tensor
        size += tensor.nbytes
    flush()
    if len(shards) == 1:
        (folder / "shard-0.safetensors").rename(folder / "model.safetensors")
        return
    weight_map = {}
    for number, names in enumerate(shards):
        final = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (folder / f"shard-{number}.safetensors").rename(folder / final)
        weight_map.update({name: final for name in names})
    total = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})


def _is_whole(entry: Path) -> bool:
    try:
        manifest = json.loads((entry / _MANIFEST).read_text(encoding="utf-8"))
        files = manifest["files"].items()
        return all(
            (entry / name).stat().st_size == facts["bytes"] and _small_digest(entry / name) == facts["sha256"]
            for name, facts in files
        )
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _small_digest(file: Path) -> str | None:
    """Return the SHA-256 of a file of up to 64 MiB; larger ones are compared by size only, to keep start-up fast."""
    if file.stat().st_size > _DIGEST_LIMIT:
        return None
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
