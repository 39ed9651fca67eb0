# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The reference model for the LM Evaluation Harness (lm-eval 0.4), under an attention policy.

Likelihoods: every token, the context's too, is a decode step under the policy, since an answer of one token would
otherwise never meet it (ALSpec paper, section 5.1). Generation: the prompt is prefilled exactly, as on the device.
Needs the extra `quality`: this module imports lm_eval.
"""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from loguru import logger
from tqdm import tqdm

from models.llama31_8b.checkpoint.load import LoadedModel
from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.generation.stop_strings import StopStrings
from models.llama31_8b.reference.alspec.policies import AttentionPolicy
from models.llama31_8b.reference.generate import generate

from .forward import text_pass

DEFAULT_NEW_TOKENS = 256  # lm-eval's own, where a task names none


class PolicyLM(TemplateLM):
    """One request after the other. cut: how many contexts were too long and lost their beginning."""

    def __init__(self, loaded: LoadedModel, policy: AttentionPolicy, seed: int = 0) -> None:
        super().__init__()
        self.loaded, self.policy, self.seed = loaded, policy, seed
        self.cut = 0

    @property
    def max_length(self) -> int:
        return self.loaded.config.max_position_embeddings

    @property
    def eot_token_id(self) -> int:
        """The end of text. Raises ValueError for a model that has none."""
        ids = sorted(self.loaded.tokenizer.eos_token_ids)
        if not ids:
            raise ValueError(f"{self.loaded.source} has no end-of-text token")
        return ids[0]

    @property
    def tokenizer_name(self) -> str:
        """Part of lm-eval's cache keys."""
        return self.loaded.source.replace("/", "__")

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text without context: the BOS where text begins with one, else the end of text."""
        tokenizer = self.loaded.tokenizer
        begins = tokenizer.bos_token_id if tokenizer.adds_bos else None
        return self.eot_token_id if begins is None else begins

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: object) -> list[int]:
        """Return the ids of a text, which may begin with the BOS written out, as chat templates do: there is one of it
        then."""
        tokenizer = self.loaded.tokenizer
        ids = tokenizer.encode(string, add_bos=False)
        begun = bool(ids) and ids[0] == tokenizer.bos_token_id
        if add_special_tokens is False or begun or not tokenizer.adds_bos:
            return ids
        return tokenizer.encode(string, add_bos=True)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.loaded.tokenizer.render_chat(chat_history, add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return self.loaded.tokenizer.chat_template

    def _fitting(self, ids: Sequence[int], room: int) -> list[int]:
        """Return the last `room` of the ids. Says so the first time that some are cut."""
        if len(ids) > room:
            if not self.cut:
                logger.warning("a context of {} tokens is cut to its last {}", len(ids), room)
            self.cut += 1
        return list(ids[-room:])

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **_: object,
    ) -> list[tuple[float, bool]]:
        found = []
        for _text, context, continuation in tqdm(requests, desc="likelihoods", disable=disable_tqdm):
            ids = self._fitting([*context, *continuation], self.max_length)
            count = len(continuation)
            if len(ids) <= count:
                raise ValueError(f"a continuation of {count} tokens leaves no context within {self.max_length}")
            result = text_pass(self.loaded.model, ids, self.policy)
            greedy = result.choices[-count - 1 : -1].tolist() == ids[-count:]
            found.append((-float(result.losses[-count:].double().sum()), greedy))
        return found

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        totals = []
        for request in requests:
            (text,) = request.args
            windows = get_rolling_token_windows(
                self.tok_encode(text, add_special_tokens=False), self.prefix_token_id, self.max_length - 1, 1
            )
            pairs = [(("", ""), *make_disjoint_window(window)) for window in windows]
            scores = self._loglikelihood_tokens(pairs, disable_tqdm=disable_tqdm)
            totals.append(sum(score for score, _ in scores))
        return totals

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        texts = []
        for request in tqdm(requests, desc="texts", disable=disable_tqdm):
            context, options = request.args
            texts.append(self._generate(context, dict(options)))
        return texts

    def _generate(self, context: str, options: dict) -> str:
        until = options.get("until") or []
        until = [until] if isinstance(until, str) else [text for text in until if text]
        count = int(options.get("max_gen_toks", DEFAULT_NEW_TOKENS))
        if count >= self.max_length:
            raise ValueError(f"max_gen_toks {count} leaves no room for a prompt within {self.max_length} tokens")
        drawn = bool(options.get("do_sample", False))
        sampling = SamplingParams(
            temperature=float(options.get("temperature", 1.0)) if drawn else 0.0,
            top_k=int(options.get("top_k", 0)) if drawn else 0,
            top_p=float(options.get("top_p", 1.0)) if drawn else 1.0,
            seed=self.seed,
        )
        tokenizer = self.loaded.tokenizer
        result = generate(
            self.loaded.model,
            [self._fitting(self.tok_encode(context), self.max_length - count)],
            max_new_tokens=count,
            sampling=sampling,
            policy=self.policy,
            eos_token_ids=tokenizer.eos_token_ids,
            on_token=StopStrings(until, tokenizer.stream) if until else None,
        )
        text = tokenizer.decode(result.token_ids[0])
        ends = [text.index(stop) for stop in until if stop in text]
        return text[: min(ends)] if ends else text
