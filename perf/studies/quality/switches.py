# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to follow the attention, each in runs that speculate with it, at 2S keys per guess as first + last reads.

A guess reads first keys, last keys and the heaviest tiles of 32 between them by what earlier exact passes of the layer
gave (models/llama31_8b/reference/alspec/followed.py); each row of SWITCHES changes one thing of that. `oracle` chooses
by the masses of the step itself, which no guess can know, and bounds the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch

from models.llama31_8b.reference.alspec.acceptance import accept_guess
from models.llama31_8b.reference.alspec.counters import SpeculationCounters
from models.llama31_8b.reference.alspec.followed import TILE, heaviest_tiles
from models.llama31_8b.reference.alspec.policies import AttentionPolicy
from models.llama31_8b.reference.model.attention import ManyQueries, Segments
from models.llama31_8b.reference.model.step import DecodeStep, GuessRange

from .forward import weigh
from .perplexity import join_rates
from .study import COMPARED, KEYS, Cell, Study

KEY = (*KEYS, "switch", "threshold")
# keys_read: mean over layers, heads and tokens that speculate; bypassed: the share of these where the query had turned.
VALUES = (*COMPARED, "keys_read", "bypassed", "hit_rate_by_layer", "seconds")
# Passes that are kept of a layer: the oldest that a switch asks for.
HISTORY = 8


class Switch(NamedTuple):
    """first, last: shares of the keys read at the ends, a tile at least; the rest are tiles in between.

    age: steps between the pass that gave the masses and the guess; 0 is the oracle. decay: of a moving average over
    passes. neighbour: how much of a tile's mass counts for the tiles beside it. choice: whose heaviest tiles are read:
    those of a key/value head's `group`, of each query `head` of it in turn, or one list for the whole `layer`.
    shared: a layer's heads divide their tiles by mass instead of equally. unread: in place of a count, read tiles until
    only this share of the known mass is left out. own: a rank follows its own last exact pass of the layer: no list is
    sent. turned: no guess where the cosine of the layer's query and the one before is lower. exact: go on with the
    exact output, so that all such switches see the same queries.
    """

    first: float = 0.0
    last: float = 1 / 2
    age: int = 1
    decay: float = 0.0
    neighbour: float = 0.0
    choice: str = "group"
    shared: bool = False
    unread: float | None = None
    own: bool = False
    turned: float | None = None
    exact: bool = False

    def guess_range(self, chunk_size: int) -> GuessRange:
        """Return first, last and tiles that add up to 2S keys."""
        keys = 2 * chunk_size
        first, last = (max(TILE, int(keys * share) // TILE * TILE) for share in (self.first, self.last))
        return GuessRange(first, last, TILE, whole_tail=True, tiles=(keys - first - last) // TILE)


SWITCHES = {
    "ends": Switch(first=1 / 2),
    "followed": Switch(),
    "oracle": Switch(age=0),
    "ends, exact states": Switch(first=1 / 2, exact=True),
    "followed, exact states": Switch(exact=True),
    "oracle, exact states": Switch(age=0, exact=True),
    "two steps old": Switch(age=2),
    "four steps old": Switch(age=4),
    "own passes": Switch(own=True),
    "average 0.5": Switch(decay=0.5),
    "average 0.8": Switch(decay=0.8),
    "average 0.95": Switch(decay=0.95),
    "neighbours 0.1": Switch(neighbour=0.1),
    "neighbours 0.5": Switch(neighbour=0.5),
    "by query head": Switch(choice="head"),
    "by layer": Switch(choice="layer"),
    "heads share": Switch(shared=True),
    "mass 0.90": Switch(unread=0.10),
    "mass 0.95": Switch(unread=0.05),
    "quarter last": Switch(last=1 / 4),
    "tile last": Switch(last=1 / 8),
    "quarter last, heads share": Switch(last=1 / 4, shared=True),
    "quarter last, average 0.5": Switch(last=1 / 4, decay=0.5),
    "turned 0.7": Switch(turned=0.7),
    "turned 0.8": Switch(turned=0.8),
    "turned 0.85": Switch(turned=0.85),
}


class _Passes(NamedTuple):
    """What a layer's exact passes gave before this block. mass: [kv_heads, g, HISTORY, tiles], newest last. average:
    [kv_heads, g, 1, tiles]. own: [kv_heads, g, 2, tiles], of each rank's last one. query: [h * d]."""

    mass: torch.Tensor
    average: torch.Tensor
    own: torch.Tensor
    query: torch.Tensor


class SwitchedFollower(AttentionPolicy):
    """Attention-level speculation on one text under a switch; decisions as ALSpecAttention's.

    keys_read, turned: sums over (layer, token) pairs that speculate, of mean keys per key/value head and of bypasses.
    """

    name = "switched follower"
    follows = True
    needs_scores = True
    statistics: SpeculationCounters

    def __init__(self, threshold: float, chunk_size: int, switch: Switch) -> None:
        super().__init__(switch.guess_range(chunk_size))
        self.threshold = threshold
        self.switch = switch
        self.statistics = SpeculationCounters()
        self._passes: dict[int, _Passes] = {}
        self.keys_read = self.turned = torch.zeros((), dtype=torch.float64)

    def begin_step(self, step: DecodeStep, layers: int) -> None:
        self._cached = step.cached[0]
        self._accepted = self.statistics.begin_step(layers, step.users, step.eligible)
        self._sender = torch.zeros_like(self._cached)  # rank 0 or 1, by token; rank 0 sends first

    def attend(self, layer: int, segments: Segments) -> torch.Tensor:
        if not isinstance(segments, ManyQueries):
            raise ValueError("switches are compared on texts of two tokens and more per step")
        cached = self._cached[segments.tokens]
        weights = torch.softmax(segments.scores.masked_fill(~segments.visible, float("-inf")), dim=-1)
        exact = weigh(weights, segments.values)
        query = segments.query.permute(2, 0, 1, 3).flatten(1).float()
        mass = torch.nn.functional.pad(weights, (0, -weights.shape[-1] % TILE)).unflatten(-1, (-1, TILE)).sum(-1)
        known, turned = self._known(layer, mass, query)
        read = self._read(known, cached, weights.shape[-1])
        chosen = weights * read[:, None]
        guess = weigh(chosen / chosen.sum(-1, keepdim=True), segments.values)
        eligible = segments.eligible
        accepted = accept_guess(guess, exact, self.threshold) & eligible & ~turned
        self._accepted[layer, 0, segments.tokens] = accepted
        self._sender = self._sender ^ accepted.long()
        counted = (read & segments.visible).sum(-1).double().mean(0)
        self.keys_read = self.keys_read + (counted * eligible).sum()
        self.turned = self.turned + (turned & eligible).sum()
        return exact if self.switch.exact else torch.where(accepted[:, None], guess, exact)

    def _known(self, layer: int, mass: torch.Tensor, query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what each query's guess knows, [kv_heads, g, t, tiles], and bool [t], where the query has turned; keep
        what the next block needs. mass: [kv_heads, g, t, tiles]; query: [t, h * d]."""
        switch, (tokens, tiles) = self.switch, mass.shape[2:]
        before = self._passes.get(layer)
        if before is None:
            none = mass.new_zeros((*mass.shape[:2], HISTORY, tiles))
            before = _Passes(none, none[:, :, :1], none[:, :, :2], query[0])
        history, average, own = (torch.nn.functional.pad(part, (0, tiles - part.shape[-1])) for part in before[:3])
        masses = torch.cat((history, mass), dim=2)
        steps = torch.arange(tokens)
        # Rank by rank, the last token before each at which it sent; -2 and -1 stand for the passes kept in `own`.
        sent = [torch.where(self._sender == rank, steps, rank - 2).cummax(0).values for rank in (0, 1)]
        ours = torch.stack([torch.cat((row.new_tensor([rank - 2]), row)) for rank, row in enumerate(sent)])
        passes = torch.cat((own, mass), dim=2)
        if switch.own:
            known = passes[:, :, ours[self._sender, steps] + 2]
        elif switch.decay:
            ages = (steps[:, None] - steps).clamp(min=0)
            weight = torch.tril((1 - switch.decay) * switch.decay**ages)
            averages = torch.matmul(weight.to(mass.dtype), mass)
            averages = averages + average * (switch.decay ** (steps + 1.0))[:, None].to(mass.dtype)
            known = torch.cat((average, averages[:, :, :-1]), dim=2)
            average = averages[:, :, -1:]
        else:
            known = masses[:, :, HISTORY - switch.age : HISTORY - switch.age + tokens]
        self._passes[layer] = _Passes(masses[:, :, -HISTORY:], average, passes[:, :, ours[:, -1] + 2], query[-1])
        last = torch.cat((before.query[None], query[:-1]))
        cosine = torch.cosine_similarity(query, last, dim=1)
        return known, cosine < (-2.0 if switch.turned is None else switch.turned)

    def _read(self, known: torch.Tensor, cached: torch.Tensor, slots: int) -> torch.Tensor:
        """Return bool [kv_heads, t, slots]: which keys each query's guess reads."""
        span, switch = self.guess_range, self.switch
        start = span.tail_start(cached)[:, None]
        keys = torch.arange(slots)
        ends = (keys < span.first) | ((keys >= start) & (keys < cached[:, None]))
        if not span.tiles:
            return ends.expand(len(known), -1, -1)
        edges = span.first // TILE, start // TILE
        chosen = _choose(self._ranked(known, edges), span.tiles, edges, switch, known.shape[1])
        return ends | chosen.repeat_interleave(TILE, dim=-1)[..., :slots]

    def _ranked(self, known: torch.Tensor, edges: tuple[int, torch.Tensor]) -> torch.Tensor:
        """Return the masses by which tiles are chosen, [kv_heads, t, tiles]."""
        switch, mass = self.switch, known.sum(1)
        if switch.choice == "layer":
            return mass.sum(0, keepdim=True).expand_as(mass)
        if switch.choice == "head":
            each = self.guess_range.tiles // known.shape[1]
            mine = heaviest_tiles(known, each, *edges).any(1)
            return mass + mine * known.shape[1]  # before all others: a group's mass is its heads' number at most
        if switch.neighbour:
            beside = torch.nn.functional.pad(mass, (1, 1))
            return mass + switch.neighbour * (beside[..., :-2] + beside[..., 2:])
        return mass


def _choose(
    mass: torch.Tensor, tiles: int, edges: tuple[int, torch.Tensor], switch: Switch, heads: int
) -> torch.Tensor:
    """Return bool [kv_heads, t, tiles]. heads: query heads of a group, whose masses add up to as much."""
    if switch.shared:
        flat = mass.transpose(0, 1)  # [t, kv_heads, tiles]
        tile = torch.arange(mass.shape[-1])
        inside = ((tile >= edges[0]) & (tile < edges[1]))[:, None] & (flat > 0)
        order = flat.masked_fill(~inside, -1.0).flatten(1).sort(dim=-1, descending=True, stable=True).indices
        chosen = torch.zeros_like(inside.flatten(1)).scatter_(-1, order[:, : tiles * len(mass)], True)
        return (chosen.view_as(inside) & inside).transpose(0, 1)
    if switch.unread is not None:
        tile = torch.arange(mass.shape[-1])
        middle = mass * ((tile >= edges[0]) & (tile < edges[1]))
        heaviest, order = middle.sort(dim=-1, descending=True, stable=True)
        left = heaviest.flip(-1).cumsum(-1).flip(-1)  # of the middle, this tile's own included
        return torch.zeros_like(mass, dtype=torch.bool).scatter_(-1, order, left > switch.unread * heads)
    return heaviest_tiles(mass, tiles, *edges)


def cells(study: Study) -> Iterator[Cell]:
    """Yield a cell per context, window, chunk size, switch and finite threshold above 0; all switches whatever the
    run's --predictor, whose column says `followed`."""
    for context, start, chunk_size in study.places():
        for name, switch in SWITCHES.items():
            for threshold in (t for t in study.settings.thresholds if 0 < t < float("inf")):
                key = {**study.key(context, start, chunk_size), "predictor": "followed"}
                key |= {"switch": name, "threshold": threshold}
                yield Cell(key, partial(_measure, study, context, start, chunk_size, switch, threshold))


def _measure(
    study: Study, context: int, start: int, chunk_size: int, switch: Switch, threshold: float
) -> dict[str, object]:
    policy = SwitchedFollower(threshold, chunk_size, switch)
    result, columns = study.compared(context, start, policy)
    pairs = study.layers * int(columns["speculating"])  # type: ignore[call-overload]
    return {
        **columns,
        "keys_read": float(policy.keys_read) / pairs,
        "bypassed": float(policy.turned) / pairs,
        "hit_rate_by_layer": join_rates(result.hit_rate_by_layer()),
    }
