# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a layer-parallel draft model would cost and gain on rows of N150 chips, from the times of single ops in the
ALSpec paper's tables: Llama 3.2 1B drafts for Llama 3.1 8B. ASSUMPTIONS has every assumption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import linear_regression
from typing import Any

from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.latency import CHIP_COUNTS, estimate
from models.llama31_8b.spec_decode.draft_settings import layer_groups
from models.llama31_8b.tt.layer_parallel import LayerAssignment, Stage
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.precision import bytes_of, precision_config
from perf.projection.published import FIXED, FLASH_DECODE_OP, LAYER, op_table

DRAFT, TARGET = "llama-3.2-1b", "llama-3.1-8b"
CONTEXT = 1024  # the tables'
EASYSPEC_LOSS = 0.07  # of the acceptance, at most
ACCEPTANCES = (0.5, 0.6, 0.7, 0.8, 0.9)
ASSUMPTIONS = (
    "batch 1 and 1K tokens; times of single ops are those of tables 4 to 7, added up; nothing here ran on a board",
    "a product takes a fixed time and its weights' bytes at a fixed rate, a line through the tables' products; the "
    "draft is in the performance precision",
    "other ops of the draft take what the 8B's take on as many chips; a sum takes longer in proportion to its columns "
    "where a stage's layers have more than 4096",
    "layers on chips of their own take, but for the sums, what a row of as many chips as share one layer takes; a "
    "stage adds a masking and a slice per layer, each as long as the residual's addition",
    "calibration is an exact step, and per stage choosing inputs, a norm, qkv, heads, a rotation and two cache writes",
    "the target's step over the drafts takes what a plain step takes; verification, commit and the host take nothing",
    "each drafted token is accepted with the same chance, given those before it; drafting is of a fixed length",
)
# Between the two products of an attention.
_BETWEEN = (
    f"ShardedToInterleaved NLPCreateHeadsDecode InterleavedToSharded {FLASH_DECODE_OP} NLPConcatHeadsDecode".split()
)
_TWICE = ("RotaryEmbeddingLlama", "PagedUpdateCache")


def _times(chips: int, name: str, section: str = LAYER) -> list[int]:
    return [op.ns for op in op_table(chips) if (op.section, op.name) == (section, name)]


def _mean(chips: int, *names: str) -> float:
    """Return the sum of the ops' mean times within a layer on `chips` chips; 0 for one that the layer has not."""
    found = [_times(chips, name) for name in names]
    return sum(sum(times) / len(times) if times else 0.0 for times in found)


def _layer_bytes(config: LlamaConfig, chips: int, layer: int = 0) -> dict[str, int]:
    """Return the bytes of a layer's matrices on one of `chips` chips that share it."""
    heads, ffn, dim = config.num_attention_heads, config.intermediate_size, config.head_dim
    of = precision_config("performance", config.num_hidden_layers).of_layer(layer)
    columns = {"qkv": (heads + 2 * config.num_key_value_heads) * dim, "wo": heads * dim}
    columns |= {"ff1": ffn, "ff3": ffn, "ff2": ffn}
    return {name: bytes_of(config.hidden_size * width // chips, getattr(of, name)) for name, width in columns.items()}


@cache
def product_line() -> tuple[float, float]:
    """Return (ns, ns per byte) of a matrix product: least squares over the layers' products in tables 4 to 7, without
    those of table 7 that are fused with a gather."""
    points: list[tuple[int, int]] = []
    for chips in CHIP_COUNTS:
        sizes = [size for name, size in _layer_bytes(preset(TARGET), chips).items() if chips < 8 or name != "wo"]
        points += zip(sizes, _times(chips, "Matmul"), strict=True)
    slope, fixed = linear_regression(*zip(*points, strict=True))
    return fixed, slope


def _product(size: int) -> float:
    fixed, per_byte = product_line()
    return fixed + per_byte * size


@dataclass(frozen=True)
class DraftCost:
    """Nanoseconds of a draft model's steps on a row of `chips`. size: layers in parallel, 1 for none."""

    config: LlamaConfig
    chips: int
    size: int

    def _assignment(self) -> LayerAssignment:
        return LayerAssignment.make(self.config, MeshShape(1, self.chips), self.size)

    def _add(self) -> float:
        """The addition to the residual: the last element-wise op of a layer."""
        return _times(self.chips, "Binary")[-1]

    def _sum(self, layers: int = 1) -> float:
        return _mean(self.chips, "ReduceScatter") * max(1.0, layers * self.config.hidden_size / 4096)

    def _stage(self, stage: Stage) -> float:
        """A stage's attentions after the gathered input, up to what each adds to the residual."""
        sizes, share = _layer_bytes(self.config, stage.share), stage.share
        between = _mean(share, *_BETWEEN) + 2 * _mean(share, *_TWICE)
        attention = _mean(share, "LayerNorm") + _product(sizes["qkv"]) + between + _product(sizes["wo"])
        extra = 0.0 if stage.alone else (1 + len(stage.layers)) * self._add()
        return attention + self._sum(len(stage.layers)) + extra

    def _rest(self, layer: int) -> float:
        """What follows a layer's attention: the addition, the MLP after its gather and norm, sum, addition."""
        sizes = _layer_bytes(self.config, self.chips, layer)
        products = sum(_product(sizes[name]) for name in ("ff1", "ff3", "ff2"))
        gate, around = max(_times(self.chips, "Binary")), _mean(self.chips, "AllGather", "LayerNorm")
        return 2 * self._add() + around + products + gate + self._sum()

    def _fixed(self) -> float:
        """Embedding, final norm and the head's product in as many blocks as the table's."""
        others = sum(op.ns for op in op_table(self.chips) if op.section == FIXED and op.name != "Matmul")
        blocks, dtype = len(_times(self.chips, "Matmul", FIXED)), precision_config("performance", 2).lm_head
        head = bytes_of(self.config.hidden_size * self.config.vocab_size // self.chips, dtype)
        return others + blocks * _product(head // blocks)

    def step_ns(self) -> float:
        """Return one drafted token."""
        assignment, gather = self._assignment(), _mean(self.chips, "AllGather")
        attentions = sum(gather + sum(map(self._stage, assignment.stages(group))) for group in assignment.groups)
        return attentions + sum(map(self._rest, range(self.config.num_hidden_layers))) + self._fixed()

    def calibration_ns(self) -> float:
        """Return an exact step, and the keys and values of the chips' own layers."""
        total = DraftCost(self.config, self.chips, 1).step_ns()
        for stage in self._assignment().parallel_stages:
            choices, qkv = 2 * len(stage.layers) - 1, _product(_layer_bytes(self.config, stage.share)["qkv"])
            ops = _mean(stage.share, "LayerNorm", "NLPCreateHeadsDecode", "RotaryEmbeddingLlama")
            total += choices * self._add() + qkv + ops + 2 * _mean(stage.share, "PagedUpdateCache")
        return total

    def drafting_ns(self, length: int) -> float:
        """Return a round's drafting stage: calibration gives the first token, fuzzy steps the others (EasySpec,
        section 3.2). Sequential drafts are calibrated too: the pass is how they take in the accepted tokens."""
        return self.calibration_ns() + (length - 1) * self.step_ns()


def draft_rows(
    counts: Sequence[int] = (4, 8), size: int = 4, length: int = 4, acceptances: Sequence[float] = ACCEPTANCES
) -> list[dict[str, Any]]:
    """Return rounds of `length` drafted tokens with `size` layers in parallel and one step of the target.

    A row per number of chips and acceptance (the chance of each drafted token, given those before it) has times in ms,
    tokens/s/user, and the gains over drafting on the same chips by tensor parallelism, over drafting on one chip
    (EasySpec's baseline) and over plain decoding; `lossy_`: with the acceptance lowered by what EasySpec loses at most.
    Raises ValueError for a size that the draft has not, or an acceptance outside 0 to 1.
    """
    config = preset(DRAFT)
    layer_groups(config.num_hidden_layers, size)
    if bad := [chance for chance in acceptances if not 0 <= chance <= 1]:
        raise ValueError(f"an acceptance is 0 to 1, got {bad[0]}")
    found = []
    for chips in counts:
        fuzzy, row, alone = (DraftCost(config, *of) for of in ((chips, size), (chips, 1), (1, 1)))
        fuzzy_ns, row_ns, alone_ns = (cost.drafting_ns(length) for cost in (fuzzy, row, alone))
        plain = estimate(CONTEXT, None, chips).token_latency_ns
        shared = {"chips": chips, "size": size, "length": length, "sequential_ms": row.step_ns() / 1e6}
        shared |= {"alone_ms": alone.step_ns() / 1e6, "fuzzy_ms": fuzzy.step_ns() / 1e6}
        shared |= {"calibration_ms": fuzzy.calibration_ns() / 1e6, "target_ms": plain / 1e6}
        shared |= {"over_tensor_parallel": row_ns / fuzzy_ns, "over_one_chip": alone_ns / fuzzy_ns}
        shared["plain_tokens_per_s"] = 1e9 / plain
        for chance in acceptances:
            ways = {"sequential": (row_ns, chance), "fuzzy": (fuzzy_ns, chance)}
            ways["lossy"] = fuzzy_ns, chance * (1 - EASYSPEC_LOSS)
            speeds = {
                # The expected accepted tokens and the one after them, over the round's time.
                f"{name}_tokens_per_s": sum(accepted**count for count in range(length + 1)) * 1e9 / (ns + plain)
                for name, (ns, accepted) in ways.items()
            }
            gains = {name.replace("_tokens_per_s", "_gain"): speed * plain / 1e9 for name, speed in speeds.items()}
            found.append(shared | {"acceptance": chance} | speeds | gains)
    return found
