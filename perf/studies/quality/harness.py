# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run the LM Evaluation Harness (lm-eval 0.4) on a transformers model under attention-level speculation.

It is lm-eval's own command with one model more, `alspec`, and hits at the end (docs/on_a_gpu.md):

    python -m perf.studies.quality.harness run --model alspec --model_args pretrained=FOLDER --tasks gsm8k_cot

Generation prefills exactly and speculates in every decode step, as on the device and in the ALSpec paper's table 1.
Likelihoods are whole texts, every token a decode step (its section 5.1), one after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from lm_eval.__main__ import cli_evaluate
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM

from models.llama31_8b.checkpoint.load import resolve_source
from models.llama31_8b.checkpoint.tokenizer import StopStrings
from models.llama31_8b.huggingface import ATTENTION_NAME, AttentionSpeculation


@register_model("alspec")
class SpeculatingLM(HFLM):
    """Extend lm-eval's own class for transformers, whose answers it gives: hits are counted for their tokens alone.

    pretrained: a Hugging Face folder or hub id, or a .gguf file. threshold, chunk_size, budget: of
    AttentionSpeculation. options: of HFLM, such as batch_size. hits, misses, bypassed: (layer, token) pairs, of a beam
    search those of every beam's steps.
    """

    last: SpeculatingLM | None = None  # that lm-eval has made, whose hits the command prints

    def __init__(
        self,
        pretrained: str,
        threshold: float = 0.10,
        chunk_size: int = 128,
        budget: float | None = None,
        **options: Any,
    ) -> None:
        folder, _ = resolve_source(pretrained)
        super().__init__(pretrained=str(folder), attn_implementation=ATTENTION_NAME, **options)
        own = AttentionSpeculation(threshold, chunk_size, budget=budget, keep_decisions=True)
        self.speculation = own.attach(self.model)
        self.hits = self.misses = self.bypassed = 0
        SpeculatingLM.last = self

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
        if made > 0 and max(answers) > 1:
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
        self.speculation.reset()
        with torch.no_grad(), self.speculation.scoring():
            logits = self.model(inps, attention_mask=torch.ones_like(inps), use_cache=False).logits
        accepted, verified = self.speculation.decisions()
        self._count(accepted[:, 0], verified[0])
        self.speculation.reset()
        return logits


def main(argv: Sequence[str] | None = None) -> int:
    """Run lm-eval's command, which reads sys.argv, and print hits; return 0."""
    if argv is not None:
        sys.argv = [sys.argv[0], *argv]
    cli_evaluate()
    if (lm := SpeculatingLM.last) is not None:
        verified = lm.hits + lm.misses
        rate = f"{lm.hits / verified:.1%}" if verified else "none verified"
        print(f"hit rate {rate} ({lm.hits} hits, {lm.misses} misses, {lm.bypassed} bypassed)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
