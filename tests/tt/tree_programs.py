# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Greedy decoding of token trees by a small model, in a worker (see sim_worker.py)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.tt_programs import TINY, build, cache_figures, figures

CAPACITY = 96
NODES = 8  # a step's, one of them padding
DEEPEST = 4  # tokens that a tree can add: three drafted ones and the one behind them


def drafted(right: Sequence[int], hits: int, vocab: int) -> tuple[list[int], list[int]]:
    """Parents and tokens of a tree of 7 nodes whose root is right[0]: a decoy and its child come first, then the right
    continuation for `hits` tokens and wrong ones from there on, a decoy at each depth. Accepted rows then move."""
    parents = [-1, 0, 1, 0, 3, 3, 5]
    wrong = [(token + 1) % vocab for token in right]
    path = {3: 1, 5: 2, 6: 3}  # node: depth on the right path
    decoys = {1: 1, 2: 2, 4: 2}
    tokens = [right[0]] + [0] * 6
    for node, depth in path.items():
        tokens[node] = right[depth] if depth <= hits else wrong[depth]
    for node, depth in decoys.items():
        tokens[node] = (right[depth] + 2) % vocab
    return parents, tokens


def rounds(mesh, prompts: list[list[int]], hits: list[list[int]], config=TINY) -> dict:
    """Plain greedy decoding of all users by the reference, then the same text by trees on the device, a round for each
    row of `hits`, the tokens of each user's tree that are right.

    By round and user the figures of all nodes' logits against the reference's, and the accepted tokens; the plain text;
    figures of the caches after the last commit.
    """
    import torch

    from models.llama31_8b.sampling import SamplingParams
    from models.llama31_8b.token_speculation.tree import TokenTree, TokenTreeBatch
    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.tree_step import TreeStep

    users = len(prompts)
    model, reference = build(mesh, config, users=users, capacity=CAPACITY)
    texts, gaps = [], []
    for prompt in prompts:
        plain = reference.new_cache(1, CAPACITY)
        text, wanted = [], reference.prefill([prompt], plain)[0]
        for _ in range(len(hits) * DEEPEST + 1):
            top = wanted.topk(2)
            text.append(int(top.indices[0]))
            gaps.append(float(top.values[0] - top.values[1]))
            wanted = reference.forward(torch.tensor([[text[-1]]]), plain)[0, 0]
        texts.append(text)

    cache = reference.new_cache(users, CAPACITY)
    reference.prefill(prompts, cache)
    for user, prompt in enumerate(prompts):
        model.prefill(prompt, user, 0, last=False)
    lengths, done, told = [len(prompt) for prompt in prompts], [0] * users, []
    step = TreeStep(model, NODES, SamplingParams(0.0))
    for row in hits:
        drafts = {}
        for user, right in enumerate(row):
            parents, tokens = drafted(texts[user][done[user] :], right, config.vocab_size)
            drafts[user] = (TokenTree.from_parents(parents), tokens)
        step.load(drafts, lengths, ())
        verified = step()
        got = read(step.logits)[0, 0].float().reshape(users, NODES, -1)
        batch = TokenTreeBatch.stack([tree for tree, _ in drafts.values()])
        ids = torch.tensor([tokens for _, tokens in drafts.values()])
        wanted = reference.forward(ids, cache, tree=batch, commit=False, logits="all")
        found = []
        for user, outcome in enumerate(verified.check()):
            ours = got[user, : batch.width]
            found.append(figures(ours, wanted[user]) | {"tokens": outcome.tokens, "path": outcome.path})
            cache.user(user).keep(0, [0, *outcome.path])
            lengths[user] += len(outcome.tokens)
            done[user] += len(outcome.tokens)
        told.append(found)
    return {
        "rounds": told,
        "texts": texts,
        "gap": min(gaps),
        "cache": cache_figures(model, cache, lengths),
    }


def texts(mesh, prompts: list[list[int]], new_tokens: int, params) -> dict:
    """The texts of TreeGenerator with trees of 3 x 2 in 7 nodes, those of the reference's loop with equal drafts and
    seeds, how often a trace was replayed, and the metrics of both."""
    from dataclasses import asdict

    from models.llama31_8b.reference.token_speculation.generate import speculative_generate
    from models.llama31_8b.reference.token_speculation.ngram_drafter import NGramDrafter
    from models.llama31_8b.token_speculation.draft_shape import DraftShape
    from models.llama31_8b.tt.tree_generator import TreeGenerator
    from tests.tt.trace_programs import SMALLEST

    shape = DraftShape(3, 2, budget=7)
    model, reference = build(mesh, SMALLEST, users=len(prompts), capacity=CAPACITY)
    generator = TreeGenerator(model, shape, prefill_chunk=32)
    request = {"max_new_tokens": new_tokens, "sampling": params, "eos_token_ids": ()}
    found = generator.generate(prompts, **request)
    wanted = speculative_generate(reference, prompts, NGramDrafter(shape), adaptive=False, **request)
    told = {"replays": generator.replays, "why_eager": generator.why_eager}
    for name, result in (("found", found), ("wanted", wanted)):
        counts = asdict(result.speculation)
        times = {key: counts.pop(key) for key in ("draft_seconds", "target_seconds")}
        told[name] = {"texts": result.token_ids, "ends": result.finish_reason, "counts": counts}
        told[name]["seconds"] = times
    return told
