# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The reference as an engine of the generation loop, and as a model that drafts. Loop and drafters are those of all
backends; the model, its attention policies and the rules of verification are its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Generator as Yielding
from typing import Any, NamedTuple

import torch
from loguru import logger

from ..generation.sampling import Draws, SamplingParams, SigmoidApproximation, choose_tokens, warp_logits
from ..results import AttentionStatistics, GenerationResult
from ..spec_decode import drafters
from ..spec_decode.draft_settings import SELF_WINDOW, DraftShape, check_vocabularies, groups_of
from ..spec_decode.loop import Drafter, Drafts, Engine, Generator, Outcome
from ..spec_decode.tree import TokenTreeBatch, UserNumbers, UserTokens, UserTrees
from .alspec.policies import AttentionPolicy, ExactAttention, SinkAttention
from .load import LoadedModel, load_model
from .model.model import ReferenceLlama
from .spec_decode.draft_verification import verify_exact, verify_greedy, verify_sigmoid


class TorchEngine(Engine):
    """The reference model. policy: attention of its steps, exact by default; prefill is exact. capacity: cached
    positions per user of a cache that is kept from call to call; None for a new cache, as large as needed, in each.
    on_prefill(done, total): counts prompt tokens."""

    def __init__(
        self,
        model: ReferenceLlama,
        policy: AttentionPolicy | None = None,
        *,
        capacity: int | None = None,
        lossy: SigmoidApproximation | None = None,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> None:
        self.model, self.config, self.policy = model, model.config, policy or ExactAttention()
        self.capacity = capacity or self.config.max_position_embeddings
        self.lossy, self.on_prefill = lossy, on_prefill
        self.cache, self._keeps = model.new_cache(1, capacity or 1), capacity is not None

    def open(self, texts: int, positions: int, draws: Draws) -> None:
        self.policy.reset()
        self.draws = draws
        if self.cache.batch != texts or not self._keeps:
            wanted = self.capacity if self._keeps else min(positions, self.capacity)
            self.cache = self.model.new_cache(texts, wanted)

    def kept(self, user: int, cached: int) -> int:
        return min(cached, int(self.cache.lengths[user]))

    def prefill(self, texts: Sequence[Sequence[int]], starts: Sequence[int]) -> Yielding[tuple[int, int], None, None]:
        self.cache.truncate(starts)
        new = [text[start:] for text, start in zip(texts, starts)]
        logits = self.model.prefill(new, self.cache, progress=self.on_prefill)
        yield from enumerate(choose_tokens(logits, self.draws.sampling, self.draws.generators))

    def step(
        self, tokens: UserTokens, trees: UserTrees, positions: UserNumbers
    ) -> tuple[list[int], TokenTreeBatch, torch.Tensor, torch.Tensor]:
        """Return users, trees, tokens int64 [users, nodes] and logits float32 [users, nodes, vocab]."""
        users = list(positions)
        self._view = self.cache.view(users)
        self._view.truncate(list(positions.values()))
        batch = TokenTreeBatch.stack([trees[user] for user in users])
        ids = torch.tensor([[*tokens[user], *[0] * (batch.width - len(tokens[user]))] for user in users])
        tree = None if batch.width == 1 else batch
        logits = self.model.forward(ids, self._view, policy=self.policy, tree=tree, commit=False, logits="all")
        return users, batch, ids, logits

    def verify(self, step: Any, drafts: Drafts) -> dict[int, Outcome]:
        users, trees, tokens, logits = step
        sampling = self.draws.sampling
        if trees.width == 1:
            chosen = choose_tokens(logits[:, 0], sampling, [self.draws.generators[user] for user in users])
            return {user: Outcome([], [token]) for user, token in zip(users, chosen)}
        if sampling.greedy:
            best, choices = logits.max(dim=-1)
            if best.isnan().any():
                raise ValueError("the target's logits hold NaN")
            verified = verify_greedy(trees, tokens, choices)
        else:
            # Each user draws for its own nodes only: padding to a neighbour's larger tree must not shift its draws.
            uniforms = torch.zeros(trees.batch, trees.width, dtype=torch.float64)
            for row, (user, count) in enumerate(zip(users, trees.counts.tolist())):
                uniforms[row, :count] = self.draws.uniforms([user], count)[0]
            if self.lossy is not None:
                verified = verify_sigmoid(trees, tokens, logits, drafts.logits, uniforms, sampling, self.lossy)
            else:
                drawn = warp_logits(drafts.logits, sampling) if drafts.drawn else None
                verified = verify_exact(trees, tokens, warp_logits(logits, sampling), drawn, uniforms)
        outcomes = {}
        for row, user in enumerate(users):
            path = verified.nodes(row)
            outcomes[user] = Outcome(path, [*tokens[row, path].tolist(), int(verified.bonus[row])])
        return outcomes

    def commit(self, user: int, nodes: Sequence[int]) -> None:
        """Keep what is text: neither kept nor counted is what follows its end inside an accepted path."""
        statistics = self.policy.statistics
        row = self._view.rows.index(user)
        self._view.keep(row, nodes)
        if statistics is not None and statistics.steps[-1].counted.shape[1] > 1:
            statistics.keep_queries(row, nodes)

    def statistics(self) -> AttentionStatistics | None:
        return self.policy.statistics


class TorchScores(NamedTuple):
    """See Scores."""

    users: list[int]
    logits: torch.Tensor

    def top(self, width: int) -> dict[int, list[list[int]]]:
        return dict(zip(self.users, self.logits.topk(min(width, self.logits.shape[-1]), dim=-1).indices.tolist()))


class TorchDraft:
    """A DraftModel in torch. fuzzy: layers in parallel, None for sequential ones.
    policy: its attention. own_cache: False drafts in the target's, of which it must be the model."""

    gives_logits = True

    def __init__(
        self,
        model: ReferenceLlama,
        *,
        fuzzy: int | None = None,
        policy: AttentionPolicy | None = None,
        own_cache: bool = True,
    ) -> None:
        self.model, self.config, self.policy, self.own_cache = model, model.config, policy, own_cache
        self.layer_groups = None if fuzzy is None else groups_of(self.config.num_hidden_layers, fuzzy)
        self.cache = model.new_cache(1, 1)

    @property
    def capacity(self) -> int:
        return self.cache.capacity

    def check(self, shape: DraftShape, engine: Engine) -> None:
        if not self.own_cache and getattr(engine, "model", None) is not self.model:
            raise ValueError("a model drafts for itself, not for another")

    def prefill(self, texts: Sequence[Sequence[int]], known: Sequence[int], positions: int) -> None:
        capacity = min(positions, self.config.max_position_embeddings)
        if self.cache.batch != len(texts) or self.cache.capacity < capacity:
            self.cache = self.model.new_cache(len(texts), capacity)
        held = self.cache.lengths.tolist()
        # Prefill needs at least one token per user.
        starts = [min(count, has, len(text) - 1) for count, has, text in zip(known, held, texts)]
        self.cache.truncate(starts)
        self.model.prefill([text[start:] for text, start in zip(texts, starts)], self.cache)

    def begin(self, engine: Engine, shape: DraftShape) -> None:
        if not self.own_cache and isinstance(engine, TorchEngine):
            self.cache = engine.cache

    def exact(self, decided: UserTokens, starts: UserNumbers) -> TorchScores:
        users = list(decided)
        self._view = view = self.cache.view(users)
        view.truncate([starts[user] for user in users])
        counts = [len(tokens) for tokens in decided.values()]
        longest = max(counts)
        if min(counts) == longest:
            return TorchScores(
                users, self.model.forward(torch.tensor(list(decided.values())), view, policy=self.policy)
            )
        if max(starts.values()) + longest > view.capacity:  # padding would not fit after the longest text
            rows = [
                self.model.forward(torch.tensor([tokens]), view.user(row), policy=self.policy)
                for row, tokens in enumerate(decided.values())
            ]
            return TorchScores(users, torch.cat(rows))
        padded = torch.tensor([[*tokens, *[0] * (longest - len(tokens))] for tokens in decided.values()])
        every = self.model.forward(padded, view, policy=self.policy, commit=False, logits="all")
        for row, count in enumerate(counts):
            view.keep(row, range(count))
        return TorchScores(users, every[torch.arange(len(users)), torch.tensor(counts) - 1][:, None])

    def follow(self, tokens: UserNumbers, positions: UserNumbers) -> TorchScores:
        self._view.truncate(list(positions.values()))
        ids = torch.tensor(list(tokens.values()))[:, None]
        logits = self.model.forward(ids, self._view, policy=self.policy, layer_groups=self.layer_groups)
        return TorchScores(list(tokens), logits)

    def level(self, forests: UserTrees, tokens: UserTokens, positions: UserNumbers, span: slice) -> TorchScores:
        batch = TokenTreeBatch.stack(list(forests.values()))
        parts = {name: getattr(batch, name)[:, : span.stop] for name in ("parents", "enter", "leave", "depth")}
        logits = self.model.forward(
            torch.tensor([list(given[span]) for given in tokens.values()]),
            self._view,
            policy=self.policy,
            tree=TokenTreeBatch(**parts, counts=batch.counts),
            layer_groups=self.layer_groups,
            commit=False,
            logits="all",
        )
        return TorchScores(list(tokens), logits)

    def end(self) -> None:
        """Nothing to release."""


def model_drafter(model: ReferenceLlama, *, fuzzy: int | None = None) -> drafters.ModelDrafter:
    """Return a drafter with a Llama of the target's vocabulary. fuzzy: see TorchDraft. Raises ValueError."""
    return drafters.ModelDrafter(TorchDraft(model, fuzzy=fuzzy))


def self_drafter(model: ReferenceLlama, window: int = SELF_WINDOW, *, fuzzy: int | None = None) -> drafters.SelfDrafter:
    """Return a drafter by which a model drafts for itself. fuzzy: see TorchDraft. Raises ValueError."""
    return drafters.SelfDrafter(TorchDraft(model, fuzzy=fuzzy, policy=SinkAttention(window), own_cache=False))


def drafter_for(
    target: LoadedModel,
    source: str,
    *,
    window: int = SELF_WINDOW,
    fuzzy: int | None = None,
    load: Callable[[str], LoadedModel] = load_model,
) -> Drafter:
    """Return what drafts for a checkpoint: "ngram", "self", or a smaller checkpoint, which `load` loads. window: of
    "self". fuzzy: see TorchDraft. Raises ValueError, and what `load` raises."""
    if source == "ngram":
        return drafters.NGramDrafter()
    if source == "self":
        return self_drafter(target.model, window, fuzzy=fuzzy)
    draft = load(source)
    prints = (each.tokenizer.fingerprint() if each.tokenizer else None for each in (target, draft))
    check_vocabularies(target.config, draft.config, *prints)
    logger.info("draft model: {}", draft.source)
    return model_drafter(draft.model, fuzzy=fuzzy)


def generate(
    model: ReferenceLlama,
    prompts: Sequence[Sequence[int]],
    *,
    policy: AttentionPolicy | None = None,
    drafter: Drafter | None = None,
    shape: DraftShape = DraftShape(),
    lossy: SigmoidApproximation | None = None,
    sampling: SamplingParams | None = None,
    max_new_tokens: int = 128,
    on_prefill: Callable[[int, int], None] | None = None,
    **request: Any,
) -> GenerationResult:
    """Continue each prompt (one id list per user, lengths may differ), with a drafter several tokens per step.

    policy, lossy, on_prefill: see TorchEngine. shape: of the drafts, see Generator. sampling,
    request: see Generator.generate, which raises.
    """
    engine = TorchEngine(model, policy, lossy=lossy, on_prefill=on_prefill)
    generator = Generator(engine, drafter, shape)
    return generator.generate(prompts, max_new_tokens=max_new_tokens, sampling=sampling, **request)
