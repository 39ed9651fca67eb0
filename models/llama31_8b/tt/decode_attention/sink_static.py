# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The sink and static policies: decode attention that takes the guess on fixed layers and verifies nothing (ALSpec
paper, section 2; baselines of speculation)."""

from __future__ import annotations

from collections.abc import Iterable

import ttnn

from tt_kernels.speculative_flash_decode.op import ProgramConfig, guess_flash_decode

from ...config import LlamaConfig
from .base import DecodeAttention


class GuessAttention(DecodeAttention):
    """Take the guess on `layers` and `exact` attention on the others.

    layers: None for all (sink), else those of the static policy. chunk_size: tokens of the guess at either end, a
    multiple of 32. Every chip runs on its own, so any mesh will do; only the guess's tokens are read. Raises ValueError
    for a layer that the model lacks.
    """

    def __init__(
        self,
        config: LlamaConfig,
        chunk_size: int,
        exact: DecodeAttention,
        layers: Iterable[int] | None = None,
        program: ProgramConfig | None = None,
    ) -> None:
        self.chunk_size, self.exact, self.program = chunk_size, exact, program
        count = config.num_hidden_layers
        self.layers = frozenset(range(count)) if layers is None else frozenset(layers)
        if beyond := sorted(layer for layer in self.layers if not 0 <= layer < count):
            raise ValueError(f"static attention names layers {beyond} of a model with {count} layers")
        self._scale = config.head_dim**-0.5

    def __call__(
        self,
        layer: int,
        q: ttnn.Tensor,
        keys: ttnn.Tensor,
        values: ttnn.Tensor,
        positions: ttnn.Tensor,
        page_table: ttnn.Tensor | None = None,
    ) -> ttnn.Tensor:
        if layer not in self.layers:
            return self.exact(layer, q, keys, values, positions, page_table)
        return guess_flash_decode(
            q,
            keys,
            values,
            positions,
            chunk_size=self.chunk_size,
            page_table=page_table,
            scale=self._scale,
            program_config=self.program,
        )
