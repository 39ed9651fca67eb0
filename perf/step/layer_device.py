# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A decode step of a few layers on one simulated chip and a layer of a prefill, every program timed; values of both
judged against torch."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
import ttnn
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import LM_HEAD, random_state_dict
from models.llama31_8b.config import LlamaConfig
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tt.mesh import TILE, MeshShape
from models.llama31_8b.tt.model import TtLlama, read
from models.llama31_8b.tt.precision import TILE_BYTES, TILE_ELEMENTS, PrecisionConfig
from models.llama31_8b.tt.prefill import padded_rows
from models.llama31_8b.tt.settings import ModelSettings
from models.llama31_8b.tt.sharding import hidden_shards
from models.llama31_8b.tt.weights import EMBEDDING as TABLE
from models.llama31_8b.tt.weights import WeightStore
from perf.footprint.mesh_build import blank_weights
from perf.lib.launch_labels import ATTENTION, BANKED_PRODUCT, DECODE_PRODUCT, Labels
from perf.lib.tensors import errors_of
from perf.step.device import SEED, fill
from perf.step.shapes import EMBEDDING, HEAD, LAYER, TOKEN
from runtime_patches.profiling.timeline import ProgramSpan, Timeline

TABLE_ROWS = 32  # of the embedding that are put on the chip: a step reads one of them, whatever the vocabulary
ERRORS = ("pcc", "largest", "largest_relative", "error")


class HeldWeights(WeightStore):
    """Keeps what the chip holds of every matrix, for a reference that has the same weights. held: float32 by name."""

    def __init__(self, mesh: ttnn.MeshDevice) -> None:
        super().__init__(mesh, MeshShape(*mesh.shape))
        self.held: dict[str, torch.Tensor] = {}

    def _convert(self, tensor, dtype, split, layout):
        host = super()._convert(tensor, dtype, split, layout)
        self.held[str(len(self.held))] = ttnn.to_torch(host)
        return host

    def put(self, name, make, dtype, split, layout="TILE_LAYOUT", memory=None):
        matrix = make()[:TABLE_ROWS] if name == "embedding" else make()
        put = super().put(name, lambda: matrix, dtype, split, layout, memory)
        self.held[name] = self.held.pop(str(len(self.held) - 1)).reshape(matrix.shape).float()
        logger.info("{} is on the chip, in {}", name, dtype)
        return put

    def state(self, config: LlamaConfig, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the weights that the chip holds, by Hugging Face name and in its order."""
        found = dict(given) | {TABLE: torch.cat([self.held["embedding"], given[TABLE][TABLE_ROWS:]])}
        heads = [self.held[name] for name in self.held if name.startswith("lm_head.")]
        found[LM_HEAD] = torch.cat(heads, dim=1).t()[: config.vocab_size]
        places = {"wo": "self_attn.o_proj", "down": "mlp.down_proj"}
        block = hidden_shards(config, self.mesh_shape).columns
        for index in range(config.num_hidden_layers):
            prefix = f"model.layers.{index}"
            found |= {f"{prefix}.{place}.weight": self.held[f"{index}.{name}"].t() for name, place in places.items()}
            counts = [config.num_attention_heads, *[config.num_key_value_heads] * 2]
            rows = self.held[f"{index}.qkv"].t().split([count * config.head_dim for count in counts])
            pairs = self.held[f"{index}.gate_up"].t().unflatten(0, (-1, 2, block))
            gate_up = zip(("gate", "up"), pairs.unbind(1), strict=True)
            found |= {f"{prefix}.mlp.{name}_proj.weight": part.flatten(0, 1) for name, part in gate_up}
            halves = [half_split(rows[0], counts[0]), half_split(rows[1], counts[1]), rows[2]]
            found |= {f"{prefix}.self_attn.{n}_proj.weight": part for n, part in zip("qkv", halves, strict=True)}
        return found


def half_split(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo `adjacent_pairs` of the weights' map."""
    return rows.view(heads, -1, 2, rows.shape[1]).transpose(1, 2).reshape(rows.shape)


def measure_layer(
    mesh: ttnn.MeshDevice,
    config: LlamaConfig,
    formats: PrecisionConfig,
    sharding: str,
    context: int,
    blank: bool,
    prefill: bool,
) -> dict[str, Any]:
    """Decode token `context` of one user, whose cache holds random numbers; or run the first layer over a prompt of
    `context` tokens, which fill a chunk or a part of one. blank: weights are allocated, not written.

    Returns {"programs": [...], "values": {"layer": ..., "logits": ...}}, no values of blank weights. A program is
    {"part", "layer", "op", "shape", "cores", "bytes", "start", "end"}: cycles from the first one's start, and bytes
    that it reads of weights and cache. The step runs once: at full size that takes a quarter of an hour, and compiling
    takes the chip no cycles of a program.
    """
    timeline, labels, residual = Timeline(mesh), Labels(), list[ttnn.Tensor]()
    if prefill:
        model = _Model(mesh, config, formats, sharding, padded_rows(context), blank).model
        chunk = model.chunk([TOKEN] * context, user=0, start=0)
        x, step = model.begin_chunk(chunk)
        timeline.start()
        with labels.of_model(model):
            model.layers[0].prefill(x, chunk, step)
        (spans,) = timeline.stop()
        logger.info("the layer is done")
        return {"programs": programs_of(spans, labels), "values": {}}
    own = _Model(mesh, config, formats, sharding, -(-context // 128) * 128, blank)
    caches, inputs = own.filled(context), own.model.step_inputs([TOKEN], [context - 1])
    timeline.start()
    with _kept(own.model, residual), labels.of_model(own.model):
        logits = own.model.decode(inputs, gather_logits=False)
    (spans,) = timeline.stop()
    logger.info("the step is done")
    values = {} if blank else own.judged(caches, [TOKEN], residual, logits)
    return {"programs": programs_of(spans, labels), "values": values}


def judge_layer(
    mesh: ttnn.MeshDevice, config: LlamaConfig, formats: PrecisionConfig, sharding: str, context: int, prompt: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Decode token `context` as `measure_layer` does, then prefill `prompt` random tokens; nothing is timed.

    Returns {"decode": ..., "prefill": ...}, each {"layer": ..., "logits": ...} as `measure_layer`'s values: the layer's
    of the last token's tile, the logits of the last token.
    """
    own, residual = _Model(mesh, config, formats, sharding, -(-context // 128) * 128, blank=False), list[ttnn.Tensor]()
    caches, model, values = own.filled(context), own.model, {}
    tokens = torch.randint(TABLE_ROWS, (prompt,), generator=torch.Generator().manual_seed(SEED)).tolist()
    with _kept(model, residual):
        logits = model.decode(model.step_inputs([TOKEN], [context - 1]), gather_logits=False)
        values["decode"] = own.judged(caches, [TOKEN], residual, logits)
        last = model.prefill(tokens, user=0, start=0, last=True, gather_logits=False)
    nothing = [[cache[:, :, :0] for cache in tensors] for tensors in caches]
    return values | {"prefill": own.judged(nothing, tokens, residual, last)}


class _Model:
    """The model of one user. blank: weights are allocated, not written."""

    store: WeightStore

    def __init__(
        self, mesh, config: LlamaConfig, formats: PrecisionConfig, sharding: str, capacity: int, blank: bool
    ) -> None:
        self.config = config
        if blank:
            self.state, self.store = blank_weights(config, mesh, MeshShape(*mesh.shape))
        else:
            self.state, self.store = random_state_dict(config), HeldWeights(mesh)
        settings = ModelSettings(capacity=capacity, precision=formats, decode_sharding=sharding, zeroed=False)
        self.model = TtLlama.from_state_dict(config, self.state, mesh, settings, self.store)

    def filled(self, context: int) -> list[list[torch.Tensor]]:
        """Fill the cache with random numbers; return these, keys and values by layer, the `context` - 1 positions
        before a step's."""
        fill(self.model)
        tensors = (self.model.cache.keys, self.model.cache.values)
        return [[read(cache).float()[:, :, : context - 1] for cache in part] for part in tensors]

    def judged(
        self,
        caches: list[list[torch.Tensor]],
        tokens: Sequence[int],
        residual: list[ttnn.Tensor],
        logits: ttnn.Tensor | None,
    ) -> dict[str, dict[str, float]]:
        """Return the errors of what left the last layer, the last token's tile, and of the last token's logits, against
        torch after `caches`."""
        assert logits is not None and isinstance(self.store, HeldWeights)
        config, tile = self.config, (len(tokens) - 1) // TILE * TILE
        left = read(residual[-1]).float().flatten(0, 2)[: len(tokens) - tile, : config.hidden_size]
        last = read(logits)[0, 0, (len(tokens) - 1) % TILE, : config.vocab_size]
        values: dict[str, dict[str, float]] = {"layer": {}, "logits": {}}
        for name, weights in (("held", self.store.state(config, self.state)), ("given", self.state)):
            wanted_last, states = reference(config, weights, caches, tokens)
            normed = F.rms_norm(left, (config.hidden_size,), weights["model.norm.weight"], config.rms_norm_eps)
            for what, found, wanted in zip(values, (normed, last), (states[tile:], wanted_last), strict=True):
                errors = errors_of(found, wanted)
                values[what] |= {f"{key}_{name}": errors[key] for key in ERRORS}
        return values


def _kept(model: TtLlama, residual: list[ttnn.Tensor]) -> contextlib.AbstractContextManager:
    """Return a context in which `residual` takes what leaves the last layer, which keeps it from being freed."""
    layer = model.layers[-1]
    after_attention = layer.after_attention

    def keep(*args):
        leaving = after_attention(*args)
        residual.append(leaving.x)
        return leaving

    return mock.patch.object(layer, "after_attention", keep)


def reference(
    config: LlamaConfig, weights: Mapping[str, torch.Tensor], caches: list[list[torch.Tensor]], tokens: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the last logits [vocab] and the normed output of the last layer [tokens, hidden] of the same step in
    torch. caches: earlier keys and values by layer as the chip holds them, [1, kv heads, positions, head_dim]."""
    model, earlier = ReferenceLlama.from_state_dict(config, weights), caches[0][0].shape[2]
    cache = model.new_cache(1, earlier + len(tokens))
    for layer, (keys, values) in enumerate(zip(*caches, strict=True)):
        # The chip keeps the partners of a rotation side by side, the reference half a head apart.
        keys = keys.unflatten(3, (-1, 2)).transpose(3, 4).flatten(3)
        cache.keys[layer][:, :, :earlier] = keys
        cache.values[layer][:, :, :earlier] = values
    cache.reserve(earlier)
    cache.commit(earlier)
    logits, states = model.forward(torch.tensor([list(tokens)]), cache, hidden=True)
    return logits[0, -1], states[0]


def programs_of(spans: list[ProgramSpan], labels: Labels) -> list[dict[str, Any]]:
    """Return the programs of a step with the names of what launched them, the shape of a product's weight or the first
    tensor, and the bytes of the weight, or of the cache that attention reads."""
    found, begun = [], False
    for span in spans:
        label = labels.of(span.number)
        assert label is not None, f"program {span.number} came before the step"
        begun = begun or label.layer is not None
        part = LAYER if label.layer is not None else HEAD if begun else EMBEDDING
        op = label.part or re.sub("_+$", "", label.name)
        product = label.name in ("linear", "minimal_matmul") or label.part in (DECODE_PRODUCT, BANKED_PRODUCT)
        shown = label.tensors[1:2] if product else label.tensors[:1]
        shape = "x".join(str(size) for tensor in shown for size in tensor.shape[2:])
        row = {"part": part, "layer": label.layer, "op": op, "shape": shape, "cores": span.cores}
        held = shown if product else label.tensors[1:3] if label.part == ATTENTION else ()
        tiles = ((math.prod(tensor.padded) // TILE_ELEMENTS, tensor.dtype.lower()) for tensor in held)
        read_bytes = sum(count * TILE_BYTES[dtype] for count, dtype in tiles)
        found.append(row | {"bytes": read_bytes, "start": span.start, "end": span.end})
    return found
