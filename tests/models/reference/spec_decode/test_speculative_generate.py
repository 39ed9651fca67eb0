# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The speculative loop: ends of texts inside accepted blocks, batches, contexts, continued caches, lossy
mode."""

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.errors import ContextLengthError
from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.generation.stop_strings import StopStrings
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.spec_decode.generate import speculative_generate
from models.llama31_8b.reference.spec_decode.model_drafter import ModelDrafter, SelfDrafter
from models.llama31_8b.reference.spec_decode.ngram_drafter import NGramDrafter
from models.llama31_8b.spec_decode.draft_shape import DraftShape
from models.llama31_8b.spec_decode.sigmoid import SigmoidApproximation
from models.llama31_8b.spec_decode.vocabulary import VocabularyMismatchError
from tests.support import speculation_models as small

MODEL, DRAFT = small.target(), small.resembling(0.05)
PROMPTS = [small.prompts(1, n, seed=n)[0] for n in (70, 31, 50)]


def perfect(shape=DraftShape(6)):
    """A draft model that is the target: every token of every block is accepted."""
    return ModelDrafter(MODEL, shape)


def run(drafter, prompts=PROMPTS, **options):
    options = {"max_new_tokens": 24, "adaptive": False, "eos_token_ids": (), **options}
    return speculative_generate(MODEL, prompts, drafter, **options)


def plain(prompts=PROMPTS, **options):
    return generate(MODEL, prompts, **{"max_new_tokens": 24, "eos_token_ids": (), **options})


def test_a_perfect_draft_fills_every_block():
    result = run(perfect(), max_new_tokens=22)
    assert result.token_ids == plain(max_new_tokens=22).token_ids
    metrics = result.speculation
    # 21 tokens after the first, 7 per step.
    assert metrics.num_drafts == 9 and metrics.mean_acceptance_length == 7.0 and metrics.draft_acceptance_rate == 1.0
    assert metrics.acceptance_histogram == [0] * 6 + [9] and metrics.tokens_per_target_step == 7.0
    assert result.decode_tokens == 63 == metrics.num_output_tokens


@pytest.mark.parametrize("at", [2, 4, 7, 8])
@pytest.mark.parametrize("kind", ["eos", "stop", "callback"])
def test_a_text_ends_inside_an_accepted_block(kind, at):
    """The end comes at every place of a block: nothing after it is returned, called back, cached or
    counted."""
    ids = plain(PROMPTS[:1]).token_ids[0]
    end = ids[at]
    expected = ids[: ids.index(end) + 1]
    seen = []
    options = {
        "eos": {"eos_token_ids": [end]},
        "stop": {"stop_token_ids": [end]},
        "callback": {},
    }[kind]

    def on_token(user, token):
        seen.append(token)
        return kind == "callback" and token == end

    cache = MODEL.new_cache(1, 200)
    policy = ALSpecAttention(0.4, 32)
    result = run(perfect(), PROMPTS[:1], on_token=on_token, cache=cache, context=[[]], **options)
    assert result.token_ids == [expected] and seen == expected and result.finish_reason == [kind]
    assert cache.lengths.tolist() == [70 + len(expected) - 1], "the last token is not in the cache, nor any later one"
    counted = run(perfect(), PROMPTS[:1], policy=policy, **({"on_token": on_token} | options))
    statistics = counted.statistics
    decided = statistics.hits + statistics.misses + statistics.bypassed
    assert decided == MODEL.config.num_hidden_layers * (len(counted.token_ids[0]) - 1)


class Letters:
    """Token t is the letter pair 'ab', 'bc', ... by t mod 26."""

    def push(self, token):
        return chr(97 + token % 26) + chr(97 + (token + 1) % 26)


def test_stop_strings_end_a_text_inside_a_block():
    ids = plain(PROMPTS[:1]).token_ids[0]
    text = "".join(Letters().push(t) for t in ids)
    stop = text[9:12]  # begins inside token 4, ends with token 5
    expected = ids[: next(i for i in range(len(ids)) if stop in "".join(Letters().push(t) for t in ids[: i + 1])) + 1]
    for drafter in (perfect(), perfect(DraftShape(3, 2))):
        result = run(drafter, PROMPTS[:1], on_token=StopStrings([stop, "#"], Letters))
        assert result.token_ids == [expected] and result.finish_reason == ["callback"]
    assert plain(PROMPTS[:1], on_token=StopStrings([stop], Letters)).token_ids == [expected]
    with pytest.raises(ValueError, match="must not be empty"):
        StopStrings(["a", ""], Letters)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9])
def test_the_number_of_tokens_is_exact(limit):
    result = run(perfect(), max_new_tokens=limit)
    assert [len(ids) for ids in result.token_ids] == [limit] * 3 and result.finish_reason == ["length"] * 3
    assert result.token_ids == plain(max_new_tokens=limit).token_ids


@pytest.mark.parametrize(
    "drafter",
    [
        lambda: perfect(),
        lambda: ModelDrafter(DRAFT, DraftShape(4, 3)),
        lambda: ModelDrafter(DRAFT, DraftShape(5, 3, grown=True)),
        lambda: SelfDrafter(MODEL, DraftShape(5, 3, grown=True), window=32),
        lambda: NGramDrafter(DraftShape(6, 2), smallest=1),
    ],
    ids=["chain", "tree", "grown", "self-grown", "ngram"],
)
def test_texts_run_to_the_end_of_the_context(drafter):
    """Drafts shrink as the context fills, to nothing at its end; users reach it at different times."""
    prompts = [small.prompts(1, n, seed=n)[0] for n in (240, 233, 248)]
    result = run(drafter(), prompts, max_new_tokens=50)
    expected = plain(prompts, max_new_tokens=50)
    assert result.token_ids == expected.token_ids
    assert result.finish_reason == expected.finish_reason == ["context"] * 3


def drafters():
    return {
        "model": lambda: ModelDrafter(DRAFT, DraftShape(4)),
        "tree": lambda: ModelDrafter(DRAFT, DraftShape(3, 2), sampled=True),
        "grown": lambda: ModelDrafter(DRAFT, DraftShape(3, 2, grown=True)),
        "self": lambda: SelfDrafter(MODEL, DraftShape(3), window=32),
        "ngram": lambda: NGramDrafter(DraftShape(4, 2), smallest=1),
    }


@pytest.mark.parametrize("name", drafters())
def test_a_users_sampled_text_does_not_depend_on_its_neighbours(name):
    sampling = SamplingParams(0.8, top_p=0.9, seed=5)
    together = run(drafters()[name](), sampling=sampling)
    again = run(drafters()[name](), sampling=sampling)
    assert together.token_ids == again.token_ids
    for user, prompt in enumerate(PROMPTS):
        alone = run(drafters()[name](), [prompt], sampling=SamplingParams(0.8, top_p=0.9, seed=5 + user))
        assert alone.token_ids[0] == together.token_ids[user]


def test_adaptive_sampling_is_repeatable():
    sampling = SamplingParams(1.0, seed=3)
    texts = [run(ModelDrafter(DRAFT, DraftShape(5)), sampling=sampling, adaptive=True).token_ids for _ in range(2)]
    assert texts[0] == texts[1], "no clock may decide where draws are spent"


@pytest.mark.parametrize("name", drafters())
def test_a_conversation_continues_after_its_cache(name):
    drafter, cache = drafters()[name](), MODEL.new_cache(1, 256)
    held: list[int] = []
    for turn in range(3):
        new = small.prompts(1, 12, seed=50 + turn)[0]
        result = run(drafter, [new], max_new_tokens=10, cache=cache, context=[held])
        text = [*held, *new]
        assert result.token_ids == plain([text], max_new_tokens=10).token_ids
        held = [*text, *result.token_ids[0]][: int(cache.lengths[0])]
        # A turn may be cut back, as when a chat template renders it otherwise.
        held = held[: len(held) - 3 * turn]
        cache.truncate(len(held))


def test_a_continued_cache_needs_its_ids():
    cache = MODEL.new_cache(1, 64)
    MODEL.prefill([[1, 2, 3]], cache)
    with pytest.raises(ValueError, match=r"cache of \[3\] tokens need context ids of those lengths, got \[2\]"):
        run(perfect(), [[4]], cache=cache, context=[[1, 2]])
    with pytest.raises(ValueError, match=r"got \[\]"):
        run(perfect(), [[4]], cache=cache)
    with pytest.raises(ValueError, match="none is given"):
        run(perfect(), [[4]], context=[[1]])


def test_an_interrupted_self_draft_leaves_no_guess_behind():
    cache = MODEL.new_cache(1, 200)
    drafter = SelfDrafter(MODEL, DraftShape(5), window=32)
    calls = []
    forward = MODEL.forward

    def interrupted(*args, **kwargs):
        calls.append(kwargs.get("policy"))
        if len(calls) == 9:
            raise KeyboardInterrupt
        return forward(*args, **kwargs)

    MODEL.forward = interrupted
    try:
        with pytest.raises(KeyboardInterrupt):
            run(drafter, PROMPTS[:1], cache=cache, context=[[]])
    finally:
        del MODEL.forward
    text = [*PROMPTS[0], *plain(PROMPTS[:1]).token_ids[0]]
    length = int(cache.lengths[0])
    assert length >= 70
    reference = MODEL.new_cache(1, 200)
    MODEL.prefill([text[:length]], reference)
    for a, b in zip((*cache.keys, *cache.values), (*reference.keys, *reference.values)):
        torch.testing.assert_close(a[:, :, :length], b[:, :, :length], atol=1e-4, rtol=1e-4)


def test_the_lossy_mode_runs_and_says_so():
    messages = []
    sink = logger.add(messages.append, level="WARNING", format="{message}")
    sampling = SamplingParams(1.0, seed=1)
    for shape in (DraftShape(4), DraftShape(3, 2), DraftShape(3, 2, grown=True)):
        result = run(ModelDrafter(DRAFT, shape), sampling=sampling, lossy=SigmoidApproximation())
        assert [len(ids) for ids in result.token_ids] == [24] * 3
        # Nearly everything is accepted: that is what makes it lossy.
        assert result.speculation.mean_acceptance_length > 1 + 0.95 * shape.length * 0.9
    logger.remove(sink)
    assert sum("LOSSY" in message for message in messages) == 3


def test_requests_that_cannot_be_served_are_refused_before_any_work():
    lossy = SigmoidApproximation()
    with pytest.raises(ValueError, match="temperature above 0"):
        run(perfect(), lossy=lossy)
    with pytest.raises(ValueError, match="the ngram drafter has none"):
        run(NGramDrafter(), lossy=lossy, sampling=SamplingParams(1.0))
    with pytest.raises(VocabularyMismatchError, match="80 token ids"):
        run(ModelDrafter(small.resembling(0.1, vocab_size=80)))
    with pytest.raises(ContextLengthError, match="context of 32"):
        run(ModelDrafter(small.resembling(0.1, max_position_embeddings=32)))
    with pytest.raises(ContextLengthError, match="draft length 9 after a prompt of 250"):
        run(NGramDrafter(DraftShape(9)), [[1] * 250])
    with pytest.raises(ValueError, match="prompt of user 1 is empty"):
        run(perfect(), [[1], []])


def test_length_zero_is_plain_decoding():
    result = run(ModelDrafter(DRAFT, DraftShape(0)))
    assert result.token_ids == plain().token_ids
    assert result.speculation.num_drafts == 0 and result.speculation.mean_acceptance_length is None


def test_what_cannot_pay_is_turned_off():
    """The target drafting for itself on a short context costs a target step per token: off from the start."""
    messages = []
    sink = logger.add(messages.append, level="INFO", format="{message}")
    sampling = SamplingParams(1.0)  # estimated costs, so that the outcome does not hang on this machine's clock
    result = run(SelfDrafter(MODEL, DraftShape(4), window=32), adaptive=True, sampling=sampling)
    logger.remove(sink)
    assert result.speculation.num_drafts == 0 and result.speculation.tokens_per_target_step == 1.0
    assert any("drafting is off" in message for message in messages)
