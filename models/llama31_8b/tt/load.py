# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's tensors on the host, ready for TtLlama to put on a mesh. Needs no device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from ..checkpoint.gguf.conversion_cache import make_cache_folder
from ..checkpoint.load import load_state_dict, read_config, resolve_source
from ..config import LlamaConfig
from .parallel.mesh import MeshShape
from .settings import ModelSettings
from .weights.cache import entry_folder


class HostWeights(NamedTuple):
    """state: a model's tensors by Hugging Face name. entry: the cache folder of these tensors converted for one mesh
    shape and precision (weights/cache.py), None to convert them each time."""

    config: LlamaConfig
    state: Mapping[str, torch.Tensor]
    entry: Path | None = None

    @classmethod
    def load(
        cls, source: str | Path | None, mesh_shape: MeshShape, settings: ModelSettings, layers: int | None = None
    ) -> HostWeights:
        """Read a checkpoint. source: a Hugging Face folder, a hub id, a .gguf file, or None for the default model.
        layers: only the first ones. Raises what `resolve_source` and `read` raise."""
        folder, shown = resolve_source(source)
        return cls.read(folder, read_config(folder, name=Path(shown).name), mesh_shape, settings, layers)

    @classmethod
    def read(
        cls,
        folder: Path,
        config: LlamaConfig,
        mesh_shape: MeshShape,
        settings: ModelSettings,
        layers: int | None = None,
    ) -> HostWeights:
        """Read a Hugging Face folder. config: the whole checkpoint's. Raises ModelLoadError, FileNotFoundError,
        OSError, and what `ModelSettings.check` raises, before weights are read."""
        kept = config if layers is None else config.with_layers(layers)
        settings.check(kept, mesh_shape)
        return cls.cached(kept, load_state_dict(folder, config, layers=layers), mesh_shape, settings)

    @classmethod
    def cached(
        cls, config: LlamaConfig, state: Mapping[str, torch.Tensor], mesh_shape: MeshShape, settings: ModelSettings
    ) -> HostWeights:
        """Find the cache entry of these tensors, which hashes all of them, and make its folder. Raises OSError."""
        entry = entry_folder(config, state, mesh_shape, settings.formats(config))
        make_cache_folder(entry)
        return cls(config, state, entry)
