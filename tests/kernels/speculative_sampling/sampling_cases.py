# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of the speculative sampling tests that run in a worker with a device, and random cases for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Batch:
    """Users of one call. tokens, parents, words [users, nodes] int64; target, draft [users, nodes, vocab] bfloat16;
    uniforms: float64 of which `words` are the whole numbers."""

    tokens: torch.Tensor
    parents: torch.Tensor
    target: torch.Tensor
    draft: torch.Tensor | None
    words: torch.Tensor

    @property
    def uniforms(self) -> torch.Tensor:
        return self.words.double() / 2.0**32


def upload(device, values: torch.Tensor, dtype: str, layout: str = "ROW_MAJOR_LAYOUT"):
    import ttnn

    if dtype != "bfloat16":  # torch knows no unsigned words here: the same bits
        values = (values & 0xFFFFFFFF).to(torch.uint32) if dtype == "uint32" else values.to(torch.int32)
    return ttnn.from_torch(values, dtype=getattr(ttnn, dtype), layout=getattr(ttnn, layout), device=device)


def sampling_body(device, batches, options: dict, layout: str = "ROW_MAJOR_LAYOUT", grid=(1, 1)):
    """Of each batch the rows of outcomes."""
    import ttnn

    from tt_kernels.speculative_sampling.op import speculative_sampling

    found = []
    for batch in batches:
        verified = speculative_sampling(
            upload(device, batch.tokens, "uint32"),
            upload(device, batch.parents, "int32"),
            upload(device, batch.target, "bfloat16", layout),
            None if batch.draft is None else upload(device, batch.draft, "bfloat16", layout),
            upload(device, batch.words, "uint32"),
            grid=grid,
            **options,
        )
        found.append(ttnn.to_torch(verified.outcome).to(torch.int64))
    return found
