# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a layer-parallel draft model would cost and gain on TP groups of N150 chips, from appendix F's tables of single
ops.

Llama 3.2 1B drafts for Llama 3.1 8B. Every assumption is in ASSUMPTIONS, which the bench prints with the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.spec_decode.layer_groups import layer_groups
from models.llama31_8b.tt.layer_parallel import LayerAssignment, Stage
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.precision import PrecisionConfig, bytes_of, precision_config
from perf.projections.estimator.latency import estimate
from perf.projections.estimator.tables import FLASH_DECODE_OP, chip_table

DRAFT, TARGET = "llama-3.2-1b", "llama-3.1-8b"
CONTEXT = 1024  # the tables'
EASYSPEC_SPEEDUP, EASYSPEC_LOSS = 1.62, 0.07
_MEASURED_HIDDEN = 4096  # of the tables' model
ASSUMPTIONS = (
    "batch 1, 1K context; times of single ops are appendix F's (tables 4 to 7: Llama 3.1 8B on 1, 2, 4, 8 N150), added "
    "up one after another; nothing here ran on a board",
    "a matrix product takes a fixed time and its weights' bytes at a fixed rate, a straight line through the tables' "
    "products; the draft is in the performance precision (gate and up bfloat4_b, the rest bfloat8_b)",
    "norms, heads, RoPE, cache writes, flash decode and element-wise ops of the draft take what the 8B's take on as "
    "many chips, though its rows are half as wide",
    "a gather or a sum over the TP group takes what the 8B's takes on as many chips; the sum that carries a stage's "
    "layers takes longer in proportion to its columns where they are more than the 8B's 4096",
    "layers on chips of their own take, but for the sums, what a TP group of as many chips as share one layer takes",
    "a stage adds a masking and, for each layer, a slice: each as long as the residual's addition",
    "calibration is an exact step of the TP group over all its tokens (up to 32 rows fill one tile), and in each stage "
    "the choice of the layers' inputs, a norm, a query/key/value product, heads, a rotation and two cache writes more",
    "the target's step over the drafted chain takes what its plain step takes; verification, commit, the choice of "
    "drafted tokens, the host and its reads take nothing",
    "each drafted token is accepted with the same chance, given those before it; drafting is of a fixed length",
)


@cache
def product_line() -> tuple[float, float]:
    """Return (ns, ns per byte) of a matrix product: least squares over the layers' products in tables 4 to 7, those of
    table 7 that are fused with a gather left out."""
    config = preset(TARGET)
    points: list[tuple[int, int]] = []
    for chips in (1, 2, 4, 8):
        sizes = _layer_bytes(config, chips, precision_config("performance", 2), 0)
        wanted = [sizes[name] for name in ("qkv", "wo", "ff1", "ff3", "ff2") if chips < 8 or name != "wo"]
        times = [op.ns for op in chip_table(chips).per_layer if op.name == "Matmul"]
        points += zip(wanted, times, strict=True)
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return mean_y - slope * mean_x, slope


def product_ns(size: int) -> float:
    """Return the ns of a product whose weights take `size` bytes on a chip."""
    fixed, rate = product_line()
    return fixed + rate * size


def _layer_bytes(config: LlamaConfig, chips: int, precision: PrecisionConfig, layer: int) -> dict[str, int]:
    """Return the bytes of a layer's matrices on one of `chips` chips that share it."""
    hidden, ffn, dim = config.hidden_size, config.intermediate_size, config.head_dim
    heads, kv_heads, of = config.num_attention_heads, config.num_key_value_heads, precision.of_layer(layer)
    return {
        "qkv": bytes_of(hidden * (heads + 2 * kv_heads) * dim // chips, of.qkv),
        "wo": bytes_of(hidden * heads * dim // chips, of.wo),
        "ff1": bytes_of(hidden * ffn // chips, of.ff1),
        "ff3": bytes_of(hidden * ffn // chips, of.ff3),
        "ff2": bytes_of(hidden * ffn // chips, of.ff2),
    }


def op_ns(chips: int, name: str) -> float:
    """Return the mean of an op's times within a layer of the tables' model on `chips` chips; 0 for one it has not
    there."""
    times = [op.ns for op in chip_table(chips).per_layer if op.name == name]
    return sum(times) / len(times) if times else 0.0


# Between the two products of an attention; the flash decode is at 1K.
_BETWEEN = (
    "ShardedToInterleaved",
    "NLPCreateHeadsDecode",
    "InterleavedToSharded",
    "NLPConcatHeadsDecode",
    FLASH_DECODE_OP,
)
_TWICE = ("RotaryEmbeddingLlama", "PagedUpdateCache")


def add_ns(chips: int) -> float:
    """Return the addition to the residual: the last element-wise op of a layer."""
    return [op.ns for op in chip_table(chips).per_layer if op.name == "Binary"][-1]


@dataclass(frozen=True)
class DraftCost:
    """Times of the draft model's steps on a TP group of `chips`, in nanoseconds. size: layers in parallel."""

    config: LlamaConfig
    chips: int
    size: int

    @property
    def assignment(self) -> LayerAssignment:
        return LayerAssignment.make(self.config, MeshShape(1, self.chips), self.size)

    @property
    def precision(self) -> PrecisionConfig:
        return precision_config("performance", self.config.num_hidden_layers)

    def attention_ns(self, share: int) -> float:
        """Return the time from the norm to the output projection, on one of `share` chips with a layer's heads; no
        collectives."""
        sizes = _layer_bytes(self.config, share, self.precision, 0)
        between = sum(op_ns(share, name) for name in _BETWEEN) + 2 * sum(op_ns(share, name) for name in _TWICE)
        return op_ns(share, "LayerNorm") + product_ns(sizes["qkv"]) + between + product_ns(sizes["wo"])

    def gather_ns(self) -> float:
        return op_ns(self.chips, "AllGather")

    def sum_ns(self, layers: int = 1) -> float:
        """Return the time of the sums of `layers` layers at once."""
        return op_ns(self.chips, "ReduceScatter") * max(1.0, layers * self.config.hidden_size / _MEASURED_HIDDEN)

    def stage_ns(self, stage: Stage) -> float:
        """Return the time of a stage's attentions after the gathered input, up to what each adds to the residual."""
        if stage.alone:
            return self.attention_ns(self.chips) + self.sum_ns()
        extra = (1 + len(stage.layers)) * add_ns(self.chips)
        return self.attention_ns(stage.share) + self.sum_ns(len(stage.layers)) + extra

    def rest_ns(self, layer: int) -> float:
        """Return the time of what follows a layer's attention: the addition, the MLP after its gather and norm, sum and
        addition."""
        chips, sizes = self.chips, _layer_bytes(self.config, self.chips, self.precision, layer)
        products = sum(product_ns(sizes[name]) for name in ("ff1", "ff3", "ff2"))
        gate = max(op.ns for op in chip_table(chips).per_layer if op.name == "Binary")
        norm = op_ns(chips, "LayerNorm")
        return 2 * add_ns(chips) + self.gather_ns() + norm + products + gate + self.sum_ns()

    def fixed_ns(self) -> float:
        """Return the time of embedding, final norm and the head's product, one for each of the tables'."""
        others = [op for op in chip_table(self.chips).fixed if op.name != "Matmul"]
        blocks = len(chip_table(self.chips).fixed) - len(others)
        head = bytes_of(self.config.hidden_size * self.config.vocab_size // self.chips, self.precision.lm_head)
        return sum(op.ns for op in others) + blocks * product_ns(head // blocks)

    def step_ns(self) -> float:
        """Return the time of one drafted token."""
        assignment = self.assignment
        attentions = sum(
            self.gather_ns() + sum(self.stage_ns(stage) for stage in assignment.stages(group))
            for group in assignment.groups
        )
        return attentions + sum(map(self.rest_ns, range(self.config.num_hidden_layers))) + self.fixed_ns()

    def calibration_ns(self) -> float:
        """Return the time of an exact step, and the keys and values of the chips' own layers."""
        total = DraftCost(self.config, self.chips, 1).step_ns()
        for stage in self.assignment.parallel_stages:
            share = stage.share
            qkv = product_ns(_layer_bytes(self.config, share, self.precision, 0)["qkv"])
            select = (2 * len(stage.layers) - 1) * add_ns(self.chips)
            heads = op_ns(share, "NLPCreateHeadsDecode") + op_ns(share, "RotaryEmbeddingLlama")
            total += select + op_ns(share, "LayerNorm") + qkv + heads + 2 * op_ns(share, "PagedUpdateCache")
        return total

    def drafting_ns(self, length: int) -> float:
        """Return the time of a round's drafting stage: calibration gives the first token, fuzzy steps the others
        (EasySpec, section 3.2). Sequential drafts are calibrated too: the pass is how they take in the accepted
        tokens."""
        return self.calibration_ns() + (length - 1) * self.step_ns()


def tokens_per_round(acceptance: float, length: int) -> float:
    """Return the expected accepted tokens and the one after them, when each is accepted with the chance
    `acceptance`."""
    if not 0 <= acceptance <= 1:
        raise ValueError(f"an acceptance is 0 to 1, got {acceptance}")
    return sum(acceptance**count for count in range(length + 1))


@dataclass(frozen=True)
class Round:
    """A round on a TP group of `chips` chips with drafts of `length` tokens, `size` layers in parallel; nanoseconds."""

    chips: int
    size: int
    length: int

    @property
    def drafting_ns(self) -> float:
        return DraftCost(preset(DRAFT), self.chips, self.size).drafting_ns(self.length)

    @property
    def plain_ns(self) -> float:
        """A step of the target, plain or over the chain."""
        return estimate(CONTEXT, None, self.chips, "tp").token_latency_ns

    def tokens_per_s(self, acceptance: float) -> float:
        """Return the tokens per second of one user."""
        return tokens_per_round(acceptance, self.length) * 1e9 / (self.drafting_ns + self.plain_ns)

    def gain(self, acceptance: float) -> float:
        """Return the gain over plain decoding on the same chips."""
        return self.tokens_per_s(acceptance) * self.plain_ns / 1e9


def table_rows(counts: Sequence[int], size: int, length: int, acceptances: Sequence[float]) -> list[dict[str, float]]:
    """Return the projection as rows, one per number of chips and acceptance: times in ms, tokens/s/user, and gains over
    drafting on the same chips by tensor parallelism, drafting on one chip (EasySpec's baseline) and plain decoding.

    `lossy` columns have the acceptance lowered by what EasySpec loses at most. Errors: ValueError for a size that the
    draft has not.
    """
    config = preset(DRAFT)
    layer_groups(config.num_hidden_layers, size)
    alone, found = DraftCost(config, 1, 1), []
    for chips in counts:
        fuzzy, sequential = (DraftCost(config, chips, n) for n in (size, 1))
        fuzzy_ns, group_ns, alone_ns = (cost.drafting_ns(length) for cost in (fuzzy, sequential, alone))
        plain, drafted = Round(chips, 1, length), Round(chips, size, length)
        shared = {
            "chips": chips,
            "size": size,
            "length": length,
            "sequential_ms": sequential.step_ns() / 1e6,
            "alone_ms": alone.step_ns() / 1e6,
            "fuzzy_ms": fuzzy.step_ns() / 1e6,
            "calibration_ms": fuzzy.calibration_ns() / 1e6,
            "target_ms": drafted.plain_ns / 1e6,
            "over_tensor_parallel": group_ns / fuzzy_ns,
            "over_one_chip": alone_ns / fuzzy_ns,
            "plain_tokens_per_s": 1e9 / drafted.plain_ns,
        }
        for acceptance in acceptances:
            lossy = acceptance * (1 - EASYSPEC_LOSS)
            ways = {"sequential": (plain, acceptance), "fuzzy": (drafted, acceptance), "lossy": (drafted, lossy)}
            cells = {f"{name}_tokens_per_s": way.tokens_per_s(share) for name, (way, share) in ways.items()}
            gains = {f"{name}_gain": way.gain(share) for name, (way, share) in ways.items()}
            found.append(shared | {"acceptance": acceptance} | cells | gains)
    return found


def report(table: Sequence[Mapping[str, float]]) -> str:
    """Return `table_rows` as text, the assumptions first."""
    fixed, rate = product_line()
    first = table[0]
    lines = [f"projection: {DRAFT} drafts {first['length']} tokens per round for {TARGET}, assuming that"]
    lines += [f"  - {text}" for text in ASSUMPTIONS]
    lines.append(f"a product: {fixed / 1e3:.1f} us and {1 / rate:.0f} GB/s")
    shown = 0.0
    for row in table:
        if row["chips"] != shown:
            shown, n = row["chips"], row["size"]
            lines += [
                f"1x{shown}: a draft step takes {row['sequential_ms']:.2f} ms tensor parallel, "
                f"{row['alone_ms']:.2f} ms on one chip, {row['fuzzy_ms']:.2f} ms with N = {n}; "
                f"calibration {row['calibration_ms']:.2f} ms; the target's step {row['target_ms']:.2f} ms",
                f"  drafting stage with N = {n}: {row['over_tensor_parallel']:.2f}x as fast as tensor parallel on "
                f"these chips, {row['over_one_chip']:.2f}x as on one chip, which is EasySpec's baseline (theirs: up to "
                f"{EASYSPEC_SPEEDUP}x)",
                f"  {'acceptance':>12}{'N = 1':>12}{f'N = {n}':>12}{'less 7 %':>12}   tokens/s/user (gain over plain "
                f"{row['plain_tokens_per_s']:.1f})",
            ]
        ways = ("sequential", "fuzzy", "lossy")
        cells = (f"{row[f'{way}_tokens_per_s']:.1f} ({row[f'{way}_gain']:.2f})" for way in ways)
        lines.append(f"  {row['acceptance']:>12.1f}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)
