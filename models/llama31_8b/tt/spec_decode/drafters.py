# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Models that draft on the target's chips. What they draft is that of spec_decode/drafters.py; a model's chains stay on
the chips between draft and verification."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import ttnn

from tt_kernels.common.attention_checks import MAX_USERS as MAX_GUESSED_USERS
from tt_kernels.draft_round.op import Chain, Decided, DraftStep, append_token, begin_chain, take_result

from ...generation.sampling import Draws, SamplingParams
from ...spec_decode import drafters
from ...spec_decode.draft_settings import DraftShape
from ...spec_decode.loop import Drafts, Engine
from ...spec_decode.tree import TokenTree, TokenTreeBatch, check_draft_passes
from ..attention_policies import GuessAttention
from ..mesh import TILE
from ..model import StepInputs, TtLlama, advance, cache_prompt, overwrite, read
from ..prefill import PREFILL_CHUNK
from ..sampling.top_k import CANDIDATES, ORIGIN, Sampler
from ..settings import check_chunk_size
from ..trace import Mark, TracedStep
from .tree_step import Forest, TreeStep, forest_inputs


class Ranked(NamedTuple):
    """See Scores: tokens that chips ranked, by user and node. Their logits stay on the chips."""

    tokens: dict[int, list[list[int]]]
    logits: None = None

    def top(self, width: int) -> dict[int, list[list[int]]]:
        return {user: [row[:width] for row in rows] for user, rows in self.tokens.items()}


class ChainSteps:
    """Decode steps, each of which makes its inputs ready for the next. traced_step: runs one that takes the likeliest
    tokens and returns them, uint32 [1, users]. inputs: of a step."""

    def __init__(self, model: TtLlama, sampler: Sampler, eager: bool) -> None:
        self.model, self._sampler = model, sampler
        self.inputs = model.step_inputs([0] * model.users, [-1] * model.users)
        self.traced_step = TracedStep(model.mesh, self.step, eager)
        self._held: dict[int, tuple[int, int]] = {}  # token and position by user

    def follow(self, tokens: Mapping[int, int], positions: Mapping[int, int]) -> Ranked:
        """Run a step of one token per user at these positions, written unless the last step left them; others are
        skipped. Returns the likeliest token after each."""
        wanted = {user: (token, positions[user]) for user, token in tokens.items()}
        if wanted != self._held:
            given, places = zip(*(wanted.get(user, (0, -1)) for user in range(self.model.users)), strict=True)
            overwrite(self.inputs, self.model.step_inputs(given, places, on_device=False))
        chosen = read(self.traced_step())[0].tolist()
        self._held = {user: (int(chosen[user]), place + 1) for user, (_, place) in wanted.items()}
        return Ranked({user: [[token]] for user, (token, _) in self._held.items()})

    def step(self, uniforms: ttnn.Tensor | None = None, draft_logits: ttnn.Tensor | None = None) -> ttnn.Tensor:
        """Run one step. uniforms: the sampler's, if it draws. draft_logits: receives the logits, bfloat16 [users, 1,
        vocab], ROW_MAJOR."""
        logits = self.model.decode(self.inputs, gather_logits=False)
        advance(self.inputs)
        if draft_logits is not None:
            by_row = ttnn.to_layout(self.model.gathered(logits), ttnn.ROW_MAJOR_LAYOUT)
            ttnn.copy(ttnn.reshape(by_row, tuple(draft_logits.shape)), draft_logits)
        return self._sampler(logits, uniforms, self.inputs.tokens)


class ExactPass:
    """An exact pass over forests of up to `nodes` nodes per user. traced_step: runs it and returns the likeliest tokens
    after each node, float32 [1, 1, users * nodes, 32], as ORIGIN - id, likeliest first."""

    def __init__(self, model: TtLlama, nodes: int, sampler: Sampler, width: int, eager: bool) -> None:
        self.model, self.nodes, self.width, self._sampler = model, nodes, width, sampler
        self._inputs, _, _ = forest_inputs(model, nodes, {}, {})
        self.traced_step = TracedStep(model.mesh, self._step, eager)

    def follow(self, forest: Forest, positions: Mapping[int, int], nodes: Mapping[int, slice]) -> Ranked:
        """Return the `width` likeliest tokens after some nodes of these users' trees. positions: cached tokens before
        each; other users are skipped."""
        inputs, _, _ = forest_inputs(self.model, self.nodes, forest, positions, on_device=False)
        overwrite(self._inputs, inputs)
        told = ORIGIN - read(self.traced_step())[..., : self.width]
        rows = told.reshape(self.model.users, self.nodes, self.width).long().tolist()
        return Ranked({user: rows[user][wanted] for user, wanted in nodes.items()})

    def _step(self) -> ttnn.Tensor:
        return self._sampler.candidates(self.model.decode(self._inputs, gather_logits=False))[1]


class ChipDraft:
    """See DraftModel; with as many users and positions as the target. itself: the model is the target with another
    attention over the target's cache, which drafts chains alone."""

    gives_logits = False

    def __init__(self, model: TtLlama, *, prefill_chunk: int = PREFILL_CHUNK, itself: TtLlama | None = None) -> None:
        self.model, self.config, self.capacity = model, model.config, model.capacity
        self.prefill_chunk, self.itself = prefill_chunk, itself
        self._sampler = Sampler(model.site, SamplingParams(0.0))
        self._exact: ExactPass | None = None
        self._chain: ChainSteps | None = None

    def check(self, shape: DraftShape, engine: Any) -> None:
        target, draft = engine.model, self.model
        if self.itself is not None:
            if target is not self.itself:
                raise ValueError("a model drafts for itself, not for another")
            if shape.width > 1 or shape.grown:
                raise ValueError(f"a model that drafts for itself drafts chains, not {shape}")
            return
        if (draft.users, draft.capacity) != (target.users, target.capacity):
            raise ValueError(
                f"the draft model has {draft.users} users of {draft.capacity} positions, the target {target.users} of "
                f"{target.capacity}"
            )
        parallel = 1 if draft.groups is None else draft.groups.assignment.size
        if parallel > 1 and (shape.length < 2 or shape.width > 1):
            raise ValueError(
                f"{shape} comes from exact passes alone: {parallel} layers in parallel would change nothing"
            )
        check_draft_passes(shape, draft.users)
        if shape.width > min(CANDIDATES, draft.config.vocab_size):
            raise ValueError(
                f"chips rank {min(CANDIDATES, draft.config.vocab_size)} candidates per node, {shape} has {shape.width}"
            )
        draft.attention.check_trees()

    def prefill(self, texts: Sequence[Sequence[int]], known: Sequence[int], positions: int) -> None:
        for user, (text, same) in enumerate(zip(texts, known, strict=True)):
            cache_prompt(self.model, text, user, self.prefill_chunk, start=same // TILE * TILE)

    def begin(self, engine: Any, shape: DraftShape) -> None:
        eager = engine.why_eager is not None
        if self.itself is not None:
            self._chain = ChainSteps(self.model, self._sampler, eager)
        else:
            nodes = check_draft_passes(shape, self.model.users)
            self._exact = ExactPass(self.model, nodes, self._sampler, shape.width, eager)

    def exact(self, decided: Mapping[int, Sequence[int]], starts: Mapping[int, int]) -> Ranked:
        """Run passes over the decided tokens, one unless a round was skipped."""
        if self._exact is None:
            return self.follow({user: tokens[-1] for user, tokens in decided.items()}, starts)
        found: dict[int, list[list[int]]] = {}
        left, starts = {user: list(tokens) for user, tokens in decided.items()}, dict(starts)
        while left:
            part = {user: tokens[: self._exact.nodes] for user, tokens in left.items()}
            chains = {user: (TokenTree.chain(len(tokens)), tokens) for user, tokens in part.items()}
            last = {user: slice(len(tokens) - 1, len(tokens)) for user, tokens in part.items()}
            found |= self._exact.follow(chains, starts, last).tokens
            starts = {user: starts[user] + len(tokens) for user, tokens in part.items()}
            left = {user: tokens[len(part[user]) :] for user, tokens in left.items() if tokens[len(part[user]) :]}
        return Ranked({user: found[user] for user in decided})

    def follow(self, tokens: Mapping[int, int], positions: Mapping[int, int]) -> Ranked:
        if self._chain is None:
            raise RuntimeError("chains need `begin`")
        return self._chain.follow(tokens, positions)

    def level(
        self,
        forests: Mapping[int, TokenTree],
        tokens: Mapping[int, Sequence[int]],
        positions: Mapping[int, int],
        span: slice,
    ) -> Ranked:
        """Pass all nodes again; those of later levels are seen by none that counts."""
        if self._exact is None:
            raise RuntimeError("trees need `begin`")
        forest = {user: (tree, tokens[user]) for user, tree in forests.items()}
        return self._exact.follow(forest, positions, dict.fromkeys(forests, span))

    def end(self) -> None:
        for steps in (self._exact, self._chain):
            if steps is not None:
                steps.traced_step.release()


class ModelDrafter(drafters.ModelDrafter):
    """Draft with a model on the target's mesh, layer-parallel if it has a LayerAssignment. Chains stay on the chips
    (OnDeviceChains) and are drawn if the text is, as in the reference; trees of the likeliest tokens go through the
    host, one pass per level over all nodes with children."""

    model: ChipDraft

    def __init__(self, draft: TtLlama, *, prefill_chunk: int = PREFILL_CHUNK) -> None:
        super().__init__(ChipDraft(draft, prefill_chunk=prefill_chunk))
        self._chains: OnDeviceChains | None = None

    def check(self, shape: DraftShape, engine: Engine) -> None:
        super().check(shape, engine)
        self.in_every_round = shape.width == 1  # a chain's first token comes of the exact pass

    def has_logits(self, shape: DraftShape) -> bool:
        return shape.width == 1

    def begin(self, engine: Any, shape: DraftShape) -> None:
        if shape.width > 1:
            super().begin(engine, shape)
        else:
            self._chains = OnDeviceChains(self.model.model, engine.tree_step, engine.why_eager is not None)

    def draft(
        self, texts: Mapping[int, Sequence[int]], starts: Mapping[int, int], shape: DraftShape, draws: Draws
    ) -> Drafts:
        if self._chains is None:
            return super().draft(texts, starts, shape, draws)
        return self._chains.draft(texts, starts, shape.length, draws)

    def drafted_at(self, returned: float) -> float:
        if self._chains is None:
            return returned
        self.calibration_seconds, drafted = self._chains.times()
        return drafted

    def end(self) -> None:
        super().end()
        if self._chains is not None:
            self._chains.release()
        self._chains = None


def self_drafter(target: TtLlama, window: int) -> drafters.SelfDrafter:
    """Return a drafter by which `target` drafts chains of the likeliest tokens for itself, by attention to the first
    and last `window` cached tokens (the guess of attention-level speculation, whose last tile may add up to 31 tokens
    to the tail). window: a multiple of 32 up to the cache's capacity. Raises ValueError for another window, for layer
    groups, and for more than 8 users."""
    check_chunk_size(window, target.capacity, "window")
    if target.users > MAX_GUESSED_USERS:
        raise ValueError(f"1 to {MAX_GUESSED_USERS} users draft for themselves, got {target.users}")
    guessing = target.with_attention(GuessAttention(window))
    return drafters.SelfDrafter(ChipDraft(guessing, itself=target))


class OnDeviceChains:
    """Chains of a few launches, traced from the second round on: the draft's exact pass over the decided tokens
    (EasySpec's bonus calibration), which yields the first drafted token, and one draft step per further token. The
    target's step over the chain then takes what they leave on the chips, and leaves what it decided for the next exact
    pass. The host launches them one after another, and writes only when a text ends, the chains' length changes, or
    random numbers are needed.

    The target's step has `step.nodes` nodes, at least 2, whatever the chains' length. If it samples, chains are drawn
    by the same parameters, with numbers that each user's generator yields before verification's, as in the reference,
    and verification gets the draft's logits; otherwise chains are the likeliest tokens.
    """

    def __init__(self, draft: TtLlama, step: TreeStep, eager: bool) -> None:
        self.draft_model, self.step = draft, step
        self._sampler = Sampler(draft.site, step.sampling)
        self._steps = ChainSteps(draft, self._sampler, eager)
        users, nodes = draft.users, step.nodes
        # Of every node that can have a child, the first one's numbers for all rows of the exact pass.
        self._numbers = [self._sampler.uniforms([0.0] * users * (1 if node else nodes)) for node in range(nodes - 1)]
        if not step.sampling.greedy:
            blank = torch.zeros(users, 1, draft.config.vocab_size)
            step.draft_logits = [
                draft.mesh_shape.put(draft.mesh, blank, "bfloat16", "ROW_MAJOR_LAYOUT") for _ in range(nodes)
            ]
        self._pass = self._inputs({}, {}, on_device=True)
        last = draft.put_integers(torch.zeros(users), "int32")
        row = draft.put_integers(nodes * torch.arange(users)[None], "uint32")
        self._decided = Decided(self._pass.tokens, self._pass.positions, self._pass.angles, last, row)
        self._chain = Chain(step.inputs.tokens, step.inputs.positions, step.inputs.angles, step.tokens)
        self._active: set[int] = set()
        self._length = 0  # of the chains that the target's step knows
        self._choices: Any = None  # the tensor of the exact pass
        self._calibrating = TracedStep(draft.mesh, self._calibrate, eager)
        further = (partial(self._append, node) for node in range(2, step.nodes))
        drafting: list[Callable[[], None]] = [self._begin_chain, *further]
        self._drafting = [TracedStep(draft.mesh, launch, eager) for launch in drafting]
        self._began = 0.0
        self._marks: tuple[Mark, Mark] | None = None
        step.after = lambda verified: take_result(verified.result, self._decided)

    def draft(self, texts: Mapping[int, Sequence[int]], starts: Mapping[int, int], length: int, draws: Draws) -> Drafts:
        """See Drafter.draft: load what the chips do not hold, and launch the drafting."""
        users, nodes = range(self.draft_model.users), self.step.nodes
        if not self._active:
            chain = TokenTree.chain(nodes), [0] * nodes
            self.step.load(dict.fromkeys(users, chain), dict.fromkeys(users, 0))
            self._load({user: texts[user][start:] for user, start in starts.items()}, starts)
            self._length = nodes - 1
        elif self._active != set(texts):
            before = [starts.get(user, -1) for user in users]
            host = self.draft_model.put_integers(torch.tensor(before), "int32", on_device=False)
            overwrite([self._pass.positions], [host])
        self._active, tree = set(texts), TokenTree.chain(length + 1)
        if length != self._length:
            self._length = length
            self.step.load_parents(dict.fromkeys(users, tree))
        self._draw(list(texts), length, draws)
        self._began = time.perf_counter()
        self._choices = self._calibrating()
        calibrated = Mark(self.draft_model.mesh)
        for traced_step in self._drafting[: max(length, 1)]:
            traced_step()
        self._marks = calibrated, Mark(self.draft_model.mesh)
        return Drafts(dict.fromkeys(texts, tree), {})

    def times(self) -> tuple[float, float]:
        """Return the seconds of the last exact pass, and when the last drafts were there (time.perf_counter())."""
        if self._marks is None:
            raise RuntimeError("nothing has been drafted")
        calibrated, drafted = (mark.passed() for mark in self._marks)
        return calibrated - self._began, drafted

    def release(self) -> None:
        self._calibrating.release()
        for traced_step in self._drafting:
            traced_step.release()

    def _load(self, decided: Mapping[int, Sequence[int]], starts: Mapping[int, int]) -> None:
        """Write the first round's tokens; later ones follow from outcomes."""
        users, nodes = range(self.draft_model.users), self.step.nodes
        if too_many := [len(tokens) for tokens in decided.values() if len(tokens) > nodes]:
            raise ValueError(f"an exact pass takes up to {nodes} decided tokens per user, got {too_many[0]}")
        overwrite(self._pass, self._inputs(decided, starts, on_device=False))
        last = torch.tensor([max(len(decided.get(user, ())) - 1, 0) for user in users])
        place = (nodes * torch.arange(len(users)) + last)[None]
        hosts = (last, "int32"), (place, "uint32")
        overwrite(
            [self._decided.last, self._decided.row],
            (self.draft_model.put_integers(*host, on_device=False) for host in hosts),
        )

    def _draw(self, users: Sequence[int], length: int, draws: Draws) -> None:
        """Write the random numbers of the chains to the device, if they are drawn."""
        if self.step.draft_logits is None or not length:
            return
        drawn = torch.zeros(self.draft_model.users, length, dtype=torch.float64)
        drawn[list(users)] = draws.uniforms(users, length)
        for node in range(length):
            numbers = drawn[:, node].repeat_interleave(1 if node else self.step.nodes)
            overwrite([self._numbers[node]], [self._sampler.uniforms(numbers.tolist(), on_device=False)])

    def _inputs(self, decided: Mapping[int, Sequence[int]], starts: Mapping[int, int], on_device: bool) -> StepInputs:
        """Make inputs of a whole chain per user, however much of it is decided: no token sees what comes after it."""
        users, nodes = self.draft_model.users, self.step.nodes
        batch = TokenTreeBatch.stack([TokenTree.chain(nodes)] * users)
        rows = torch.zeros(users, nodes, dtype=torch.int64)
        for user, tokens in decided.items():
            rows[user, : len(tokens)] = torch.tensor(list(tokens))
        before = [starts.get(user, -1) for user in range(users)]
        return self.draft_model.tree_inputs(rows, before, batch.enter, batch.leave, on_device)

    def _calibrate(self) -> ttnn.Tensor:
        logits = self.draft_model.decode(self._pass, gather_logits=False)
        if self.step.draft_logits is not None:
            draft_logits = self.step.draft_logits[0]
            by_row = ttnn.to_layout(self.draft_model.gathered(logits), ttnn.ROW_MAJOR_LAYOUT)
            table = ttnn.reshape(by_row, tuple(by_row.shape)[2:])
            ttnn.copy(ttnn.reshape(ttnn.embedding(self._decided.row, table), tuple(draft_logits.shape)), draft_logits)
        return self._sampler(logits, self._numbers[0])

    def _begin_chain(self) -> None:
        begin_chain(self._decided, self._choices, DraftStep(*self._steps.inputs[:3]), self._chain)

    def _append(self, node: int) -> None:
        parent = node - 1
        draft_logits = None if self.step.draft_logits is None else self.step.draft_logits[parent]
        append_token(self._steps.step(self._numbers[parent], draft_logits), node, self._chain)
