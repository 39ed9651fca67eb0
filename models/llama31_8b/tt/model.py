# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Llama on a mesh: decode steps over token trees, of which a step of one token per user is the smallest, and prefill in
chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import ttnn

from tt_kernels.common.attention_checks import MAX_USERS
from tt_kernels.token_guard.op import ChipStates
from tt_kernels.tree_attention.checks import check_intervals, check_room

from ..config import LlamaConfig
from ..results import AttentionStatistics
from .alspec import PairAlspec, alspec_step, plain_step
from .attention_policies import AttentionPolicy, FlashAttention, StepInputs, StockAttention
from .kv_cache import KVCache, KVCacheBase, PagedKVCache, cache_block
from .layer import Attention, Chunk, DecoderLayer, Pass
from .layer_parallel import Stage
from .layouts import PrefillRows, Rows, gather, make_decode_layout
from .mesh import TILE, MeshShape, Site
from .modules import MLP, Angles, Projection, RMSNorm, Rope, look_up
from .prefill import padded_rows
from .settings import AttentionSettings, ModelSettings
from .sharding import check_sharding_of_rows
from .spec_decode.layer_parallel_step import LayerGroups, ParallelStage, Refill, Write
from .weights import HostWeights, WeightMap, WeightStore, progress


def make_policy(settings: ModelSettings, site: Site) -> AttentionPolicy:
    """Make the attention of decode steps that checked settings name; interleaved steps, the reference for sharded ones,
    have the stock op for exact attention; sharded ones of up to 8 users ours, which takes 0.71 to 0.90 of its cycles.
    Raises what PairAlspec raises."""
    attention = settings.attention
    if not isinstance(attention, AttentionSettings):
        return attention
    if attention.policy == "alspec":
        return PairAlspec(site, attention, settings.users, settings.capacity)
    if settings.decode_sharding == "sharded" and settings.users <= MAX_USERS:
        return FlashAttention(settings.capacity)
    block = settings.block_size if settings.cache_blocks else cache_block(settings.capacity)
    return StockAttention(site.mesh, site.config, block)


class TtLlama:
    """All layers of a model on a mesh, with its KV cache. Build it by `from_checkpoint` or `from_state_dict`, which
    check the settings."""

    def __init__(self, weights: WeightMap, store: WeightStore, settings: ModelSettings) -> None:
        self.site = site = Site(store.mesh, weights.mesh, weights.config)
        self.mesh, self.mesh_shape, self.config = site
        self.users, self.capacity = users, capacity = settings.users, settings.capacity
        self.precision = precision = settings.formats(site.config)
        self.attention = make_policy(settings, site)
        self.layout = make_decode_layout(settings, site)
        self.rows, self.prefill_rows = Rows(site), PrefillRows(site, precision.long_rows)
        self.cache: KVCacheBase
        if settings.cache_blocks:
            pages = settings.cache_blocks, settings.block_size, settings.zeroed
            self.cache = PagedKVCache(site, precision.kv_cache, users, capacity, *pages)
        else:
            self.cache = KVCache(site, precision.kv_cache, users, capacity, settings.zeroed)
        self.rope = Rope(site, capacity, users)
        table = store.put("embedding", weights.embedding, "bfloat16", -1, "ROW_MAJOR_LAYOUT")
        self.embedding = partial(look_up, table)  # [vocab, hidden / tp] on each chip
        layers = progress(range(site.config.num_hidden_layers), "weights", "layer")
        self.layers = [self._layer(index, weights, store) for index in layers]
        self.groups, assignment = None, settings.layer_assignment
        if assignment is not None:
            self.attention.check_trees()  # drafts and their calibration have exact attention

            def parallel(stage: Stage) -> ParallelStage:
                chips = Site(site.mesh, stage.mesh, site.config.with_layers(1))
                cache = KVCache(chips, precision.kv_cache, users, capacity, settings.zeroed)
                formats = assignment.formats(stage, precision)
                return ParallelStage(stage, formats, weights, store, self.rope, cache)

            self.groups = LayerGroups(assignment, self.layers, parallel)
        self._own = [] if self.groups is None else self.groups.parallel_stages  # layers of single chips
        final = store.put("norm", weights.final_norm, "bfloat16", None)
        self.norm = RMSNorm(final, site.config.rms_norm_eps)
        self.head_blocks = self.layout.make_lm_head(store, weights.lm_head, precision.lm_head)

    @classmethod
    def from_checkpoint(
        cls, source: str | Path | None, mesh: ttnn.MeshDevice, settings: ModelSettings = ModelSettings()
    ) -> TtLlama:
        """Load a checkpoint onto an open mesh; converted weights are cached on disk. source, errors: see
        HostWeights.load."""
        return cls.from_host_weights(HostWeights.load(source, MeshShape(*mesh.shape), settings), mesh, settings)

    @classmethod
    def from_host_weights(cls, weights: HostWeights, mesh: ttnn.MeshDevice, settings: ModelSettings) -> TtLlama:
        """Put weights on an open mesh, of the shape and with the precision that they were read for."""
        store = WeightStore(mesh, MeshShape(*mesh.shape), weights.entry)
        return cls.from_state_dict(weights.config, weights.state, mesh, settings, store)

    @classmethod
    def from_state_dict(
        cls,
        config: LlamaConfig,
        state: Mapping[str, torch.Tensor],
        mesh: ttnn.MeshDevice,
        settings: ModelSettings = ModelSettings(),
        store: WeightStore | None = None,
    ) -> TtLlama:
        """Build a model from tensors by Hugging Face name, such as random ones. store: puts them on the mesh, by
        default without a cache on disk.

        Raises ModelLoadError for a missing, misshapen or unexpected tensor, and what `ModelSettings.check` raises.
        """
        mesh_shape = MeshShape(*mesh.shape)
        settings.check(config, mesh_shape)
        return cls(WeightMap(config, state, mesh_shape), store or WeightStore(mesh, mesh_shape), settings)

    def _layer(self, index: int, weights: WeightMap, store: WeightStore) -> DecoderLayer:
        formats, epsilon = self.precision.of_layer(index), self.config.rms_norm_eps

        def matrix(name: str, split: int) -> Projection:
            make, dtype = partial(getattr(weights, name), index), getattr(formats, name)
            return self.layout.make_matrix(store, f"{index}.{name}", make, dtype, split, name)

        def norm(which: str) -> RMSNorm:
            weight = store.put(f"{index}.{which}_norm", lambda: weights.norm(index, which), "bfloat16", None)
            return self.prefill_rows.prepare(RMSNorm(weight, epsilon))

        attention = Attention(index, matrix("qkv", -1), matrix("wo", -2), self.rope)
        mlp = MLP(matrix("gate_up", -1), matrix("down", -2), weights.gate_block)
        return DecoderLayer(norm("attention"), attention, norm("mlp"), mlp)

    @property
    def pair(self) -> PairAlspec | None:
        """Return the state of attention-level speculation, None for a model without it."""
        return self.attention if isinstance(self.attention, PairAlspec) else None

    def with_attention(self, policy: AttentionPolicy) -> TtLlama:
        """Return a model that shares the weights and the cache and has another attention in decode steps.

        Raises ValueError for a model with layer groups, whose attention is exact.
        """
        if self.groups is not None:
            raise ValueError("a model with layer groups keeps the exact attention that it was built with")
        other = copy(self)
        other.attention = policy
        return other

    def decode(self, inputs: StepInputs, gather_logits: bool = True) -> ttnn.Tensor:
        """Decode the nodes of every user's token tree in one step (FlashSpecInfer, section 5); without intervals a tree
        is one token. Writes the cache: node n's keys and values at its user's position + n. `cache.commit` then keeps
        the accepted nodes. One captured step serves all trees with as many nodes: the tree's structure is data.

        With layer groups a step of one token is layer-parallel (EasySpec, algorithm 2), and an exact pass, a step over
        chains at the same positions, must overwrite the keys and values that it caches.

        Args:
            gather_logits: False leaves each chip its own columns, [1, 1, users * nodes, padded vocab / tp].

        Returns:
            The logits of every node, bfloat16 [1, 1, users * nodes, vocab], on every chip.

        Raises:
            ValueError: the model's attention decodes no trees.
            ShardingError: the sharding takes fewer rows.
        """
        trees = inputs.intervals is not None
        if trees:
            self.attention.check_trees()
            check_sharding_of_rows(self.layout.name, inputs.tokens.shape[1])
        layout = self.rows if trees else self.layout
        step = Pass(self.cache, layout, layout.angles(self.rope, inputs.angles), self.attention, inputs)
        x = layout.residual(self.embedding(inputs.tokens, layout.memory))
        if trees:
            nodes = inputs.nodes
            write: Write = lambda cache, k, v: cache.write_nodes(0, k, v, inputs.positions, nodes)  # noqa: E731
            step = replace(step, on_input=self._refill(step.angles, write))
        if self.groups is not None and not trees:
            x = self.groups.decode(x, step)
        else:
            x = (plain_step if self.pair is None else alspec_step)(self.layers, x, step)
        return self._logits(x, layout, gather_logits)

    def reset(self) -> None:
        """Forget what speculation counted and weighed, and chips that gave up; called before each generation. No step
        may be running."""
        if self.pair is not None:
            self.pair.reset()
        if self.layout.all_reduce is not None:
            self.layout.all_reduce.reset()

    @property
    def states(self) -> ChipStates:
        """Return the states of the ops of decode steps in which chips wait for each other."""
        found = {} if self.pair is None else self.pair.states.by_caller
        sums = self.layout.all_reduce
        return ChipStates(found if sums is None else found | {"sum of a TP group": sums})

    def check(self) -> None:
        """Raise PeerError if a chip gave up on another; waits for the device if it has to look there."""
        self.states.check()

    def statistics(self) -> AttentionStatistics | None:
        """Return what speculation counted since `reset`, None without it; waits for the device."""
        return None if self.pair is None else replace(self.pair.statistics(), failures=tuple(self.states.failures()))

    def guard_tokens(self, tokens: ttnn.Tensor) -> None:
        """Overwrite the chosen tokens of a decode step, uint32 [1, users], on a chip that gave up on another."""
        self.states.guard_tokens(tokens)

    def guard_result(self, result: ttnn.Tensor) -> None:
        """Overwrite a verification result (speculative_sampling) on a chip that gave up on another. Only a pair's chips
        can, in a step over trees: its sums are those of ttnn."""
        if self.pair is not None:
            self.pair.states.guard_result(result)

    def prefill(
        self, tokens: Sequence[int], user: int, start: int, last: bool, gather_logits: bool = True
    ) -> ttnn.Tensor | None:
        """Cache a chunk of one user's prompt at positions from `start`, after what is cached; see `chunk` and
        `cache_chunk`. Raises ValueError."""
        return self.cache_chunk(self.chunk(tokens, user, start), last, gather_logits)

    def chunk(self, tokens: Sequence[int], user: int, start: int, on_device: bool = True) -> Chunk:
        """Make a chunk of one user's prompt at positions from `start`, after what is cached.

        tokens: padded to `padded_rows`; later tokens overwrite what the padding writes before anything
        reads it. start: a multiple of 32. Raises ValueError.
        """
        if not 0 <= user < self.users:
            raise ValueError(f"user must be 0 to {self.users - 1}, got {user}")
        if start % TILE or not tokens or start + len(tokens) > self.capacity:
            raise ValueError(
                f"a chunk of {len(tokens)} tokens from position {start} is empty, does not start a tile "
                f"of {TILE} positions, or exceeds the cache of {self.capacity}"
            )
        rows = self.chunk_rows(len(tokens), start)
        padded = list(tokens) + [0] * (rows - len(tokens))
        places = {
            cache.keys[0].shape[1]: self.put_integers(cache.places(user, start, rows), "int32", on_device)
            for cache in (self.cache, *(stage.cache for stage in self._own))
        }
        return Chunk(
            self.put_integers(torch.tensor([padded]), "uint32", on_device),
            self.put_integers(torch.tensor([start]), "int32", on_device),
            self.put_integers(torch.arange(start, start + rows)[None], "uint32", on_device),
            self.put_integers(self.cache.page_table(user), "int32", on_device),
            places,
            self.put_integers(torch.tensor([0, 0, (len(tokens) - 1) // TILE * TILE, 0]), "int32", on_device),
        )

    def chunk_rows(self, tokens: int, start: int) -> int:
        """Return the rows of a chunk of so many tokens, padding included: those of as many run the same programs."""
        return min(padded_rows(tokens), self.capacity - start)

    def cache_chunk(self, chunk: Chunk, last: bool, gather_logits: bool = True) -> ttnn.Tensor | None:
        """Run a chunk through the layers. last: return the logits of its last token's tile, bfloat16 [1, 1, 32, vocab],
        the token's in row (tokens - 1) % 32, else None. gather_logits: see `decode`."""
        x, step = self.begin_chunk(chunk)
        for layer in self.layers[:-1]:
            x = layer.prefill(x, chunk, step)
        # Of the last layer nothing is read but its cache and, of the last chunk, the last token's tile.
        if not last:
            self.layers[-1].cache_chunk(x, chunk, step)
            return None
        x = self.layers[-1].prefill(x, chunk, step, last_tile=True)
        return self._logits(x, self.rows, gather_logits)

    def begin_chunk(self, chunk: Chunk) -> tuple[ttnn.Tensor, Pass]:
        """Return the residual that enters the first layer, and what all layers share."""
        rows = self.prefill_rows
        angles = rows.angles(self.rope, chunk.angles)
        refill = self._refill(angles, lambda cache, k, v: cache.fill(0, k, v, chunk.places))
        given = StepInputs(chunk.tokens, chunk.start, chunk.angles)
        step = Pass(self.cache, rows, angles, self.attention, given, refill)
        return self.embedding(chunk.tokens, rows.memory), step

    def _refill(self, angles: Angles, write: Write) -> Refill | None:
        """Make an exact pass's refill of the chips' own layers; None if there are none."""
        return Refill(self._own, angles, write) if self._own else None

    def _logits(self, x: ttnn.Tensor, layout: Rows, gather_logits: bool) -> ttnn.Tensor:
        logits = self.head(layout.normed(self.norm, x), layout)
        return self.gathered(logits) if gather_logits else logits

    def head(self, x: ttnn.Tensor, layout: Rows) -> ttnn.Tensor:
        """x: bfloat16 [1, 1, rows, hidden], placed by the layout -> bfloat16 [1, 1, rows, padded vocab / tp], DRAM."""
        parts = [layout.logits(block, x) for block in self.head_blocks]
        if len(parts) == 1:
            return parts[0]
        logits = ttnn.concat(parts, dim=3)
        for part in parts:
            ttnn.deallocate(part)
        return logits

    def gathered(self, logits: ttnn.Tensor) -> ttnn.Tensor:
        """Gather each chip's columns of logits, [1, 1, rows, padded vocab / tp] -> [1, 1, rows, vocab] on every
        chip."""
        logits = gather(logits, self.mesh_shape)
        if logits.shape[3] == self.config.vocab_size:
            return logits
        return ttnn.slice(logits, [0, 0, 0, 0], [1, 1, logits.shape[2], self.config.vocab_size])

    def put_integers(self, values: torch.Tensor, dtype: str, on_device: bool = True) -> ttnn.Tensor:
        """Put integers on the mesh, ROW_MAJOR, the same on every chip."""
        values = values.to(torch.int32)
        return self.mesh_shape.put(self.mesh, values, dtype, "ROW_MAJOR_LAYOUT", on_device=on_device)

    def step_inputs(self, tokens: Sequence[int], positions: Sequence[int], on_device: bool = True) -> StepInputs:
        """Make the inputs of a decode step; a position of -1 skips the user."""
        where = torch.tensor(list(positions))
        return StepInputs(
            self.put_integers(torch.tensor([list(tokens)]), "uint32", on_device),
            self.put_integers(where, "int32", on_device),
            self.put_integers(where.clamp(min=0).reshape(1, -1), "uint32", on_device),
        )

    def tree_inputs(
        self,
        tokens: torch.Tensor,
        prefixes: Sequence[int],
        enter: torch.Tensor,
        leave: torch.Tensor,
        on_device: bool = True,
    ) -> StepInputs:
        """Make the inputs of a step over trees. tokens: integers [users, nodes]; enter, leave: visiting times of a
        depth-first walk, same shape, leave inclusive; prefixes: cached tokens of each user, -1 skips the user.

        Raises ValueError for other shapes, times that no walk gives, a tree beyond the cache's capacity or a token
        outside the vocabulary; ShardingError for more rows than the decode sharding takes.
        """
        shape = tuple(tokens.shape)
        for name, values in (("enter", enter), ("leave", leave)):
            if tuple(values.shape) != shape:
                raise ValueError(f"{name} must be of the tokens' shape {shape}, it is {tuple(values.shape)}")
        check_sharding_of_rows(self.layout.name, tokens.numel())
        if len(shape) != 2 or shape[0] != self.users or len(prefixes) != self.users:
            raise ValueError(
                f"a tree for each of {self.users} users is needed: tokens are {shape}, prefixes {list(prefixes)}"
            )
        if not ((tokens >= 0) & (tokens < self.config.vocab_size)).all():
            raise ValueError(f"tokens must be below {self.config.vocab_size}, they are {tokens.tolist()}")
        ancestors = torch.tensor([check_intervals(*times) for times in zip(enter, leave, strict=True)])
        check_room(prefixes, shape[1], self.capacity)
        start = torch.tensor(list(prefixes))[:, None]
        angles = torch.where(start < 0, 0, start + ancestors)  # 0 for skipped users
        return StepInputs(
            self.put_integers(tokens.reshape(1, -1), "uint32", on_device),
            self.put_integers(torch.tensor(list(prefixes)), "int32", on_device),
            self.put_integers(angles.reshape(1, -1), "uint32", on_device),
            self.put_integers(torch.stack([enter, leave], dim=1), "int32", on_device),
        )


def overwrite(devices: Iterable[ttnn.Tensor | None], hosts: Iterable[ttnn.Tensor | None]) -> None:
    """Replace the contents of a step's inputs, which keep their addresses."""
    for device, host in zip(devices, hosts, strict=True):
        if device is not None:
            assert host is not None  # where an input is
            ttnn.copy_host_to_device_tensor(host, device)


def advance(inputs: StepInputs) -> None:
    """Make the positions of a decode step those of the next; skipped users stay so."""
    ttnn.plus_one(inputs.positions, skip_negative_entries=True)
    ttnn.plus_one(inputs.angles)


def read(tensor: ttnn.Tensor) -> torch.Tensor:
    """Read a tensor that is the same on every chip, from the first of them."""
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


def cache_prompt(
    model: TtLlama,
    prompt: Sequence[int],
    user: int,
    chunk: int,
    *,
    start: int = 0,
    logits: bool = False,
    gather_logits: bool = True,
    progress: Callable[[int], None] | None = None,
    prefill: Callable[..., ttnn.Tensor | None] | None = None,
) -> ttnn.Tensor | None:
    """Cache a user's prompt in chunks of `chunk` tokens; with `logits` return its last tile's (see TtLlama.prefill),
    else None. start: tokens already cached, a multiple of 32. progress(tokens): called once the
    chips have cached a chunk of so many. prefill: caches a chunk, by default TtLlama.prefill."""
    found, prefill = None, prefill or model.prefill
    for begin in range(start, len(prompt), chunk):
        end = min(begin + chunk, len(prompt))
        last = logits and end == len(prompt)
        found = prefill(prompt[begin:end], user, begin, last=last, gather_logits=gather_logits)
        if progress is not None:
            ttnn.synchronize_device(model.mesh)
            progress(end - begin)
    return found
