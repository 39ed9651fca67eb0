# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation between the two rows of a mesh (ALSpec paper, section 4.2 and algorithm 2).

Each row is a tensor-parallel group; chips in the same column form a chip pair with sp_rank 0 and 1. At the start of a
step both rows compute the first layer's queries, keys and values from the embedding. Then, for every layer:

    residual, queries, keys, values,         copied from the row with the higher priority to the other
    priority                                 (device_exchange)
    cache                                    written on both rows, so both caches hold every token
    attention                                the sender guesses, sends and verifies; the receiver takes the guess
    output projection, MLP, the next layer's
    norm, queries, keys, values, rotation    skipped on the row whose priority is now 0 (compute_gate)

After the last layer the residual is exchanged once more, so that both rows run the same LM head. A step over token
trees does the same with a row per node; each user's nodes are decided on together. The exchange comes
just before the cache is written, the latest point that keeps both caches complete: a row that goes on with a guess has
a whole layer's work to do during the other's verification, as appendix F counts it. The host launches the same ops
whatever the decisions and reads none of them; all tensors have fixed addresses, so one trace serves every step.

The state of a guess that follows the attention: each layer's masses of tiles and lists of tiles on every chip.

A chip writes the masses of a layer when it verifies a guess there, for its own heads. At the start of a step every chip
makes the lists of all layers from its own masses: nothing is exchanged, and where a chip was not the sender for some
steps, its masses are that much older. Only the sender's list counts in a step, since the receiver takes the guess."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

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
from tt_kernels.speculative_flash_decode.tile_lists import ROW_WORDS
from tt_kernels.tile_selection.op import select_tiles
from tt_kernels.token_guard.op import guard_result, guard_tokens
from tt_kernels.tree_attention.speculative import ProgramConfig as TreeProgramConfig
from tt_kernels.tree_attention.speculative import speculative_tree_attention

from ..config import LlamaConfig
from .attention_policies import DecodeAttention, TokenHeads
from .chip_counters import LayerCounters, SpeculationCounters
from .mesh import SP_AXIS, TILE, TP_AXIS, MeshShape
from .settings import check_speculation

# At 1 GHz; far longer than a layer, which is how long one row waits for the other.
TIMEOUT_S = 2.0


class AttentionSpeculation(DecodeAttention):
    """Decode attention of a TtLlama on a mesh of two rows, with all state that the chip pairs keep.

    users, capacity: of the model's cache. chunk_size: tokens of the guess at either end, a multiple of 32.
    threshold: a guess is accepted if |guess - exact| < threshold * |exact| over all heads of a user; infinity acts as
        1e6, the op's maximum, which accepts every finite guess of a nonzero result.
    timeout_s: how long a row waits for the other before it gives up, in seconds at 1 GHz.
    program, tree_program: the attention ops' core assignments. guess_range: the tokens of the guess, if not the ops'
        default; with `tiles` it follows the attention (followed_tiles.py), one token after another.
    Raises SpeculationError, ValueError (ChipPairs).
    """

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        mesh_shape: MeshShape,
        config: LlamaConfig,
        *,
        users: int,
        capacity: int,
        chunk_size: int = 128,
        threshold: float = 0.10,
        timeout_s: float = TIMEOUT_S,
        program: ProgramConfig | None = None,
        tree_program: TreeProgramConfig | None = None,
        guess_range: GuessRange | None = None,
    ) -> None:
        check_speculation(mesh_shape, users, capacity, chunk_size, threshold)
        self.mesh, self.mesh_shape, self.users = mesh, mesh_shape, users
        self.chunk_size, self.threshold = chunk_size, threshold
        self.program, self.tree_program = program, tree_program
        self.guess_range = guess_range
        self._scale = config.head_dim**-0.5
        grid = mesh.compute_with_storage_grid_size()
        core = (grid.x - 1, grid.y - 1)
        self.exchange_pairs = ChipPairs(mesh, SP_AXIS, core)
        self.exchange = DeviceExchange(self.exchange_pairs, users, timeout_s)
        # The state of a pair counts the calls of one op, so attention has its own.
        self.attention_pairs = ChipPairs(mesh, SP_AXIS, core)
        # The chips of a TP group decide together, over all heads, on another core.
        self.tp_group = TpGroup(mesh, TP_AXIS, _beside(core), timeout_s=timeout_s) if mesh_shape.tp > 1 else None
        self.log = OutcomeLog(mesh, config.num_hidden_layers, users)
        self.followed = None
        if guess_range is not None and guess_range.tiles:
            self.followed = FollowedTiles(
                mesh,
                guess_range,
                layers=config.num_hidden_layers,
                users=users,
                kv_heads=config.num_key_value_heads // mesh_shape.tp,
                capacity=capacity,
            )
        self._initial, self.priority = self._priorities(), self._priorities()
        self._peer = Peer(self.attention_pairs, self.exchange.gathered, timeout_s)

    def reset_priority(self) -> None:
        """Make the first row the sender of layer 0 (priorities [2, 0]); both rows hold the embedding."""
        ttnn.copy(self._initial, self.priority)

    def choose_tiles(self, positions: ttnn.Tensor) -> None:
        if self.followed is not None:
            self.followed.select(positions)

    def exchange_inputs(self, residual: ttnn.Tensor, heads: TokenHeads) -> None:
        self.exchange(residual, self.priority, *heads)

    def __call__(self, layer, q, keys, values, positions, page_table=None):
        followed = self.followed
        return speculative_flash_decode(
            q,
            keys,
            values,
            positions,
            program_config=self.program,
            tile_lists=None if followed is None else followed.lists[layer],
            tile_masses=None if followed is None else followed.masses[layer],
            **self._options(page_table),
        ).exact

    def check_trees(self) -> None:
        """Raises ValueError for a guess that follows the attention, whose lists are of one token after another."""
        if self.followed is not None:
            raise ValueError(
                f"a guess that follows the attention is of one token, not of a token tree: {self.guess_range}"
            )

    def attend_tree(self, layer, q, keys, values, prefix, intervals, page_table=None):
        return speculative_tree_attention(
            q,
            keys,
            values,
            prefix,
            intervals,
            program_config=self.tree_program,
            **self._options(page_table),
        ).exact

    def _options(self, page_table: ttnn.Tensor | None) -> dict[str, Any]:
        """Return what both attention ops are given alike."""
        return {
            "chunk_size": self.chunk_size,
            "guess_range": self.guess_range,
            "page_table": page_table,
            "threshold": min(self.threshold, MAX_THRESHOLD),
            "scale": self._scale,
            "priority": self.priority,
            "peer": self._peer,
            "tp_group": self.tp_group,
        }

    def gate(self, layer: int) -> AbstractContextManager[None]:
        # The chips of a TP group decide alike, so their collectives are skipped together or not at all.
        return skip_compute(self.priority, users=self.users, log=self.log, layer=layer, shared_gate_axis=TP_AXIS)

    def exchange_output(self, residual: ttnn.Tensor) -> None:
        self.exchange(residual, self.priority)

    def guard_tokens(self, tokens: ttnn.Tensor) -> None:
        guard_tokens(tokens, list(self._states().values()))

    def guard_result(self, result: ttnn.Tensor) -> None:
        guard_result(result, list(self._states().values()))

    def check(self) -> None:
        """Raises PeerError if a row gave up on the other: its results since then are invalid."""
        for what, state in self._states().items():
            try:
                state.check()
            except PeerError as error:
                raise PeerError(f"{what}: {error}") from error

    def reset(self) -> None:
        """Forget counters, failures and what the guess followed. No step may be running."""
        self.log.reset()
        if self.followed is not None:
            self.followed.reset()
        for state in self._states().values():
            state.reset()

    def statistics(self) -> SpeculationCounters:
        """Read the chips' counters; waits for the device."""
        rows = [chips[0] for chips in self._by_row(self.log.read())]
        layers = []
        for counts in zip(*rows, strict=True):
            # A skipped user's priority is 0 on both rows, which the log cannot tell from a hit; every other user makes
            # exactly one row a receiver.
            received, misses, bypassed = (
                sum(getattr(count, name) for count in counts) for name in ("received", "rejected", "bypassed")
            )
            layers.append(LayerCounters(received - misses - bypassed, misses, bypassed))
        exchange = self._by_row(self.exchange_pairs.states())
        failures = [
            f"{what} {name} {state.failure}"
            for what, states in self._states().items()
            for name, state in zip(states.names(), states.states(), strict=True)
            if state.failure
        ]
        sent = tuple(chips[0].sent for chips in exchange)
        return SpeculationCounters(tuple(layers), exchange[0][0].ties, sent, tuple(failures))

    def last_priorities(self) -> list[list[list[int]]]:
        """Return all users' priorities after the last step, by row and layer; for tests and diagnosis."""
        return [[list(layer.last) for layer in chips[0]] for chips in self._by_row(self.log.read())]

    def _states(self) -> dict[str, ChipPairs | TpGroup]:
        """Return the state of the chips' calls to each other, by caller."""
        found: dict[str, ChipPairs | TpGroup] = {"exchange": self.exchange_pairs, "attention": self.attention_pairs}
        return found if self.tp_group is None else found | {"decision of a TP group": self.tp_group}

    def _by_row(self, chips: list) -> list[list]:
        """Split a list over all chips, in row-major order, into one per row."""
        return [chips[row * self.mesh_shape.tp : (row + 1) * self.mesh_shape.tp] for row in range(self.mesh_shape.sp)]

    def _priorities(self) -> ttnn.Tensor:
        """Return a step's initial priorities: uint32 [1, 1, 1, 32] on each chip, its row's."""
        return ttnn.from_torch(
            torch.cat([priority_row(value) for value in INITIAL]),
            dtype=ttnn.uint32,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            device=self.mesh,
            mesh_mapper=ttnn.ShardTensor2dMesh(self.mesh, mesh_shape=self.mesh_shape.shape, dims=(0, None)),
        )


def _beside(core: tuple[int, int]) -> tuple[int, int]:
    """Return a core next to `core`, the last of a grid."""
    x, y = core
    return (x - 1, y) if x else (x, y - 1)


class FollowedTiles:
    """masses, lists: of each layer, uint32 [users, kv_heads / tp, capacity / 32] and [users, kv_heads / tp, 16] on each
    chip (`speculative_flash_decode`). kv_heads: of one chip."""

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        guess_range: GuessRange,
        *,
        layers: int,
        users: int,
        kv_heads: int,
        capacity: int,
    ) -> None:
        self.guess_range = guess_range
        masses, lists = (users, kv_heads, capacity // TILE), (users, kv_heads, ROW_WORDS)
        self.masses = [_zeros(mesh, masses) for _ in range(layers)]
        self.lists = [_zeros(mesh, lists) for _ in range(layers)]
        self._no_mass = _zeros(mesh, masses)

    def select(self, positions: ttnn.Tensor) -> None:
        """Make the lists of a step with these positions, int32 [users]."""
        select_tiles(self.masses, self.lists, positions, self.guess_range)

    def reset(self) -> None:
        """Forget all masses, as after a prompt. No step may be running."""
        for masses in self.masses:
            ttnn.copy(self._no_mass, masses)


def _zeros(mesh: ttnn.MeshDevice, shape: tuple[int, ...]) -> ttnn.Tensor:
    return ttnn.from_torch(
        torch.zeros(shape, dtype=torch.int32),
        dtype=ttnn.uint32,
        layout=ttnn.ROW_MAJOR_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ReplicateTensorToMesh(mesh),
    )
