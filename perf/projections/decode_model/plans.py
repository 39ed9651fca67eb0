# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ops of a decode step of Llama 3.1 8B on one chip of a mesh, by plan.

paper: the programs of the ALSpec paper's tables 4 to 7 (TT-Metalium v0.55), the plan that is fitted and tested.
sharded: the same weights DRAM-sharded, with rotation and cache update fused, nothing between matmul and heads, the
gated product on as many cores as its matmuls, and a greedy choice by argmax (tt_transformers of 2026). interleaved:
interleaved weights through plain matmuls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S
from models.llama31_8b.tt.mesh import TILE, MeshShape
from models.llama31_8b.tt.precision import FIDELITY, PrecisionConfig, bytes_of, precision_config
from perf.projections.decode_model.costs import (
    ATTENTION,
    COLLECTIVE,
    DRAM_READERS,
    MATMUL,
    STREAM,
    WORKERS,
    Op,
)

MODEL = "llama-3.1-8b"
PLANS = ("paper", "sharded", "interleaved")
# An interleaved LM head reads at about 160 GB/s (tt-metal PR #13340), of the 288 of the specification.
INTERLEAVED_BYTES_PER_S = 160e9
# The most columns of the LM head in one matmul: of the paper's plan (four of 32064 on one chip), of today's.
LM_HEAD_COLUMNS = {"paper": 32064, "sharded": 42752, "interleaved": 42752}
# Cores of the residual stream, at most. In table 4 the gated product takes twice the time of tables 5 to 7, where a
# core has 7 tiles: 14 per core, so 32 cores there. That one number comes from a table that the fit may not see.
PAPER_CORES = 32


@dataclass(frozen=True)
class Step:
    """One decode step: mesh, context (cached positions with the new one), users, plan, precision of the weights.

    Errors: ValueError for values out of range, MeshError for a mesh that does not exist.
    """

    mesh: MeshShape = MeshShape()
    context: int = 1024
    users: int = 1
    plan: str = "sharded"
    precision: str = "performance"
    config: LlamaConfig = preset(MODEL)

    def __post_init__(self) -> None:
        if self.plan not in PLANS:
            raise ValueError(f"plan must be one of {', '.join(PLANS)}, got {self.plan!r}")
        if not 1 <= self.context <= self.config.max_position_embeddings:
            raise ValueError(f"context must be 1 to {self.config.max_position_embeddings}, got {self.context}")
        if not 1 <= self.users <= TILE:
            raise ValueError(f"users must be 1 to {TILE}, got {self.users}")
        self.mesh.check_model(self.config)

    @property
    def formats(self) -> PrecisionConfig:
        return precision_config(self.precision, self.config.num_hidden_layers)

    def layer(self, index: int) -> list[Op]:
        """Return the ops of decoder layer `index` in their order."""
        return list(_layer(self, index))

    def layers(self) -> list[list[Op]]:
        return [self.layer(index) for index in range(self.config.num_hidden_layers)]

    def before(self) -> list[Op]:
        """Return what a step does once, ahead of its layers."""
        return list(_before(self))

    def after(self) -> list[Op]:
        """What a step does once, after its layers."""
        return list(_after(self))

    def fixed(self) -> list[Op]:
        return self.before() + self.after()


def matmul(role: str, k: int, n: int, dtype: str, *, cores: int, dram_sharded: bool = True, m: int = 1) -> Op:
    """Return the product [m, k] x [k, n] with weights in `dtype`. cores: of the activation's shards. dram_sharded: the
    weight's width over the 12 banks, in whole tiles of each; else interleaved, which reads at a known lower rate."""
    if min(k, n, m, cores) < 1 or k % TILE:
        raise ValueError(f"a matmul needs sizes of at least 1 and k in tiles of {TILE}, got m {m}, k {k}, n {n}")
    step = TILE * DRAM_READERS
    held = -(-n // step) * step if dram_sharded else -(-n // TILE) * TILE
    k_tiles = k // TILE
    block = math.gcd(k_tiles, max(1, k_tiles // cores))
    block = max(d for d in range(1, 9) if block % d == 0)
    attributes: dict[str, Any] = {
        "in0_block_w": block,
        "per_core_N": -(-n // (TILE * cores)),
        "m": m,
        "k": k,
        "n": n,
    }
    attributes |= {"dtype": dtype, "dram_sharded": dram_sharded}
    return Op(
        "Matmul",
        role,
        MATMUL,
        dram_bytes=bytes_of(k * held, dtype),
        products=-(-m // TILE) * k_tiles * (held // TILE),
        fidelity=FIDELITY[dtype],
        cores=DRAM_READERS if dram_sharded else WORKERS,
        hops=k_tiles // block if dram_sharded else 0,
        dram_share=1.0 if dram_sharded else INTERLEAVED_BYTES_PER_S / DRAM_BYTES_PER_S,
        attributes=attributes,
    )


def attention(kv_heads: int, head_dim: int, context: int, users: int, dtype: str) -> Op:
    """Return flash decode of `kv_heads` on a chip over `context` positions of each user."""
    if min(kv_heads, head_dim, context, users) < 1:
        raise ValueError(
            f"attention needs sizes of at least 1, got heads {kv_heads}, head_dim {head_dim}, context {context}, "
            f"users {users}"
        )
    size = 2 * users * bytes_of(kv_heads * context * head_dim, dtype)
    return Op(
        "ScaledDotProductAttentionDecode",
        "attention",
        ATTENTION,
        dram_bytes=size,
        heads=kv_heads,
        positions=context,
        users=users,
    )


def collective(name: str, role: str, rows: int, columns: int, chips: int, size: int = 2) -> Op:
    """Return an AllGather or ReduceScatter of [rows, columns] in all, of `size` bytes each, over `chips`."""
    if chips < 2:
        raise ValueError(f"a collective needs at least 2 chips, got {chips}")
    return Op(name, role, COLLECTIVE, chips=chips, link_bytes=-(-rows // TILE) * TILE * columns * size)


def grid_cores(k: int, n: int, most: int) -> int:
    """Return the most cores, up to `most`, that share the tiles of both k and n alike."""
    return max(c for c in range(1, most + 1) if (k // TILE) % c == 0 and (n // TILE) % c == 0)


def _simple(name: str, kind: str, work: float = 1.0, role: str = "") -> Op:
    return Op(name, role or kind, kind, work)


def _layer(step: Step, index: int) -> Iterator[Op]:
    config, tp, plan = step.config, step.mesh.tp, step.plan
    hidden, ffn, dim = config.hidden_size, config.intermediate_size // tp, config.head_dim
    heads, kv_heads = config.num_attention_heads // tp, config.num_key_value_heads // tp
    of, sharded = step.formats.of_layer(index), plan != "interleaved"
    qkv = (heads + 2 * kv_heads) * dim
    residual = PAPER_CORES
    mlp = grid_cores(hidden, ffn, PAPER_CORES if plan == "paper" else WORKERS)

    def weights(role: str, k: int, n: int, cores: int) -> Op:
        return matmul(role, k, n, getattr(of, role), cores=cores, dram_sharded=sharded, m=step.users)

    norm = _simple("LayerNorm", "norm" if sharded else "interleaved norm", role="attention norm")
    gather = [collective("AllGather", "gather", step.users, hidden, tp)] if tp > 1 else []
    yield from gather
    yield norm
    yield weights("qkv", hidden, qkv, residual)
    if plan == "paper":
        yield _simple("ShardedToInterleaved", "unshard", qkv / TILE)
    yield _simple("NLPCreateHeadsDecode", "create heads", heads + 2 * kv_heads)
    if plan == "sharded":
        yield _simple("RotaryEmbeddingLlamaFusedQK", "rotate")
        yield _simple("PagedFusedUpdateCache", "update cache", kv_heads)
    else:
        yield from [_simple("RotaryEmbeddingLlama", "rotate")] * 2
        yield from [_simple("PagedUpdateCache", "update cache", kv_heads)] * 2
    yield attention(kv_heads, dim, step.context, step.users, step.formats.kv_cache)
    if plan == "paper":
        yield _simple("InterleavedToSharded", "shard")
    yield _simple("NLPConcatHeadsDecode", "concat heads", heads)
    rows = heads * dim
    if plan == "paper" and tp == 8:
        # Fused on a ring of eight: all of the rows, and an eighth of the columns, on each chip.
        yield _simple("Reshard", "reshard")
        whole = matmul("wo", rows * tp, hidden // tp, of.wo, cores=tp)
        moved = collective("AllGatherMatmul", "wo", step.users, rows * tp, tp)
        yield replace(whole, name="AllGatherMatmul", kind=COLLECTIVE, chips=tp, link_bytes=moved.link_bytes)
        yield _simple("Reshard", "reshard")
    else:
        yield weights("wo", rows, hidden, heads)  # one head per core, as concat heads leaves them
        if tp > 1:
            yield collective("ReduceScatter", "scatter", step.users, hidden, tp)
    yield _simple("Binary", "add", role="attention add")
    yield from gather
    yield replace(norm, role="MLP norm")
    yield weights("ff1", hidden, ffn, mlp)
    yield weights("ff3", hidden, ffn, mlp)
    yield _simple("Binary", "gated product", -(-ffn // (TILE * mlp)))
    yield weights("ff2", ffn, hidden, grid_cores(ffn, hidden, WORKERS))
    if tp > 1:
        yield collective("ReduceScatter", "scatter", step.users, hidden, tp)
        if plan == "paper":
            yield _simple("Reshard", "reshard")
    yield _simple("Binary", "add", role="MLP add")


def _before(step: Step) -> Iterator[Op]:
    """Return the tables' cosines and sines of the position; the token's own embedding is not in the tables."""
    yield from [_simple("Embeddings", "embed")] * 2
    yield from [_simple("Transpose", "transpose")] * 2
    if step.plan == "paper":
        yield from [_simple("Slice", "slice")] * 2
    yield from [_simple("InterleavedToSharded", "shard")] * 2
    if step.plan != "paper":
        yield _simple("Embeddings", "embed", role="token embedding")


def _after(step: Step) -> Iterator[Op]:
    config, tp = step.config, step.mesh.tp
    hidden, sharded = config.hidden_size, step.plan != "interleaved"
    if tp == 1 and step.plan == "paper":
        yield _simple("Reshard", "reshard")
    if tp > 1:
        yield collective("AllGather", "gather", step.users, hidden, tp)
    yield _simple("LayerNorm", "norm" if sharded else "interleaved norm", role="last norm")
    columns = step.mesh.padded_vocab(config) // tp
    pieces = -(-columns // LM_HEAD_COLUMNS[step.plan])
    left = columns
    for _ in range(pieces):
        n = min(left, -(-columns // (pieces * TILE)) * TILE)
        left -= n
        yield matmul("lm_head", hidden, n, step.formats.lm_head, cores=PAPER_CORES, dram_sharded=sharded, m=step.users)
        if step.plan == "paper":
            yield _simple("ShardedToInterleaved", "unshard", n / TILE)
    # Logits are bfloat8_b; read and written once.
    logits = bytes_of(TILE * columns, "bfloat8_b")
    if pieces > 1:
        yield Op("Concat", "join logits", STREAM, dram_bytes=2 * logits)
    if step.plan != "paper":
        yield Op("ArgMax", "greedy choice", STREAM, dram_bytes=logits)
        if tp > 1:
            yield collective("AllGather", "gather choices", step.users, TILE * tp, tp)
