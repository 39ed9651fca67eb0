# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A draft model's chains: single steps, or whole rounds of draft, verification and commit on the chips."""

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
from ..model import TreeInputs, TtLlama, overwrite, read
from ..sampling.top_k import Sampler
from ..trace import Mark, TracedStep
from .drafters import DraftLoop, Drafts
from .tree_step import TreeStep


class ChainSteps:
    """Decode steps, each of which makes its inputs ready for the next. traced_step: runs one that takes the likeliest
    tokens and returns them, uint32 [1, users]. inputs: of a step."""

    def __init__(self, model: TtLlama, sampler: Sampler, eager: bool) -> None:
        self.model, self._sampler = model, sampler
        self.inputs = model.step_inputs([0] * model.users, [-1] * model.users)
        self.traced_step = TracedStep(model.mesh, self.step, eager)

    def follow(self, tokens: Mapping[int, int], lengths: Sequence[int], steps: int) -> dict[int, list[int]]:
        """Decode `steps` steps and return each user's tokens. `tokens[u]` is u's first input, `lengths[u]` its cached
        length; users not in `tokens` are skipped."""
        users = range(self.model.users)
        hosts = self.model.step_inputs(
            [tokens.get(user, 0) for user in users],
            [lengths[user] if user in tokens else -1 for user in users],
            on_device=False,
        )
        overwrite(self.inputs, hosts)
        chosen = [read(self.traced_step())[0].tolist() for _ in range(steps)]
        return {user: [int(row[user]) for row in chosen] for user in tokens}

    def step(self, uniforms: ttnn.Tensor | None = None, draft_logits: ttnn.Tensor | None = None) -> ttnn.Tensor:
        """Run one step. uniforms: the sampler's, if it draws. draft_logits: receives the logits, bfloat16 [users, 1,
        vocab], ROW_MAJOR."""
        logits = self.model.decode(self.inputs, gather_logits=False)
        ttnn.plus_one(self.inputs.positions, skip_negative_entries=True)
        ttnn.plus_one(self.inputs.angles)
        if draft_logits is not None:
            by_row = ttnn.to_layout(self.model.gathered(logits), ttnn.ROW_MAJOR_LAYOUT)
            ttnn.copy(ttnn.reshape(by_row, tuple(draft_logits.shape)), draft_logits)
        return self._sampler(logits, uniforms, self.inputs.tokens)


class OnDeviceDraftLoop(DraftLoop):
    """Rounds of a few launches, traced from the second on: the draft's exact pass over the decided tokens (EasySpec's
    bonus calibration), which yields the first drafted token; one draft step per further token; the target's step over
    the chain; and what its outcome means for the next round. The host launches them one after another, reads accepted
    tokens, and writes only when a text ends, the chains' length changes, or random numbers are needed.

    The target's step has `step.nodes` nodes, at least 2, whatever the chains' length. If it samples, chains are drawn
    by the same parameters, with numbers that each user's generator yields before verification's, as in the reference's
    loop, and verification gets the draft's logits; otherwise chains are the likeliest tokens. lengths: decided tokens
    in each user's draft cache; kept up to date.
    """

    min_length = 1  # the first token comes of the exact pass

    def __init__(self, draft: TtLlama, step: TreeStep, lengths: list[int], eager: bool) -> None:
        self.draft, self.step, self._lengths = draft, step, lengths
        self._sampler = Sampler(draft.mesh, draft.mesh_shape, draft.config, step.sampling)
        self._steps = ChainSteps(draft, self._sampler, eager)
        users, nodes = draft.users, step.nodes
        # Of every node that can have a child, the first one's numbers for all rows of the exact pass.
        self._numbers = [self._sampler.uniforms([0.0] * users * (1 if node else nodes)) for node in range(nodes - 1)]
        if not step.sampling.greedy:
            step.draft_logits = [self._blank_logits() for _ in range(nodes)]
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
        self._traced_step = TracedStep(draft.mesh, self._verify, eager)

    @property
    def traced_step(self) -> TracedStep[Verified]:
        return self._traced_step

    @property
    def timed(self) -> bool:
        return all(traced_step.warm for traced_step in (self._calibrating, *self._drafting(), self._traced_step))

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
        for traced_step in (self._calibrating, self._beginning, *self._appending, self._traced_step):
            traced_step.release()

    def __call__(self) -> Verified:
        began = time.perf_counter()
        self._choices = self._calibrating()
        calibrated = Mark(self.draft.mesh)
        for traced_step in self._drafting():
            traced_step()
        drafted = Mark(self.draft.mesh)
        verified = self._traced_step()
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
        """Return the steps that make chains of this length, after the exact pass."""
        return [self._beginning, *self._appending[: max(self._length - 1, 0)]]

    def _begin(self, undrafted: Mapping[int, Sequence[int]]) -> None:
        """Write the first round's tokens; later ones follow from outcomes."""
        users, nodes = range(self.draft.users), self.step.nodes
        if too_many := [len(tokens) for tokens in undrafted.values() if len(tokens) > nodes]:
            raise ValueError(f"an exact pass takes up to {nodes} decided tokens per user, got {too_many[0]}")
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
        """Write the random numbers of the chains to the device, if they are drawn."""
        if self.step.draft_logits is None or not length:
            return
        drawn = torch.zeros(self.draft.users, length, dtype=torch.float64)
        for user in self._given:
            drawn[user] = draw_uniforms([generators[user]], length)[0]
        for node in range(length):
            numbers = drawn[:, node].repeat_interleave(1 if node else self.step.nodes)
            host = self._sampler.uniforms(numbers.tolist(), on_device=False)
            overwrite([self._numbers[node]], [host])

    def _blank_logits(self) -> ttnn.Tensor:
        draft = self.draft
        blank = torch.zeros(draft.users, 1, draft.config.vocab_size)
        return draft.mesh_shape.put(draft.mesh, blank, "bfloat16", "ROW_MAJOR_LAYOUT")

    def _chains(self, tokens: torch.Tensor, cached: Sequence[int], on_device: bool) -> TreeInputs:
        """Make inputs of a whole chain per user, however much of it is decided: no token sees what comes after it."""
        batch = TokenTreeBatch.stack([TokenTree.chain(self.step.nodes)] * self.draft.users)
        return self.draft.tree_inputs(tokens, cached, batch.enter, batch.leave, on_device)

    def _calibrate(self) -> ttnn.Tensor:
        logits = self.draft.decode_tree(self._pass, gather_logits=False)
        if self.step.draft_logits is not None:
            draft_logits = self.step.draft_logits[0]
            by_row = ttnn.to_layout(self.draft.gathered(logits), ttnn.ROW_MAJOR_LAYOUT)
            table = ttnn.reshape(by_row, tuple(by_row.shape)[2:])
            ttnn.copy(ttnn.reshape(ttnn.embedding(self._decided.row, table), tuple(draft_logits.shape)), draft_logits)
        return self._sampler(logits, self._numbers[0])

    def _begin_chain(self) -> None:
        begin_chain(self._decided, self._choices, DraftStep(*self._steps.inputs), self._chain)

    def _append(self, node: int) -> None:
        parent = node - 1
        draft_logits = None if self.step.draft_logits is None else self.step.draft_logits[parent]
        append_token(self._steps.step(self._numbers[parent], draft_logits), node, self._chain)

    def _verify(self) -> Verified:
        verified = self.step()
        take_result(verified.result, self._decided)
        return verified
