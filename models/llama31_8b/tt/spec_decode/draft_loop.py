# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Chains of a draft model: its steps one by one, or whole rounds of draft, verification and commit that stay on the
chips."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import torch
import ttnn

from tt_kernels.draft_round.op import Chain, Decided, DraftStep, append_token, begin_chain, take_result
from tt_kernels.speculative_sampling.op import Verified

from ...generation.sampling import draw_uniforms
from ...spec_decode.tree import TokenTree, TokenTreeBatch
from ..model import TtLlama, overwrite, read
from ..sampling.top_k import Sampler
from ..trace import Mark, TracedStep
from .drafters import Drafts, Rounds
from .tree_inputs import TreeInputs
from .tree_step import TreeStep


class ChainSteps:
    """Decode steps, each leaving its inputs ready for the next; `replay` runs one of the likeliest tokens and gives
    uint32 [1, users]. chooser: of all steps. inputs: what a step reads."""

    def __init__(self, model: TtLlama, chooser: Sampler, eager: bool) -> None:
        self.model, self._chooser = model, chooser
        self.inputs = model.step_inputs([0] * model.users, [-1] * model.users)
        self.replay = TracedStep(model.mesh, self.step, eager)

    def follow(self, tokens: Mapping[int, int], lengths: Sequence[int], steps: int) -> dict[int, list[int]]:
        """Of the users in `tokens` what `steps` steps choose, the first of them reading these tokens behind `lengths`
        cached ones of all users; other users are skipped."""
        users = range(self.model.users)
        hosts = self.model.step_inputs(
            [tokens.get(user, 0) for user in users],
            [lengths[user] if user in tokens else -1 for user in users],
            on_device=False,
        )
        overwrite(self.inputs, hosts)
        chosen = [read(self.replay())[0].tolist() for _ in range(steps)]
        return {user: [int(row[user]) for row in chosen] for user in tokens}

    def step(self, uniforms: ttnn.Tensor | None = None, law: ttnn.Tensor | None = None) -> ttnn.Tensor:
        """uniforms: of the chooser, where it draws. law: gets the logits, bfloat16 [users, 1, vocab], ROW_MAJOR."""
        logits = self.model.decode(self.inputs, whole=False)
        ttnn.plus_one(self.inputs.positions, skip_negative_entries=True)
        ttnn.plus_one(self.inputs.angles)
        if law is not None:
            by_row = ttnn.to_layout(self.model.gathered(logits), ttnn.ROW_MAJOR_LAYOUT)
            ttnn.copy(ttnn.reshape(by_row, tuple(law.shape)), law)
        return self._chooser(logits, uniforms, self.inputs.tokens)


class OnDeviceDraftLoop(Rounds):
    """Rounds of a few launches, traces from the second on: the exact pass of the draft over what was decided
    (EasySpec's bonus calibration), which gives the first drafted token; a step for each further one; the target's step
    over the chain, and what follows from its outcome for the next round. The host launches them one behind another,
    reads accepted tokens, and writes only when a text ends, when the length of chains changes and, where tokens are
    drawn, their numbers.

    The target's step has `step.nodes` nodes, at least 2, whatever the length of its chains. Where it samples, chains
    are drawn by the same parameters, by numbers of the users' generators that come before verification's, as in the
    reference's loop, and verification is told what from; else they are the likeliest tokens. lengths: decided tokens of
    each user in the draft's cache; kept up to date.
    """

    least = 1  # the first token comes of the exact pass

    def __init__(self, draft: TtLlama, step: TreeStep, lengths: list[int], eager: bool) -> None:
        self.draft, self.step, self._lengths = draft, step, lengths
        self._chooser = Sampler(draft.mesh, draft.plan, draft.config, step.sampling)
        self._steps = ChainSteps(draft, self._chooser, eager)
        users, nodes = draft.users, step.nodes
        # Of every node that can have a child, the first one's numbers for all rows of the exact pass.
        self._numbers = [self._chooser.uniforms([0.0] * users * (1 if node else nodes)) for node in range(nodes - 1)]
        if not step.sampling.greedy:
            step.laws = [self._law() for _ in range(nodes)]
        nobody = torch.zeros(draft.users, step.nodes, dtype=torch.int64), [-1] * draft.users
        self._pass = self._chains(*nobody, on_device=True)
        last = draft.put_integers(torch.zeros(users), "int32")
        row = draft.put_integers(nodes * torch.arange(users)[None], "uint32")
        self._decided = Decided(self._pass.tokens, self._pass.prefix, self._pass.angles, last, row)
        self._chain = Chain(step.inputs.tokens, step.inputs.prefix, step.inputs.angles, step.tokens)
        self._active: set[int] = set()
        self._length = 0  # of the chains that the target's step knows
        self._given: dict[int, int] = {}  # tokens that each user was decided since the draft's last pass
        self._choices: ttnn.Tensor | None = None  # of the exact pass
        self._calibrating = TracedStep(draft.mesh, self._calibrate, eager)
        self._beginning = TracedStep(draft.mesh, self._begin_chain, eager)
        self._appending = [TracedStep(draft.mesh, partial(self._append, node), eager) for node in range(2, step.nodes)]
        self._replay = TracedStep(draft.mesh, self._verify, eager)

    @property
    def replay(self) -> TracedStep[Verified]:
        return self._replay

    @property
    def timed(self) -> bool:
        return all(replay.warm for replay in (self._calibrating, *self._drafting(), self._replay))

    def load(self, undrafted, lengths, generators, length):
        users, nodes = range(self.draft.users), self.step.nodes
        if not self._active:
            chain = TokenTree.chain(nodes), [0] * nodes
            self.step.load_trees(dict.fromkeys(users, chain), [0] * len(users))
            self._begin(undrafted)
            self._length = nodes - 1
        elif self._active != set(undrafted):
            before = [self._lengths[user] if user in undrafted else -1 for user in users]
            host = self.draft.put_integers(torch.tensor(before), "int32", on_device=False)
            overwrite([self._pass.prefix], [host])
        self._active = set(undrafted)
        self._given = {user: len(tokens) for user, tokens in undrafted.items()}
        for tokens in undrafted.values():
            tokens.clear()
        if length != self._length:
            self._length = length
            self.step.load_parents(dict.fromkeys(users, self._tree))
        self._draw(length, generators)
        self.step.draw(dict.fromkeys(self._given, length + 1), generators)
        return dict.fromkeys(self._given, self._tree)

    def release(self) -> None:
        for replay in (self._calibrating, self._beginning, *self._appending, self._replay):
            replay.release()

    def __call__(self) -> Verified:
        began = time.perf_counter()
        self._choices = self._calibrating()
        calibrated = Mark(self.draft.mesh)
        for replay in self._drafting():
            replay()
        drafted = Mark(self.draft.mesh)
        verified = self._replay()
        self.calibration_seconds = calibrated.passed() - began
        self.drafting_seconds = drafted.passed() - began
        for user, count in self._given.items():
            self._lengths[user] += count
        return verified

    def drafts(self) -> Drafts:
        rows = read(self.step.tokens)[:, : len(self._tree)].tolist()
        return {user: (self._tree, [int(token) for token in rows[user]]) for user in self._given}

    @property
    def _tree(self) -> TokenTree:
        return TokenTree.chain(self._length + 1)

    def _drafting(self) -> list[TracedStep]:
        """What makes chains of this length, behind the exact pass."""
        return [self._beginning, *self._appending[: max(self._length - 1, 0)]]

    def _begin(self, undrafted: Mapping[int, Sequence[int]]) -> None:
        """The first round's tokens: what follows comes of the outcomes."""
        users, nodes = range(self.draft.users), self.step.nodes
        if too_many := [len(tokens) for tokens in undrafted.values() if len(tokens) > nodes]:
            raise ValueError(f"an exact pass takes up to {nodes} decided tokens of a user, got {too_many[0]}")
        before = [self._lengths[user] if user in undrafted else -1 for user in users]
        rows = torch.zeros(len(users), nodes, dtype=torch.int64)
        for user, tokens in undrafted.items():
            rows[user, : len(tokens)] = torch.tensor(list(tokens))
        overwrite(self._pass, self._chains(rows, before, on_device=False))
        last = torch.tensor([max(len(undrafted.get(user, ())) - 1, 0) for user in users])
        place = (nodes * torch.arange(len(users)) + last)[None]
        hosts = (last, "int32"), (place, "uint32")
        overwrite(
            [self._decided.last, self._decided.row],
            (self.draft.put_integers(*host, on_device=False) for host in hosts),
        )

    def _draw(self, length: int, generators: Sequence[torch.Generator]) -> None:
        """The numbers that draw chains, written to the device; none where they are not drawn."""
        if self.step.laws is None or not length:
            return
        drawn = torch.zeros(self.draft.users, length, dtype=torch.float64)
        for user in self._given:
            drawn[user] = draw_uniforms([generators[user]], length)[0]
        for node in range(length):
            numbers = drawn[:, node].repeat_interleave(1 if node else self.step.nodes)
            host = self._chooser.uniforms(numbers.tolist(), on_device=False)
            overwrite([self._numbers[node]], [host])

    def _law(self) -> ttnn.Tensor:
        draft = self.draft
        blank = torch.zeros(draft.users, 1, draft.config.vocab_size)
        return draft.plan.put(draft.mesh, blank, "bfloat16", "ROW_MAJOR_LAYOUT")

    def _chains(self, tokens: torch.Tensor, cached: Sequence[int], on_device: bool) -> TreeInputs:
        """A whole chain a user, whatever of it is decided: no token sees what comes behind it."""
        batch = TokenTreeBatch.stack([TokenTree.chain(self.step.nodes)] * self.draft.users)
        return self.draft.tree_inputs(tokens, cached, batch.enter, batch.leave, on_device)

    def _calibrate(self) -> ttnn.Tensor:
        logits = self.draft.decode_tree(self._pass, whole=False)
        if self.step.laws is not None:
            law = self.step.laws[0]
            by_row = ttnn.to_layout(self.draft.gathered(logits), ttnn.ROW_MAJOR_LAYOUT)
            table = ttnn.reshape(by_row, tuple(by_row.shape)[2:])
            ttnn.copy(ttnn.reshape(ttnn.embedding(self._decided.row, table), tuple(law.shape)), law)
        return self._chooser(logits, self._numbers[0])

    def _begin_chain(self) -> None:
        begin_chain(self._decided, self._choices, DraftStep(*self._steps.inputs), self._chain)

    def _append(self, node: int) -> None:
        parent = node - 1
        law = None if self.step.laws is None else self.step.laws[parent]
        append_token(self._steps.step(self._numbers[parent], law), node, self._chain)

    def _verify(self) -> Verified:
        verified = self.step()
        take_result(verified.result, self._decided)
        return verified
