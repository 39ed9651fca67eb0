# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's weights on their way to the chips: read, laid out for the mesh, converted once, cached on disk."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from filelock import FileLock
from tqdm import tqdm

from runtime_patches.board.runtime_root import project_cache_dir

from ..checkpoint.cache import make_cache_folder, unwritable
from ..checkpoint.load import load_state_dict, read_config, resolve_source
from ..checkpoint.tensor_shapes import EMBEDDING, LM_HEAD, check_shapes
from ..config import LlamaConfig
from .layer_parallel import Stage
from .mesh import MeshShape
from .precision import PrecisionConfig
from .settings import ModelSettings
from .sharding import hidden_shards

if TYPE_CHECKING:
    import ttnn


class WeightMap:
    """Host matrices, made on demand, each [inputs, outputs] in the checkpoint's dtype. state: Hugging Face names; q and
    k rows in its half-split RoPE order. Raises ModelLoadError naming the missing, misshapen or unexpected tensor."""

    def __init__(self, config: LlamaConfig, state: Mapping[str, torch.Tensor], mesh: MeshShape) -> None:
        mesh.check_model(config)
        check_shapes(config, {name: tuple(tensor.shape) for name, tensor in state.items()}, config.name)
        self.config, self.state, self.mesh = config, state, mesh
        self.gate_block = hidden_shards(config, mesh).columns

    def embedding(self) -> torch.Tensor:
        """Return [vocab, hidden]; columns are split over the chips."""
        return self.state[EMBEDDING]

    def lm_head(self, start: int, columns: int) -> torch.Tensor:
        """Return [hidden, tp * columns]: `columns` columns from `start` of every chip's part of the vocabulary; columns
        are split again. The vocabulary is padded with zeros to whole tiles on every chip."""
        head = self.state[EMBEDDING if self.config.tie_word_embeddings else LM_HEAD]
        head = F.pad(head, (0, 0, 0, self.mesh.padded_vocab(self.config) - len(head)))
        return head.view(self.mesh.tp, -1, head.shape[1])[:, start : start + columns].flatten(0, 1).t()

    def final_norm(self) -> torch.Tensor:
        return self.state["model.norm.weight"]

    def norm(self, layer: int, which: str) -> torch.Tensor:
        """Return [hidden]. which: attention or mlp."""
        name = {"attention": "input_layernorm", "mlp": "post_attention_layernorm"}[which]
        return self.state[f"model.layers.{layer}.{name}.weight"]

    def qkv(self, layer: int) -> torch.Tensor:
        """Return [hidden, (heads + 2 kv heads) * head_dim]: chip by chip its query, key and value columns."""
        return joined(self._qkv_rows(layer, self.mesh.tp)).t()

    def _qkv_rows(self, layer: int, chips: int) -> list[torch.Tensor]:
        """Return, for each of `chips` that share a layer's heads, its query, key and value rows, [outputs, hidden]."""
        config = self.config
        parts = {name: self.state[f"model.layers.{layer}.self_attn.{name}_proj.weight"] for name in "qkv"}
        parts["q"] = adjacent_pairs(parts["q"], config.num_attention_heads)
        parts["k"] = adjacent_pairs(parts["k"], config.num_key_value_heads)
        return [joined(rows) for rows in zip(*(part.chunk(chips) for part in parts.values()), strict=True)]

    def wo(self, layer: int) -> torch.Tensor:
        """Return [heads * head_dim, hidden]; rows are split."""
        return self.state[f"model.layers.{layer}.self_attn.o_proj.weight"].t()

    def own_qkv(self, stage: Stage) -> torch.Tensor:
        """Return [hidden, tp * columns]: chip by chip the query, key and value columns of its own layer, or of its part
        of one; zeros for a chip that idles. Columns are split."""
        return joined(self._own(stage, lambda layer: self._qkv_rows(layer, stage.share))).t()

    def own_wo(self, stage: Stage) -> torch.Tensor:
        """Return [tp * heads * head_dim / share, hidden] likewise; rows are split."""
        return joined(self._own(stage, lambda layer: self.wo(layer).chunk(stage.share)))

    def own_norms(self, stage: Stage) -> torch.Tensor:
        """Return [tp * hidden]: chip by chip the attention norm of its own layer."""
        return joined(self._own(stage, lambda layer: [self.norm(layer, "attention")] * stage.share))

    def _own(self, stage: Stage, parts: Callable[[int], Sequence[torch.Tensor]]) -> list[torch.Tensor]:
        """Return each chip's part of what `parts` splits over the chips of a layer."""
        by_layer = {layer: parts(layer) for layer in stage.layers}
        idle = torch.zeros_like(by_layer[stage.layers[0]][0])
        places = [stage.place(chip) for chip in range(stage.chips)]
        return [idle if place is None else by_layer[place[0]][place[1]] for place in places]

    def gate_up(self, layer: int) -> torch.Tensor:
        """Return [hidden, 2 * intermediate]: `gate_block` columns of the gate, the same of the up projection, and so
        on; columns are split."""
        parts = (self.state[f"model.layers.{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up"))
        pairs = zip(*(part.split(self.gate_block) for part in parts), strict=True)
        return joined([rows for pair in pairs for rows in pair]).t()

    def down(self, layer: int) -> torch.Tensor:
        """Return the down projection, [intermediate, hidden]; rows are split."""
        return self.state[f"model.layers.{layer}.mlp.down_proj.weight"].t()


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenate rows. For meta tensors (blank models) torch.cat would take a second: it imports torch's compiler."""
    if parts[0].is_meta:
        return parts[0].new_empty((sum(map(len, parts)), *parts[0].shape[1:]))
    return torch.cat(tuple(parts))


def adjacent_pairs(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder [heads * head_dim, inputs] so that dimension i of a head is next to i + head_dim / 2, its partner in
    RoPE.

    Hugging Face keeps the pair half a head apart; the chip's rotary op takes neighbours. Attention scores do not change
    if queries and keys are permuted alike.
    """
    rows, inputs = weight.shape
    return weight.view(heads, 2, rows // heads // 2, inputs).transpose(1, 2).reshape(rows, inputs)


# Part of every key: increase it when the layout of a converted tensor changes.
LAYOUT_VERSION = 4
Item = TypeVar("Item")
_SHOWN_NAME = 40  # characters of a model's or precision's name in a folder's


def progress(items: Iterable[Item], what: str, unit: str, total: int | None = None) -> Iterable[Item]:
    """Show on a terminal how many of `items` were taken."""
    terminal = sys.stderr.isatty()
    return tqdm(items, what, total, unit=unit, leave=False, file=sys.stderr, disable=not terminal)


def state_fingerprint(state: Mapping[str, torch.Tensor]) -> str:
    """Return a SHA-256 of every tensor's name, shape, dtype and bytes; shows a progress bar on a terminal. Tensors are
    hashed in parallel, one thread per core: hashlib releases the GIL."""

    def of(name: str) -> bytes:
        tensor = state[name].detach()
        digest = hashlib.sha256(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()))
        return digest.digest()

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        digests = progress(pool.map(of, sorted(state)), "checking weights", "tensor", len(state))
        return hashlib.sha256(b"".join(digests)).hexdigest()


def entry_folder(
    config: LlamaConfig, state: Mapping[str, torch.Tensor], mesh_shape: MeshShape, precision: PrecisionConfig
) -> Path:
    """Return the folder of the converted weights of this model, mesh shape, precision config and ttnn version. Reads
    all of `state`; every field of `config` counts."""
    made_from = {
        "config": asdict(config),
        "weights": state_fingerprint(state),
        "mesh": str(mesh_shape),
        "precision": asdict(precision),
        "ttnn": importlib.metadata.version("ttnn"),
        "layout": LAYOUT_VERSION,
    }
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:32]
    shown = [re.sub(r"[^A-Za-z0-9.+]+", "-", name)[:_SHOWN_NAME] for name in (config.name, precision.name)]
    return project_cache_dir() / "tt_weights" / "-".join([*shown, str(mesh_shape), digest])


class WeightCache:
    """One entry's folder, which several processes may use at once: files appear whole, by renaming, and one process
    writes at a time."""

    def __init__(self, folder: Path) -> None:
        """Make the folder. Raises OSError."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / "entry.lock")

    def find(self, name: str) -> Path | None:
        path = self.folder / f"{name}.tensorbin"
        return path if path.is_file() else None

    def save(self, name: str, write: Callable[[Path], None]) -> None:
        """Keep what `write` writes to the path it is given; waits for other processes that save. Raises ModelLoadError
        if the disk is full."""
        # Under the lock one partial file of a name is enough, and what a killed process left is overwritten.
        with self._lock:
            partial = self.folder / f"{name}.partial.tensorbin"
            try:
                write(partial)
                os.replace(partial, self.folder / f"{name}.tensorbin")
            except RuntimeError as error:  # ttnn's; its reason follows "info:"
                why = " ".join(str(error).rpartition("info:")[2].split("backtrace:")[0].split())
                raise unwritable(self.folder, why) from error
            finally:
                partial.unlink(missing_ok=True)


class WeightStore:
    """Put host matrices on the mesh. folder: the cache entry, whose name stands for mesh and formats; None for no
    cache."""

    def __init__(self, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, folder: Path | None = None) -> None:
        self.mesh, self.mesh_shape = mesh, mesh_shape
        self.cache = None if folder is None else WeightCache(folder)
        self.converted, self.reused = 0, 0

    def put(
        self,
        name: str,
        make: Callable[[], torch.Tensor],
        dtype: str,
        split: int | None,
        layout: str = "TILE_LAYOUT",
        memory: ttnn.MemoryConfig | None = None,
    ) -> ttnn.Tensor:
        """Put `make`'s tensor in DRAM as [1, 1, rows, columns] (ROW_MAJOR: [rows, columns]).

        split: the dimension, -1 or -2, that a TP group shares; None for a copy on each chip. memory: of a chip's part,
        None for interleaved; one cached file serves all.
        """
        import ttnn

        if self.cache is not None and (cached := self.cache.find(name)) is not None:
            self.reused += 1
            if memory is None:
                return ttnn.load_tensor(str(cached), device=self.mesh)
            return ttnn.to_device(ttnn.load_tensor(str(cached)), self.mesh, memory_config=memory)
        host = self._convert(make(), dtype, split, layout)
        self.converted += 1
        if self.cache is not None:
            self.cache.save(name, lambda path: ttnn.dump_tensor(str(path), host))
        return ttnn.to_device(host, self.mesh, memory_config=memory or ttnn.DRAM_MEMORY_CONFIG)

    def _convert(self, tensor: torch.Tensor, dtype: str, split: int | None, layout: str) -> ttnn.Tensor:
        if layout == "TILE_LAYOUT":
            tensor = tensor.reshape((1,) * (4 - tensor.ndim) + tuple(tensor.shape))
        dim = None if split is None else tensor.ndim + split
        values = tensor if dtype == "bfloat16" else tensor.float()
        return self.mesh_shape.put(self.mesh, values, dtype, layout, dim, on_device=False)


class HostWeights(NamedTuple):
    """state: a model's tensors by Hugging Face name. entry: the cache folder of these tensors converted for one mesh
    shape and precision (see `entry_folder`), None to convert them each time."""

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
