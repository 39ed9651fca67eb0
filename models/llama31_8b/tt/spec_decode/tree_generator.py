# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Texts by token-level speculation: a token tree a user and step is drafted on the host, verified and committed on the
chips, which return accepted tokens (FlashSpecInfer, section 5; "Optimized Speculative Sampling", exact verification).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import torch

from tt_kernels.speculative_sampling.checks import MAX_NODES
from tt_kernels.speculative_sampling.op import Verified
from tt_kernels.tree_attention.checks import MAX_USERS

from ...generation.sampling import SamplingParams
from ...generation.sequences import SequenceState, TokenCallback
from ...spec_decode.draft_length import AdaptiveDraftLength, FixedDraftLength, StepCosts
from ...spec_decode.draft_shape import DraftShape
from ...spec_decode.metrics import SpeculativeResult, TokenSpeculationMetrics
from ...spec_decode.sigmoid import SigmoidApproximation
from ..generator import Generator, _TokenSource
from ..model import TtLlama
from ..prefill import PREFILL_CHUNK
from .drafters import Drafts, NGramDrafter, TreeDrafter
from .tree_step import TreeStep

OnStep = Callable[[TreeStep, Drafts, Verified], None]


class TreeGenerator(Generator):
    """Runs a TtLlama with exact attention, several tokens a step: `drafter` guesses trees of `shape`, by default by
    look-up in each user's text, and every step verifies `shape.most_nodes` nodes a user whatever its trees are, so that
    one captured trace serves all.

    Greedy text is, token for token, that of Generator, up to ties that rounding breaks. Drawn text has the target's
    distribution; with drafts by look-up, and chains of a draft model, its numbers are those of the reference's loop
    with a fixed draft length, and so are the tokens where none lies at a border.

    adaptive: draft as far as pays best by what was accepted and by times (AdaptiveDraftLength), up to `shape`; the
    target's step has the full width all the same. lossy: verify drawn text by the sigmoid approximation, for drafts
    with logits. on_step: sees the step, whose `logits` are of all nodes, the drafts by user and what was verified,
    before their tokens are used. Errors: ValueError for a shape the drafter does not draft or wider than a tree may be,
    more than 8 users, an attention that is not exact, a cache without room for a tree, and `lossy` for drafts without
    logits.
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
        """As of Generator, with the metrics of speculation. A text ends where a tree no longer fits the cache.

        Raises ValueError besides for top_k and top_p, which verification does not know, and for on_logits: the host
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

    def _decode(self, streams: list[SequenceState], lengths: list[int], source: _TokenSource) -> None:
        """Rounds of draft, tree step, and commit, until every stream has ended."""
        self.replays = 0
        step = TreeStep(self.model, self.spare, source.sampling, self.lossy)
        rounds = self.drafter.rounds(step, self.shape, eager=self.why_eager is not None)
        rule = self._length_rule(source.sampling)
        undrafted = [list(stream.token_ids) for stream in streams]  # tokens the drafter has not seen
        try:
            while unfinished := [stream for stream in streams if stream.finish_reason is None]:
                began = time.perf_counter()
                length = max(rule.next_length(), rounds.min_length)
                if source.sampling.greedy or self.adaptive:
                    length = min(length, _worth(unfinished))
                new = {stream.user: undrafted[stream.user] for stream in unfinished}
                trees = rounds.load(new, lengths, source.generators, length)
                drafted = time.perf_counter()
                verified = rounds()
                outcomes = verified.check()
                ended = time.perf_counter()
                if self.on_step is not None:
                    self.on_step(step, rounds.drafts(), verified)
                given, accepted = 0, []
                for stream in unfinished:
                    outcome, tree = outcomes[stream.user], trees[stream.user]
                    used = stream.push_all(outcome.tokens)
                    lengths[stream.user] += len(used)
                    undrafted[stream.user] += used
                    given += len(used)
                    self._metrics.num_output_tokens += len(used)
                    if len(tree) > 1:
                        self._metrics.record_draft(tree.max_depth, len(tree) - 1, len(outcome.path))
                        accepted.append((tree.max_depth, len(outcome.path)))
                self._ran(rounds.traced_step, 0, 0, given)
                self._metrics.num_target_steps += len(unfinished)
                drafting = drafted - began + rounds.drafting_seconds
                verifying = ended - drafted - rounds.drafting_seconds
                self._metrics.draft_seconds += drafting
                self._metrics.calibration_seconds += rounds.calibration_seconds
                self._metrics.target_seconds += verifying
                # Whatever its trees are, a step costs the same: one row.
                rule.observe(length, 1, accepted, (drafting, verifying) if rounds.timed else None)
        finally:
            rounds.release()
            self.drafter.release()

    def _length_rule(self, sampling: SamplingParams) -> FixedDraftLength | AdaptiveDraftLength:
        length = self.shape.length
        if not self.adaptive:
            return FixedDraftLength(length)
        costs = StepCosts(self.drafter.step_cost)
        return AdaptiveDraftLength(length, costs, rows_per_level=0.0, measured=sampling.greedy, first=length)


def _worth(unfinished: list[SequenceState]) -> int:
    """Drafted tokens that texts about to end could still take. Those of a fixed length, drawn, take no heed: they must
    not depend on neighbours."""
    # Every step yields one token more than it accepts, so drafting the last token is never worth it.
    return max(min(s.max_new_tokens, s.room) - len(s.token_ids) for s in unfinished) - 1
