# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Turns of a conversation on the device, in a worker (see sim_worker.py)."""

from __future__ import annotations

from unittest import mock

from tests.models.tt.trace_programs import SMALLEST
from tests.support.tt_programs import build


def turns(mesh, first: list[int], more: list[int], new_tokens: int) -> dict:
    """Greedy texts of two turns, the second behind what the cache holds of the first, and that of one whole prefill by
    another generator; where the prefills began, and the cached keys and values of both ways."""
    from models.llama31_8b.tt.generator import Generator

    # Blocks of 32 positions, so that a short context has a whole one to keep.
    model, _ = build(mesh, SMALLEST, capacity=96)
    request = {"max_new_tokens": new_tokens, "eos_token_ids": ()}
    generator, starts = Generator(model, prefill_chunk=32), []
    with mock.patch.object(model, "prefill", _seen(model.prefill, starts)):
        texts = generator.generate([first], **request).token_ids
        held = generator.cached_ids(0)
        texts += generator.generate([more], context=[held], **request).token_ids
    caches = [_cached(model, len(generator.cached_ids(0)))]
    texts += Generator(model, prefill_chunk=32).generate([[*held, *more]], **request).token_ids
    caches.append(_cached(model, len(generator.cached_ids(0))))
    return {"texts": texts, "held": held, "starts": starts, "caches": caches}


def _seen(prefill, starts: list[int]):
    def call(tokens, user, start=0, **named):
        starts.append(start)
        return prefill(tokens, user, start, **named)

    return call


def _cached(model, length: int) -> list:
    """The first layer's keys and values of the first tokens of user 0."""
    import ttnn

    return [ttnn.to_torch(tensor)[0, :, :length] for tensor in (model.cache.keys[0], model.cache.values[0])]
