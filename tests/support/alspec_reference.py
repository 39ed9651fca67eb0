# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of the reference under attention-level speculation, with how far each guess was off; a threshold that
divides them; and what each rank knows for guesses by a budget, faults included."""

from dataclasses import dataclass

import torch

from models.llama31_8b.reference.alspec.budget import BudgetGuess, tiles_by_budget
from models.llama31_8b.reference.alspec.policies import ALSpecAttention, AttentionPolicy
from models.llama31_8b.reference.model.step import GuessRange
from tt_kernels.speculative_flash_decode.guess_range import MASS_UNIT

# By rank and user, what the masses of each layer become: a word for each tile of the cache; or, of an int, what they
# were after that step.
Fault = dict[tuple[int, int], "list[int] | int"]


def poison(tiles: int) -> Fault:
    """The worst that words can hold: every bit set, one tile that outweighs all, nothing, and the sign bit."""
    most = 2**32 - 1
    one = [most if tile == 1 else 0 for tile in range(tiles)]
    return {(0, 0): [most] * tiles, (0, 1): one, (1, 0): [0] * tiles, (1, 1): [2**31] * tiles}


class Recorded(ALSpecAttention):
    """ALSpecAttention of one user that keeps |guess - exact| / |exact| of a step's layers, None where bypassed."""

    def begin_step(self, step, layers):
        super().begin_step(step, layers)
        self.ratios: list[float | None] = []

    def attend(self, layer, segments):
        ratio = None
        if segments.eligible is True:
            exact = segments.exact()
            ratio = float((segments.guess() - exact).norm() / exact.norm())
        self.ratios.append(ratio)
        return super().attend(layer, segments)


@dataclass
class ReferenceSteps:
    """tokens: the first from the prompt, then one a step; logits: float32 [vocab] after the prompt and each step.
    ratios, accepted: [steps][layers], under Recorded alone. cache: KVCache after the last step."""

    tokens: list[int]
    logits: list[torch.Tensor]
    ratios: list[list[float | None]]
    accepted: list[list[bool]]
    cache: object


@torch.inference_mode()
def reference_steps(model, prompt: list[int], steps: int, policy: AttentionPolicy, capacity: int) -> ReferenceSteps:
    """Greedy decoding of one user."""
    cache = model.new_cache(1, capacity)
    found = ReferenceSteps([], [model.prefill([prompt], cache)[0].float()], [], [], cache)
    for _ in range(steps):
        found.tokens.append(int(found.logits[-1].argmax()))
        found.logits.append(model.forward(torch.tensor([found.tokens[-1:]]), cache, policy=policy)[0, 0].float())
        if isinstance(policy, Recorded):
            found.ratios.append(policy.ratios)
            found.accepted.append(policy.statistics.steps[-1].accepted[:, 0, 0].tolist())
    found.tokens.append(int(found.logits[-1].argmax()))
    return found


def margin(found: ReferenceSteps, threshold: float) -> float:
    """The least relative distance of a ratio from `threshold`."""
    return min(abs(r / threshold - 1) for row in found.ratios for r in row if r is not None)


def own_masses(by_budget: BudgetGuess, layers: int, users: int) -> list:
    """By layer, rank and user, the masses [kv_heads, tiles] that the rank knows, None without a pass."""

    def known(rank: int, layer: int, user: int) -> torch.Tensor | None:
        found = by_budget.known(rank, layer, user)
        return None if found is None else found.clone()

    return [[[known(rank, layer, user) for user in range(users)] for rank in (0, 1)] for layer in range(layers)]


def put_known(by_budget: BudgetGuess, fault: Fault, after: list) -> None:
    """Make what the ranks know of users that have had a guess what it becomes by `fault`. after: by step, what
    `own_masses` were."""
    for (layer, user), own in by_budget._own.items():
        for rank in (0, 1):
            words = fault.get((rank, user))
            if words is None:
                continue
            known = after[words][layer][rank][user] if isinstance(words, int) else torch.tensor([words]) * MASS_UNIT
            own[rank] = 0
            if known is not None:
                tiles = min(own.shape[-1], known.shape[-1])
                own[rank, :, :tiles] = known[:, :tiles]


def wrap_sums(by_budget: BudgetGuess, known: list) -> None:
    """Make averages after a step what words of 32 bits give: half of a sum that has wrapped. known: as of `own_masses`,
    before it."""
    for (layer, user), own in by_budget._own.items():
        for rank in (0, 1):
            before = known[layer][rank][user]
            if before is not None and not torch.equal(own[rank, :, : before.shape[-1]], before):
                own[rank] %= 2**31 * MASS_UNIT


def chosen_tiles(masses: torch.Tensor, guess_range: GuessRange, tokens: int) -> list[int]:
    """Return the tiles that are chosen for a head's guess with so many cached tokens. masses: [tiles]."""
    assert guess_range.budget is not None
    end = torch.tensor(guess_range.tail_start(tokens) // 32)
    chosen = tiles_by_budget(masses, guess_range.budget, guess_range.first // 32, end)
    return chosen.nonzero().flatten().tolist()


def bits_of(words: torch.Tensor) -> list[int]:
    """Return the tiles whose bits are set in a head's words."""
    return [32 * at + bit for at, word in enumerate(words.tolist()) for bit in range(32) if word >> bit & 1]
