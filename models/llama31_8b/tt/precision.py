# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Number formats of weights and KV cache (ALSpec paper, appendix F: mixed precision)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tt_kernels.common import circular_buffers

TILE_ELEMENTS = 1024
# By weight format, as the ops have them.
FIDELITY = {dtype.lower(): fidelity for dtype, fidelity in circular_buffers.FIDELITY.items()}
TILE_BYTES = {dtype: circular_buffers.TILE_BYTES[dtype.upper()] for dtype in FIDELITY}
_LAYER_NUMBER = re.compile("0|[1-9][0-9]{0,5}")


class PrecisionError(ValueError):
    """A precision config that does not exist or is malformed; the message names the entry."""


def bytes_of(elements: int, dtype: str) -> int:
    """Return the bytes of so many numbers in whole tiles."""
    return -(-elements // TILE_ELEMENTS) * TILE_BYTES[dtype]


@dataclass(frozen=True)
class LayerPrecision:
    """Formats of a layer's matrices: fused query/key/value, output, gate (ff1), up (ff3) and down (ff2)."""

    qkv: str = "bfloat8_b"
    wo: str = "bfloat8_b"
    ff1: str = "bfloat8_b"
    ff3: str = "bfloat8_b"
    ff2: str = "bfloat8_b"


@dataclass(frozen=True)
class PrecisionConfig:
    """layer: formats of every decoder layer that `layers` does not name. Activations, norms and the embedding are
    bfloat16."""

    name: str
    layer: LayerPrecision = LayerPrecision()
    layers: Mapping[int, LayerPrecision] = field(default_factory=dict)
    lm_head: str = "bfloat8_b"
    kv_cache: str = "bfloat8_b"

    def of_layer(self, index: int) -> LayerPrecision:
        return self.layers.get(index, self.layer)

    def weight_formats(self, num_layers: int) -> set[str]:
        """Return every format of a matrix of the layers or the LM head."""
        return {self.lm_head}.union(*(vars(self.of_layer(index)).values() for index in range(num_layers)))


PRECISIONS = ("performance", "accuracy", "bfloat16")


def precision_config(name: str, num_layers: int, overrides: str | Path | None = None) -> PrecisionConfig:
    """Return a preset for a model of `num_layers`, changed by a JSON file of `overrides`.

    performance: gate and up in bfloat4_b except in the last layer, the rest in bfloat8_b. accuracy: all bfloat8_b.
    bfloat16: all bfloat16, the cache too. Raises PrecisionError, also for a file that cannot be read.

    The file: {"layers": {"31": {"ff1": "bfloat8_b"}}, "layer": {"ff2": "bfloat4_b"}, "lm_head": ..., "kv_cache": ...}.
    """
    if name not in PRECISIONS:
        raise PrecisionError(f"no precision {name!r}; precisions: {', '.join(PRECISIONS)}")
    if name == "performance":
        four_bit = LayerPrecision(ff1="bfloat4_b", ff3="bfloat4_b")
        precision = PrecisionConfig(name, four_bit, {num_layers - 1: LayerPrecision()})
    elif name == "accuracy":
        precision = PrecisionConfig(name)
    else:
        precision = PrecisionConfig(name, LayerPrecision(*["bfloat16"] * 5), lm_head="bfloat16", kv_cache="bfloat16")
    return precision if overrides is None else _overridden(precision, Path(overrides), num_layers)


def _overridden(precision: PrecisionConfig, path: Path, num_layers: int) -> PrecisionConfig:
    data = _read(path)
    if not isinstance(data, dict):
        raise PrecisionError(f"{path} must hold an object, it holds a {type(data).__name__}")
    if unknown := sorted(set(data) - {"layer", "layers", "lm_head", "kv_cache"}):
        raise PrecisionError(f"{path}: unknown entry {unknown[0]!r}; entries: layer, layers, lm_head, kv_cache")
    whole = {key: _dtype(path, key, data[key]) for key in ("lm_head", "kv_cache") if key in data}
    common = _layer(path, "layer", precision.layer, data.get("layer", {}))
    layers = {index: _layer(path, "layer", own, data.get("layer", {})) for index, own in precision.layers.items()}
    chosen = data.get("layers", {})
    if not isinstance(chosen, dict):
        raise PrecisionError(f"{path}: layers must be an object of layer numbers, it is a {type(chosen).__name__}")
    for text, change in chosen.items():
        # One spelling per layer: with "1" and "01" in a file, which would count?
        if not _LAYER_NUMBER.fullmatch(text) or int(text) >= num_layers:
            raise PrecisionError(
                f"{path}: layers names {text[:20]!r}; the model has layers 0 to {num_layers - 1}, "
                "written without leading zeros"
            )
        layers[int(text)] = _layer(path, f"layers.{text}", layers.get(int(text), common), change)
    return replace(precision, name=f"{precision.name}+{path.stem}", layer=common, layers=layers, **whole)


def _read(path: Path) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise PrecisionError(f"{path}: an object names {twice!r} twice")
        return dict(pairs)

    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)
    except PrecisionError:
        raise
    except OSError as error:
        raise PrecisionError(f"cannot read the precision overrides {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PrecisionError(f"{path} is not UTF-8 text: {error}") from error
    except (ValueError, RecursionError) as error:  # also numbers and nesting beyond Python's limits
        raise PrecisionError(f"{path} is not valid JSON: {error}") from error


def _layer(path: Path, where: str, base: LayerPrecision, change: Any) -> LayerPrecision:
    names = [f.name for f in fields(LayerPrecision)]
    if not isinstance(change, dict):
        raise PrecisionError(f"{path}: {where} must be an object, it is a {type(change).__name__}")
    if unknown := sorted(set(change) - set(names)):
        raise PrecisionError(f"{path}: {where} has no matrix {unknown[0]!r}; matrices: {', '.join(names)}")
    return replace(base, **{key: _dtype(path, f"{where}.{key}", value) for key, value in change.items()})


def _dtype(path: Path, where: str, value: Any) -> str:
    if not isinstance(value, str) or value not in TILE_BYTES:
        raise PrecisionError(f"{path}: {where} is {value!r}; formats: {', '.join(TILE_BYTES)}")
    return value
