# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Every operation of the vector layer on the simulated chip, on pairs of edge values and random ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from loguru import logger

from runtime_patches.simulated_n150.tests.compiler.sfpu import hardware_rules as hw
from runtime_patches.simulated_n150.tests.compiler.sfpu.vector_expressions import GROUPS

pytestmark = pytest.mark.sim

EDGES = np.array(
    [
        0x00000000, 0x80000000,  # zeros
        0x00000001, 0x007FFFFF, 0x80000001,  # denormals
        0x00800000, 0x7F7FFFFF, 0xFF7FFFFF,  # smallest and largest
        0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0xFFFFFFFF,  # infinities and NaN
        0x3F000000, 0xBF000000, 0x3F800000, 0xBF800000,
        0x3FC00000, 0x40000000, 0xC0200000, 0x40600000,  # ties of integers
        0x3F808000, 0xBF818000, 0x3F801000,  # halfway between two BF16, and two FP16
        0x437F8000, 0x46FFFF00, 0x477FFF80, 0xC7800000,  # around 255.5, 32767.5, 65535.5, beyond
        0x00000011, 0x0000FFFF, 0x12345678, 0x87654321,
    ],
    dtype=np.uint32,
)  # fmt: skip


def random_patterns(seed: int) -> np.ndarray:
    """[32, 32] words: half ordinary floats of like size, a quarter small integers, a quarter any bits."""
    draw = np.random.default_rng(seed)
    ordinary = draw.integers(120, 134, 1024) << 23 | draw.integers(0, 1 << 23, 1024) | draw.integers(0, 2, 1024) << 31
    small = draw.integers(-40, 40, 1024) & 0xFFFFFFFF
    anything = draw.integers(0, 1 << 32, 1024)
    chosen = np.choose(draw.integers(0, 4, 1024), (ordinary, ordinary, small, anything))
    return chosen.astype(np.uint32).reshape(32, 32)


def operands(source: str) -> tuple[np.ndarray, np.ndarray]:
    if source == "edges":
        return np.repeat(EDGES, 32).reshape(32, 32), np.tile(EDGES, 32).reshape(32, 32)
    return random_patterns(11), random_patterns(12)


def mismatches(case, x: np.ndarray, y: np.ndarray, got: np.ndarray) -> np.ndarray:
    """[32, 32] bool: where `got` breaks the rule."""
    expected = np.broadcast_to(case.rule(x, y), got.shape).astype(np.uint32)
    wrong = got != expected
    if case.kind == "float":
        both_nan = hw.is_nan(got) & hw.is_nan(expected)
        near = np.abs(hw.order(got) - hw.order(expected)) <= 1
        wrong &= ~both_nan & ~(near & ~hw.is_nan(got) & ~hw.is_nan(expected))
    elif case.kind == "fused":
        # The product has more bits than FP32, not all: an error of its last FP32 bit, and its overflow, are
        # open.
        with np.errstate(all="ignore"):
            product = np.abs(hw.floats(hw.flush(x)).astype(float) * hw.floats(hw.flush(y)).astype(float))
            error = np.abs(hw.floats(got).astype(float) - hw.floats(expected).astype(float))
            close = (error <= product * 2.0**-22) | (product > np.finfo(np.float32).max)
        near = np.abs(hw.order(got) - hw.order(expected)) <= 1
        wrong &= ~(hw.is_nan(got) & hw.is_nan(expected)) & ~close & ~near
    elif case.kind == "difference":
        open_lanes = hw.is_nan(x) | hw.is_nan(y) | ((hw.exponent(x) == 255) & (hw.exponent(y) == 255))
        wrong &= ~open_lanes
    return wrong


def run_on(device, x: np.ndarray, y: np.ndarray, expressions: list[str]) -> np.ndarray:
    from runtime_patches.simulated_n150.tests.compiler.sfpu.vector_probe import run_expressions

    def words(values):
        return torch.from_numpy(values.view(np.int32).copy())

    return run_expressions(device, words(x), words(y), expressions).numpy().view(np.uint32)


@pytest.mark.parametrize("source", ["edges", "random"])
@pytest.mark.parametrize("group", GROUPS)
def test_operations(sim_device, group, source):
    cases = GROUPS[group]
    x, y = operands(source)
    got = sim_device("1x1").run(run_on, x, y, [case.expression for case in cases])
    report = []
    for case, result in zip(cases, got):
        wrong = mismatches(case, x, y, result)
        if wrong.any():
            r, c = np.argwhere(wrong)[0]
            expected = np.broadcast_to(case.rule(x, y), result.shape)[r, c]
            report.append(
                f"{case.expression}: {wrong.sum()} lanes, first x={x[r, c]:#010x} y={y[r, c]:#010x}: "
                f"{result[r, c]:#010x}, the rule says {int(expected):#010x}"
            )
    logger.info("{} expressions of group {} on {} operands: {} wrong", len(cases), group, source, len(report))
    assert not report, "\n".join(report)


def test_the_comparison_finds_a_wrong_bit():
    """The check itself: one flipped bit, a wrong NaN and a wrong flag are each noticed."""
    x, y = operands("edges")
    cases = {case.expression: case for group in GROUPS.values() for case in group}
    for expression in ("u & w", "x * y", "flag(x < y)"):
        case = cases[expression]
        right = np.broadcast_to(case.rule(x, y), x.shape).astype(np.uint32)
        assert not mismatches(case, x, y, right).any()
        broken = right.copy()
        broken[15, 17] ^= np.uint32(0x00010001)
        assert mismatches(case, x, y, broken).sum() == 1
