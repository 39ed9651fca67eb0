# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The stock ttnn operations the model uses, each as a small case with its torch reference.

A case is a function of the open device that returns (got, expected), two torch tensors, or a list of such
pairs. It runs in the device's process, so ttnn is imported inside. Shapes are one to four tiles: the point is
that the kernel runs and computes the right thing, not that it is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

BOUND = 0.999


@dataclass(frozen=True)
class OpCase:
    """name: of the test. run: the case. exact: results must be equal. bound: least PCC. note: what is
    compared.

    grid: of compute cores.
    """

    name: str
    run: Callable
    exact: bool = False
    bound: float = BOUND
    note: str = ""
    grid: str = "1x1"


CASES: list[OpCase] = []


def case(name: str, **options):
    def add(function):
        CASES.append(OpCase(name, function, **options))
        return function

    return add


def normal(*shape: int, seed: int = 0, dtype=torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(low: int, high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


def put(device, tensor: torch.Tensor, dtype: str = "bfloat16", layout: str = "TILE_LAYOUT", **options):
    import ttnn

    return ttnn.from_torch(tensor, dtype=getattr(ttnn, dtype), layout=getattr(ttnn, layout), device=device, **options)


def get(tensor) -> torch.Tensor:
    import ttnn

    return ttnn.to_torch(tensor)


# -- matmul -------------------------------------------------------------------------------------------------

WEIGHT_NOTE = "against torch on the weights as quantised, since quantisation itself costs more than 0.001 of PCC"


def _matmul(device, weight_dtype):
    import ttnn

    a, w = normal(32, 64), normal(64, 64, seed=1)
    weights = put(device, w, weight_dtype)
    return get(ttnn.matmul(put(device, a), weights)), a.float() @ get(weights).float()


@case("matmul_bfloat16")
def matmul_bfloat16(device):
    return _matmul(device, "bfloat16")


@case("matmul_bfloat8_b_weights", note=WEIGHT_NOTE)
def matmul_bfloat8_b(device):
    return _matmul(device, "bfloat8_b")


@case("matmul_bfloat4_b_weights", note=WEIGHT_NOTE)
def matmul_bfloat4_b(device):
    return _matmul(device, "bfloat4_b")


@case("matmul_fp32_accumulation_and_l1_accumulation", note="K in four blocks, summed in L1 by the packers")
def matmul_accumulating(device):
    import ttnn

    a, w = normal(32, 128), normal(128, 32, seed=1)
    config = ttnn.WormholeComputeKernelConfig(
        math_fidelity=ttnn.MathFidelity.HiFi4, fp32_dest_acc_en=True, packer_l1_acc=True
    )
    program = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(1, 1),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=1,
        transpose_mcast=False,
        fused_activation=None,
    )
    out = ttnn.matmul(put(device, a), put(device, w), program_config=program, compute_kernel_config=config)
    return get(out), a.float() @ w.float()


@case("linear_bias_silu")
def linear(device):
    import ttnn

    a, w, b = normal(32, 64), normal(64, 64, seed=1) * 0.2, normal(1, 64, seed=2)
    out = ttnn.linear(put(device, a), put(device, w), bias=put(device, b), activation="silu")
    return get(out), F.silu(a.float() @ w.float() + b.float())


@case("linear_bfloat8_b_weights", note=WEIGHT_NOTE)
def linear_bfloat8_b(device):
    import ttnn

    a, w = normal(32, 64), normal(64, 64, seed=1)
    weights = put(device, w, "bfloat8_b")
    return get(ttnn.linear(put(device, a), weights)), a.float() @ get(weights).float()


@case("linear_bfloat4_b_weights", note=WEIGHT_NOTE)
def linear_bfloat4_b(device):
    import ttnn

    a, w = normal(32, 64), normal(64, 64, seed=1)
    weights = put(device, w, "bfloat4_b")
    return get(ttnn.linear(put(device, a), weights)), a.float() @ get(weights).float()


# -- elementwise --------------------------------------------------------------------------------------------


def _unary(device, name, reference, x):
    import ttnn

    return get(getattr(ttnn, name)(put(device, x))), reference(x.float())


def _binary(device, name, reference, dtype="bfloat16"):
    import ttnn

    a, b = put(device, normal(32, 64), dtype), put(device, normal(32, 64, seed=1), dtype)
    return get(getattr(ttnn, name)(a, b)), reference(get(a).float(), get(b).float())


@case("add")
def add(device):
    return _binary(device, "add", torch.add)


@case("add_float32", note="float32 operands")
def add_float32(device):
    return _binary(device, "add", torch.add, "float32")


@case("add_bfloat8_b", note="operands and result as quantised; the reference's result is quantised by the host")
def add_bfloat8_b(device):
    got, expected = _binary(device, "add", torch.add, "bfloat8_b")
    return got, get(put(device, expected.bfloat16(), "bfloat8_b"))


@case("mul")
def mul(device):
    return _binary(device, "mul", torch.mul)


@case("add_broadcast_row")
def add_broadcast(device):
    import ttnn

    a, b = normal(32, 64), normal(1, 64, seed=1)
    return get(ttnn.add(put(device, a), put(device, b))), a.float() + b.float()


@case("silu")
def silu(device):
    return _unary(device, "silu", F.silu, normal(32, 64) * 3)


@case("exp")
def exp(device):
    return _unary(device, "exp", torch.exp, normal(32, 64))


@case("reciprocal")
def reciprocal(device):
    return _unary(device, "reciprocal", torch.reciprocal, normal(32, 64).abs() + 0.25)


@case("rsqrt")
def rsqrt(device):
    return _unary(device, "rsqrt", torch.rsqrt, normal(32, 64).abs() + 0.25)


@case("where", exact=True)
def where(device):
    import ttnn

    condition = (normal(32, 64) > 0).bfloat16()
    a, b = normal(32, 64, seed=1), normal(32, 64, seed=2)
    out = ttnn.where(put(device, condition), put(device, a), put(device, b))
    return get(out), torch.where(condition > 0, a, b)


@case("comparisons", exact=True, note="gt lt ge le eq ne, of tensors, one third of the elements equal")
def comparisons(device):
    import ttnn

    a = integers(-3, 4, 32, 64).bfloat16()
    b = integers(-3, 4, 32, 64, seed=1).bfloat16()
    left, right = put(device, a), put(device, b)
    names = ("gt", "lt", "ge", "le", "eq", "ne")
    return [(get(getattr(ttnn, n)(left, right)), getattr(torch, n)(a, b).bfloat16()) for n in names]


# -- normalisation and reduction ----------------------------------------------------------------------------


@case("rms_norm")
def rms_norm(device):
    import ttnn

    x, weight = normal(32, 64), normal(1, 64, seed=1)
    out = ttnn.rms_norm(put(device, x), weight=put(device, weight), epsilon=1e-5)
    scaled = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    return get(out), scaled * weight.float()


@case("softmax")
def softmax(device):
    import ttnn

    x = normal(32, 64) * 2
    return get(ttnn.softmax(put(device, x), dim=-1)), torch.softmax(x.float(), -1)


@case("sum_last_dimension")
def sum_last(device):
    import ttnn

    x = normal(32, 64)
    return get(ttnn.sum(put(device, x), dim=-1)), x.float().sum(-1)


@case("sum_and_mean_last_dimension_float32", note="one tile, by the vector unit")
def sum_last_float32(device):
    import ttnn

    x = normal(32, 32, dtype=torch.float32)
    held = put(device, x, "float32")
    found = [get(ttnn.sum(held, dim=-1)), get(ttnn.mean(held, dim=-1))]
    return torch.stack(found), torch.stack([x.sum(-1), x.mean(-1)])


@case("sum_last_dimension_float32_of_two_tiles")
def sum_last_float32_wide(device):
    import ttnn

    x = normal(32, 64, dtype=torch.float32)
    return get(ttnn.sum(put(device, x, "float32"), dim=-1)), x.sum(-1)


@case("sum_first_dimension")
def sum_first(device):
    import ttnn

    x = normal(64, 32)
    return get(ttnn.sum(put(device, x), dim=0)), x.float().sum(0)


@case("sum_first_dimension_float32")
def sum_first_float32(device):
    import ttnn

    x = normal(96, 64, dtype=torch.float32)
    return get(ttnn.sum(put(device, x, "float32"), dim=0)), x.sum(0)


@case("max_last_dimension", exact=True)
def max_last(device):
    import ttnn

    x = normal(32, 64) - 4
    return get(ttnn.max(put(device, x), dim=-1)), x.max(-1).values


@case("max_first_dimension", exact=True)
def max_first(device):
    import ttnn

    x = normal(64, 32) - 4
    return get(ttnn.max(put(device, x), dim=0)), x.max(0).values


@case("argmax", exact=True)
def argmax(device):
    import ttnn

    x = torch.stack([torch.randperm(64, generator=torch.Generator().manual_seed(row)) for row in range(32)])
    out = ttnn.argmax(put(device, x.bfloat16(), layout="ROW_MAJOR_LAYOUT"), dim=-1)
    return get(out).to(torch.int64), x.argmax(-1)


@case("topk", exact=True, note="values, and the index of every value")
def topk(device):
    import ttnn

    x = torch.stack([torch.randperm(64, generator=torch.Generator().manual_seed(row)) for row in range(32)])
    values, indices = ttnn.topk(put(device, x.bfloat16()[None, None]), k=32, dim=-1, largest=True, sorted=True)
    expected = x.topk(32, -1)
    pairs = (get(values)[0, 0].long(), expected.values), (get(indices)[0, 0].long(), expected.indices)
    return list(pairs)


# -- data movement ------------------------------------------------------------------------------------------


@case("embedding", exact=True)
def embedding(device):
    import ttnn

    table, tokens = normal(64, 64), integers(0, 64, 1, 32)
    indices = put(device, tokens, "uint32", "ROW_MAJOR_LAYOUT")
    out = ttnn.embedding(indices, put(device, table, layout="ROW_MAJOR_LAYOUT"), layout=ttnn.TILE_LAYOUT)
    return get(out), F.embedding(tokens.long(), table)


@case("concat", exact=True)
def concat(device):
    import ttnn

    a, b = normal(32, 64), normal(32, 32, seed=1)
    return get(ttnn.concat([put(device, a), put(device, b)], dim=-1)), torch.cat([a, b], -1)


@case("slice", exact=True, note="tile-aligned and, on rows of datums, unaligned")
def slice_(device):
    import ttnn

    x = normal(64, 64)
    tiled = ttnn.slice(put(device, x), [32, 0], [64, 32])
    rows = ttnn.slice(put(device, x, layout="ROW_MAJOR_LAYOUT"), [3, 8], [21, 40])
    return [(get(tiled), x[32:64, :32]), (get(rows), x[3:21, 8:40])]


@case("transpose", exact=True)
def transpose(device):
    import ttnn

    x = normal(1, 1, 32, 64)
    return get(ttnn.transpose(put(device, x), -2, -1)), x.transpose(-2, -1)


@case("permute", exact=True)
def permute(device):
    import ttnn

    x = normal(1, 2, 32, 64)
    return get(ttnn.permute(put(device, x), (0, 2, 1, 3))), x.permute(0, 2, 1, 3)


@case("reshape", exact=True)
def reshape(device):
    import ttnn

    x = normal(1, 1, 64, 32)
    return get(ttnn.reshape(put(device, x), (1, 2, 32, 32))), x.reshape(1, 2, 32, 32)


@case("pad", exact=True)
def pad(device):
    import ttnn

    x = normal(1, 1, 32, 32)
    out = ttnn.pad(put(device, x), [(0, 0), (0, 0), (0, 32), (0, 0)], value=0.5)
    return get(out), F.pad(x, (0, 0, 0, 32), value=0.5)


@case("tilize", exact=True)
def tilize(device):
    import ttnn

    x = normal(64, 64)
    return get(ttnn.to_layout(put(device, x, layout="ROW_MAJOR_LAYOUT"), ttnn.TILE_LAYOUT)), x


@case("untilize", exact=True)
def untilize(device):
    import ttnn

    x = normal(64, 64)
    return get(ttnn.to_layout(put(device, x), ttnn.ROW_MAJOR_LAYOUT)), x


def _typecast(device, x, source, target):
    import ttnn

    out = ttnn.typecast(put(device, x, source), getattr(ttnn, target))
    return get(out), get(put(device, x, target))


@case("typecast_float32_and_bfloat16", exact=True)
def typecast_floats(device):
    x = normal(32, 32)
    widened = _typecast(device, x, "bfloat16", "float32")
    return [widened, _typecast(device, x.float(), "float32", "bfloat16")]


def packed(x: torch.Tensor, bits: int) -> torch.Tensor:
    """What the packers make of bfloat16 values in 8 or 4 bits with one exponent for 16, by the documentation.

    Packers/FormatConversion.md: rounded to a 7-bit magnitude below the largest exponent of the 16, to nearest
    with ties away from zero; bfloat4_b truncates that to three bits. tt-metal's intermediate format is
    bfloat16 on the way to bfloat8_b, and one with six fraction bits, rounded to as well, on the way to
    bfloat4_b.
    """
    groups = x.double().reshape(-1, 16)
    if bits == 4:
        fraction, exponent = torch.frexp(groups)
        groups = torch.ldexp(torch.sign(fraction) * torch.floor(fraction.abs() * 128 + 0.5) / 128, exponent)
    largest = torch.frexp(groups.abs().amax(1, keepdim=True)).exponent
    steps = torch.floor(torch.ldexp(groups.abs(), 7 - largest) + 0.5).clamp(max=127)
    if bits == 4:
        steps = torch.floor(steps / 16) * 16
    return torch.ldexp(torch.sign(groups) * steps, largest - 7).reshape(x.shape).float()


@case("typecast_to_and_from_bfloat8_b", exact=True, note="the reference packs as the hardware documentation says")
def typecast_bfloat8_b(device):
    return _typecast_block_float(device, "bfloat8_b", 8)


@case(
    "typecast_to_and_from_bfloat4_b",
    exact=True,
    note="as for bfloat8_b; packers truncate to 4 bits, the host rounds",
)
def typecast_bfloat4_b(device):
    return _typecast_block_float(device, "bfloat4_b", 4)


def _typecast_block_float(device, name, bits):
    import ttnn

    x = normal(32, 64)
    narrowed = get(ttnn.typecast(put(device, x), getattr(ttnn, name)))
    quantised = put(device, x, name)
    widened = get(ttnn.typecast(quantised, ttnn.bfloat16))
    return [(narrowed.float(), packed(x, bits)), (widened.float(), get(quantised).float())]


@case("typecast_integers", exact=True, note="uint32, int32 and uint16 from bfloat16 and back")
def typecast_integers(device):
    import ttnn

    x = integers(0, 200, 32, 32).bfloat16()
    pairs = []
    for name in ("uint32", "int32", "uint16"):
        there = ttnn.typecast(put(device, x), getattr(ttnn, name))
        pairs.append((get(there).long(), x.long()))
        pairs.append((get(ttnn.typecast(there, ttnn.bfloat16)), x))
    return pairs
