# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Text by token-level speculation: each step drafts a token tree per user, and the chips verify and commit it and
return accepted tokens (FlashSpecInfer, section 5; "Optimized Speculative Sampling", exact verification)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import torch

from tt_kernels.speculative_sampling.checks import MAX_NODES
from tt_kernels.speculative_sampling.op import VerificationResult, Verified
from tt_kernels.tree_attention.checks import MAX_USERS

from ...generation.sampling import SamplingParams
from ...generation.sequences import SequenceState, TokenCallback
from ...spec_decode.draft_length import AdaptiveDraftLength, FixedDraftLength, StepCosts
from ...spec_decode.draft_shape import DraftShape
from ...spec_decode.metrics import SpeculativeResult, TokenSpeculationMetrics
from ...spec_decode.sigmoid import SigmoidApproximation
from ..generator import Generator, _TokenSource
from ..model import PREFILL_CHUNK, TtLlama
from .drafters import Drafts, NGramDrafter, TreeDrafter
from .tree_step import TreeStep

OnStep = Callable[[TreeStep, Drafts, Verified], None]


class TreeGenerator(Generator):
    """Generate with a TtLlama, several tokens per step: `drafter` drafts trees of `shape`, by
    default by n-gram look-up in each user's text, and every step verifies `shape.most_nodes` nodes per user whatever
    its trees are, so that one captured trace serves all.

    Greedy text equals Generator's token for token, except for ties that rounding breaks. Sampled text has the target's
    distribution; with n-gram drafts, and with a draft model's chains, it uses the random numbers of the reference's
    loop with a fixed draft length, and so yields its tokens unless one is at a border.

    adaptive: choose the draft length that pays best by acceptance and times (AdaptiveDraftLength), up to `shape`; the
    target's step keeps its full width. lossy: verify sampled text by the sigmoid approximation, for drafts with logits.
    on_step: sees the step, whose `logits` are of all nodes, the drafts by user and the verification result, before
    their tokens are used. Raises ValueError for a shape that the drafter does not draft or that is too large for a
    tree, more than 8 users, an attention that decodes no trees, a cache without room for a tree, and `lossy` for drafts
    without logits.
    """

    def __init__(
        self,
        model: TtLlama,
        shape: DraftShape,
        drafter: TreeDrafter | None = None,
        *,
        prefill_chunk: int = PREFILL_CHUNK,
        trace: bool = True,
        adaptive: bool = False,
        lossy: SigmoidApproximation | None = None,
        on_step: OnStep | None = None,
    ) -> None:
        super().__init__(model, prefill_chunk=prefill_chunk, trace=trace)
        self.drafter = drafter or NGramDrafter()
        model.decode_attention.check_trees()
        if shape.length < 1:
            raise ValueError("a draft length of 0 drafts nothing")
        if shape.most_nodes > MAX_NODES:
            raise ValueError(f"trees of up to {MAX_NODES} nodes are verified, {shape} has {shape.most_nodes}")
        if model.users > MAX_USERS:
            raise ValueError(f"trees of up to {MAX_USERS} users are verified, the model has {model.users}")
        if shape.most_nodes >= model.capacity:
            raise ValueError(f"a cache of {model.capacity} positions has no room for trees of {shape.most_nodes} nodes")
        self.drafter.check(shape, model)
        self.on_step, self.adaptive, self.lossy = on_step, adaptive, lossy
        if lossy is not None and not self.drafter.has_logits(shape):
            raise ValueError(
                f"sigmoid verification needs a draft's logits; {shape} by the {self.drafter.name} drafter has none"
            )
        self.shape, self.spare = shape, shape.most_nodes
        self._metrics = TokenSpeculationMetrics()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: SamplingParams | None = None,
        eos_token_ids: Collection[int] | None = None,
        on_token: TokenCallback | None = None,
        on_logits: Callable[[int, torch.Tensor], None] | None = None,
        context_limit: int | None = None,
        context: Sequence[Sequence[int]] | None = None,
    ) -> SpeculativeResult:
        """Do Generator.generate, with the metrics of speculation. A text ends when a tree no longer fits the cache.

        Also raises ValueError for top_k and top_p, which verification does not support, and for on_logits: the host
        sees no logits.
        """
        if sampling is not None and (sampling.top_k or sampling.top_p < 1.0) and not sampling.greedy:
            raise ValueError(
                f"drafts are verified against the whole distribution: top_k {sampling.top_k} and top_p "
                f"{sampling.top_p} are for decoding without drafts"
            )
        if on_logits is not None:
            raise ValueError("verification keeps logits on the chips: on_logits is for decoding without drafts")
        if self.lossy is not None:
            if sampling is None or sampling.greedy:
                raise ValueError(
                    "sigmoid verification needs a temperature above 0; at 0 exact verification is an arg-max"
                )
            self.lossy.announce()
        self._metrics = TokenSpeculationMetrics()
        result = super().generate(
            prompts,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            eos_token_ids=eos_token_ids,
            on_token=on_token,
            context_limit=context_limit,
            context=context,
        )
        return SpeculativeResult(**vars(result), speculation=self._metrics)

    def _start(self, texts: Sequence[Sequence[int]], cached: Sequence[int]) -> None:
        self.drafter.start(texts, cached)

    def _decode(self, sequences: list[SequenceState], lengths: list[int], source: _TokenSource) -> None:
        """Run rounds of draft, tree step and commit until every sequence has ended."""
        self.replays = 0
        step = TreeStep(self.model, self.spare, source.sampling, self.lossy)
        draft_loop = self.drafter.draft_loop(step, self.shape, eager=self.why_eager is not None)
        rule = self._length_rule(source.sampling)
        undrafted = [list(sequence.token_ids) for sequence in sequences]  # tokens the drafter has not seen
        try:
            while unfinished := [sequence for sequence in sequences if sequence.finish_reason is None]:
                began = time.perf_counter()
                length = max(rule.next_length(), draft_loop.min_length)
                if source.sampling.greedy or self.adaptive:
                    length = min(length, _worth(unfinished))
                new = {sequence.user: undrafted[sequence.user] for sequence in unfinished}
                trees = draft_loop.load(new, lengths, source.generators, length)
                drafted = time.perf_counter()
                verified = draft_loop()
                outcomes = _outcomes(self.model, verified)
                ended = time.perf_counter()
                if self.on_step is not None:
                    self.on_step(step, draft_loop.drafts(), verified)
                given, accepted = 0, []
                for sequence in unfinished:
                    outcome, tree = outcomes[sequence.user], trees[sequence.user]
                    used = sequence.push_all(outcome.tokens)
                    lengths[sequence.user] += len(used)
                    undrafted[sequence.user] += used
                    given += len(used)
                    self._metrics.num_output_tokens += len(used)
                    if len(tree) > 1:
                        self._metrics.record_draft(tree.max_depth, len(tree) - 1, len(outcome.path))
                        accepted.append((tree.max_depth, len(outcome.path)))
                self._ran(draft_loop.traced_step, 0, 0, given)
                self._metrics.num_target_steps += len(unfinished)
                drafting = drafted - began + draft_loop.drafting_seconds
                verifying = ended - drafted - draft_loop.drafting_seconds
                self._metrics.draft_seconds += drafting
                self._metrics.calibration_seconds += draft_loop.calibration_seconds
                self._metrics.target_seconds += verifying
                # Whatever its trees are, a step costs the same: one row.
                rule.observe(length, 1, accepted, (drafting, verifying) if draft_loop.timed else None)
        finally:
            draft_loop.release()
            self.drafter.release()

    def _length_rule(self, sampling: SamplingParams) -> FixedDraftLength | AdaptiveDraftLength:
        length = self.shape.length
        if not self.adaptive:
            return FixedDraftLength(length)
        costs = StepCosts(self.drafter.step_cost)
        return AdaptiveDraftLength(length, costs, rows_per_level=0.0, measured=sampling.greedy, first=length)


def _outcomes(model: TtLlama, verified: Verified) -> list[VerificationResult]:
    """Return each user's outcome. With two rows, read every chip's, which show whether one failed. Raises what
    `Verified.check` and `DecodeAttention.check` raise, and RuntimeError if chips decided differently."""
    if model.mesh_shape.sp == 1:
        return verified.check()
    found = [verified.read(chip) for chip in range(model.mesh_shape.chips)]
    if any(outcome.status for outcomes in found for outcome in outcomes):
        model.decode_attention.check()
    if any(outcomes != found[0] for outcomes in found):
        raise RuntimeError(f"the chips of {model.mesh_shape} verified differently: {found}")
    return verified.check()


def _worth(unfinished: list[SequenceState]) -> int:
    """Return how many drafted tokens the ending texts could still take. Sampled drafts of a fixed length do not ask:
    they must not depend on neighbours."""
    # Every step yields one token more than it accepts, so drafting the last token is never worth it.
    return max(min(s.max_new_tokens, s.room) - len(s.token_ids) for s in unfinished) - 1
