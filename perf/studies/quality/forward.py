# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A given text through the model with every token as a decode step, many tokens at a time.

The method of the ALSpec paper's section 5.1: full and approximate attention are both computed, and the approximation is
taken where it passes. The reference's decode step does so for a chain of tokens as for one (each query chooses its own
first and last keys), so a text takes one pass of chunks and no token-by-token loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from models.llama31_8b.reference.alspec.policies import AttentionPolicy
from models.llama31_8b.reference.model.kv_cache import KVCache
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import QUERY_BLOCK

# Tokens a forward on a CPU: the products of the reference are fastest up to this many rows (projection.FEW_ROWS).
BLOCK = 128


@dataclass(frozen=True)
class TextPass:
    """A text of T tokens under one attention policy.

    losses: float32 [T - 1], nats of each token but the first. states: float32 [T, hidden], after the final norm.
    choices: int64 [T], the likeliest next token. divergence: float32 [T], KL(exact || policy) of the next token in
    nats, and exact_choices: int64 [T]; both None without an exact pass to compare with. accepted: bool [layers, T] and
    verified: bool [T], decisions of attention-level speculation, None for others. scores: float32 [T, vocab], log
    probabilities of the next token, where they were to be kept.
    """

    losses: torch.Tensor
    states: torch.Tensor
    choices: torch.Tensor
    divergence: torch.Tensor | None = None
    exact_choices: torch.Tensor | None = None
    accepted: torch.Tensor | None = None
    verified: torch.Tensor | None = None
    scores: torch.Tensor | None = None

    @property
    def perplexity(self) -> float:
        return float(self.losses.double().mean().exp())

    def hit_rate(self) -> float | None:
        """Return accepted over verified (layer, token) pairs; None when nothing was verified, or nothing speculates."""
        if self.accepted is None or self.verified is None or not bool(self.verified.any()):
            return None
        return float(self.accepted[:, self.verified].double().mean())

    def hit_rate_by_layer(self) -> list[float] | None:
        """Return [layers] hit rates; None as in hit_rate."""
        if self.accepted is None or self.hit_rate() is None:
            return None
        return self.accepted[:, self.verified].double().mean(1).tolist()


def _blocks(tokens: int, on_gpu: bool) -> list[slice]:
    size = QUERY_BLOCK if on_gpu else BLOCK
    return [slice(start, min(start + size, tokens)) for start in range(0, tokens, size)]


@torch.inference_mode()
def text_pass(
    model: ReferenceLlama,
    ids: Sequence[int],
    policy: AttentionPolicy | None = None,
    exact_scores: torch.Tensor | None = None,
    cache: KVCache | None = None,
    keep_scores: bool = False,
) -> TextPass:
    """Run every token of `ids` as a decode step under `policy` (None: exact attention in one softmax).

    exact_scores: scores of the exact pass over the same text, to compare with. cache: continue after what it holds for
    one user; the text is written to it. keep_scores: for such a comparison. Raises ValueError for a text beyond the
    context, or for scores of another length.
    """
    if exact_scores is not None and len(exact_scores) != len(ids):
        raise ValueError(f"scores of {len(exact_scores)} tokens for a text of {len(ids)}")
    cache = model.new_cache(1, len(ids)) if cache is None else cache
    first = 0 if policy is None or policy.statistics is None else len(policy.statistics.steps)
    tokens = torch.as_tensor(ids, dtype=torch.int64)
    following = torch.cat((tokens[1:], tokens[:1]))
    states = torch.cat(
        [
            model.forward(tokens[None, block], cache, policy=policy, logits="none", hidden=True)[1][0]
            for block in _blocks(len(ids), cache.keys[0].is_cuda)
        ]
    )
    found: dict[str, list[torch.Tensor]] = {}
    for block in _blocks(len(ids), states.is_cuda):
        scores = F.log_softmax(model.head(states[block]).float(), dim=-1)
        parts = {"losses": F.nll_loss(scores, following[block], reduction="none"), "choices": scores.argmax(-1)}
        if keep_scores:
            parts["scores"] = scores
        if exact_scores is not None:
            exact = exact_scores[block]
            parts["divergence"] = F.kl_div(scores, exact, log_target=True, reduction="none").sum(-1)
            parts["exact_choices"] = exact.argmax(-1)
        for name, part in parts.items():
            found.setdefault(name, []).append(part)
    whole = {name: torch.cat(of_blocks) for name, of_blocks in found.items()}
    if policy is not None and policy.statistics is not None:
        steps = policy.statistics.steps[first:]
        whole["accepted"] = torch.cat([step.accepted[:, 0] for step in steps], dim=1)
        whole["verified"] = torch.cat([step.verified[0] for step in steps])
    return TextPass(whole.pop("losses")[:-1], states.float(), **whole)


# Columns that compare a text under a policy with the same text under exact attention.
COMPARED = (
    *("perplexity", "exact_perplexity", "loss_change", "loss_change_se", "divergence", "agreement", "deviation"),
    *("hit_rate", "tokens", "speculating"),
)


def compared_columns(result: TextPass, exact: TextPass, speculated_from: int) -> dict[str, object]:
    """Return the columns COMPARED of a pass over a text beside its exact pass.

    loss_change (nats per token), its standard error, divergence (mean KL of the next token), agreement (share of equal
    likeliest tokens) and deviation (median of ||h~ - h|| / ||h|| after the final norm) are over the tokens that
    speculate, those with `speculated_from` = 2S and more cached; perplexities are over the whole text. hit_rate is None
    for policies that do not speculate.
    """
    assert result.divergence is not None and result.exact_choices is not None, "made with the exact pass's scores"
    late = slice(speculated_from - 1, None)
    change = (result.losses - exact.losses)[late].double()
    moved = torch.linalg.vector_norm(result.states - exact.states, dim=1)[late]
    size = torch.linalg.vector_norm(exact.states, dim=1)[late]
    return {
        "perplexity": result.perplexity,
        "exact_perplexity": exact.perplexity,
        "loss_change": float(change.mean()),
        "loss_change_se": float(change.std() / len(change) ** 0.5),
        "divergence": float(result.divergence[late].double().mean()),
        "agreement": float((result.choices == result.exact_choices)[late].double().mean()),
        "deviation": float((moved / size).median()),
        "hit_rate": result.hit_rate(),
        "tokens": len(result.states),
        "speculating": len(moved),
    }
