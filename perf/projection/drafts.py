# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a layer-parallel draft model would cost and gain on rows of N150 chips, from the times of single ops in the
ALSpec paper's tables: Llama 3.2 1B drafts for Llama 3.1 8B. ASSUMPTIONS has every assumption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.latency import CHIP_COUNTS, estimate
from models.llama31_8b.spec_decode.layer_groups import layer_groups
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
_BETWEEN = ("ShardedToInterleaved", "NLPCreateHeadsDecode", "InterleavedToSharded", "NLPConcatHeadsDecode")
_TWICE = ("RotaryEmbeddingLlama", "PagedUpdateCache")


def _times(chips: int, name: str, section: str = LAYER) -> list[int]:
    return [op.ns for op in op_table(chips) if (op.section, op.name) == (section, name)]


def op_ns(chips: int, name: str) -> float:
    """Return the mean of an op's times within a layer on `chips` chips; 0 for one that the layer has not."""
    times = _times(chips, name)
    return sum(times) / len(times) if times else 0.0


def layer_bytes(config: LlamaConfig, chips: int, layer: int) -> dict[str, int]:
    """Return the bytes of a layer's matrices on one of `chips` chips that share it."""
    hidden, ffn, dim = config.hidden_size, config.intermediate_size, config.head_dim
    of = precision_config("performance", config.num_hidden_layers).of_layer(layer)
    columns = {"qkv": (config.num_attention_heads + 2 * config.num_key_value_heads) * dim}
    columns |= {"wo": config.num_attention_heads * dim, "ff1": ffn, "ff3": ffn, "ff2": ffn}
    return {name: bytes_of(hidden * width // chips, getattr(of, name)) for name, width in columns.items()}


@cache
def product_line() -> tuple[float, float]:
    """Return (ns, ns per byte) of a matrix product: least squares over the layers' products in tables 4 to 7, without
    those of table 7 that are fused with a gather."""
    points: list[tuple[int, int]] = []
    for chips in CHIP_COUNTS:
        sizes = layer_bytes(preset(TARGET), chips, 0)
        names = [name for name in ("qkv", "wo", "ff1", "ff3", "ff2") if chips < 8 or name != "wo"]
        points += zip([sizes[name] for name in names], _times(chips, "Matmul"), strict=True)
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return mean_y - slope * mean_x, slope


def product_ns(size: int) -> float:
    """Return the nanoseconds of a product whose weights take `size` bytes on a chip."""
    fixed, rate = product_line()
    return fixed + rate * size


@dataclass(frozen=True)
class DraftCost:
    """Nanoseconds of the draft model's steps on a row of `chips`. size: layers in parallel, 1 for none."""

    config: LlamaConfig
    chips: int
    size: int

    @property
    def assignment(self) -> LayerAssignment:
        """Return which chip has which layers."""
        return LayerAssignment.make(self.config, MeshShape(1, self.chips), self.size)

    def add_ns(self) -> float:
        """Return the addition to the residual: the last element-wise op of a layer."""
        return _times(self.chips, "Binary")[-1]

    def sum_ns(self, layers: int = 1) -> float:
        """Return the sums of `layers` layers at once."""
        return op_ns(self.chips, "ReduceScatter") * max(1.0, layers * self.config.hidden_size / 4096)

    def stage_ns(self, stage: Stage) -> float:
        """Return a stage's attentions after the gathered input, up to what each adds to the residual."""
        sizes, share = layer_bytes(self.config, stage.share, 0), stage.share
        between = sum(op_ns(share, name) for name in (*_BETWEEN, FLASH_DECODE_OP))
        between += 2 * sum(op_ns(share, name) for name in _TWICE)
        attention = op_ns(share, "LayerNorm") + product_ns(sizes["qkv"]) + between + product_ns(sizes["wo"])
        extra = 0.0 if stage.alone else (1 + len(stage.layers)) * self.add_ns()
        return attention + self.sum_ns(len(stage.layers)) + extra

    def rest_ns(self, layer: int) -> float:
        """Return what follows a layer's attention: the addition, the MLP after its gather and norm, sum, addition."""
        chips, sizes = self.chips, layer_bytes(self.config, self.chips, layer)
        products = sum(product_ns(sizes[name]) for name in ("ff1", "ff3", "ff2"))
        gate = max(_times(chips, "Binary"))
        around = op_ns(chips, "AllGather") + op_ns(chips, "LayerNorm")
        return 2 * self.add_ns() + around + products + gate + self.sum_ns()

    def fixed_ns(self) -> float:
        """Return embedding, final norm and the head's product in as many blocks as the table's."""
        table = [op for op in op_table(self.chips) if op.section == FIXED]
        blocks, precision = len(_times(self.chips, "Matmul", FIXED)), precision_config("performance", 2)
        head = bytes_of(self.config.hidden_size * self.config.vocab_size // self.chips, precision.lm_head)
        return sum(op.ns for op in table if op.name != "Matmul") + blocks * product_ns(head // blocks)

    def step_ns(self) -> float:
        """Return one drafted token."""
        gather = op_ns(self.chips, "AllGather")
        groups = [self.assignment.stages(group) for group in self.assignment.groups]
        attentions = sum(gather + sum(map(self.stage_ns, stages)) for stages in groups)
        return attentions + sum(map(self.rest_ns, range(self.config.num_hidden_layers))) + self.fixed_ns()

    def calibration_ns(self) -> float:
        """Return an exact step, and the keys and values of the chips' own layers."""
        total = DraftCost(self.config, self.chips, 1).step_ns()
        for stage in self.assignment.parallel_stages:
            share, choices = stage.share, 2 * len(stage.layers) - 1
            total += choices * self.add_ns() + product_ns(layer_bytes(self.config, share, 0)["qkv"])
            total += sum(op_ns(share, name) for name in ("LayerNorm", "NLPCreateHeadsDecode", "RotaryEmbeddingLlama"))
            total += 2 * op_ns(share, "PagedUpdateCache")
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
