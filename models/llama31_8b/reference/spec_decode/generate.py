# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Generation with token-level speculation: draft, one target pass over the drafted trees, accept, keep,
calibrate.

Greedy output is, token for token, that of plain `generate` on the same model with exact attention, up to ties that
rounding breaks: a pass over several rows sums in another order than a pass over one. Sampled output has the
target's distribution. The attention policy applies to the target pass, so ALSpec and token-level speculation
compose: a layer goes on with the guess for all nodes of a user's tree or for none (../alspec/acceptance.py). The
target whose text or distribution this is, is then the speculating one, which depends on what was drafted with a token.
"""

from __future__ import annotations

import time
from typing import Callable, Collection, Sequence

import torch

from ...generation.sampling import SamplingParams, choose_tokens, draw_uniforms, make_generators, warp_logits
from ...generation.sequences import TokenCallback, open_sequences
from ...spec_decode.draft_length import AdaptiveDraftLength, FixedDraftLength, StepCosts
from ...spec_decode.metrics import SpeculativeResult, TokenSpeculationMetrics
from ...spec_decode.tree import TokenTree, TokenTreeBatch
from ..alspec.policies import AttentionPolicy, ExactAttention
from ..generate import cache_for
from ..model.kv_cache import KVCache
from ..model.model import ReferenceLlama
from .draft_verification import (
    DraftVerification,
    SigmoidApproximation,
    verify_exact,
    verify_greedy,
    verify_sigmoid,
)
from .drafter import Draft, Drafter


@torch.inference_mode()
def speculative_generate(
    model: ReferenceLlama,
    prompts: Sequence[Sequence[int]],
    drafter: Drafter,
    *,
    max_new_tokens: int = 128,
    sampling: SamplingParams | None = None,
    policy: AttentionPolicy | None = None,
    adaptive: bool = True,
    lossy: SigmoidApproximation | None = None,
    eos_token_ids: Collection[int] | None = None,
    stop_token_ids: Collection[int] = (),
    on_token: TokenCallback | None = None,
    on_prefill: Callable[[int, int], None] | None = None,
    prefill_chunk: int = 512,
    cache: KVCache | None = None,
    context: Sequence[Sequence[int]] | None = None,
) -> SpeculativeResult:
    """Continue each prompt as `generate` does, several tokens per target step.

    drafter: what drafts, and in which shape. adaptive: vary the draft length up to the shape's, and turn drafting off
    while it does not pay; False always drafts the full length. lossy: verify by the sigmoid approximation (needs
    temperature > 0 and a drafter with logits); None is exact. cache: continue after what it holds, as in `generate`;
    context: the ids it holds, which the drafter must know. An end-of-text or stop token inside an accepted block ends
    the text there, as does on_token returning True. With a fixed length a user's sampled tokens depend on its prompt
    and seed alone, until drafts shrink at the end of a context; with an adaptive one the batch shares the draft length,
    so its tokens (never their distribution) depend on the batch too. Raises as generate does, and ValueError for what
    the drafter or verifier cannot serve, before any work.
    """
    sampling = sampling if sampling is not None else SamplingParams()
    policy = policy if policy is not None else ExactAttention()
    texts = _whole_texts(prompts, cache, context)
    capacity = None if cache is None else cache.capacity - int(cache.lengths.max())
    sequences = open_sequences(model.config, prompts, max_new_tokens, eos_token_ids, stop_token_ids, on_token, capacity)
    drafter.check(model.config, texts, max_new_tokens)
    if lossy is not None:
        _check_lossy(lossy, sampling, drafter)
    shape = drafter.shape
    extra = max(shape.budget, shape.width * shape.length + 1)
    generators = make_generators(sampling, len(prompts))
    cache = cache_for(model, prompts, max_new_tokens, extra) if cache is None else cache
    metrics = TokenSpeculationMetrics()

    start = time.perf_counter()
    logits = model.prefill(prompts, cache, prefill_chunk, progress=on_prefill)
    drafter.start(texts, cache, sampling, generators, cache.capacity, keep_logits=lossy is not None)
    lengths = _length_rule(drafter, sampling, adaptive)
    # Drafting less near the end of the longest text would let it decide where its neighbours' draws are
    # spent.
    frugal = sampling.greedy or adaptive
    tokens = choose_tokens(logits, sampling, generators)
    prefilled = time.perf_counter()
    active = [sequence for sequence, token in zip(sequences, tokens) if sequence.push(token)]
    committed = [[token] for token in tokens]  # of each user, since its last draft
    view = None
    while active:
        users = [sequence.user for sequence in active]
        if view is None or view.rows != users:
            view = cache.view(users)
        mine = [generators[user] for user in users]
        began = time.perf_counter()
        draft = _draft(drafter, lengths.next_length(), view, users, committed, active if frugal else [])
        drafted = time.perf_counter()
        verified = _target_step(model, view, policy, draft, sampling, mine, lossy)
        accepted = []
        for row, sequence in enumerate(active):
            nodes = verified.nodes(row)
            used = sequence.push_all([*draft.tokens[row, nodes].tolist(), int(verified.bonus[row])])
            metrics.num_output_tokens += len(used)
            committed[sequence.user] += used
            if draft.trees.width > 1:
                # What follows the end of a text inside an accepted block is neither kept nor counted.
                queries = [0, *nodes][: len(used)]
                view.keep(row, queries)
                if policy.statistics is not None:
                    policy.statistics.keep_queries(row, queries)
            drafted_nodes = int(draft.trees.counts[row]) - 1
            if drafted_nodes:
                depth = int(draft.trees.depth[row].max())
                metrics.record_draft(depth, drafted_nodes, len(nodes))
                accepted.append((depth, len(nodes)))
        if draft.depth:
            drafter.accept(users, verified)
        ended = time.perf_counter()
        metrics.num_target_steps += len(active)
        metrics.draft_seconds += drafted - began
        if draft.depth:
            metrics.calibration_seconds += drafter.calibration_seconds
        metrics.target_seconds += ended - drafted
        lengths.observe(draft.depth, draft.trees.width, accepted, (drafted - began, ended - drafted))
        active = [sequence for sequence in active if sequence.finish_reason is None]
    finished = time.perf_counter()

    times = (start, prefilled, finished)
    return SpeculativeResult.of(sequences, prompts, times, policy.statistics, speculation=metrics)


def _whole_texts(
    prompts: Sequence[Sequence[int]], cache: KVCache | None, context: Sequence[Sequence[int]] | None
) -> list[list[int]]:
    """Return what each user's cache will hold after prefill. Raises ValueError unless `context` is what `cache` holds
    now."""
    if cache is None:
        if context is not None:
            raise ValueError("context describes a cache to continue; none is given")
        return [list(prompt) for prompt in prompts]
    context = context or []
    held, told = cache.lengths.tolist(), [len(ids) for ids in context]
    if held != told or len(held) != len(prompts):
        raise ValueError(
            f"{len(prompts)} prompts after a cache of {held} tokens need context ids of those lengths, got {told}"
        )
    return [[*ids, *prompt] for ids, prompt in zip(context, prompts)]


def _check_lossy(lossy: SigmoidApproximation, sampling: SamplingParams, drafter: Drafter) -> None:
    if sampling.greedy:
        raise ValueError("sigmoid verification needs a temperature above 0; at 0 exact verification is an arg-max")
    if not drafter.has_logits:
        raise ValueError(f"sigmoid verification needs a draft model's logits; the {drafter.name} drafter has none")
    lossy.announce()


def _length_rule(drafter: Drafter, sampling: SamplingParams, adaptive: bool) -> FixedDraftLength | AdaptiveDraftLength:
    shape = drafter.shape
    if not adaptive or shape.length == 0:
        return FixedDraftLength(shape.length)
    rows = 1.0 if shape.width == 1 else (shape.budget - 1) / shape.length
    return AdaptiveDraftLength(shape.length, StepCosts(drafter.step_cost), rows, measured=sampling.greedy)


def _draft(
    drafter: Drafter, length: int, view: KVCache, users: list[int], committed: list[list[int]], ending: list
) -> Draft:
    """Draft at most `length` levels, fewer where all texts in `ending` or a context are about to end; 0 levels are the
    roots alone. Clear from `committed` what the drafter was told."""
    room = view.capacity - int(view.lengths.max())
    # Every step yields one token more than it accepts, so drafting the last token is never worth it.
    left = [min(sequence.max_new_tokens, sequence.room) - len(sequence.token_ids) for sequence in ending]
    length = min(length, max(left, default=length + 1) - 1, room - 1)
    if length < 1:
        roots = torch.tensor([[committed[user][-1]] for user in users])
        return Draft(TokenTreeBatch.shared(TokenTree.chain(1), len(users)), roots)
    draft = drafter.draft(users, [committed[user] for user in users], drafter.shape.within(length, room))
    for user in users:
        committed[user] = []
    return draft


def _target_step(
    model: ReferenceLlama,
    view: KVCache,
    policy: AttentionPolicy,
    draft: Draft,
    sampling: SamplingParams,
    generators: Sequence[torch.Generator],
    lossy: SigmoidApproximation | None,
) -> DraftVerification:
    """Run one target pass over roots and drafted nodes, and verify them. A lone root is committed, as in plain
    decoding."""
    trees, tokens = draft.trees, draft.tokens
    if trees.width == 1:
        logits = model.forward(tokens, view, policy=policy)[:, 0]
        bonus = torch.tensor(choose_tokens(logits, sampling, generators))
        nothing = torch.zeros(len(tokens), dtype=torch.int64)
        return DraftVerification(torch.full((len(tokens), 1), -1), nothing, bonus)
    logits = model.forward(tokens, view, policy=policy, tree=trees, commit=False, logits="all")
    if sampling.greedy:
        best, chosen = logits.max(dim=-1)
        if best.isnan().any():
            raise ValueError("the target's logits hold NaN")
        return verify_greedy(trees, tokens, chosen)
    # Each user draws for its own nodes only: padding to a neighbour's larger tree must not shift its draws.
    uniforms = torch.zeros(trees.batch, trees.width, dtype=torch.float64)
    for row, generator in enumerate(generators):
        count = int(trees.counts[row])
        uniforms[row, :count] = draw_uniforms([generator], count)[0]
    if lossy is not None:
        return verify_sigmoid(trees, tokens, logits, draft.logits, uniforms, sampling, lossy)
    return verify_exact(trees, tokens, warp_logits(logits, sampling), draft.probabilities, uniforms)
