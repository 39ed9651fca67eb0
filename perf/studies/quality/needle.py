# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Needles in a haystack (ALSpec paper, appendix G): seven MD5 hashes and three made-up facts at random places.

The text is prefilled exactly; question and answer are decode steps. The paper asks for all ten in one prompt and reads
what a model of 8B writes. Here each is asked by itself, as a sentence to complete: smaller models follow no list. An
answer is right when the greedy choice is the answer's token at every place, which is when greedy decoding would write
it. Threshold 0 is the model's own limit.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from functools import lru_cache, partial

from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.kv_cache import KVCache

from .forward import text_pass
from .study import KEYS, Cell, Study

KEY = (*KEYS, "seed", "threshold", "needle")
VALUES = ("right", "tokens_right", "loss", "hit_rate", "seconds")
# What is inserted ends with the answer; a question repeats what stands before it.
FACTS = (
    ("The favourite colour of Captain Ilvane Moss is", " vermilion"),
    ("The ferry to the island of Quorrel leaves at", " half past eleven"),
    ("The password of the library in Tarn Abbey is", " walnut"),
)


def needles(seed: int, hashes: int) -> list[tuple[str, str]]:
    """Return (beginning, answer) of the facts, then of `hashes` hashes drawn with `seed`."""
    draw = random.Random(seed)
    keys = [
        (f"The secret key number {number} is", f" {hashlib.md5(draw.randbytes(16)).hexdigest()}")
        for number in range(1, hashes + 1)
    ]
    return [*FACTS, *keys]


def haystack(ids: list[int], inserts: list[list[int]], seed: int) -> list[int]:
    """Return `ids` with each insert at a place of its own, drawn with `seed`; the last tokens make room, so the length
    stays. Raises ValueError when the inserts leave less than half of the text."""
    room = len(ids) - sum(map(len, inserts))
    if 2 * room < len(ids):
        raise ValueError(f"needles of {len(ids) - room} tokens leave too little of a text of {len(ids)}")
    places = sorted(random.Random(seed).sample(range(1, room), len(inserts)))
    order = list(range(len(inserts)))
    random.Random(seed + 1).shuffle(order)
    mixed, before = [], 0
    for place, index in zip(places, order):
        mixed += ids[before:place] + inserts[index]
        before = place
    return mixed + ids[before:room]


def cells(study: Study) -> Iterator[Cell]:
    """Yield a cell per context, chunk size and threshold, with a row for each needle."""
    settings, model, tokenizer = study.settings, study.loaded.model, study.loaded.tokenizer
    hidden = needles(settings.seed, settings.hashes)

    @lru_cache(maxsize=1)
    def prefilled(context: int, start: int) -> KVCache:
        inserts = [tokenizer.encode(f"\n\n{lead}{answer}.\n\n", add_bos=False) for lead, answer in hidden]
        ids = haystack(study.window(context, start), inserts, settings.seed)
        cache = model.new_cache(1, context + 128)
        model.prefill([ids], cache)
        return cache

    def measure(context: int, start: int, chunk_size: int, threshold: float) -> list[dict[str, object]]:
        cache, rows = prefilled(context, start), []
        for number, (lead, answer) in enumerate(hidden):
            question = tokenizer.encode(f"\n\n{lead}", add_bos=False)
            wanted = tokenizer.encode(answer, add_bos=False)
            policy = ALSpecAttention(threshold, settings.guess_range(chunk_size))
            result = text_pass(model, [*question, *wanted], policy, cache=cache)
            cache.truncate(context)
            said = result.choices[len(question) - 1 : -1].tolist()
            right = [a == b for a, b in zip(said, wanted)]
            rows.append(
                {
                    "needle": f"fact {number + 1}" if number < len(FACTS) else f"hash {number + 1 - len(FACTS)}",
                    "right": int(all(right)),
                    "tokens_right": sum(right) / len(right),
                    "loss": float(result.losses[len(question) - 1 :].double().mean()),
                    "hit_rate": result.hit_rate(),
                }
            )
        return rows

    for place in study.places():
        for threshold in settings.thresholds:
            key = {**study.key(*place), "seed": settings.seed, "threshold": threshold}
            yield Cell(key, partial(measure, *place, threshold))
