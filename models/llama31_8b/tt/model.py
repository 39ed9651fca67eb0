# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Llama on a mesh: one decode step, and prefill in chunks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from copy import copy
from typing import NamedTuple

import torch
import ttnn
from tqdm import tqdm

from tt_kernels.tree_attention.checks import check_intervals, check_room

from ..config import LlamaConfig
from .attention import Attention
from .decode_attention.base import DecodeAttention
from .decode_attention.exact import exact_attention
from .decoder import DecoderLayer
from .device.precision import PrecisionConfig
from .embedding import Embedding
from .kv_cache import KVCache
from .linear import Projection
from .lm_head import LMHead
from .mlp import MLP
from .parallel.collectives import gather
from .parallel.layer_parallel import LayerAssignment
from .parallel.mesh import TILE, MeshShape
from .rms_norm import RMSNorm
from .rope import Angles, Rope
from .sharding.config import check_plan_groups, check_plan_rows
from .sharding.modules import decode_layout
from .spec_decode.layer_parallel_step import LayerGroups, Refill, Write
from .spec_decode.tree_inputs import TreeInputs, node_positions
from .weights.map import WeightMap
from .weights.store import WeightStore


class StepInputs(NamedTuple):
    """What a decode step reads, as tensors on the device so that a captured trace stays valid.

    tokens: uint32 [1, users]. positions: int32 [users], -1 for a user to skip. angles: uint32 [1, users], the
    positions with 0 for skipped users, twice in the fast layout, [1, 2 * users]. All ROW_MAJOR, the same on every
    chip.
    """

    tokens: ttnn.Tensor
    positions: ttnn.Tensor
    angles: ttnn.Tensor


class TtLlama:
    """All layers of a model on a mesh, with its KV cache.

    users: decoded together, 1 to 32, a core each. capacity: cached positions a user, a multiple of 32.
    attend: the attention of decode steps, by default exact by the op that the layout's plan chooses. zeroed: see
    KVCache. layout: how decode steps lie on a chip, a name of DECODE_PLANS. fuzzy: as a draft model, run the layers of
    a decode step in the groups of this plan; prefill and steps over trees stay exact. Errors: ShardingError, also for
    attention or groups that the layout does not serve; ValueError for a plan of another model.
    """

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        plan: MeshShape,
        config: LlamaConfig,
        precision: PrecisionConfig,
        weights: WeightMap,
        store: WeightStore,
        *,
        users: int = 1,
        capacity: int = 1024,
        attend: DecodeAttention | None = None,
        zeroed: bool = True,
        layout: str = "simple",
        fuzzy: LayerAssignment | None = None,
    ) -> None:
        plan.check_model(config)
        if fuzzy is not None:
            check_plan_groups(layout)
            if (fuzzy.config, fuzzy.mesh) != (config, plan):
                raise ValueError(
                    f"the layer-parallel plan is of {fuzzy.config.name} with {fuzzy.config.num_hidden_layers} layers "
                    f"on {fuzzy.mesh}, the model is {config.name} with {config.num_hidden_layers} on {plan}"
                )
        self.layout = decode_layout(layout, mesh, plan, config, users)
        self.mesh, self.plan, self.config, self.precision = mesh, plan, config, precision
        self.users, self.capacity = users, capacity
        self.cache = KVCache(mesh, plan, config, precision.kv_cache, users, capacity, zeroed)
        self.rope = Rope(mesh, plan, config, capacity, users, self.layout.heads.angle_rows)
        self.attend = attend or exact_attention(
            mesh, plan, config, users=users, capacity=capacity, kv_cache=precision.kv_cache, layout=layout
        )
        self.embedding = Embedding(store.put("embedding", weights.embedding, "bfloat16", -1, "ROW_MAJOR_LAYOUT"))
        layers = range(config.num_hidden_layers)
        bar = tqdm(layers, "weights", unit="layer", file=sys.stderr, leave=False, disable=not sys.stderr.isatty())
        self.layers = [self._layer(index, weights, store) for index in bar]
        self.groups = None
        if fuzzy is not None:
            self.groups = LayerGroups(
                mesh,
                fuzzy,
                self.layers,
                precision,
                weights,
                store,
                self.rope,
                self.attend,
                users=users,
                capacity=capacity,
                zeroed=zeroed,
            )
        final = store.put("norm", weights.final_norm, "bfloat16", None)
        self.norm = self.layout.norm(final, config.rms_norm_eps)
        self.head = LMHead(self.layout.lm_head(store, weights.lm_head, precision.lm_head))

    def _layer(self, index: int, weights: WeightMap, store: WeightStore) -> DecoderLayer:
        formats, epsilon = self.precision.of_layer(index), self.config.rms_norm_eps

        def matrix(name: str, split: int) -> Projection:
            return self.layout.matrix(store, index, name, lambda: getattr(weights, name)(index), formats, split)

        def norm(which: str) -> RMSNorm:
            weight = store.put(f"{index}.{which}_norm", lambda: weights.norm(index, which), "bfloat16", None)
            return self.layout.norm(weight, epsilon)

        attention = Attention(
            self.mesh,
            self.plan,
            self.config,
            index,
            matrix("qkv", -1),
            matrix("wo", -2),
            self.rope,
            self.attend,
            self.layout.heads,
        )
        mlp = MLP(matrix("ff1", -1), matrix("ff3", -1), matrix("ff2", -2))
        return DecoderLayer(self.plan, self.layout.collectives, norm("attention"), attention, norm("mlp"), mlp)

    def attending(self, attend: DecodeAttention) -> TtLlama:
        """The same weights and the same cache with another attention in decode steps.

        Errors: ValueError for a model with layer groups, whose attention is exact.
        """
        if self.groups is not None:
            raise ValueError("layers in groups have the exact attention that they were made with")
        other = copy(self)
        other.attend, other.layers = attend, [layer.attending(attend) for layer in self.layers]
        return other

    def decode(self, inputs: StepInputs, whole: bool = True) -> ttnn.Tensor:
        """One token a user -> logits, bfloat16 [1, 1, users, vocab], on every chip. Writes the cache.

        whole: False leaves every chip its own columns, [1, 1, users, padded vocab / tp].

        With a plan of layer groups the step is fuzzy (EasySpec, algorithm 2), and the keys and values that it caches
        are for an exact pass, `decode_tree` over the same positions, to overwrite.
        """
        angles = self.rope.decode_angles(inputs.angles)
        x = self.layout.residual(self.embedding(inputs.tokens, ttnn.L1_MEMORY_CONFIG))
        if self.groups is not None:
            return self._logits(self.groups.decode(x, self.cache, inputs.positions, angles), whole)
        self.attend.begin_step()
        heads = self.layers[0].before_attention(x, angles)
        for layer, following in zip(self.layers, [*self.layers[1:], None], strict=True):
            self.attend.before_attention(x, heads)
            attended = layer.attended(heads, self.cache, inputs.positions)
            with self.attend.until_next_attention(layer.attention.layer):
                x = layer.after_attention(x, attended)
                if following is not None:
                    heads = following.before_attention(x, angles)
        self.attend.end_step(x)
        return self._whole(self.head.decode(self.norm.decode(self.layout.collectives.gather(x))), whole)

    def decode_tree(self, inputs: TreeInputs, whole: bool = True) -> ttnn.Tensor:
        """One step over the token trees of all users (FlashSpecInfer, section 5) -> logits of every node, bfloat16
        [1, 1, users * nodes, vocab], on every chip. Writes node n's keys and values at position prefix + n; the
        accepted ones are then for `cache.commit`.

        One captured step serves all trees of a width: which node sees which is data. whole: as of `decode`.
        Errors: ValueError where the attention of this model is not exact.
        """
        self.attend.check_trees()
        check_plan_rows(self.layout.name, inputs.tokens.shape[1])
        angles = self.rope.prefill_angles(inputs.angles)
        x = self.embedding(inputs.tokens, ttnn.DRAM_MEMORY_CONFIG)
        nodes = inputs.intervals.shape[2]
        refill = self._refill(angles, lambda cache, k, v: cache.write_nodes(0, k, v, inputs.prefix, nodes))
        for layer in self.layers:
            x = layer.tree(x, self.cache, inputs.prefix, inputs.intervals, angles, refill)
        return self._logits(x, whole)

    def prefill(
        self, tokens: Sequence[int], user: int, start: int, last: bool, whole: bool = True
    ) -> ttnn.Tensor | None:
        """Cache a chunk of one user's prompt at positions from `start`, behind what is cached.

        tokens: padded to a power of two of at least 32; what the padding writes is overwritten by later
        tokens before any reads it. start: a multiple of 32. last: return logits of the chunk's last token,
        bfloat16 [1, 1, 32, vocab], in row (len(tokens) - 1) % 32. whole: as of `decode`. Raises ValueError.
        """
        if not 0 <= user < self.users:
            raise ValueError(f"user must be 0 to {self.users - 1}, got {user}")
        if start % TILE or not tokens or start + len(tokens) > self.capacity:
            raise ValueError(
                f"a chunk of {len(tokens)} tokens from position {start} is empty, does not start a tile "
                f"of {TILE} positions, or exceeds the cache of {self.capacity}"
            )
        rows = min(_padded(len(tokens)), self.capacity - start)
        padded = list(tokens) + [0] * (rows - len(tokens))
        positions = self.put_integers(torch.arange(start, start + rows)[None], "uint32")
        begin = self.put_integers(torch.tensor([start]), "int32")
        angles = self.rope.prefill_angles(positions)
        x = self.embedding(self.put_integers(torch.tensor([padded]), "uint32"), ttnn.DRAM_MEMORY_CONFIG)
        refill = self._refill(angles, lambda cache, k, v: cache.fill(0, k, v, user, start))
        for layer in self.layers:
            x = layer.prefill(x, self.cache, user, start, begin, angles, refill)
        if not last:
            return None
        tile = (len(tokens) - 1) // TILE * TILE
        if rows > TILE:
            x = ttnn.slice(x, [0, 0, tile, 0], [1, 1, tile + TILE, x.shape[3]])
        return self._logits(x, whole)

    def _refill(self, angles: Angles, write: Write) -> Refill | None:
        """Of an exact pass; None where no chip has layers of its own."""
        stages = [] if self.groups is None else self.groups.parallel_stages
        return Refill(stages, angles, write) if stages else None

    def _logits(self, x: ttnn.Tensor, whole: bool) -> ttnn.Tensor:
        return self._whole(self.head(self.norm(gather(x, self.plan))), whole)

    def _whole(self, logits: ttnn.Tensor, whole: bool) -> ttnn.Tensor:
        """Each chip's columns -> all columns of the vocabulary on every chip, if asked for."""
        return self.gathered(logits) if whole else logits

    def gathered(self, logits: ttnn.Tensor) -> ttnn.Tensor:
        """Each chip's columns of `decode` and the others -> all columns of the vocabulary, on every chip."""
        logits = gather(logits, self.plan)
        if logits.shape[3] == self.config.vocab_size:
            return logits
        return ttnn.slice(logits, [0, 0, 0, 0], [1, 1, logits.shape[2], self.config.vocab_size])

    def put_integers(self, values: torch.Tensor, dtype: str, on_device: bool = True) -> ttnn.Tensor:
        """Integers in ROW_MAJOR, the same on every chip."""
        values = values.to(torch.int32)
        return self.plan.put(self.mesh, values, dtype, "ROW_MAJOR_LAYOUT", on_device=on_device)

    def step_inputs(self, tokens: Sequence[int], positions: Sequence[int], on_device: bool = True) -> StepInputs:
        """Inputs of a decode step; a position of -1 skips the user."""
        where = torch.tensor(list(positions))
        return StepInputs(
            self.put_integers(torch.tensor([list(tokens)]), "uint32", on_device),
            self.put_integers(where, "int32", on_device),
            self.put_integers(where.clamp(min=0).repeat(1, self.layout.heads.angle_rows), "uint32", on_device),
        )

    def tree_inputs(
        self,
        tokens: torch.Tensor,
        prefixes: Sequence[int],
        enter: torch.Tensor,
        leave: torch.Tensor,
        on_device: bool = True,
    ) -> TreeInputs:
        """Inputs of `decode_tree`. tokens: integers [users, nodes]; enter, leave: visiting times of a walk, likewise,
        leave inclusive; prefixes: cached tokens of each user, -1 skips it.

        Errors: ValueError for other shapes, times that no walk of a tree gives, a tree over the cache's capacity, a
        token outside the vocabulary; ShardingError for more rows than the layout takes.
        """
        shape = tuple(tokens.shape)
        for name, values in (("enter", enter), ("leave", leave)):
            if tuple(values.shape) != shape:
                raise ValueError(f"{name} must be of the tokens' shape {shape}, it is {tuple(values.shape)}")
        check_plan_rows(self.layout.name, tokens.numel())
        if len(shape) != 2 or shape[0] != self.users or len(prefixes) != self.users:
            raise ValueError(
                f"a tree for each of {self.users} users is needed: tokens are {shape}, prefixes {list(prefixes)}"
            )
        if not ((tokens >= 0) & (tokens < self.config.vocab_size)).all():
            raise ValueError(f"tokens must be below {self.config.vocab_size}, they are {tokens.tolist()}")
        for times in zip(enter, leave, strict=True):
            check_intervals(*times)
        check_room(prefixes, shape[1], self.capacity)
        angles = node_positions(prefixes, enter, leave)
        return TreeInputs(
            self.put_integers(tokens.reshape(1, -1), "uint32", on_device),
            self.put_integers(torch.tensor(list(prefixes)), "int32", on_device),
            self.put_integers(torch.stack([enter, leave], dim=1), "int32", on_device),
            self.put_integers(angles.reshape(1, -1), "uint32", on_device),
        )


def overwrite(devices: Iterable[ttnn.Tensor], hosts: Iterable[ttnn.Tensor]) -> None:
    """New contents for a step's inputs, which keep their addresses."""
    for device, host in zip(devices, hosts, strict=True):
        ttnn.copy_host_to_device_tensor(host, device)


def read(tensor: ttnn.Tensor) -> torch.Tensor:
    """A tensor that is the same on every chip, from the first of them."""
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


def _padded(count: int) -> int:
    """The next power of two, at least a tile: few different programs for prompts of any length."""
    return max(TILE, 1 << (count - 1).bit_length())
