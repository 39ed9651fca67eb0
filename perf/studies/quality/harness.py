# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run a transformers model under attention-level speculation for the LM Evaluation Harness (lm-eval 0.4), in batches.

Generation prefills exactly and speculates in every decode step, as on the device and in the ALSpec paper's table 1.
Likelihoods are whole texts, every token a decode step (its section 5.1), one after the other. It imports lm_eval.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager, get_task_dict

from models.llama31_8b.checkpoint.tokenizer import StopStrings
from models.llama31_8b.huggingface.load import LoadedTransformers


class SpeculatingLM(HFLM):
    """Extend lm-eval's own class for transformers, whose answers it gives: hits are counted for their tokens alone.

    hits, misses, bypassed: (layer, token) pairs, of a beam search those of every beam's steps. batch_size: prompts of a
    generation. exact: sdpa's attention, nothing speculates.
    """

    def __init__(self, loaded: LoadedTransformers, batch_size: int = 1, exact: bool = False) -> None:
        super().__init__(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=batch_size)
        loaded.model.set_attn_implementation("sdpa" if exact else "alspec")
        self.speculation, self.exact = loaded.speculation, exact
        self.speculation.keep_decisions = True
        self.hits = self.misses = self.bypassed = 0

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
        answers = [self._answer_tokens(tokens, stop) for tokens in new]
        # As transformers fills up a row that has ended: lm-eval cuts at what it shows, which has no special tokens.
        for row, count in zip(written[:, context.shape[1] :], answers):
            row[count:] = self.tokenizer.pad_token_id
        made = len(new[0]) - 1  # a prompt of one token is itself a step
        # The first token comes of the prefill; each further one of a step that read the one before.
        if not self.exact and made > 0 and max(answers) > 1:
            accepted, verified = (part[..., -made:] for part in self.speculation.decisions())
            if len(verified) > len(new):  # beams, which take each other's places
                self._count(accepted.flatten(1), verified.flatten())
            else:
                for row, steps in enumerate(count - 1 for count in answers):
                    if steps > 0:
                        self._count(accepted[:, row, :steps], verified[row, :steps])
        self.speculation.reset()
        return written

    def _answer_tokens(self, tokens: Sequence[int], stop: Sequence[str]) -> int:
        """Return how many of the tokens a row wrote until its end: a batch goes on until its last row ends."""
        eos = self.model.generation_config.eos_token_id
        ends = {self.eot_token_id, *(eos if isinstance(eos, list) else [eos])}
        stops = StopStrings([text for text in stop if text], self.tokenizer)
        return next((n for n, token in enumerate(tokens, 1) if token in ends or stops(0, token)), len(tokens))

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


class Harness:
    """The tasks of lm-eval, or those of a folder of one's own alone: lm-eval's take half a minute to read."""

    def __init__(self, include_path: Path | None) -> None:
        own = None if include_path is None else str(include_path)
        self.manager = TaskManager(include_path=own, include_defaults=own is None)

    def missing(self, tasks: Sequence[str]) -> list[str]:
        """Return those of the tasks that it does not have."""
        return [name for name in tasks if not self.manager.match_tasks([name])]

    def requests(self, task: str, limit: int | None = None) -> int:
        """Return how many documents a task has, at most `limit`. Raises what its data set raises."""
        count = len(list(get_task_dict([task], self.manager)[task].eval_docs))
        return count if limit is None else min(count, limit)

    def run(
        self, task: str, loaded: LoadedTransformers, batch_size: int, exact: bool, **options: Any
    ) -> tuple[dict[str, dict[str, float]], SpeculatingLM]:
        """Run a task. Returns its scores and standard errors by lm-eval's names, and the model with its counts.

        exact: by exact attention; else as the speculation that is attached to the model says. options: of lm-eval's
        simple_evaluate.
        """
        lm = SpeculatingLM(loaded, batch_size, exact)
        report = simple_evaluate(model=lm, tasks=[task], task_manager=self.manager, log_samples=False, **options)
        return {name: _numbers(scores) for name, scores in report["results"].items()}, lm


def _numbers(scores: dict) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in scores.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "sample_len"
    }
