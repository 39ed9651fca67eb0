# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Stock ttnn operations on the simulated N150 against torch, and the table of what runs there.

With the environment variable LLAMA_ALSPEC_WRITE_OP_COVERAGE=1 a complete run rewrites
runtime_patches/simulated_n150/OP_COVERAGE.md from what it measured.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
import torch
from loguru import logger

from runtime_patches.simulated_n150.testing.tensors import agreement
from runtime_patches.simulated_n150.tests.op_coverage import op_coverage_attention  # noqa: F401 (adds its cases)
from runtime_patches.simulated_n150.tests.op_coverage.op_coverage_cases import CASES, OpCase

TABLE = Path(__file__).resolve().parents[4] / "runtime_patches" / "simulated_n150" / "OP_COVERAGE.md"
VARIABLE = "LLAMA_ALSPEC_WRITE_OP_COVERAGE"


def measure(device, name: str) -> dict:
    """Run the case of that name; its worst figures over all pairs, and the seconds it took."""
    found = next(candidate for candidate in CASES if candidate.name == name)
    started = time.perf_counter()
    pairs = found.run(device)
    seconds = time.perf_counter() - started
    pairs = pairs if isinstance(pairs, list) else [pairs]
    figures = {"pcc": 1.0, "absolute": 0.0, "relative": 0.0, "equal": True, "shape": True, "finite": True}
    for got, expected in pairs:
        figures["shape"] &= got.shape == expected.shape
        got, expected = got.double().flatten(), expected.double().flatten()
        figures["finite"] &= bool(torch.isfinite(got).all())
        if len(got) != len(expected):
            figures["pcc"] = 0.0
            continue
        error = (got - expected).abs()
        figures["pcc"] = min(figures["pcc"], agreement(got, expected))
        figures["absolute"] = max(figures["absolute"], float(error.max()))
        figures["relative"] = max(figures["relative"], float((error / expected.abs().clamp_min(1e-2)).max()))
        figures["equal"] &= torch.equal(got, expected)
    return figures | {"seconds": seconds}


@pytest.fixture(scope="module")
def outcomes():
    """Figures by case; written as the table when every case ran and the variable asks for it."""
    collected: dict[str, dict] = {}
    yield collected
    if os.environ.get(VARIABLE) == "1" and set(collected) == {found.name for found in CASES}:
        TABLE.write_text(render(collected))


def render(collected: dict[str, dict]) -> str:
    """The table in Markdown."""
    lines = [
        "# Stock ttnn operations on the simulated N150",
        "",
        f"Written by runtime_patches/simulated_n150/tests/op_coverage with {VARIABLE}=1; do not edit.",
        "bfloat16 and tensors of one to eight tiles unless noted. PCC and errors are the worst of a case; relative",
        "errors count elements below 0.01 as 0.01. An exact case has to give equal tensors.",
        "",
        "| operation | required | PCC | largest absolute error | largest relative error | note |",
        "|---|---|---|---|---|---|",
    ]
    for found in CASES:
        figures = collected[found.name]
        required = "equal" if found.exact else f"PCC {found.bound}"
        pcc, absolute, relative = (f"{figures[key]:.6g}" for key in ("pcc", "absolute", "relative"))
        lines.append(f"| {found.name} | {required} | {pcc} | {absolute} | {relative} | {found.note} |")
    return "\n".join(lines) + "\n"


def check(found: OpCase, figures: dict) -> None:
    assert figures["shape"], f"{found.name}: the shapes differ"
    assert figures["finite"], f"{found.name}: a result is not finite"
    if found.exact:
        assert figures["equal"], f"{found.name}: not equal, largest error {figures['absolute']:.4g}"
    assert figures["pcc"] >= found.bound, f"{found.name}: PCC {figures['pcc']:.6f} below {found.bound}"


@pytest.mark.sim
@pytest.mark.parametrize("found", sorted(CASES, key=lambda found: found.grid), ids=lambda found: found.name)
def test_op(sim_device, outcomes, found):
    figures = sim_device(found.grid).run(measure, found.name)
    outcomes[found.name] = figures
    logger.info(
        "{}: PCC {:.6f}, largest error {:.4g} absolute, {:.4g} relative, {:.2f} s",
        found.name,
        figures["pcc"],
        figures["absolute"],
        figures["relative"],
        figures["seconds"],
    )
    check(found, figures)


def test_the_committed_table_lists_the_cases():
    """Same operations, in the same order, with the same requirements."""
    rows = [re.split(r" \| ", line.strip("| ")) for line in TABLE.read_text().splitlines() if line.startswith("| ")][1:]
    assert [tuple(row[:2]) for row in rows] == [
        (found.name, "equal" if found.exact else f"PCC {found.bound}") for found in CASES
    ]


def test_names_are_unique():
    names = [found.name for found in CASES]
    assert len(names) == len(set(names))
