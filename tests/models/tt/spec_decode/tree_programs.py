# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Greedy decoding of token trees by a small model, in a worker (see sim_worker.py)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.models.tt.speculation_programs import load_cache
from tests.support.tt_programs import TINY, build, cache_figures, figures

CAPACITY = 96
SELF_CAPACITY = 128  # a guess of 32 tokens at either end leaves keys out from 96 cached ones on
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

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch
    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep

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
    # What prompts leave: a simulated prefill takes as long as several rounds.
    cached = [[tensor.clone() for tensor in part] for part in (cache.keys, cache.values)]
    for tensor in (*cached[0], *cached[1]):
        for user, prompt in enumerate(prompts):
            tensor[user, :, len(prompt) :] = 0
    load_cache(model, *cached)
    lengths, done, told = [len(prompt) for prompt in prompts], [0] * users, []
    step = TreeStep(model, NODES, SamplingParams(0.0))
    for row in hits:
        drafts = {}
        for user, right in enumerate(row):
            parents, tokens = drafted(texts[user][done[user] :], right, config.vocab_size)
            drafts[user] = (TokenTree.from_parents(parents), tokens)
        step.load(drafts, lengths)
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


def row_config(mesh, config):
    """`config` for the chips of a row: one as it is, several with a head and 64 columns of the MLP each."""
    from dataclasses import replace

    chips = mesh.shape[1]
    if chips == 1:
        return config
    return replace(config, num_attention_heads=chips, num_key_value_heads=chips, intermediate_size=64 * chips)


def texts(mesh, prompts: list[list[int]], new_tokens: int, params, context: int = 256) -> dict:
    """The texts of the generator with trees of 3 x 2 in 7 nodes, those of the reference's loop with equal drafts and
    seeds and of plain decoding, how often a trace was replayed, and the metrics of both."""
    from dataclasses import replace

    from models.llama31_8b.reference.generate import generate
    from models.llama31_8b.spec_decode.draft_settings import DraftShape
    from models.llama31_8b.spec_decode.drafters import NGramDrafter
    from models.llama31_8b.tt.generator import Generator
    from tests.models.tt.trace_programs import SMALLEST

    shape = DraftShape(3, 2, budget=7)
    config = replace(row_config(mesh, SMALLEST), max_position_embeddings=context)
    model, reference = build(mesh, config, users=len(prompts), capacity=CAPACITY)
    generator = Generator(model, shape, prefill_chunk=32)
    request = {"max_new_tokens": new_tokens, "sampling": params, "eos_token_ids": ()}
    found = generator.generate(prompts, **request)
    wanted = generate(reference, prompts, drafter=NGramDrafter(), shape=shape, **request)
    told = {"replays": generator.replays, "why_eager": generator.why_eager}
    told["plain"] = generate(reference, prompts, **request).token_ids
    for name, result in (("found", found), ("wanted", wanted)):
        counts = result.speculation.to_dict()
        times = {key: counts.pop(key) for key in [*counts] if key.endswith("_seconds")}
        told[name] = {"texts": result.token_ids, "ends": result.finish_reason, "counts": counts}
        told[name]["seconds"] = times
    return told


def texts_by_a_draft_model(
    mesh,
    prompts: list[list[int]],
    new_tokens: int,
    length: int,
    fuzzy: list[list[int]] | None = None,
    width: int = 1,
    params=None,
) -> dict:
    """Texts, greedy or by `params`, of a two-layer model whose first layer drafts chains of `length` tokens, or trees
    of `width` candidates a node, those of the reference's loop with the same drafts and of plain decoding, the metrics
    of both, by round and user how far the tokens of each chain are from the reference's, traces replayed, and figures
    of the draft's cache against a plain pass over what was decided.

    fuzzy: groups of layers of the draft, which is then both layers: what it drafts wrong comes of the groups alone.
    """
    from dataclasses import replace

    from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict, tensor_shapes
    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.reference.generate import generate, model_drafter
    from models.llama31_8b.reference.model.model import ReferenceLlama
    from models.llama31_8b.spec_decode.draft_settings import DraftShape
    from models.llama31_8b.tt.generator import Generator
    from models.llama31_8b.tt.layer_parallel import LayerAssignment
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.model import TtLlama, read
    from models.llama31_8b.tt.settings import ModelSettings
    from models.llama31_8b.tt.spec_decode.drafters import ModelDrafter

    users, shape = len(prompts), DraftShape(length, width)
    config = row_config(mesh, replace(TINY, num_attention_heads=1))
    model, reference = build(mesh, config, users=users, capacity=CAPACITY)
    small = config.with_layers(1 if fuzzy is None else 2)
    layers = None if fuzzy is None else LayerAssignment.make(small, MeshShape(*mesh.shape), fuzzy)
    state = {name: value for name, value in random_state_dict(config, 0).items() if name in tensor_shapes(small)}
    settings = ModelSettings(users=users, capacity=CAPACITY, precision="bfloat16", layer_assignment=layers)
    draft = TtLlama.from_state_dict(small, state, mesh, settings)
    small_reference = ReferenceLlama.from_state_dict(small, state)
    drafter, rounds = ModelDrafter(draft, prefill_chunk=32), []

    def record(engine, drafts, outcomes) -> None:
        rows = read(engine.tree_step.tokens).tolist()  # chains stay on the chips
        told = {user: [int(token) for token in rows[user][: len(tree)]] for user, tree in drafts.trees.items()}
        rounds.append({user: (tokens, outcomes[user].tokens) for user, tokens in told.items()})

    generator = Generator(model, shape, drafter, prefill_chunk=32, on_step=record)
    request = {"max_new_tokens": new_tokens, "sampling": params or SamplingParams(0.0), "eos_token_ids": ()}
    found = generator.generate(prompts, **request)
    # A step on the chips has as many nodes as `width` chains.
    form = replace(shape, budget=shape.most_nodes)
    wanted = generate(reference, prompts, drafter=model_drafter(small_reference, fuzzy=fuzzy), shape=form, **request)
    plain = generate(reference, prompts, **request)
    chains, texts = [], [prompt + text[:1] for prompt, text in zip(prompts, found.token_ids, strict=True)]
    for drafts in rounds:
        for user, (tokens, new) in drafts.items():
            if len(tokens) > 1:
                chains.append(below_the_best(small_reference, texts[user], tokens[1:], fuzzy))
            texts[user] = texts[user] + new
    decided = [prompt + text for prompt, text in zip(prompts, found.token_ids, strict=True)]
    lengths = [min(known, len(text)) for known, text in zip(generator._known, decided, strict=True)]
    cache = small_reference.new_cache(users, CAPACITY)
    small_reference.prefill([text[:known] for text, known in zip(decided, lengths, strict=True)], cache)
    return {
        "texts": (found.token_ids, wanted.token_ids, plain.token_ids),
        "counts": [
            {name: getattr(result.speculation, name) for name in ("num_drafts", "num_accepted_tokens")}
            for result in (found, wanted)
        ],
        "chains": chains if width == 1 else [],
        "seconds": [getattr(found.speculation, f"{part}_seconds") for part in ("calibration", "draft", "target")],
        "replays": generator.replays,
        "lengths": lengths,
        "cache": cache_figures(draft, cache, lengths),
    }


def below_the_best(model, text: list[int], drafted: list[int], fuzzy: list[list[int]] | None) -> list[float]:
    """How far the reference's logit of each drafted token behind a text is below the likeliest one's, all but the first
    by a step in these groups of layers."""
    import torch

    from models.llama31_8b.spec_decode.draft_settings import resolve

    groups = resolve(model.config.num_hidden_layers, fuzzy)
    cache, found = model.new_cache(1, len(text) + len(drafted)), []
    logits = model.prefill([text], cache)[0]
    for index, token in enumerate(drafted):
        if index:
            logits = model.forward(torch.tensor([[drafted[index - 1]]]), cache, layer_groups=groups)[0, 0]
        found.append(float(logits.max() - logits[token]))
    return found


def texts_by_itself(mesh, prompts: list[list[int]], new_tokens: int, length: int, window: int) -> dict:
    """Greedy texts of a model that drafts for itself over the first and last `window` cached tokens, those of the
    reference's loop with the same drafts and of plain decoding, the metrics of both, traces replayed, and figures of
    the cache against a plain pass over the text."""

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.reference.generate import generate
    from models.llama31_8b.reference.generate import self_drafter as reference_drafter
    from models.llama31_8b.spec_decode.draft_settings import DraftShape
    from models.llama31_8b.tt.generator import Generator
    from models.llama31_8b.tt.spec_decode.drafters import self_drafter

    shape = DraftShape(length)
    config = row_config(mesh, TINY.with_layers(1))
    model, reference = build(mesh, config, users=len(prompts), capacity=SELF_CAPACITY)
    generator = Generator(model, shape, self_drafter(model, window), prefill_chunk=32)
    request = {"max_new_tokens": new_tokens, "sampling": SamplingParams(0.0), "eos_token_ids": ()}
    found = generator.generate(prompts, **request)
    wanted = generate(reference, prompts, drafter=reference_drafter(reference, window), shape=shape, **request)
    plain = generate(reference, prompts, **request)
    # The last token of a text has no keys yet.
    decided = [prompt + text[:-1] for prompt, text in zip(prompts, found.token_ids, strict=True)]
    cache = reference.new_cache(len(prompts), SELF_CAPACITY)
    reference.prefill(decided, cache)
    return {
        "texts": (found.token_ids, wanted.token_ids, plain.token_ids),
        "counts": [
            {name: getattr(result.speculation, name) for name in ("num_drafts", "num_accepted_tokens")}
            for result in (found, wanted)
        ],
        "replays": generator.replays,
        "cache": cache_figures(model, cache, [len(text) for text in decided]),
    }
