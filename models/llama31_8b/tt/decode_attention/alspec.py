# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation between the two rows of a mesh (ALSpec paper, section 4.2 and algorithm 2).

A decode step of TtLlama with `AttentionSpeculation` as its attention. Both rows make the first layer's queries, keys
and values of the embedding. Then for every layer:

    residual, queries, keys, values and      the row with the higher priority has them and the other takes them
    priorities change hands                  (device_exchange)
    cache                                    on both rows, so that both caches hold every token
    attention                                the sender guesses, sends, verifies; the receiver takes the guess
    output projection, MLP, the next layer's
    norm, queries, keys, values, rotation    skipped on the row whose priority is now 0 (compute_gate)

and after the last layer the residual changes hands once more, so that the head runs alike on both rows. The rows meet
just before the cache, the latest point that keeps both caches whole: whoever goes on with a guess has a whole layer's
work to do beside the other's verification, as appendix F counts it. The host launches the same ops whatever the
outcomes and reads none of them; everything lives at fixed addresses, so that one trace serves all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import ttnn

from tt_kernels.common.peer import ChipPairs, PeerError
from tt_kernels.common.priority import INITIAL, priority_row
from tt_kernels.common.tp_group import TpGroup
from tt_kernels.compute_gate.op import skip_compute
from tt_kernels.compute_gate.outcome_log import OutcomeLog
from tt_kernels.device_exchange.op import DeviceExchange
from tt_kernels.speculative_flash_decode.checks import MAX_THRESHOLD
from tt_kernels.speculative_flash_decode.op import GuessRange, Peer, ProgramConfig, speculative_flash_decode
from tt_kernels.token_guard.op import guard_tokens

from ...config import LlamaConfig
from ..attention import DecodeAttention, TokenHeads
from ..parallel.mesh import SP_AXIS, TP_AXIS, MeshShape
from .settings import check_speculation

# At 1 GHz; far beyond the time of a layer, which is what a row waits for the other.
TIMEOUT_S = 2.0


@dataclass(frozen=True)
class LayerCounters:
    """What verification said at one layer, counted in (decode steps, users); skipped users count nowhere."""

    hits: int
    misses: int
    bypassed: int

    @property
    def hit_rate(self) -> float | None:
        """Hits of all verified guesses; None where nothing was verified."""
        verified = self.hits + self.misses
        return self.hits / verified if verified else None


@dataclass(frozen=True)
class SpeculationCounters:
    """What the pair counted since `reset`.

    layers: by layer. ties: exchanges that found equal priorities, where the first row sent. sent: layers whose
    residual the first and the second row sent. failures: of chips that gave up on their peer.
    """

    layers: tuple[LayerCounters, ...]
    ties: int
    sent: tuple[int, int]
    failures: tuple[str, ...]

    @classmethod
    def merged(cls, parts: Sequence[SpeculationCounters]) -> SpeculationCounters:
        """The sums of several readings, at least one, of one model."""
        layers = (
            LayerCounters(*(sum(getattr(count, name) for count in counts) for name in ("hits", "misses", "bypassed")))
            for counts in zip(*(part.layers for part in parts), strict=True)
        )
        first, second = (sum(sent) for sent in zip(*(part.sent for part in parts), strict=True))
        failures = tuple(failure for part in parts for failure in part.failures)
        return cls(tuple(layers), sum(part.ties for part in parts), (first, second), failures)

    # As of results.AttentionStatistics.

    @property
    def hits(self) -> int:
        return sum(layer.hits for layer in self.layers)

    @property
    def misses(self) -> int:
        return sum(layer.misses for layer in self.layers)

    @property
    def bypassed(self) -> int:
        return sum(layer.bypassed for layer in self.layers)

    @property
    def bypassed_positions(self) -> int:
        """Decoded tokens, over all users, for which no layer speculated."""
        return self.layers[0].bypassed

    @property
    def hit_rate(self) -> float | None:
        """Over all layers; None where nothing was verified."""
        return LayerCounters(self.hits, self.misses, self.bypassed).hit_rate

    @property
    def exchange(self) -> dict[str, object]:
        """What the rows told each other, for a report."""
        return {"sent_by_row": list(self.sent), "ties": self.ties, "failures": list(self.failures)}

    @property
    def hit_rate_per_layer(self) -> list[float | None]:
        return [layer.hit_rate for layer in self.layers]


class AttentionSpeculation(DecodeAttention):
    """The decode attention of a TtLlama on a mesh of two rows, and all that the pair keeps on its chips.

    users, capacity: of the model's cache. chunk_size: tokens of the guess at either end, a multiple of 32.
    threshold: the guess is accepted where |guess - exact| < threshold * |exact| over all heads of a user;
        infinite: the largest the op takes, 1e6, which accepts every finite guess of a result that is not zero.
    timeout_s: how long a row waits for the other before it gives up, in seconds at 1 GHz.
    program: layout of the attention on the chip. guess_range: the tokens of the guess, where they are not those that
        the op takes by itself. Errors: SpeculationError, ValueError (ChipPairs).
    """

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        plan: MeshShape,
        config: LlamaConfig,
        *,
        users: int,
        capacity: int,
        chunk_size: int = 128,
        threshold: float = 0.10,
        timeout_s: float = TIMEOUT_S,
        program: ProgramConfig | None = None,
        guess_range: GuessRange | None = None,
    ) -> None:
        check_speculation(plan, users, capacity, chunk_size, threshold)
        self.mesh, self.plan, self.users = mesh, plan, users
        self.chunk_size, self.threshold, self.program = chunk_size, threshold, program
        self.guess_range = guess_range
        self._scale = config.head_dim**-0.5
        grid = mesh.compute_with_storage_grid_size()
        core = (grid.x - 1, grid.y - 1)
        self._exchanging = ChipPairs(mesh, SP_AXIS, core)
        self.exchange = DeviceExchange(self._exchanging, users, timeout_s)
        # A pair's state counts the calls of one op: attention has its own.
        self.pairs = ChipPairs(mesh, SP_AXIS, core)
        # With tensor parallelism the chips of a row decide together, over all heads, on another core.
        self.tp_group = TpGroup(mesh, TP_AXIS, _beside(core), timeout_s=timeout_s) if plan.tp > 1 else None
        self.log = OutcomeLog(mesh, config.num_hidden_layers, users)
        self._initial, self.priority = self._priorities(), self._priorities()
        self._peer = Peer(self.pairs, self.exchange.gathered, timeout_s)

    def begin_step(self) -> None:
        """Both rows hold the embedding; the first is the sender of layer 0 (priorities [2, 0])."""
        ttnn.copy(self._initial, self.priority)

    def before_attention(self, residual: ttnn.Tensor, heads: TokenHeads) -> None:
        self.exchange(residual, self.priority, *heads)

    def __call__(self, layer, q, keys, values, positions):
        return speculative_flash_decode(
            q,
            keys,
            values,
            positions,
            chunk_size=self.chunk_size,
            threshold=min(self.threshold, MAX_THRESHOLD),
            scale=self._scale,
            priority=self.priority,
            peer=self._peer,
            tp_group=self.tp_group,
            program_config=self.program,
            guess_range=self.guess_range,
        ).exact

    def until_next_attention(self, layer: int) -> AbstractContextManager[None]:
        # The chips of a row decide alike, so their collectives are skipped together or not at all.
        return skip_compute(self.priority, users=self.users, log=self.log, layer=layer, shared_gate_axis=TP_AXIS)

    def end_step(self, residual: ttnn.Tensor) -> None:
        self.exchange(residual, self.priority)

    def guard(self, tokens: ttnn.Tensor) -> None:
        guard_tokens(tokens, list(self._states().values()))

    def check(self) -> None:
        """Raises PeerError when a row gave up on the other: what it computed since is not to be used."""
        for what, state in self._states().items():
            try:
                state.check()
            except PeerError as error:
                raise PeerError(f"{what}: {error}") from error

    def statistics(self) -> SpeculationCounters:
        return self.outcomes()

    def reset(self) -> None:
        """Forget outcomes and failures. No step may be under way."""
        self.log.reset()
        for state in self._states().values():
            state.reset()

    def outcomes(self) -> SpeculationCounters:
        """Read the chips' counters; waits for the device."""
        rows = [chips[0] for chips in self._by_row(self.log.read())]
        layers = []
        for counts in zip(*rows, strict=True):
            # A skipped user's priority is 0 on both rows, which the log cannot tell from a hit; of the others each
            # makes one row a receiver.
            received, misses, bypassed = (
                sum(getattr(count, name) for count in counts) for name in ("received", "rejected", "bypassed")
            )
            layers.append(LayerCounters(received - misses - bypassed, misses, bypassed))
        exchange = self._by_row(self._exchanging.states())
        failures = [
            f"{what} {name} {state.failure}"
            for what, states in self._states().items()
            for name, state in zip(states.names(), states.states(), strict=True)
            if state.failure
        ]
        sent = tuple(chips[0].sent for chips in exchange)
        return SpeculationCounters(tuple(layers), exchange[0][0].ties, sent, tuple(failures))

    def last_priorities(self) -> list[list[list[int]]]:
        """By row and layer, the priorities of all users after the last step; for tests and diagnosis."""
        return [[list(layer.last) for layer in chips[0]] for chips in self._by_row(self.log.read())]

    def _states(self) -> dict[str, ChipPairs | TpGroup]:
        """What the chips keep of their calls to each other, by what calls."""
        found: dict[str, ChipPairs | TpGroup] = {"exchange": self._exchanging, "attention": self.pairs}
        return found if self.tp_group is None else found | {"decision of a TP group": self.tp_group}

    def _by_row(self, chips: list) -> list[list]:
        """What each chip has, in row-major order -> a list a row."""
        return [chips[row * self.plan.tp : (row + 1) * self.plan.tp] for row in range(self.plan.sp)]

    def _priorities(self) -> ttnn.Tensor:
        """The priorities that a step starts with: uint32 [1, 1, 1, 32] on each chip, its row's."""
        return ttnn.from_torch(
            torch.cat([priority_row(value) for value in INITIAL]),
            dtype=ttnn.uint32,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            device=self.mesh,
            mesh_mapper=ttnn.ShardTensor2dMesh(self.mesh, mesh_shape=self.plan.shape, dims=(0, None)),
        )


def _beside(core: tuple[int, int]) -> tuple[int, int]:
    """A core next to `core`, the last of a grid."""
    x, y = core
    return (x - 1, y) if x else (x, y - 1)
