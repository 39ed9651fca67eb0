# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Vector functions of the wheel, compiled unchanged, and what torch says of them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as nn


def word(value: float) -> str:
    """A float argument as kernels take it: its bits."""
    return f"{struct.unpack('<I', struct.pack('<f', value))[0]:#x}u"


@dataclass(frozen=True)
class Function:
    """`reference` of tiles a and b, drawn from N(0, 1) and mapped by `domain`."""

    name: str
    header: str
    initialization: str
    call: str
    reference: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    domain: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
    exact: bool = False


def unary(name, reference, header=None, domain=lambda x: x, call=None, initialization=None, exact=False):
    return Function(
        name,
        f"eltwise_unary/{header or name}.h" if header != "" else "",
        initialization or f"{name}_tile_init()",
        call or f"{name}_tile(0)",
        lambda a, b: reference(a),
        domain,
        exact,
    )


def with_scalar(name, header, reference, value, domain=lambda x: x):
    """An exact function of a tile and one scalar."""
    return unary(name, reference, header, domain, f"{name}_tile(0, {word(value)})", exact=True)


def positive(x):
    return x.abs() + 0.05


def inside(x):
    return x.clamp(-3, 3) / 3.2


EXPONENTIAL = [
    unary("exp", torch.exp),
    unary("recip", torch.reciprocal, domain=lambda x: x + 0.05 * torch.sign(x)),
    unary("rsqrt", torch.rsqrt, domain=positive),
    unary("sqrt", torch.sqrt, domain=positive),
    unary("silu", nn.silu, header=""),
    unary("gelu", nn.gelu, initialization="gelu_tile_init<false>()", call="gelu_tile<false>(0)"),
    unary("gelu_tanh", lambda x: nn.gelu(x, approximate="tanh"), header="gelu"),
    unary("sigmoid", torch.sigmoid, header=""),
    unary("tanh", torch.tanh, header=""),
    unary("log", torch.log, header="", domain=positive),
    unary("exp2", torch.exp2, header=""),
    unary("expm1", torch.expm1, header=""),
    unary("log1p", torch.log1p, domain=positive),
    unary("erf", torch.erf, header="erf_erfc"),
    unary("softplus", nn.softplus, call=f"softplus_tile(0, {word(1.0)}, {word(1.0)}, {word(20.0)})"),
]
MINIMUM = [
    unary("relu", torch.relu, exact=True),
    unary("relu_max", lambda x: x.clamp(0, 0.5), header="relu", call=f"relu_max_tile(0, {word(0.5)})"),
    unary("abs", torch.abs, header="", exact=True),
    unary("negative", torch.neg, exact=True),
    unary("square", torch.square, header=""),
    unary("sign", torch.sign, header="", exact=True),
    unary("clamp", lambda x: x.clamp(-0.5, 1.0), exact=True,
          call=f"clamp_tile(0, {word(-0.5)}, {word(1.0)})"),
    with_scalar("unary_max", "", lambda x: x.clamp_min(0.25), 0.25),
    with_scalar("unary_min", "", lambda x: x.clamp_max(0.25), 0.25),
    with_scalar("unary_gt", "comp", lambda x: (x > 0.25).float(), 0.25),
    with_scalar("unary_lt", "comp", lambda x: (x < 0.25).float(), 0.25),
    with_scalar("unary_eq", "comp", lambda x: (x == 1.0).float(), 1.0, torch.round),
    with_scalar("unary_ne", "comp", lambda x: (x != 1.0).float(), 1.0, torch.round),
    unary("ltz", lambda x: (x < 0).float(), header="comp", exact=True),
    unary("gtz", lambda x: (x > 0).float(), header="comp", exact=True),
    unary("isinf", lambda x: x.isinf().float(), header="isinf_isnan", exact=True,
          domain=lambda x: 1 / torch.round(x)),
    unary("logical_not", lambda x: (x == 0).float(), domain=lambda x: torch.round(x) + 0.0, exact=True,
          call="logical_not_tile<DataFormat::Float16_b>(0)"),
    unary("floor", torch.floor, header="rounding", initialization="rounding_op_tile_init()", exact=True,
          domain=lambda x: 4 * x),
    unary("ceil", torch.ceil, header="rounding", initialization="rounding_op_tile_init()", exact=True,
          domain=lambda x: 4 * x),
    unary("trunc", torch.trunc, header="rounding", initialization="rounding_op_tile_init()", exact=True,
          domain=lambda x: 4 * x),
]  # fmt: skip
TRIGONOMETRY = [
    unary("sin", torch.sin, header="trigonometry"),
    unary("cos", torch.cos, header="trigonometry"),
    unary("atan", torch.atan, header="trigonometry"),
    unary("asin", torch.asin, header="trigonometry", domain=inside),
    unary("acosh", torch.acosh, header="trigonometry", domain=lambda x: x.abs() + 1.1),
    unary("erfinv", torch.erfinv, domain=inside),
    unary("cbrt", lambda x: torch.sign(x) * x.abs() ** (1 / 3)),
    unary("i0", torch.special.i0),
    unary("i1", torch.special.i1),
    unary("elu", nn.elu, call=f"elu_tile(0, {word(1.0)})"),
    unary(
        "fmod",
        lambda x: torch.fmod(x, 0.75),
        initialization=f"fmod_tile_init({word(0.75)}, {word(1 / 0.75)})",
    ),
    unary("leaky_relu", lambda x: nn.leaky_relu(x, 0.1), header="relu", call=f"leaky_relu_tile(0, {word(0.1)})"),
    unary("tanhshrink", lambda x: x - torch.tanh(x)),
]


def binary(name, reference, domain=lambda x: x, exact=False, header="eltwise_binary_sfpu.h"):
    return Function(name, header, f"{name}_tile_init()", f"{name}_tile(0, 1, 0)", reference, domain, exact)


BINARY = [
    binary("add_binary", torch.add),
    binary("sub_binary", torch.sub),
    binary("mul_binary", torch.mul),
    binary("div_binary", torch.div, domain=lambda x: x + torch.sign(x)),
    binary("power_binary", torch.pow, domain=positive),
    binary("binary_max", torch.maximum, exact=True, header="binary_max_min.h"),
    binary("binary_min", torch.minimum, exact=True, header="binary_max_min.h"),
    Function("copy_dest", "copy_dest_values.h", "copy_dest_values_init()",
             "copy_dest_values<DataFormat::Float16_b>(1, 0)", lambda a, b: b, exact=True),
]  # fmt: skip

GROUPS = {"exponential": EXPONENTIAL, "minimum": MINIMUM, "trigonometry": TRIGONOMETRY, "binary": BINARY}
