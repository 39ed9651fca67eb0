# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Random draws of operation, shape and data type, with a fixed seed, on the simulated chip against torch."""

from __future__ import annotations

import random

import pytest
import torch
from loguru import logger

from runtime_patches.simulated_n150.testing.tensors import agreement
from runtime_patches.simulated_n150.tests.op_coverage.op_coverage_cases import get, normal, put

SEED = 20260821
DRAWS = 18
QUICK = (0, 1, 2, 3, 6, 11, 13, 16)  # every kind and data type; the others need --run-slow
SIDES = (32, 64, 96)
# Operation -> its reference.
UNARY = {
    "exp": torch.exp,
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
    "neg": torch.neg,
    "square": torch.square,
}
BINARY = {"add": torch.add, "subtract": torch.sub, "multiply": torch.mul}
REDUCTIONS = {"sum": lambda x, dim: x.sum(dim), "max": lambda x, dim: x.max(dim).values}
FLOATS = ("bfloat16", "bfloat8_b", "float32")


def draws(seed: int = SEED, count: int = DRAWS) -> list[tuple]:
    """(kind, operation, data type, rows, columns, third number) of every draw; the same for the same seed."""
    rng = random.Random(seed)
    drawn = []
    for number in range(count):
        kind = ("unary", "binary", "reduction", "matmul")[number % 4]
        names = {"unary": UNARY, "binary": BINARY, "reduction": REDUCTIONS, "matmul": {"matmul": None}}[kind]
        # A float32 reduction does not compile for the simulated chip: see OP_COVERAGE.md.
        dtype = rng.choice(("bfloat16",) if kind == "reduction" else FLOATS)
        drawn.append((kind, rng.choice(sorted(names)), dtype, rng.choice(SIDES), rng.choice(SIDES), rng.choice(SIDES)))
    return drawn


def run_draw(device, kind, name, dtype, rows, columns, third, seed):
    """(PCC, largest absolute error) of one draw. Operands are compared as the device holds them, quantised."""
    import ttnn

    a = put(device, normal(rows, columns, seed=seed), dtype)
    x = get(a).float()
    if kind == "unary":
        got, expected = get(getattr(ttnn, name)(a)), UNARY[name](x)
    elif kind == "binary":
        b = put(device, normal(rows, columns, seed=seed + 1), dtype)
        got, expected = get(getattr(ttnn, name)(a, b)), BINARY[name](x, get(b).float())
    elif kind == "reduction":
        dim = -1 if third == 32 else 0
        got, expected = get(getattr(ttnn, name)(a, dim=dim)), REDUCTIONS[name](x, dim)
    else:
        b = put(device, normal(columns, third, seed=seed + 1), dtype)
        got, expected = get(ttnn.matmul(a, b)), x @ get(b).float()
    assert got.shape == expected.shape, f"{name}: {tuple(got.shape)} instead of {tuple(expected.shape)}"
    return agreement(got, expected), float((got.float() - expected).abs().max())


@pytest.mark.sim
@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in range(DRAWS)],
    ids=lambda n: "-".join(map(str, draws()[n])),
)
def test_drawn(sim_device, number):
    drawn = draws()[number]
    pcc, error = sim_device("1x1").run(run_draw, *drawn, seed=number)
    logger.info("{}: PCC {:.6f}, largest error {:.4g}", drawn, pcc, error)
    assert pcc >= 0.999


def test_draws_are_the_same_every_time_and_cover_every_kind():
    assert draws() == draws() != draws(SEED + 1)
    quick = [draws()[number] for number in QUICK]
    assert {drawn[0] for drawn in quick} == {"unary", "binary", "reduction", "matmul"}
    assert {drawn[2] for drawn in quick} == set(FLOATS)
