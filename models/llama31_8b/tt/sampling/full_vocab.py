# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Sample on the chips from the whole vocabulary, by temperature alone.

The draw is verification without a draft (tt_kernels/speculative_sampling): one op, on every chip from all logits. Only
a number within 2^-19 of the border between two tokens may choose the other one. Temperatures are clamped to the op's
limits, 1e-4 to 1e4.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import ttnn

from tt_kernels.speculative_sampling.checks import nearest_temperature
from tt_kernels.speculative_sampling.op import speculative_sampling, uniform_words
from tt_kernels.speculative_sampling.program import BONUS

from ...generation.sampling import SamplingParams
from ..layouts import gather
from ..mesh import MeshShape


class FullVocabSampler:
    """Sample a token for each row of logits by `params`' temperature, the same on every chip."""

    def __init__(self, mesh: ttnn.MeshDevice, mesh_shape: MeshShape, params: SamplingParams) -> None:
        self.mesh, self.mesh_shape = mesh, mesh_shape
        self.temperature = nearest_temperature(params.temperature)
        self._roots: dict[int, tuple[ttnn.Tensor, ttnn.Tensor]] = {}  # by rows: trees of one decided token

    def uniforms(self, values: Sequence[float], on_device: bool = True) -> ttnn.Tensor:
        """Make a call's random numbers, one in [0, 1) per row, rounded down to 32 bits: uint32 [rows, 1], ROW_MAJOR."""
        words = uniform_words(torch.tensor(list(values), dtype=torch.float64))[:, None]
        return self._integers(words, "uint32", on_device)

    def __call__(self, logits: ttnn.Tensor, uniforms: ttnn.Tensor) -> ttnn.Tensor:
        """logits: bfloat16 [1, 1, rows, columns] of a chip, its padding below all others. uniforms: see `uniforms`.
        Returns uint32 [1, rows], ROW_MAJOR."""
        by_row = ttnn.to_layout(gather(logits, self.mesh_shape), ttnn.ROW_MAJOR_LAYOUT)
        rows, columns = by_row.shape[2], by_row.shape[3]
        if rows not in self._roots:
            blank = torch.zeros(rows, 1, dtype=torch.int64)
            self._roots[rows] = self._integers(blank, "uint32"), self._integers(blank - 1, "int32")
        drawn = speculative_sampling(
            *self._roots[rows],
            ttnn.reshape(by_row, (rows, 1, columns)),
            None,
            uniforms,
            temperature=self.temperature,
        )
        ids = ttnn.slice(drawn.result, [0, BONUS], [rows, BONUS + 1])
        return ttnn.bitcast(ttnn.reshape(ids, (1, rows)), ttnn.uint32)

    def _integers(self, values: torch.Tensor, dtype: str, on_device: bool = True) -> ttnn.Tensor:
        values = values.to(getattr(torch, dtype))
        return self.mesh_shape.put(self.mesh, values, dtype, "ROW_MAJOR_LAYOUT", on_device=on_device)
