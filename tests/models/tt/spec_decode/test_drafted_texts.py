# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Whole texts with drafts on simulated chips, by every drafter, against the reference's loop with the same drafts and
against plain decoding; on one chip, on a row of two, and on a pair that speculates on attention as well."""

from dataclasses import dataclass, replace

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict, tensor_shapes
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.reference import generate as by_reference
from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.spec_decode.draft_settings import DraftShape, groups_of
from models.llama31_8b.spec_decode.drafters import NGramDrafter
from models.llama31_8b.tiny import TINY
from models.llama31_8b.tt.layer_parallel import LayerAssignment
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.settings import ModelSettings
from tests.models.tt.pair_programs import build_pair
from tests.support.tt_programs import NEAR_TIE, SMALLEST, build, cache_figures, check_rows, prompt, repeating

GREEDY = SamplingParams(0.0)
WINDOW = 32  # keys at either end that a model drafts over for itself
TWO_LAYERS = replace(TINY, num_attention_heads=1)
# A head and 64 columns of the MLP for each chip of a row of two.
OF_A_ROW = replace(TINY, num_key_value_heads=2, intermediate_size=128)


@dataclass(frozen=True)
class Case:
    """Texts of `new_tokens`, greedy or by `params`, of a model with seed 0's weights, in a cache of `capacity`.

    drafter: "ngram"; "model", of the same weights' first `draft_layers`, in groups `fuzzy`, if any, which run in
    parallel; or "self". drafts: the reference's, and how many of their tokens are accepted. plain: whether the text is
    that of plain decoding. replays: of traces, None if any will do. threshold: of a pair's acceptance, whose guess
    reads BY_BUDGET; None for exact attention. decisions: of the pair, hits and others.
    """

    drafter: str
    prompts: list[list[int]]
    new_tokens: int
    shape: DraftShape
    drafts: tuple[int, int]
    config: LlamaConfig = TWO_LAYERS
    mesh: tuple[int, int] = (1, 1)
    params: SamplingParams = GREEDY
    capacity: int = 96
    draft_layers: int = 1
    fuzzy: list[list[int]] | None = None
    plain: bool = True
    ends: str = "length"
    replays: int | None = None
    threshold: float | None = None
    decisions: tuple[int, int] | None = None


def written(mesh, case: Case) -> dict:
    """Return texts of the chips, of the reference's loop with the same drafts, and of plain decoding; of the former two
    how they ended and the metrics; times, traces replayed and why none; of a drafter that writes keys and values
    figures of its cache against a plain pass over what was decided; of a draft model by round and user how far the
    tokens of each chain are from its reference's; of a pair hits and other decisions, the reference's too, and
    failures."""
    from models.llama31_8b.tt.generator import Generator
    from models.llama31_8b.tt.model import TtLlama, read
    from models.llama31_8b.tt.spec_decode import drafters

    users, config, state, policy = len(case.prompts), case.config, random_state_dict(case.config, 0), None
    if case.threshold is None:
        model, reference = build(mesh, config, users=users, capacity=case.capacity)
    else:
        model, _ = build_pair(mesh, config, state, capacity=case.capacity, threshold=case.threshold, **BY_BUDGET)
        reference = ReferenceLlama.from_state_dict(config, state)
        policy = ALSpecAttention(case.threshold, GuessRange.by_budget(**BY_BUDGET))
    small = small_reference = drafter = None
    form, theirs = case.shape, NGramDrafter()
    if case.drafter == "model":
        part = config.with_layers(case.draft_layers)
        small_state = {name: value for name, value in state.items() if name in tensor_shapes(part)}
        layers = None if case.fuzzy is None else LayerAssignment.make(part, MeshShape(*mesh.shape), case.fuzzy)
        settings = ModelSettings(users, case.capacity, "bfloat16", layer_assignment=layers)
        small = TtLlama.from_state_dict(part, small_state, mesh, settings)
        small_reference = ReferenceLlama.from_state_dict(part, small_state)
        drafter = drafters.ModelDrafter(small, prefill_chunk=32)
        # A step on the chips has as many nodes as `width` chains.
        form = replace(form, budget=form.most_nodes)
        theirs = by_reference.model_drafter(small_reference, fuzzy=case.fuzzy)
    elif case.drafter == "self":
        small, small_reference = model, reference
        drafter, theirs = drafters.self_drafter(model, WINDOW), by_reference.self_drafter(reference, WINDOW)
    rounds: list[dict] = []

    def record(engine, drafts, outcomes) -> None:
        rows = read(engine.tree_step.tokens).tolist()  # chains stay on the chips
        told = {user: [int(token) for token in rows[user][: len(tree)]] for user, tree in drafts.trees.items()}
        rounds.append({user: (tokens, outcomes[user].tokens) for user, tokens in told.items()})

    on_step = record if case.drafter == "model" else None
    generator = Generator(model, case.shape, drafter, prefill_chunk=32, on_step=on_step)
    request = {"max_new_tokens": case.new_tokens, "sampling": case.params, "eos_token_ids": ()}
    found = generator.generate(case.prompts, **request)
    wanted = by_reference.generate(reference, case.prompts, drafter=theirs, shape=form, policy=policy, **request)
    told: dict = {"plain": by_reference.generate(reference, case.prompts, **request).token_ids}
    told |= {"replays": generator.engine.replays, "why_eager": generator.engine.why_eager}
    for name, result in (("found", found), ("wanted", wanted)):
        counts = result.speculation.to_dict()
        told[name] = {"texts": result.token_ids, "ends": result.finish_reason}
        told[name]["seconds"] = {key: counts.pop(key) for key in [*counts] if key.endswith("_seconds")}
        told[name]["counts"] = counts
    if policy is not None:
        hits = [int(step.accepted[:, 0, 0].sum()) for step in policy.statistics.steps]
        counted, told["failures"] = found.statistics, found.statistics.failures
        told["found"]["decisions"] = counted.hits, counted.misses + counted.bypassed
        told["wanted"]["decisions"] = sum(hits), len(hits) - sum(hits)
    if case.drafter == "model" and case.shape.width == 1:
        told["chains"], texts = [], [text + new[:1] for text, new in zip(case.prompts, found.token_ids, strict=True)]
        for drafts in rounds:
            for user, (tokens, new) in drafts.items():
                if len(tokens) > 1:
                    told["chains"].append(below_the_best(small_reference, texts[user], tokens[1:], case.fuzzy))
                texts[user] = texts[user] + new
    if small is not None and policy is None:
        # The last token of a text has no keys yet, and a draft model's cache is a round behind.
        decided = [prompt + text[:-1] for prompt, text in zip(case.prompts, found.token_ids, strict=True)]
        known = generator._known if case.drafter == "model" else map(len, decided)
        lengths = [min(held, len(text)) for held, text in zip(known, decided, strict=True)]
        cache = small_reference.new_cache(users, case.capacity)
        small_reference.prefill([text[:length] for text, length in zip(decided, lengths, strict=True)], cache)
        told["cache"] = cache_figures(small, cache, lengths)
    logger.info("{}", told)
    return told


def below_the_best(model, text: list[int], drafted: list[int], fuzzy: list[list[int]] | None) -> list[float]:
    """How far the reference's logit of each drafted token behind a text is below the likeliest one's, all but the first
    by a step in these groups of layers."""
    groups = None if fuzzy is None else groups_of(model.config.num_hidden_layers, fuzzy)
    cache, found = model.new_cache(1, len(text) + len(drafted)), []
    logits = model.prefill([text], cache)[0]
    for index, token in enumerate(drafted):
        if index:
            logits = model.forward(torch.tensor([[drafted[index - 1]]]), cache, layer_groups=groups)[0, 0]
        found.append(float(logits.max() - logits[token]))
    return found


TREES = DraftShape(3, 2, budget=7)
# Of two users: drafts are accepted, rejected and missing, and no two best logits of their texts lie closer than 0.07.
LOOKED_UP = [repeating(48), repeating(146)]
# Of whose text no two best logits lie closer than 0.06.
LONG = [prompt(12, 1)]
BY_BUDGET = {"chunk_size": 32, "budget": 0.75}
CASES = {
    # The users end apart.
    "look-up": Case("ngram", LOOKED_UP, 6, TREES, (4, 3), SMALLEST, replays=3),
    # At a temperature at which drafts are accepted and rejected, equal seeds give equal texts.
    "look-up, drawn": Case(
        "ngram", LOOKED_UP[:1], 5, TREES, (2, 2), SMALLEST, params=SamplingParams(0.2, seed=5), plain=False
    ),
    # The nodes of a step go behind a context of 64, into positions that no text has.
    "look-up to the end of the context": Case(
        *("ngram", [repeating(48) + prompt(38, 3), repeating(146)], 4, TREES, (1, 0)),
        replace(SMALLEST, max_position_embeddings=64),
        ends="context",
    ),
    # The first layer drafts for both, for two users, who end apart; its cache is calibrated by one pass a round over
    # what was decided. Chains are shorter at the end of a text.
    "chains": Case("model", [prompt(12, 89), prompt(20, 48)], 4, DraftShape(2), (3, 3), replays=1),
    # From the draft's distribution, by numbers that come before verification's, which lie far from a border.
    "chains, drawn": Case(
        "model", [prompt(12, 7)], 7, DraftShape(2), (3, 3), params=SamplingParams(0.3, seed=5), plain=False
    ),
    # A chain of first candidates has one token less accepted in a round more.
    "trees": Case("model", [prompt(12, 20)], 6, DraftShape(2, 2), (2, 2), replays=1),
    # Over 64 to 95 of up to 101 cached tokens, without a cache of its own: what it wrote there is overwritten.
    "self": Case("self", [prompt(97, 77)], 5, DraftShape(2), (2, 2), TINY.with_layers(1), capacity=128, replays=1),
    # Two layers read the same input. Sequential drafts of the same weights would all be accepted.
    "parallel layers": Case("model", [prompt(12, 21)], 5, DraftShape(2), (2, 2), draft_layers=2, fuzzy=[[0, 1]]),
    "long": Case("model", LONG, 24, DraftShape(4), (13, 10), OF_A_ROW, (1, 2)),
    "long, parallel layers": Case(
        "model", LONG, 24, DraftShape(4), (5, 17), OF_A_ROW, (1, 2), draft_layers=2, fuzzy=[[0, 1]]
    ),
    "chains of a row": Case("model", LONG, 9, DraftShape(2), (5, 2), OF_A_ROW, (1, 2), replays=5),
    # A model drafts on both rows, its rounds stay on the chips, and nothing is accepted: the plain text.
    "pair, chains at threshold 0": Case(
        *("model", [prompt(130, 11)], 7, DraftShape(2), (2, 4), SMALLEST, (2, 1)),
        *(GREEDY, 192),
        threshold=0.0,
        decisions=(0, 2),
    ),
    # Hits after the first step, by its attention weights, change the text.
    "pair, self by a budget": Case(
        *("self", [prompt(130, 11)], 7, DraftShape(2), (3, 2), SMALLEST, (2, 1)),
        *(GREEDY, 192),
        plain=False,
        threshold=0.5,
        decisions=(3, 1),
    ),
}
# Steps cost less with slow dispatch, where none is replayed.
QUICK = {
    "look-up": "fast",
    **dict.fromkeys(("look-up, drawn", "look-up to the end of the context", "chains", "chains, drawn"), "slow"),
    **dict.fromkeys(("trees", "self"), "slow"),
}
LONGER = [(name, "fast") for name in ("look-up, drawn", "chains", "chains, drawn", "trees", "self")]
LONGER += [("parallel layers", dispatch) for dispatch in ("slow", "fast")]
LONGER += [("long", "slow"), ("long, parallel layers", "slow"), ("chains of a row", "fast")]
LONGER += [(name, "slow") for name in CASES if name.startswith("pair")]
GRIDS = {(1, 1): "2x1", (1, 2): "4x2", (2, 1): "2x2"}  # a reduction over the two chips of a row wants eight cores


@pytest.mark.sim
@pytest.mark.timeout(5400)
@pytest.mark.parametrize(
    "name, dispatch", [*QUICK.items(), *(pytest.param(*run, marks=pytest.mark.slow) for run in LONGER)]
)
def test_texts_and_their_metrics_are_the_references(sim_device, sim_mesh, name, dispatch):
    case = CASES[name]
    on = {"dispatch": dispatch}
    single = case.mesh == (1, 1)
    worker = sim_device(GRIDS[case.mesh], **on) if single else sim_mesh(case.mesh, GRIDS[case.mesh], **on)
    told = worker.run(written, case, timeout=5300)
    found, wanted = told["found"], told["wanted"]
    assert found["texts"] == wanted["texts"] and (found["texts"] == told["plain"]) == case.plain
    assert found["ends"] == wanted["ends"] and found["ends"][0] == case.ends
    counts = [{key: each["counts"][key] for key in ("num_drafts", "num_accepted_tokens")} for each in (found, wanted)]
    assert tuple(counts[1].values()) == case.drafts
    # Where the reference's draft has a near tie, chains may differ, and with them how many tokens a round accepts.
    below = [gap for chain in told.get("chains", ()) for gap in chain]
    if "chains" in told and case.params.greedy:
        assert max(below) < NEAR_TIE and below.count(0.0) > len(below) / 2
        assert counts[0]["num_drafts"] == len(told["chains"])
    if not case.params.greedy or not any(below):
        assert counts[0] == counts[1]
    if case.drafter == "ngram" and case.ends == "length":  # at a context's end the chips have room for longer drafts
        assert found["counts"] == wanted["counts"]
    if case.drafter == "model":
        assert 0 < found["seconds"]["calibration_seconds"] < found["seconds"]["draft_seconds"]
    check_rows("cache", told.get("cache", []))
    assert found.get("decisions") == wanted.get("decisions") == case.decisions and not told.get("failures")
    assert (told["why_eager"] is None) == (dispatch == "fast")
    replays = 0 if dispatch == "slow" else case.replays
    assert told["replays"] > 0 if replays is None else told["replays"] == replays
