# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Hold the settings and counters of attention-level speculation in a transformers model (ALSpec paper, section 3.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn
from transformers import PreTrainedModel

from ..reference.alspec.acceptance import check_threshold
from ..reference.model.step import GuessRange, check_positive
from ..results import AttentionStatistics
from .budget import RowBudgets

ATTENTION_NAME = "alspec"


class UnsupportedAttentionError(ValueError):
    """The model, cache or mask has a feature that the guess does not know; the message names it and its value."""


class AttentionSpeculation(AttentionStatistics):
    """Hold the settings of the attention function "alspec", and counts of what it decided.

    threshold: lambda of section 3.2; 0 takes no guess, infinity every one. chunk_size: S, keys that the guess reads at
    either end, or a GuessRange that says which it reads. budget: beside one tile of first keys and the last S, each
    key/value head reads the tiles of 32 keys that held this part of the attention weight in earlier steps, such as
    0.98; None for the ends alone.
    step_tokens: steps of 2 to this many query tokens after cached ones are decode steps too, such as the checks of
    assisted generation; longer ones are prefill, which is exact. keep_decisions: also keep every decision, a byte per
    layer, row and token, for `decisions`.

    Counts are kept on each layer's device and read by the properties below alone: a decode step never waits for the
    host. A count is one (layer, row, query token); rows are those of the batch at that step. What generate() writes
    after a row's end is counted too, and so are drafts that assisted generation refuses. A copy, which a model's copy
    makes, has the settings and counts from 0.

    Raises ValueError for settings out of range.
    """

    def __init__(
        self,
        threshold: float = 0.10,
        chunk_size: int | GuessRange = 128,
        *,
        budget: float | None = None,
        step_tokens: int = 32,
        keep_decisions: bool = False,
    ) -> None:
        self.threshold = check_threshold(threshold)
        if budget is None:
            self.guess_range = GuessRange.of(chunk_size)
        elif isinstance(chunk_size, GuessRange):
            raise ValueError(f"budget {budget} beside {chunk_size}, which has its own")
        else:
            self.guess_range = GuessRange.by_budget(chunk_size, budget)
        check_positive("step_tokens", step_tokens)
        self.step_tokens, self.keep_decisions = step_tokens, keep_decisions
        self.scores_texts = False
        self.by_budget = None if self.guess_range.budget is None else RowBudgets(self.guess_range)
        self.last_unmasked = 0  # keys of the last step without a mask, for the check against static caches
        # Of each layer, on its device: hits, misses and bypassed queries, int64 [rows, 3], and on request (accepted,
        # verified), bool [rows, tokens] each, of every step.
        self._totals: dict[int, torch.Tensor] = {}
        self._steps: defaultdict[int, list[tuple[torch.Tensor, torch.Tensor]]] = defaultdict(list)

    def __repr__(self) -> str:
        return f"AttentionSpeculation(threshold={self.threshold:g}, {self.guess_range})"

    def __reduce__(self) -> tuple[Callable[..., AttentionSpeculation], tuple[object, ...]]:
        make = partial(AttentionSpeculation, step_tokens=self.step_tokens, keep_decisions=self.keep_decisions)
        return make, (self.threshold, self.guess_range)

    def attach(self, model: nn.Module) -> AttentionSpeculation:
        """Use these settings and counters for all attention of `model`, in place of any attached before. The model may
        be wrapped, by PEFT, DDP or torch.compile for example.

        Raises UnsupportedAttentionError for a model that was not loaded with attn_implementation="alspec", or one with
        a feature the guess does not know.
        """
        config = unwrapped(model).config
        check_config(config)
        implementation = config._attn_implementation
        if implementation != ATTENTION_NAME:
            raise UnsupportedAttentionError(
                f"{type(model).__name__} has attn_implementation={implementation!r}: load it with "
                f"attn_implementation={ATTENTION_NAME!r}, or call model.set_attn_implementation({ATTENTION_NAME!r})"
            )
        modules = [module for module in model.modules() if getattr(module, "layer_idx", None) is not None]
        if not modules:
            raise UnsupportedAttentionError(f"{type(model).__name__} has no attention modules with a layer_idx")
        for module in modules:
            setattr(module, _ATTRIBUTE, self)
        return self

    @contextmanager
    def scoring(self) -> Iterator[AttentionSpeculation]:
        """Let a forward over whole texts treat every token as a decode step, as in section 5.1 of the paper."""
        before, self.scores_texts = self.scores_texts, True
        try:
            yield self
        finally:
            self.scores_texts = before

    def record(self, layer: int, accepted: torch.Tensor, verified: torch.Tensor) -> None:
        """Count one layer's decisions. accepted, verified: bool [rows, tokens]."""
        new = torch.stack((accepted, verified & ~accepted, ~verified), dim=2).sum(1)
        totals = self._totals.get(layer, new.new_zeros(0, 3))
        if (more := len(new) - len(totals)) > 0:
            totals = torch.cat((totals, totals.new_zeros(more, 3)))
        totals[: len(new)] += new
        self._totals[layer] = totals
        if self.keep_decisions:
            self._steps[layer].append((accepted, verified))

    def reset(self) -> None:
        """Forget all counts and decisions."""
        self._totals.clear()
        self._steps.clear()

    def totals(self) -> torch.Tensor:
        """Return int64 [layers, rows, 3] on the host: hits, misses, bypassed. Waits for the devices."""
        rows = max(map(len, self._totals.values()), default=0)
        table = torch.zeros((max(self._totals, default=-1) + 1, rows, 3), dtype=torch.int64)
        for layer, counts in self._totals.items():
            table[layer, : len(counts)] = counts.cpu()
        return table

    def totals_per_layer(self) -> torch.Tensor:
        """Return int64 [layers, 3]: hits, misses, bypassed."""
        return self.totals().sum(1)

    def counts_per_layer(self) -> list[list[int]]:
        return self.totals_per_layer().tolist()

    def totals_per_row(self) -> torch.Tensor:
        """Return int64 [rows, 3]: hits, misses, bypassed."""
        return self.totals().sum(0)

    def decisions(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (accepted bool [layers, rows, T], verified bool [rows, T]) of the T query tokens since the last reset.

        Raises ValueError without keep_decisions, without a step, and when the number of rows changed on the way.
        """
        if not self.keep_decisions or not self._steps:
            raise ValueError("no decisions were kept: set keep_decisions=True and run a decode step")
        batches = {len(accepted) for steps in self._steps.values() for accepted, _ in steps}
        if len(batches) != 1:
            raise ValueError(f"the number of rows changed between steps ({sorted(batches)}): reset in between")
        steps = [self._steps[layer] for layer in sorted(self._steps)]
        accepted = [torch.cat([hits.cpu() for hits, _ in layer], dim=1) for layer in steps]
        verified = torch.cat([queries.cpu() for _, queries in steps[0]], dim=1)
        return torch.stack(accepted), verified


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """Return the model of transformers that is wrapped, or the model itself. Raises UnsupportedAttentionError without
    one."""
    found = next((part for part in model.modules() if isinstance(part, PreTrainedModel)), None)
    if found is None:
        raise UnsupportedAttentionError(f"{type(model).__name__} holds no model of transformers")
    return found


# In a module of attention, so that whatever copies the module copies its settings.
_ATTRIBUTE = "_attention_speculation"


def speculation_of(module: nn.Module) -> AttentionSpeculation:
    """Return the settings and counters that are attached to an attention module or to any of a model's. Raises
    UnsupportedAttentionError where none are, as after a model was saved and loaded again."""
    found = getattr(module, _ATTRIBUTE, None)
    if found is None and getattr(module, "layer_idx", None) is None:
        parts = (getattr(part, _ATTRIBUTE, None) for part in module.modules())
        found = next((part for part in parts if part is not None), None)
    if found is None:
        raise UnsupportedAttentionError(
            f"{type(module).__name__} has no settings of attention-level speculation: call "
            "AttentionSpeculation(...).attach(model) after loading it"
        )
    return found


# Features in a transformers config that change the attention in a way the guess does not know.
_REFUSED_FIELDS = {
    "attn_logit_softcapping": "soft caps of attention scores",
    "attention_chunk_size": "chunked attention",
    "alibi": "ALiBi biases",
}


def check_config(config: object) -> None:
    """Raise UnsupportedAttentionError naming the model type and the feature that cannot be served."""
    kind = getattr(config, "model_type", type(config).__name__)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedAttentionError(f"model type {kind!r} cannot be served: it is an encoder and a decoder")
    for name, what in _REFUSED_FIELDS.items():
        if value := getattr(config, name, None):
            raise UnsupportedAttentionError(f"model type {kind!r} cannot be served: {what} ({name}={value})")
    sliding = [layer for layer in getattr(config, "layer_types", None) or () if layer != "full_attention"]
    if sliding:
        window = getattr(config, "sliding_window", None)
        raise UnsupportedAttentionError(
            f"model type {kind!r} cannot be served: {len(sliding)} layers of {sliding[0]} (sliding_window={window})"
        )
