# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Number formats of weights and KV cache (ALSpec paper, appendix F: mixed precision)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tt_kernels.common import circular_buffers

TILE_ELEMENTS = 1024
# By weight format, as the ops have them.
FIDELITY = {dtype.lower(): fidelity for dtype, fidelity in circular_buffers.FIDELITY.items()}
TILE_BYTES = {dtype: circular_buffers.TILE_BYTES[dtype.upper()] for dtype in FIDELITY}


def float32_sums(dtype: str) -> bool:
    """Say whether products by weights of this format are added up in float32, which takes twice the registers."""
    return dtype == "bfloat16"


class PrecisionError(ValueError):
    """A precision config that does not exist; the message names it."""


def bytes_of(elements: int, dtype: str) -> int:
    """Return the bytes of so many numbers in whole tiles."""
    return -(-elements // TILE_ELEMENTS) * TILE_BYTES[dtype]


@dataclass(frozen=True)
class LayerPrecision:
    """Formats of a layer's matrices: fused query/key/value, output, fused gate and up, and down."""

    qkv: str = "bfloat8_b"
    wo: str = "bfloat8_b"
    gate_up: str = "bfloat8_b"
    down: str = "bfloat8_b"


@dataclass(frozen=True)
class PrecisionConfig:
    """layer: formats of every decoder layer that `layers` does not name. long_rows: of a prefill's rows, where they are
    many, from chip to chip of a TP group and on the way to the down projection. Other activations, norms and the
    embedding are bfloat16."""

    name: str
    layer: LayerPrecision = LayerPrecision()
    layers: Mapping[int, LayerPrecision] = field(default_factory=dict)
    lm_head: str = "bfloat8_b"
    kv_cache: str = "bfloat8_b"
    long_rows: str = "bfloat16"

    def of_layer(self, index: int) -> LayerPrecision:
        return self.layers.get(index, self.layer)


PRECISIONS = ("performance", "accuracy", "bfloat16")


def precision_config(name: str, num_layers: int) -> PrecisionConfig:
    """Return a preset for a model of `num_layers`.

    performance: gate and up in bfloat4_b except in the last layer, the rest in bfloat8_b, long rows too.
    accuracy: all weights bfloat8_b. bfloat16: all bfloat16, the cache too. Raises PrecisionError.
    """
    if name not in PRECISIONS:
        raise PrecisionError(f"no precision {name!r}; precisions: {', '.join(PRECISIONS)}")
    if name == "performance":
        four_bit = LayerPrecision(gate_up="bfloat4_b")
        last = {num_layers - 1: LayerPrecision()}
        return PrecisionConfig(name, four_bit, last, long_rows="bfloat8_b")
    if name == "accuracy":
        return PrecisionConfig(name)
    return PrecisionConfig(name, LayerPrecision(*["bfloat16"] * 4), lm_head="bfloat16", kv_cache="bfloat16")
