# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A decode step of Llama 3.1 8B op by op: what each op moves and computes, and what that costs on an N150.

A cost is bytes over a DRAM rate, tile products over the matrix unit's rate, blocks of activation, a launch, bytes over
links. Wormhole's specification is constants here and collectives take what was measured of them; all else is fitted to
one of the ALSpec paper's tables 4 to 7 and tested on the others. Plans of a step:

- paper: the programs of these tables (TT-Metalium v0.55), the plan that is fitted.
- sharded: the same weights DRAM-sharded, rotation and cache update fused, nothing between matmul and heads, the gated
  product on as many cores as its matmuls, and a greedy choice by argmax (tt_transformers of 2026).
- interleaved: interleaved weights through plain matmuls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.latency import (
    CHIP_COUNTS,
    CORES_PER_HEAD,
    HEAD_BYTES_PER_S,
    KV_HEADS,
    LAYERS,
    Times,
    token_latency,
)
from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S, budget
from models.llama31_8b.tt.mesh import TILE, MeshShape
from models.llama31_8b.tt.precision import FIDELITY, PrecisionConfig, bytes_of, precision_config
from perf.lib.chip import TILE_CYCLES
from perf.projection.published import (
    ALL_GATHER,
    FIXED,
    FLASH_DECODE_OP,
    LAYER,
    REDUCE_SCATTER,
    collective_ns,
    op_table,
    read_rows,
)

PLANS = ("paper", "sharded", "interleaved")
# Cores that read a DRAM-sharded weight and multiply by it: one per bank.
DRAM_READERS = 12
WORKERS = 64
# An interleaved LM head reads at about 160 GB/s (tt-metal PR #13340), of the 288 of the specification.
INTERLEAVED_BYTES_PER_S = 160e9
# MCW's measurement of an interleaved RMSNorm on N150 (tt-metal issue #11802); the tables have sharded ones only.
INTERLEAVED_NORM_NS = 63600.0
# The most columns of the LM head in one matmul: of the paper's plan (four of 32064 on one chip), of today's.
LM_HEAD_COLUMNS = {"paper": 32064, "sharded": 42752, "interleaved": 42752}
# Cores of the residual stream, at most. In table 4 the gated product takes twice the time of tables 5 to 7, where a
# core has 7 tiles: 14 per core, so 32 cores there. That one number comes from a table that the fit may not see.
PAPER_CORES = 32
# The table of the fit, chosen by what it contains: it alone has matmuls bound by DRAM and by their activation's blocks.
FITTED_CHIPS = 4
TABLE_CONTEXT = 1024
# What the fused op of eight chips sends is gathered.
MEASURED_COLLECTIVES = {"AllGather": ALL_GATHER, "ReduceScatter": REDUCE_SCATTER, "AllGatherMatmul": ALL_GATHER}
MATMUL, ATTENTION, COLLECTIVE, STREAM = "matmul", "attention", "collective", "stream"


class NotIdentified(ValueError):
    """Raised for a parameter that the table of the fit says nothing about; the message names both."""


@dataclass(frozen=True)
class Op:
    """One launch on one chip. name: its op code, as profilers print it; role: what it does in the model.

    kind: MATMUL, ATTENTION, COLLECTIVE, STREAM (bytes alone), or a name of its own, whose time is a launch and `work`
    times a fitted unit. dram_bytes: read, at `dram_share` of the fitted rate where a layout is known not to reach it.
    products: of 32 x 32 x 32 tiles over `cores` at `fidelity`. hops: blocks of the activation that a matmul multicasts
    one after another. chips, link_bytes: of a collective, and the bytes of its whole tensor. pairs: KV heads times
    users of attention.
    """

    name: str
    role: str
    kind: str
    work: float = 1.0
    dram_bytes: int = 0
    products: int = 0
    fidelity: str = "HiFi2"
    cores: int = DRAM_READERS
    hops: int = 0
    chips: int = 1
    link_bytes: int = 0
    pairs: int = 1
    dram_share: float = 1.0
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Parameters:
    """Costs in nanoseconds, fitted to the table of `chips`; bytes/s of a DRAM-sharded matmul.

    launch: of any op. matmul_start: of a matmul, until its readers stream. hop: one block of a matmul's activation,
    None where none of the table waits for its blocks. attention_start: of flash decode, beside its reading. units: by
    kind, a unit of work.
    """

    chips: int
    dram_bytes_per_s: float
    launch: float
    matmul_start: float
    hop: float | None
    attention_start: float
    units: Mapping[str, float]

    def ns(self, op: Op) -> float:
        """Return the kernel time of `op`. Raises NotIdentified."""
        if op.kind == MATMUL:
            return self.matmul_ns(op)
        if op.kind == ATTENTION:
            return self.attention_start + reading_ns(op)
        if op.kind == COLLECTIVE:
            fused = self.matmul_ns(op) if op.products else 0.0
            return collective_ns(MEASURED_COLLECTIVES[op.name], op.chips, op.link_bytes) + fused
        if op.kind == STREAM:
            return self.launch + op.dram_bytes / self.dram_bytes_per_s * 1e9
        if op.kind not in self.units:
            raise NotIdentified(
                f"{op.kind} is not in the table of {self.chips} chips: fit on another mesh to predict it"
            )
        return self.launch + op.work * self.units[op.kind]

    def matmul_ns(self, op: Op) -> float:
        """Return the start, and then the longest of reading weights, multiplying, and multicasting the activation."""
        reading = op.dram_bytes / (self.dram_bytes_per_s * op.dram_share) * 1e9
        multiplying = math.ceil(op.products / op.cores) * TILE_CYCLES[op.fidelity]  # cycles, one a nanosecond
        return self.matmul_start + max(reading, multiplying, op.hops * (self.hop or 0.0))


def reading_ns(op: Op) -> float:
    """Return what flash decode takes to read its keys and values, by the rates of models.llama31_8b.latency.

    With so many heads and users that a head has fewer than its 16 cores, its own share takes longer by as much.
    """
    crowding = max(1.0, op.pairs * CORES_PER_HEAD / max(WORKERS, KV_HEADS * CORES_PER_HEAD))
    return (op.dram_bytes / DRAM_BYTES_PER_S + crowding * (op.dram_bytes / op.pairs) / HEAD_BYTES_PER_S) * 1e9


def matmul(role: str, k: int, n: int, dtype: str, *, cores: int, dram_sharded: bool = True, m: int = 1) -> Op:
    """Return the product [m, k] x [k, n] with weights in `dtype`; ValueError for sizes that are not there.

    cores: of the activation's shards. dram_sharded: the weight's width is over the 12 banks, in whole tiles of each;
    else it is interleaved.
    """
    if min(k, n, m, cores) < 1 or k % TILE:
        raise ValueError(f"a matmul needs sizes of at least 1 and k in tiles of {TILE}, got m {m}, k {k}, n {n}")
    step = TILE * DRAM_READERS if dram_sharded else TILE
    held, k_tiles = -(-n // step) * step, k // TILE
    block = math.gcd(k_tiles, max(1, k_tiles // cores))
    block = max(d for d in range(1, 9) if block % d == 0)
    attributes = {"in0_block_w": block, "per_core_N": -(-n // (TILE * cores)), "m": m, "k": k, "n": n}
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
        attributes=attributes | {"dtype": dtype, "dram_sharded": dram_sharded},
    )


def attention(kv_heads: int, head_dim: int, context: int, users: int, dtype: str) -> Op:
    """Return flash decode of `kv_heads` on a chip over `context` positions of each user; ValueError for sizes below
    1."""
    if min(kv_heads, head_dim, context, users) < 1:
        raise ValueError(f"attention needs sizes of at least 1, got {kv_heads=}, {head_dim=}, {context=}, {users=}")
    size = 2 * users * bytes_of(kv_heads * context * head_dim, dtype)
    return Op(FLASH_DECODE_OP, "attention", ATTENTION, dram_bytes=size, pairs=kv_heads * users)


def collective(name: str, role: str, rows: int, columns: int, chips: int) -> Op:
    """Return an AllGather or ReduceScatter of [rows, columns] bfloat16 in all over `chips`; ValueError below 2."""
    if chips < 2:
        raise ValueError(f"a collective needs at least 2 chips, got {chips}")
    return Op(name, role, COLLECTIVE, chips=chips, link_bytes=-(-rows // TILE) * TILE * columns * 2)


@dataclass(frozen=True)
class Step:
    """One decode step: mesh, context (cached positions with the new one), users, plan, precision of the weights.

    Raises ValueError for values out of range and MeshError for a mesh that does not exist.
    """

    mesh: MeshShape = MeshShape()
    context: int = 1024
    users: int = 1
    plan: str = "sharded"
    precision: str = "performance"
    config: LlamaConfig = preset("llama-3.1-8b")

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
        """Return the formats of weights and cache."""
        return precision_config(self.precision, self.config.num_hidden_layers)

    def layers(self) -> list[list[Op]]:
        """Return the ops of every layer."""
        return [self.layer(index) for index in range(self.config.num_hidden_layers)]

    def before(self) -> list[Op]:
        """Return the cosines and sines of the position and, but for the paper's tables, the token's embedding."""
        ops = [_simple("Embeddings", "embed"), _simple("Transpose", "transpose"), _simple("Slice", "slice")]
        ops.append(_simple("InterleavedToSharded", "shard"))
        if self.plan == "paper":
            return [op for op in ops for _ in range(2)]
        twice = [op for op in ops if op.kind != "slice" for _ in range(2)]
        return [*twice, _simple("Embeddings", "embed", role="token embedding")]

    def layer(self, index: int) -> list[Op]:
        """Return the ops of decoder layer `index` in their order."""
        config, tp, plan = self.config, self.mesh.tp, self.plan
        hidden, ffn, dim = config.hidden_size, config.intermediate_size // tp, config.head_dim
        heads, kv_heads = config.num_attention_heads // tp, config.num_key_value_heads // tp
        of, sharded = self.formats.of_layer(index), plan != "interleaved"
        qkv, rows = (heads + 2 * kv_heads) * dim, heads * dim
        mlp = _shared_cores(hidden, ffn, PAPER_CORES if plan == "paper" else WORKERS)

        def weights(role: str, k: int, n: int, cores: int) -> Op:
            return matmul(role, k, n, getattr(of, role), cores=cores, dram_sharded=sharded, m=self.users)

        norm = _simple("LayerNorm", "norm" if sharded else "interleaved norm", role="attention norm")
        reshard, paper = [_simple("Reshard", "reshard")], plan == "paper"
        gather = [collective("AllGather", "gather", self.users, hidden, tp)] if tp > 1 else []
        scatter = [collective("ReduceScatter", "scatter", self.users, hidden, tp)] if tp > 1 else []
        if plan == "sharded":
            cached = [_simple("RotaryEmbeddingLlamaFusedQK", "rotate")]
            cached.append(_simple("PagedFusedUpdateCache", "update cache", kv_heads))
        else:
            cached = [_simple("RotaryEmbeddingLlama", "rotate")] * 2
            cached += [_simple("PagedUpdateCache", "update cache", kv_heads)] * 2
        wo = [weights("wo", rows, hidden, heads), *scatter]  # one head per core, as concat heads leaves them
        if paper and tp == 8:
            # Fused on a ring of eight: all of the rows, and an eighth of the columns, on each chip.
            whole = matmul("wo", rows * tp, hidden // tp, of.wo, cores=tp)
            moved = collective("AllGatherMatmul", "wo", self.users, rows * tp, tp).link_bytes
            fused = replace(whole, name="AllGatherMatmul", kind=COLLECTIVE, chips=tp, link_bytes=moved)
            wo = [*reshard, fused, *reshard]
        return [
            *(*gather, norm, weights("qkv", hidden, qkv, PAPER_CORES)),
            *[_simple("ShardedToInterleaved", "unshard", qkv / TILE)] * paper,
            *(_simple("NLPCreateHeadsDecode", "create heads", heads + 2 * kv_heads), *cached),
            attention(kv_heads, dim, self.context, self.users, self.formats.kv_cache),
            *[_simple("InterleavedToSharded", "shard")] * paper,
            *(_simple("NLPConcatHeadsDecode", "concat heads", heads), *wo),
            *(_simple("Binary", "add", role="attention add"), *gather, replace(norm, role="MLP norm")),
            *(weights("ff1", hidden, ffn, mlp), weights("ff3", hidden, ffn, mlp)),
            _simple("Binary", "gated product", -(-ffn // (TILE * mlp))),
            *(weights("ff2", ffn, hidden, _shared_cores(ffn, hidden, WORKERS)), *scatter),
            *(*reshard * (paper and tp > 1), _simple("Binary", "add", role="MLP add")),
        ]

    def after(self) -> list[Op]:
        """Return what a step does once, after its layers."""
        tp, hidden, paper = self.mesh.tp, self.config.hidden_size, self.plan == "paper"
        sharded = self.plan != "interleaved"
        ops = [_simple("Reshard", "reshard")] * (tp == 1 and paper)
        if tp > 1:
            ops.append(collective("AllGather", "gather", self.users, hidden, tp))
        ops.append(_simple("LayerNorm", "norm" if sharded else "interleaved norm", role="last norm"))
        left = columns = self.mesh.padded_vocab(self.config) // tp
        pieces, dtype = -(-columns // LM_HEAD_COLUMNS[self.plan]), self.formats.lm_head
        for _ in range(pieces):
            n = min(left, -(-columns // (pieces * TILE)) * TILE)
            left -= n
            ops.append(matmul("lm_head", hidden, n, dtype, cores=PAPER_CORES, dram_sharded=sharded, m=self.users))
            ops += [_simple("ShardedToInterleaved", "unshard", n / TILE)] * paper
        # Logits are bfloat8_b; read and written once.
        logits = bytes_of(TILE * columns, "bfloat8_b")
        if pieces > 1:
            ops.append(Op("Concat", "join logits", STREAM, dram_bytes=2 * logits))
        if not paper:
            ops.append(Op("ArgMax", "greedy choice", STREAM, dram_bytes=logits))
            if tp > 1:
                ops.append(collective("AllGather", "gather choices", self.users, TILE * tp, tp))
        return ops


def _simple(name: str, kind: str, work: float = 1.0, role: str = "") -> Op:
    return Op(name, role or kind, kind, work)


def _shared_cores(k: int, n: int, most: int) -> int:
    """Return the most cores, up to `most`, that share the tiles of both k and n alike."""
    return max(c for c in range(1, most + 1) if (k // TILE) % c == 0 and (n // TILE) % c == 0)


@cache
def table_ops(chips: int) -> list[tuple[str, Op, int]]:
    """Return (section, op, measured ns) of the paper's table of `chips`, an op of the plan "paper" for each row.

    Raises ValueError where there is no such table, RuntimeError if plan and table name other ops.
    """
    table, step = op_table(chips), Step(MeshShape(1, chips), TABLE_CONTEXT, plan="paper")
    # The tables' layer has gate and up in bfloat4_b, as all layers but the last.
    ops = {LAYER: iter(step.layer(0)), FIXED: iter([*step.before(), *step.after()])}
    found = [(row.section, next(ops[row.section], None), row) for row in table]
    if any(op is None or op.name != row.name for _, op, row in found) or any(list(rest) for rest in ops.values()):
        raise RuntimeError(f"the plan's ops on {chips} chips are not the table's: {[row.name for row in table]}")
    return [(section, op, row.ns) for section, op, row in found if op]


@cache
def fit(chips: int = FITTED_CHIPS) -> Parameters:
    """Fit the parameters to the table of `chips` alone (least squares of relative errors); ValueError without one."""
    rows = [(op, ns) for _, op, ns in table_ops(chips)]
    launch = float(min(ns for _, ns in rows))
    rate, start, hop = _fit_matmuls([(op, ns) for op, ns in rows if op.kind == MATMUL])
    units = {"interleaved norm": INTERLEAVED_NORM_NS - launch}
    for kind in {op.kind for op, _ in rows} - {MATMUL, ATTENTION, COLLECTIVE, STREAM}:
        works = np.array([[op.work / ns] for op, ns in rows if op.kind == kind])
        rest = np.array([(ns - launch) / ns for op, ns in rows if op.kind == kind])
        units[kind] = max(0.0, float(np.linalg.lstsq(works, rest, rcond=None)[0][0]))
    waits = [ns - reading_ns(op) for op, ns in rows if op.kind == ATTENTION]
    return Parameters(chips, rate, launch, start, hop, sum(waits) / len(waits), units)


def _fit_matmuls(rows: Sequence[tuple[Op, int]]) -> tuple[float, float, float | None]:
    """Return DRAM rate, start, and time of a block of activation (None where no matmul is bound by it).

    Which matmuls wait for their blocks is not known beforehand: those with the most blocks a byte, so every number of
    them is tried, and the best fit that agrees with itself is taken.
    """
    order = sorted({(op.hops, op.dram_bytes) for op, _ in rows}, key=lambda pair: pair[0] / pair[1], reverse=True)
    best: tuple[float, tuple[float, float, float | None]] | None = None
    for bound in range(len(order) - 1):
        waiting = [(op.hops, op.dram_bytes) in order[:bound] for op, _ in rows]
        matrix = np.array(
            [
                [1 / ns, 0.0 if waits else op.dram_bytes / ns, op.hops / ns if waits else 0.0][: 3 if bound else 2]
                for waits, (op, ns) in zip(waiting, rows, strict=True)
            ]
        )
        solved = np.linalg.lstsq(matrix, np.ones(len(rows)), rcond=None)[0].tolist()
        start, per_byte, hop = solved[0], solved[1], solved[2] if bound else None
        if per_byte <= 0 or start < 0 or (hop is not None and hop <= 0):
            continue
        agrees = all(
            (op.hops * (hop or 0.0) > op.dram_bytes * per_byte) == waits
            for waits, (op, _) in zip(waiting, rows, strict=True)
        )
        error = float(np.sum((matrix @ np.array(solved) - 1) ** 2))
        if agrees and (best is None or error < best[0]):
            best = error, (1e9 / per_byte, start, hop)
    if best is None:
        raise RuntimeError("no rate and start explain the table's matmuls")
    return best[1]


def table_errors(parameters: Parameters, chips: int) -> tuple[float | None, float]:
    """Return the model's relative errors on the paper's table of `chips`: of a whole token (None where an op of it is
    not modelled), and the mean of absolute errors by time, of what is modelled."""
    known, rows = [], table_ops(chips)
    for section, op, ns in rows:
        with suppress(NotIdentified):
            known.append((parameters.ns(op) / ns - 1, ns * (LAYERS if section == LAYER else 1)))
    whole = sum(ns for _, ns in known)
    token, by_time = (sum(how(error) * ns for error, ns in known) / whole for how in (float, abs))
    return (token if len(known) == len(rows) else None), by_time


class Timed(NamedTuple):
    """An op and its modelled nanoseconds."""

    op: Op
    ns: float


@dataclass(frozen=True)
class Prediction:
    """A step's modelled kernel times on one chip. hit_rate: of attention-level speculation where the mesh has two rows,
    else None."""

    step: Step
    parameters: Parameters
    before: tuple[Timed, ...]
    layers: tuple[tuple[Timed, ...], ...]
    after: tuple[Timed, ...]
    hit_rate: float | None = None

    @property
    def launches(self) -> int:
        """Return the programs of a token."""
        return len(self.before) + sum(map(len, self.layers)) + len(self.after)

    @property
    def attention_ns(self) -> float:
        """Return the attention of one layer."""
        return sum(timed.ns for timed in self.layers[0] if timed.op.kind == ATTENTION)

    @property
    def token_ns(self) -> float:
        """Return the time of one step. Two rows speculate by appendix F, which leaves exchange and gate out."""
        fixed = sum(timed.ns for timed in self.before + self.after)
        inside = sum(timed.ns for layer in self.layers for timed in layer)
        if self.hit_rate is None:
            return fixed + inside
        sender = self.attention_ns + Times().verify_ns
        rest = inside / len(self.layers) - self.attention_ns
        return token_latency(fixed, rest, None, sender, guess_ns(self, 256, sender), len(self.layers), self.hit_rate)

    @property
    def tokens_per_s(self) -> float:
        return 1e9 / self.token_ns

    @property
    def roofline_share(self) -> float:
        """Return the share of the step that reading takes at the DRAM's specified rate, on one of the row's chips."""
        step = self.step
        needed = budget(step.config, step.mesh, step.formats, step.context, step.users)
        return needed.read_per_step / DRAM_BYTES_PER_S * 1e9 / self.token_ns


def guess_ns(told: Prediction, chunk_size: int, sender: float) -> float:
    """Return the time until a receiver has its guess: flash decode of two chunks and a hop, at most the `sender`'s."""
    step, config = told.step, told.step.config
    positions = min(2 * chunk_size, step.context)
    heads = config.num_key_value_heads // step.mesh.tp
    guess = attention(heads, config.head_dim, positions, step.users, step.formats.kv_cache)
    return min(sender, told.parameters.ns(guess) + Times().hop_ns)


def predict(step: Step, parameters: Parameters | None = None, hit_rate: float | None = None) -> Prediction:
    """Predict a step, by default by the fit to the table of four chips. hit_rate: 0 to 1, for meshes of two rows alone.

    Raises ValueError for a hit rate without two rows, or two rows without one; NotIdentified for an op that the fit's
    table says nothing about.
    """
    if (hit_rate is None) != (step.mesh.sp == 1):
        raise ValueError(f"a hit rate is for meshes of two rows: got {hit_rate} for {step.mesh}")
    parameters = parameters or fit()

    def timed(ops: Sequence[Op]) -> tuple[Timed, ...]:
        return tuple(Timed(op, parameters.ns(op)) for op in ops)

    layers = tuple(timed(layer) for layer in step.layers())
    return Prediction(step, parameters, timed(step.before()), layers, timed(step.after()), hit_rate)


def step_rows(steps: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Return a row per predicted step: tokens/s and share of the roofline."""
    return [
        {"part": "step", "mesh": str(told.step.mesh), "plan": told.step.plan, "precision": told.step.precision}
        | {"context": told.step.context, "tokens_per_s": told.tokens_per_s, "roofline_share": told.roofline_share}
        for told in steps
    ]


def check_rows(parameters: Parameters) -> list[dict[str, Any]]:
    """Return the model beside what was measured: a row per table of the paper, then one per speed that tt-metal
    published for whole steps (perf/data/published_decode.csv), with the gap between programs (ns) that would explain
    it. The fit has seen its own table alone; `fitted` says where the context's cost comes from published runs."""
    rows: list[dict[str, Any]] = []
    for chips in CHIP_COUNTS:
        token, by_time = table_errors(parameters, chips)
        row: dict[str, Any] = {"part": "table", "chips": chips, "fitted": chips == parameters.chips}
        rows.append(row | {"token_error": token, "error_by_time": by_time})
    for run in read_rows("published_decode.csv"):
        chips, context, published = run["chips"], run["context"], run["tokens_per_s"]
        told = predict(Step(MeshShape(1, chips), context, precision=run["plan"]), parameters)
        row = {"part": "published", "chips": chips, "context": context, "precision": run["plan"]}
        row |= {"published": published, "modelled": told.tokens_per_s}
        row |= {"gap_ns": (1e9 / published - told.token_ns) / told.launches, "fitted": context > TABLE_CONTEXT}
        rows.append(row | {"error": told.tokens_per_s / published - 1})
    return rows
