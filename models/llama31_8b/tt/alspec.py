# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation on the chips (ALSpec paper, algorithm 2), on a mesh of two rows.

Each row is a tensor-parallel group; chips in the same column form a chip pair with sp_rank 0 and 1. The host launches
the same ops whatever the decisions and reads none of them; all tensors have fixed addresses, so one trace serves every
step. The exchange comes just before queries and keys are rotated and the cache is written, so that both caches stay
complete: a row that goes on with a guess has a whole layer's work to do during the other's verification, as appendix F
counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import ttnn

from tt_kernels.common.attention_checks import MAX_THRESHOLD
from tt_kernels.common.device_state import zero_words
from tt_kernels.common.peer import DEFAULT_TIMEOUT_S, ChipPairs
from tt_kernels.common.priority import INITIAL, priority_row
from tt_kernels.common.tp_group import TpGroup
from tt_kernels.compute_gate.op import OutcomeLog, skip_compute
from tt_kernels.device_exchange.op import DeviceExchange
from tt_kernels.speculative_flash_decode.guess_range import chosen_words
from tt_kernels.speculative_flash_decode.op import GuessRange, Peer, speculative_flash_decode
from tt_kernels.tile_selection.op import select_tiles
from tt_kernels.token_guard.op import ChipStates
from tt_kernels.tree_attention.op import speculative_tree_attention

from ..results import ChipCounters, LayerCounters
from .attention_policies import AttentionPolicy, StepInputs
from .kv_cache import LayerCache
from .layer import DecoderLayer, Pass
from .layouts import Residual
from .mesh import SP_AXIS, TILE, TP_AXIS, Site
from .settings import AttentionSettings


def plain_step(layers: Sequence[DecoderLayer], x: ttnn.Tensor, step: Pass) -> ttnn.Tensor:
    """Run a decode step through all layers, on every row of the mesh alike. x: the embedding. Returns the residual."""
    entering = Residual(x)
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        output = layer.attention.attend(layer.project_qkv(entering, step), step)
        entering = layer.after_attention(entering.x, output, step, following)
    return entering.x


def alspec_step(layers: Sequence[DecoderLayer], x: ttnn.Tensor, step: Pass) -> ttnn.Tensor:
    """Do `plain_step` with a guess in every layer (algorithm 2): one row goes on with it while the other verifies.

    Both rows begin with the embedding and p = [2, 0], p[k] the priority of row k. The row with the higher priority is a
    layer's sender. Its priority becomes 2 if it rejected the guess and 0 if it accepted it, the receiver's becomes 1:
    so after a rejection the sender holds the right residual, and after a hit the receiver does and sends next.
    """
    pair = step.policy
    assert isinstance(pair, PairAlspec)
    pair.begin_step(step)
    fused = layers[0].project_qkv(Residual(x), step)  # ops_before_self_attn
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        # p = all_gather(p); with it the sender's residual, queries, keys and values go to the receiver (footnote 2).
        pair.exchange(x, pair.priority, fused)
        # x = speculative_flash_decode(x, p, threshold): both rows write the cache; the sender guesses, sends the guess,
        # computes the exact output and verifies; the receiver takes the guess.
        output = layer.attention.attend(fused, step)
        # with skip_compute(p[k] == 0): ops_after_self_attn, and the next layer's ops_before_self_attn.
        with pair.skip_if_overruled(layer.attention.layer):
            entering = layer.after_attention(x, output, step, following)
            if following is not None:
                fused = following.project_qkv(entering, step)
        x = entering.x
    # return x from the correct row: the other one takes it, and both run the same LM head.
    pair.exchange(x, pair.priority)
    return x


class PairAlspec(AttentionPolicy):
    """Attention with a guess that the other row of the mesh receives, and all state that the chip pairs keep.

    Each chip, its grid of x by y cores (8 x 8 on an N150):

        core            used by                              its L1 state, and semaphores
        (x-1, y-1)      DeviceExchange, to the chip pair     exchange_pairs: calls, sent, ties, status
        (x-1, y-1)      attention, to the chip pair          attention_pairs: the same; each op counts its own calls
        (x-2, y-1)      attention, to the TP group           tp_group: distances, norms and votes of all chips of a row
        the others      attention's workers, output core     arrived, credit, outgoing, delivery, one per user
        in DRAM         priority [32], exchange.gathered [2, 32], log [layers, 40]; of a budget: masses, chosen

    A core talks to another chip over the fabric link; whoever waits gives up after `timeout_s` and says so in its
    status, which the guards copy into tokens and `check` reports. threshold may be changed between steps that are not
    traced. users, capacity: of the model's cache. Raises SpeculationError, ValueError (ChipPairs).
    """

    takes_trees = True

    def __init__(self, site: Site, settings: AttentionSettings, users: int, capacity: int) -> None:
        mesh, mesh_shape, config = site
        settings.check(mesh_shape, users, capacity)
        self.mesh, self.mesh_shape, self.users = mesh, mesh_shape, users
        self.chunk_size, self.threshold = settings.chunk_size, settings.threshold
        self.program, self.tree_program = settings.program, settings.tree_program
        timeout_s = DEFAULT_TIMEOUT_S if settings.timeout_s is None else settings.timeout_s
        grid = mesh.compute_with_storage_grid_size()
        core = (grid.x - 1, grid.y - 1)
        self.exchange_pairs = ChipPairs(mesh, SP_AXIS, core)
        self.exchange = DeviceExchange(self.exchange_pairs, users, timeout_s)
        self.attention_pairs = ChipPairs(mesh, SP_AXIS, core)
        # The chips of a TP group decide together, over all heads.
        beside = (core[0] - 1, core[1]) if core[0] else (0, core[1] - 1)
        self.tp_group = TpGroup(mesh, TP_AXIS, beside, timeout_s=timeout_s) if mesh_shape.tp > 1 else None
        self.log = OutcomeLog(mesh, config.num_hidden_layers, users)
        self.guess_range, self.by_budget = None, None
        if settings.guess == "budget":
            self.guess_range = GuessRange(TILE, self.chunk_size, whole_tail=True)
            tiles = users, site.kv_heads, capacity // TILE
            self.by_budget = BudgetTiles(mesh, self.guess_range, settings.budget, config.num_hidden_layers, tiles)
        self._initial, self.priority = self._priorities(), self._priorities()
        self._peer = Peer(self.attention_pairs, self.exchange.gathered, timeout_s)
        states: dict[str, ChipPairs | TpGroup] = {"exchange": self.exchange_pairs, "attention": self.attention_pairs}
        if self.tp_group is not None:
            states["decision of a TP group"] = self.tp_group
        self.states = ChipStates(states)

    def begin_step(self, step: Pass) -> None:
        """Make the first row the sender of layer 0, and select the tiles that the guesses read."""
        ttnn.copy(self._initial, self.priority)
        if self.by_budget is not None:
            self.by_budget.select(step.inputs.positions)

    def attend(self, layer: int, q: ttnn.Tensor, cache: LayerCache, inputs: StepInputs) -> ttnn.Tensor:
        given, options = (cache.keys, cache.values, inputs.positions), self._options(layer, cache)
        return speculative_flash_decode(q, *given, program_config=self.program, **options).exact

    def attend_tree(self, layer: int, q: ttnn.Tensor, cache: LayerCache, inputs: StepInputs) -> ttnn.Tensor:
        assert inputs.intervals is not None
        given = cache.keys, cache.values, inputs.positions, inputs.intervals
        options = self._options(layer, cache)
        return speculative_tree_attention(q, *given, program_config=self.tree_program, **options).exact

    def _options(self, layer: int, cache: LayerCache) -> dict[str, Any]:
        """Return what both attention ops are given alike."""
        tiles = self.by_budget
        return {
            "chunk_size": self.chunk_size,
            "guess_range": self.guess_range,
            "chosen": None if tiles is None else tiles.chosen[layer],
            "tile_masses": None if tiles is None else tiles.masses[layer],
            "page_table": cache.page_table,
            "threshold": min(self.threshold, MAX_THRESHOLD),
            "priority": self.priority,
            "peer": self._peer,
            "tp_group": self.tp_group,
        }

    def skip_if_overruled(self, layer: int) -> AbstractContextManager[None]:
        """Skip the ops launched inside on the row whose priority is 0, and count the layer's outcome there."""
        # The chips of a TP group decide alike, so their collectives are skipped together or not at all.
        return skip_compute(self.priority, users=self.users, log=self.log, layer=layer, shared_gate_axis=TP_AXIS)

    def reset(self) -> None:
        """Forget counters, failures and attention weights. No step may be running."""
        self.log.reset()
        if self.by_budget is not None:
            self.by_budget.reset()
        self.states.reset()

    def statistics(self) -> ChipCounters:
        """Read the chips' counters since `reset`; waits for the device."""
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
        sent = tuple(chips[0].sent for chips in exchange)
        return ChipCounters(tuple(layers), exchange[0][0].ties, sent, tuple(self.states.failures()))

    def last_priorities(self) -> list[list[list[int]]]:
        """Return all users' priorities after the last step, by row and layer; for tests and diagnosis."""
        return [[list(layer.last) for layer in chips[0]] for chips in self._by_row(self.log.read())]

    def _by_row(self, chips: list[Any]) -> list[list[Any]]:
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


class BudgetTiles:
    """The state of a guess by a budget: each layer's average attention weight by tile, and its chosen tiles.

    A chip averages the weights of its own passes of a layer, those in which it verifies a guess there, for its own
    heads; of a token tree the root's, whose tiles serve all nodes. At the start of a step every chip chooses the tiles
    of all layers by its own weights: nothing is exchanged, and where a chip was not the sender for some steps, its
    weights are that much older. Only the sender's tiles count in a step, since the receiver takes the guess.

    masses, chosen: of each layer, uint32 [users, kv_heads, capacity / 32], the shape `tiles`, and [users, kv_heads, W]
    on each chip (`speculative_flash_decode`). budget: the part of the weight that is read.
    """

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        guess_range: GuessRange,
        budget: float,
        layers: int,
        tiles: tuple[int, int, int],
    ) -> None:
        self.guess_range, self.budget = guess_range, budget
        chosen = *tiles[:2], chosen_words(tiles[2] * TILE)
        self.masses, self.chosen = ([zero_words(mesh, shape) for _ in range(layers)] for shape in (tiles, chosen))
        self._no_mass = zero_words(mesh, tiles)

    def select(self, positions: ttnn.Tensor) -> None:
        """Choose the tiles of a step with these positions, int32 [users]."""
        select_tiles(self.masses, self.chosen, positions, self.guess_range, self.budget)

    def reset(self) -> None:
        """Forget all weights, as after a prompt. No step may be running."""
        for masses in self.masses:
            ttnn.copy(self._no_mass, masses)
