# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The generation loop over the reference: greedy text with drafts is the plain text, whatever drafts; ends of texts
inside accepted paths, batches, contexts, conversations, the lossy mode, refusals; drafts that do not pay, and metrics
by vLLM's definitions."""

import json
from functools import lru_cache
from unittest import mock

import pytest
from loguru import logger

from models.llama31_8b.generation.sampling import SamplingParams, SigmoidApproximation
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.generate import TorchEngine, generate, model_drafter, self_drafter
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.results import TokenSpeculationMetrics
from models.llama31_8b.spec_decode.draft_settings import DraftShape
from models.llama31_8b.spec_decode.drafters import NGramDrafter
from models.llama31_8b.spec_decode.loop import Drafter, Drafts, Engine, Generator, Outcome
from models.llama31_8b.spec_decode.tree import TokenTree
from models.llama31_8b.tiny import TINY
from tests.models.spec_decode import speculation_models as small
from tests.support.tt_programs import prompt

PROMPTS = [small.prompts(1, n, seed=n)[0] for n in (70, 31, 50)]
MANY = small.prompts(6, 64)
NEW_TOKENS = 24


def model(kind: str = "ordinary"):
    return made(kind)


@lru_cache
def made(kind: str):
    make = {
        "ordinary": small.target,
        "close": small.near_ties,
        "draft": lambda: small.resembling(0.12),
        "near draft": lambda: small.resembling(0.05),
    }
    return make[kind]()


CHAIN, TREE, GROWN = DraftShape(4), DraftShape(3, 3, budget=16), DraftShape(3, 3, grown=True, budget=12)
#: By name what drafts for a model of this kind, and in which shape.
DRAFTS = {
    "chain": lambda kind: (model_drafter(model("draft")), CHAIN),
    "chain-fuzzy2": lambda kind: (model_drafter(model("draft"), fuzzy=2), CHAIN),
    "tree": lambda kind: (model_drafter(model("draft")), TREE),
    "tree-fuzzy3": lambda kind: (model_drafter(model("draft"), fuzzy=3), TREE),
    "grown": lambda kind: (model_drafter(model("draft")), GROWN),
    "grown-fuzzy4": lambda kind: (model_drafter(model("draft"), fuzzy=4), GROWN),
    "self-chain": lambda kind: (self_drafter(model(kind), 32), CHAIN),
    "self-tree-fuzzy2": lambda kind: (self_drafter(model(kind), 32, fuzzy=2), TREE),
    "self-grown": lambda kind: (self_drafter(model(kind), 32), GROWN),
    "ngram-chain": lambda kind: (NGramDrafter(smallest=1), DraftShape(6)),
    "ngram-tree": lambda kind: (NGramDrafter(smallest=1), DraftShape(4, 3)),
}
FEW = ("tree", "grown", "self-chain", "ngram-tree")


def run(drafts, prompts=PROMPTS, kind="ordinary", **options):
    """Generate with drafts: a name, or a drafter and its shape."""
    drafter, shape = DRAFTS[drafts](kind) if isinstance(drafts, str) else drafts
    options = {"max_new_tokens": NEW_TOKENS, "eos_token_ids": (), **options}
    return generate(model(kind), prompts, drafter=drafter, shape=shape, **options)


def perfect():
    """A draft model that is the target: every token of every block is accepted."""
    return model_drafter(model()), DraftShape(6)


def plain(prompts=PROMPTS, **options):
    return generate(model(), prompts, **{"max_new_tokens": NEW_TOKENS, "eos_token_ids": (), **options})


@lru_cache
def plain_of_many(kind: str) -> list[list[int]]:
    return generate(model(kind), MANY, max_new_tokens=NEW_TOKENS, eos_token_ids=()).token_ids


@pytest.mark.parametrize(
    "kind, name",
    [
        *(("ordinary", name) for name in DRAFTS),
        # Twins of tokens, 1e-4 apart: one wrong token in 144 would show.
        *(("close", name) for name in ("chain-fuzzy2", "self-grown")),
    ],
)
def test_greedy_output_is_the_plain_output(kind, name):
    result = run(name, MANY, kind)
    assert result.token_ids == plain_of_many(kind)
    metrics = result.speculation
    logger.info("{} {}: mean acceptance length {}", kind, name, metrics.mean_acceptance_length)
    assert metrics.num_drafts > 0 and metrics.num_accepted_tokens > 0


@pytest.mark.parametrize("name", ["tree-fuzzy3", "self-chain", "ngram-tree"])
def test_composed_with_alspec(name):
    """Threshold 0 gives the text of exact attention. Above it every kept token is counted as its tree was decided."""
    # The short tail misses at short texts too.
    never, some = (run(name, MANY, policy=ALSpecAttention(bound, GuessRange(32, 32))) for bound in (0.0, 0.4))
    assert never.token_ids == plain_of_many("ordinary")
    assert some.speculation.num_accepted_tokens > 0
    for statistics in (never.statistics, some.statistics):
        counted = statistics.hits + statistics.misses + statistics.bypassed
        # The first token of a text comes from prefill, where nothing speculates.
        assert counted == model().config.num_hidden_layers * len(MANY) * (NEW_TOKENS - 1)
    assert never.statistics.hits == 0 < min(some.statistics.hits, some.statistics.misses)


def test_a_perfect_draft_fills_every_block():
    result = run(perfect(), max_new_tokens=22)
    assert result.token_ids == plain(max_new_tokens=22).token_ids
    metrics = result.speculation
    # 21 tokens after the first, 7 per step.
    assert metrics.num_drafts == 9 and metrics.mean_acceptance_length == 7.0 and metrics.draft_acceptance_rate == 1.0
    assert metrics.acceptance_histogram == [0] * 6 + [9] and metrics.tokens_per_target_step == 7.0
    assert result.decode_tokens == 63 == metrics.num_output_tokens


@pytest.mark.parametrize("at", [2, 4, 7, 8])
@pytest.mark.parametrize("kind", ["eos", "callback"])
def test_a_text_ends_inside_an_accepted_block(kind, at):
    """The end comes at every place of a block: nothing after it is returned, called back, cached or counted."""
    ids = plain(PROMPTS[:1]).token_ids[0]
    end, seen = ids[at], []
    expected = ids[: ids.index(end) + 1]

    def on_token(user, token):
        seen.append(token)
        return kind == "callback" and token == end

    policy = ALSpecAttention(0.0, 32)
    engine = TorchEngine(model(), policy, capacity=200)
    generator = Generator(engine, *perfect())
    eos = [end] if kind == "eos" else ()
    result = generator.generate(PROMPTS[:1], max_new_tokens=NEW_TOKENS, on_token=on_token, eos_token_ids=eos)
    assert result.token_ids == [expected] and seen == expected and result.finish_reason == [kind]
    assert engine.cache.lengths.tolist() == [70 + len(expected) - 1], "the last token is not cached, nor any later one"
    assert generator.cached_ids(0) == [*PROMPTS[0], *expected[:-1]]
    decided = policy.statistics.hits + policy.statistics.misses + policy.statistics.bypassed
    assert decided == model().config.num_hidden_layers * (len(expected) - 1)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9])
def test_the_number_of_tokens_is_exact(limit):
    result = run(perfect(), max_new_tokens=limit)
    assert [len(ids) for ids in result.token_ids] == [limit] * 3 and result.finish_reason == ["length"] * 3
    assert result.token_ids == plain(max_new_tokens=limit).token_ids


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("lengths", [(240, 233, 248), (256,), (255,), (254, 9), (9, 256, 251)], ids=str)
def test_texts_end_where_the_context_does_with_drafts_as_without(name, lengths):
    """Drafts shrink as the context fills, to nothing at its end; users reach it at different times, or begin there."""
    prompts = [small.prompts(1, n, seed=n)[0] for n in lengths]
    result, expected = run(name, prompts, max_new_tokens=40), plain(prompts, max_new_tokens=40)
    assert result.token_ids == expected.token_ids and result.finish_reason == expected.finish_reason
    assert result.finish_reason == ["length" if length == 9 else "context" for length in lengths]


@pytest.mark.parametrize("shape", [CHAIN, DraftShape(3, 2), GROWN])
@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(0.8, seed=4)])
def test_texts_beyond_a_draft_models_context_go_on_without_drafts(shape, sampling, logged):
    """A long prompt ends soon, and its neighbour is then drafted for; another text grows beyond the draft's context."""
    prompts = [small.prompts(1, n, seed=n)[0] for n in (130, 60)]
    drafts = model_drafter(small.resembling(0.1, max_position_embeddings=96)), shape
    ends = {"on_token": lambda user, token: user == 0, "sampling": sampling, "max_new_tokens": 50}
    result = run(drafts, prompts, **ends)
    assert logged == ["the draft model random-draft has a context of 96 tokens: without drafts while a text is longer"]
    assert [len(ids) for ids in result.token_ids] == [1, 50]
    metrics = result.speculation
    assert metrics.num_accepted_tokens > 0 and metrics.num_drafts < 40 < metrics.num_output_tokens
    both = {"max_new_tokens": 3, "sampling": sampling}
    none = run(drafts, prompts, **both)
    assert none.speculation.num_drafts == 0 and none.token_ids == plain(prompts, **both).token_ids
    if sampling.greedy:
        assert result.token_ids == plain(prompts, **ends).token_ids


@pytest.mark.parametrize("name", FEW)
def test_a_users_sampled_text_does_not_depend_on_its_neighbours(name):
    sampling = SamplingParams(0.8, top_p=0.9, seed=5)
    together = run(name, sampling=sampling)
    assert run(name, sampling=sampling).token_ids == together.token_ids
    for user, text in enumerate(PROMPTS):
        alone = run(name, [text], sampling=SamplingParams(0.8, top_p=0.9, seed=5 + user))
        assert alone.token_ids[0] == together.token_ids[user]


@pytest.mark.parametrize("name", ["plain", *FEW])
def test_conversations_continue_after_their_caches(name):
    """Each turn computes what is new; one may be cut back, as when a chat template renders it otherwise."""
    drafter, shape = (None, CHAIN) if name == "plain" else DRAFTS[name]("ordinary")
    done: list[int] = []
    engine = TorchEngine(model(), capacity=256, on_prefill=lambda _, total: done.append(total))
    generator, held = Generator(engine, drafter, shape), [[], []]
    for turn in range(3):
        new = [small.prompts(1, length, seed=50 + length + turn)[0] for length in (12, 20)]
        result = generator.generate(new, max_new_tokens=10, eos_token_ids=(), context=held)
        texts = [[*ids, *more] for ids, more in zip(held, new, strict=True)]
        assert result.token_ids == plain(texts, max_new_tokens=10).token_ids and done[-1] == 12 + 20
        held = [generator.cached_ids(user) for user in range(2)]
        assert held == [[*text, *ids][:-1] for text, ids in zip(texts, result.token_ids, strict=True)]
        held = [ids[: len(ids) - (3 + user) * turn] for user, ids in enumerate(held)]
    first, second = held
    held = "tokens, of which the cache holds the first"
    for context, words in (
        ([first, [-1, 2]], f"user 1 has 2 {held} 0"),
        ([[*first, -1], second], f"user 0 has {len(first) + 1} {held} {len(first)}"),
        ([first], "2 prompts for the contexts of 1 users"),
    ):
        with pytest.raises(ValueError, match=words):
            generator.generate([[4], [4]], max_new_tokens=2, context=context)
    assert generator.cached_ids(0)[: len(first)] == first, "refused before any work"


def test_what_an_interrupted_round_leaves_can_be_continued():
    """Ctrl-C anywhere in a round of a model that drafts for itself, in the target's cache."""
    target = small.target()
    text = [*PROMPTS[0], *plain(PROMPTS[:1]).token_ids[0]]
    for stop in range(2, 12):
        engine = TorchEngine(target, capacity=200)
        generator = Generator(engine, self_drafter(target, 32), DraftShape(5))
        calls = [mock.DEFAULT] * (stop - 1) + [KeyboardInterrupt]
        interrupted = mock.patch.object(target, "forward", side_effect=calls, wraps=target.forward)
        with interrupted, pytest.raises(KeyboardInterrupt):
            generator.generate(PROMPTS[:1], max_new_tokens=NEW_TOKENS, eos_token_ids=())
        held = generator.cached_ids(0)
        assert held == text[: len(held)] and len(held) >= 70
        rest = generator.generate([text[len(held) : 80]], max_new_tokens=10, eos_token_ids=(), context=[held])
        assert rest.token_ids[0] == text[80:90]


def test_the_lossy_mode_runs_and_says_so(logged):
    for shape in (DraftShape(4), DraftShape(3, 2), DraftShape(3, 2, grown=True)):
        drafts = model_drafter(model("near draft")), shape
        result = run(drafts, sampling=SamplingParams(1.0, seed=1), lossy=SigmoidApproximation())
        assert [len(ids) for ids in result.token_ids] == [24] * 3
        # Nearly everything is accepted: that is what makes it lossy.
        assert result.speculation.mean_acceptance_length > 1 + 0.95 * shape.length * 0.9
    assert sum("LOSSY" in line for line in logged) == 3


@pytest.mark.parametrize(
    "drafts, options, words",
    [
        (perfect, {"lossy": SigmoidApproximation()}, "temperature above 0"),
        (
            lambda: (NGramDrafter(), CHAIN),
            {"lossy": SigmoidApproximation(), "sampling": SamplingParams(1.0)},
            "by the ngram drafter has none",
        ),
        (lambda: (NGramDrafter(), GROWN), {}, "no confidence"),
        (lambda: (model_drafter(small.resembling(0.1, vocab_size=80)), CHAIN), {}, "80 token ids.*64"),
        (lambda: (self_drafter(model("draft"), 32), CHAIN), {}, "for itself, not for another"),
        (lambda: (self_drafter(model(), 32), DraftShape(2, 65, budget=99)), {}, "width 65 exceeds .* 64"),
        (perfect, {"prompts": [[1], []]}, "prompt of user 1 is empty"),
        (perfect, {"prompts": [[1], [64]]}, "prompt of user 1 holds token id 64"),
        (perfect, {"context": [[1]] * 3}, "holds the first 0"),
    ],
)
def test_requests_that_cannot_be_served_are_refused_before_any_work(drafts, options, words):
    def worked(done, total):
        raise AssertionError("the request was worked on")

    with pytest.raises(ValueError, match=words):
        run(drafts(), on_prefill=worked, **options)


def test_length_zero_is_plain_decoding():
    result = run((model_drafter(model("draft")), DraftShape(0)))
    assert result.token_ids == plain().token_ids
    metrics = result.speculation
    assert metrics.num_drafts == 0 and metrics.acceptance_histogram == []
    assert metrics.mean_acceptance_length is None and metrics.draft_acceptance_rate is None


class Scripted(Engine):
    """A step of one user yields the next whole number. drafted: tokens of each step's chain."""

    config, capacity, spare, warm_up_steps = TINY, 64, 4, 2

    def __init__(self) -> None:
        self.drafted: list[int] = []

    def open(self, texts, positions, draws):
        """Takes all."""

    def kept(self, user, cached):
        return 0

    def prefill(self, texts, starts):
        yield 0, 0

    def step(self, tokens, trees, positions):
        self.drafted.append(len(trees[0]) - 1)
        return len(self.drafted)

    def verify(self, step, drafts):
        return {0: Outcome([], [step])}


class Zeros(Drafter):
    """Drafts chains of zeros. seen: the tokens that it was given."""

    name = "zeros"

    def __init__(self, in_every_round: bool) -> None:
        self.in_every_round, self.seen, self.rounds = in_every_round, [], 0

    def draft(self, texts, starts, shape, draws):
        self.seen += texts[0][starts[0] :]
        self.rounds += 1
        chain = TokenTree.chain(shape.length + 1)
        return Drafts({0: chain}, {0: [0] * len(chain)})


@pytest.mark.parametrize("always", [False, True])
def test_drafts_become_shorter_where_a_text_ends(always):
    """Nothing is accepted; a drafter whose exact pass gives a chain's first token takes part in every round."""
    engine, drafter = Scripted(), Zeros(always)
    generator = Generator(engine, drafter, DraftShape(3))
    text = generator.generate([prompt(7, 1)], max_new_tokens=17, eos_token_ids=()).token_ids[0]
    assert text == list(range(17)) and generator.warm_up_tokens == engine.warm_up_steps
    assert engine.drafted == 13 * [3] + [2, 1, 0], "the last token is not drafted for"
    assert drafter.seen == text[: len(drafter.seen)], "each token is given once, in order"
    assert drafter.rounds == 15 + always


def test_definitions():
    metrics = TokenSpeculationMetrics()
    for accepted in (3, 0, 1, 3):
        metrics.record_draft(depth=3, nodes=3, accepted=accepted)
    metrics.record_draft(depth=2, nodes=6, accepted=1)
    assert metrics.num_drafts == 5 and metrics.num_draft_tokens == 18 and metrics.num_accepted_tokens == 8
    assert metrics.num_accepted_tokens_per_pos == [4, 2, 2]
    assert metrics.mean_acceptance_length == pytest.approx(1 + 8 / 5)
    assert metrics.draft_acceptance_rate == pytest.approx(8 / 18)
    assert metrics.acceptance_histogram == [1, 2, 0, 2]
    data = json.loads(json.dumps(metrics.to_dict()))
    assert data["num_drafts"] == 5 and data["num_accepted_tokens_per_pos"] == [4, 2, 2]
    twice = TokenSpeculationMetrics.merged([metrics, TokenSpeculationMetrics(), metrics])
    assert twice.acceptance_histogram == [2, 4, 0, 4] and twice.num_draft_tokens == 36
