# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts of several users from the TT-NN generator on the simulated chip, which has a core for each of two users."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams, draw_uniforms, make_generators, warp_logits
from models.llama31_8b.reference.generate import generate
from tests.support.tt_programs import BAND, GRID, NEAR_TIE, SMALLEST, TINY, build, margin, prompt


def turns(mesh, first: list[int], more: list[int], new_tokens: int) -> dict:
    """Greedy texts of two turns, the second behind what the cache holds of the first, and that of one whole prefill by
    another generator; where the prefills began, and the cached keys and values of both ways."""
    from models.llama31_8b.tt.generator import Generator

    # Blocks of 32 positions, so that a short context has a whole one to keep.
    model, _ = build(mesh, SMALLEST, capacity=96)
    request = {"max_new_tokens": new_tokens, "eos_token_ids": ()}
    generator = Generator(model, prefill_chunk=32)
    with mock.patch.object(model, "prefill", wraps=model.prefill) as prefill:
        texts = generator.generate([first], **request).token_ids
        held = generator.cached_ids(0)
        texts += generator.generate([more], context=[held], **request).token_ids
    caches = [_cached(model, len(generator.cached_ids(0)))]
    texts += Generator(model, prefill_chunk=32).generate([[*held, *more]], **request).token_ids
    caches.append(_cached(model, len(generator.cached_ids(0))))
    starts = [call.args[2] for call in prefill.call_args_list]  # after tokens and user
    return {"texts": texts, "held": held, "starts": starts, "caches": caches}


def _cached(model, length: int) -> list:
    """The first layer's keys and values of the first tokens of user 0."""
    import ttnn

    return [ttnn.to_torch(tensor)[0, :, :length] for tensor in (model.cache.keys[0], model.cache.values[0])]


def generate_batch(mesh, prompts: list[list[int]], new_tokens: int) -> dict:
    """Greedy texts of users with prompts of different lengths, chosen on the device; the same from read-back
    logits on the host, and those of the reference with its gaps between best and second best."""
    from models.llama31_8b.tt.generator import Generator

    model, reference = build(mesh, TINY.with_layers(1), users=len(prompts), capacity=128)
    request, seen = {"max_new_tokens": new_tokens, "eos_token_ids": ()}, [[] for _ in prompts]
    device = Generator(model, sample_on="device", prefill_chunk=32).generate(prompts, **request)
    by_host = Generator(model, sample_on="host", prefill_chunk=32, on_logits=lambda user, row: seen[user].append(row))
    host = by_host.generate(prompts, **request)
    expected = generate(reference, prompts, **request)
    gaps = []
    for given, text in zip(prompts, expected.token_ids, strict=True):
        cache = reference.new_cache(1, 128)
        ids = torch.tensor([given + text[:-1]])
        top = reference.forward(ids, cache, logits="all")[0, len(given) - 1 :].topk(2).values
        gaps.append((top[:, 0] - top[:, 1]).tolist())
    return {
        "device": device.token_ids,
        "host": host.token_ids,
        "argmax": [[int(row.argmax()) for row in rows] for rows in seen],
        "reference": expected.token_ids,
        "gaps": gaps,
    }


def generate_sampled(mesh, prompts: list[list[int]], new_tokens: int, params) -> dict:
    """Texts drawn by the host and on the device, and on the device of the last user alone with its own seed; the
    host's distributions and numbers. Of the first text the first token drawn from the whole vocabulary, on the device
    and by the host, and the distribution."""
    from models.llama31_8b.tt.generator import Generator

    model, _ = build(mesh, TINY.with_layers(1), users=len(prompts), capacity=64)
    masses: list[list[torch.Tensor]] = [[] for _ in prompts]

    def texts(choose, prompts, params, on_logits=None, **options):
        generator = Generator(model, sample_on=choose, prefill_chunk=32, on_logits=on_logits)
        found = generator.generate(prompts, max_new_tokens=new_tokens, sampling=params, eos_token_ids=(), **options)
        return found.token_ids

    own = replace(params, seed=params.seed + len(prompts) - 1)
    told = {
        "host": texts(
            "host", prompts, params, on_logits=lambda user, row: masses[user].append(warp_logits(row, params))
        ),
        "device": texts("device", prompts, params),
        "alone": texts("device", prompts[-1:], own),
        "masses": [torch.stack(rows) for rows in masses],
        "numbers": draw_uniforms(make_generators(params, len(prompts)), new_tokens),
    }
    unlimited, seen, first = replace(params, top_k=0), [], {"on_token": lambda user, token: True}
    return told | {
        "device from all": texts("device", prompts[:1], unlimited, **first),
        "host from all": texts("host", prompts[:1], unlimited, on_logits=lambda user, row: seen.append(row), **first),
        "all": warp_logits(seen[0][None], unlimited),
    }


pytestmark = pytest.mark.sim


def test_greedy_texts_of_users_at_different_positions(sim_device):
    """Arg-max on the device is that of the logits read back, and the texts are the reference's up to a near-tie."""
    told = sim_device(GRID).run(generate_batch, [prompt(5, 1), prompt(33, 2)], 3, timeout=1200)
    logger.info("{}", told)
    assert told["device"] == told["host"] == told["argmax"]
    for got, expected, gaps in zip(told["device"], told["reference"], told["gaps"], strict=True):
        differ = next((i for i in range(len(got)) if got[i] != expected[i]), None)
        assert differ is None or gaps[differ] < NEAR_TIE


def test_sampled_texts_are_the_hosts_and_repeat(sim_device):
    """The same seeds draw the same texts on the chip and on the host, and on the chip again in another place.

    Both users have the same prompt and, by their seeds, different texts. The last one's is repeated without the first.
    Without top-k the chip draws from the whole vocabulary.
    """
    params = SamplingParams(1.5, top_k=30, seed=6)
    told = sim_device(GRID).run(generate_sampled, [prompt(5, 1)] * 2, 2, params, timeout=1200)
    logger.info("{}", {name: told[name] for name in ("device", "host", "alone", "device from all")})
    for user, (got, expected) in enumerate(zip(told["device"], told["host"], strict=True)):
        differ = next((i for i in range(len(got)) if got[i] != expected[i]), None)
        assert differ is None or margin(told["masses"][user], told["numbers"][user])[differ] < BAND
    assert told["device"][0] != told["device"][1] == told["alone"][0]
    clear = margin(told["all"], told["numbers"][:1, 0])[0] >= BAND
    assert clear and told["device from all"] == told["host from all"] and (told["all"] > 0).all()


def test_a_second_turn_goes_behind_the_cached_one(sim_device):
    """Text, keys and values are, bit for bit, those of one whole prefill: of a context, only what is in no whole block
    is computed again."""
    first, more = prompt(32, 1), prompt(3, 3)
    told = sim_device(GRID).run(turns, first, more, 2, timeout=1200)
    assert told["held"] == first + told["texts"][0][:1] and told["starts"] == [0, 32]
    assert told["texts"][1] == told["texts"][2] != told["texts"][0]
    for kept, whole in zip(*told["caches"], strict=True):
        assert kept.shape[1] == 33 + 3 + 1 and torch.equal(kept, whole)
