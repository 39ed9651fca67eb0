# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Load a transformers model and tokenizer of any source that ../checkpoint knows, with attention-level speculation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..checkpoint.load import resolve_source
from .speculation import ATTENTION_NAME, AttentionSpeculation


class LoadedTransformers(NamedTuple):
    """Hold a model in eval mode, with `speculation` attached. name: the source's, for results."""

    model: Any
    tokenizer: Any
    speculation: AttentionSpeculation
    name: str


def load_transformers(
    source: str | Path | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    speculation: AttentionSpeculation | None = None,
) -> LoadedTransformers:
    """Load a Hugging Face folder or hub id, a .gguf file, or None for SmolLM2-135M-Instruct.

    device: "auto" spreads the layers over all GPUs, for which accelerate is needed. speculation: its settings and
    counters, by default new ones. Raises as resolve_source and transformers do.
    """
    folder, shown = resolve_source(source)
    spread = {"device_map": "auto"} if device == "auto" else {}
    model = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation=ATTENTION_NAME, dtype=dtype, **spread
    ).eval()
    if not spread:
        model = model.to(device)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chosen = (AttentionSpeculation() if speculation is None else speculation).attach(model)
    name = Path(shown).stem if shown.endswith(".gguf") else Path(shown).name
    return LoadedTransformers(model, tokenizer, chosen, name)
