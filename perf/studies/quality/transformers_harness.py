# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run a transformers model under attention-level speculation for the LM Evaluation Harness (lm-eval 0.4), in batches.

Generation prefills exactly and speculates in every decode step, as on the device and in the ALSpec paper's table 1.
Likelihoods are whole texts, every token a decode step (its section 5.1), one after the other. Needs the extra
`quality`: this module imports lm_eval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from lm_eval.models.huggingface import HFLM

from models.llama31_8b.huggingface.load import LoadedTransformers


class SpeculatingLM(HFLM):
    """Extend lm-eval's own class for transformers: hits are counted for the tokens of the answers alone.

    hits, misses, bypassed: (layer, token) pairs since `forget`. batch_size: prompts of a generation. exact: sdpa's
    attention, nothing speculates.
    """

    def __init__(self, loaded: LoadedTransformers, batch_size: int = 1, exact: bool = False) -> None:
        super().__init__(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=batch_size, truncation=True)
        loaded.model.set_attn_implementation("sdpa" if exact else "alspec")
        self.speculation, self.exact = loaded.speculation, exact
        self.speculation.keep_decisions = True
        self.forget()

    def forget(self) -> None:
        """Start counting anew."""
        self.hits = self.misses = self.bypassed = 0
        self.speculation.reset()

    @property
    def hit_rate(self) -> float | None:
        """Return hits over hits + misses, in [0, 1]; None when nothing was verified."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else None

    def _count(self, accepted: torch.Tensor, verified: torch.Tensor) -> None:
        """Count decisions. accepted: bool [layers, tokens]; verified: bool [tokens]."""
        layers, taken = len(accepted), int(verified.sum())
        hits = int(accepted.sum())
        self.hits += hits
        self.misses += layers * taken - hits
        self.bypassed += layers * (len(verified) - taken)

    def _model_generate(self, context: Any, max_length: int, stop: list[str], **options: Any) -> torch.Tensor:
        self.speculation.reset()
        written = super()._model_generate(context, max_length, stop, **options)
        new = written[:, context.shape[1] :].tolist()
        if not self.exact and new[0]:
            for row, tokens in enumerate(new):
                # The first token comes of the prefill; each further one of a step that read the one before.
                steps = self._answer_tokens(tokens, stop) - 1
                if steps > 0:
                    accepted, verified = self._decisions(len(tokens) - 1)
                    self._count(accepted[:, row, :steps], verified[row, :steps])
        self._last = None
        self.speculation.reset()
        return written

    _last: tuple[torch.Tensor, torch.Tensor] | None = None

    def _decisions(self, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return those of the last generation's last `steps` steps: a prompt of one token is itself a step."""
        if self._last is None:
            accepted, verified = self.speculation.decisions()
            self._last = accepted[..., -steps:], verified[..., -steps:]
        return self._last

    def _answer_tokens(self, tokens: Sequence[int], stop: Sequence[str]) -> int:
        """Return how many of the tokens a row wrote until its end: a batch goes on until its last row ends."""
        ends = {self.eot_token_id, *_ids(self.model.generation_config.eos_token_id)}
        count = next((place + 1 for place, token in enumerate(tokens) if token in ends), len(tokens))
        stop = [text for text in stop if text]
        if not any(text in self.tok_decode(tokens[:count]) for text in stop):
            return count
        low, high = 0, count  # the text of `high` tokens holds a stop, that of `low` does not
        while high - low > 1:
            middle = (low + high) // 2
            if any(text in self.tok_decode(tokens[:middle]) for text in stop):
                high = middle
            else:
                low = middle
        return high

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False, override_bs: Any = None) -> Any:
        """Score one text at a time: rows of a batch would be padded, and padding cannot be told from text."""
        return super()._loglikelihood_tokens(requests, disable_tqdm=disable_tqdm, override_bs=1)

    def _model_call(self, inps: torch.Tensor, attn_mask: Any = None, labels: Any = None) -> torch.Tensor:
        whole = torch.ones_like(inps)
        if self.exact:
            with torch.no_grad():
                return self.model(inps, attention_mask=whole, use_cache=False).logits
        self.speculation.reset()
        with torch.no_grad(), self.speculation.scoring():
            logits = self.model(inps, attention_mask=whole, use_cache=False).logits
        accepted, verified = self.speculation.decisions()
        self._count(accepted[:, 0], verified[0])
        self.speculation.reset()
        return logits


def _ids(value: int | Sequence[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)
