# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The wheel's own vector functions against torch on the simulated chip."""

from __future__ import annotations

import pytest
import torch
from loguru import logger

from runtime_patches.simulated_n150.testing.tensors import agreement
from runtime_patches.simulated_n150.tests.compiler.sfpu.llk_functions import GROUPS

pytestmark = pytest.mark.sim

PCC = 0.999


def run_together(device, a, b, functions, dtype):
    from runtime_patches.simulated_n150.tests.compiler.sfpu.llk_probe import run_functions

    return run_functions(device, a, b, functions, dtype)


@pytest.mark.parametrize("group", GROUPS)
def test_functions(sim_device, group):
    """bfloat16 tiles of N(0, 1), mapped to a function's domain; one kernel for all functions of a domain."""
    draw = torch.Generator().manual_seed(5)
    a, b = (torch.randn(32, 32, generator=draw).bfloat16().float() for _ in range(2))
    by_domain: dict = {}
    for function in GROUPS[group]:
        by_domain.setdefault(function.domain, []).append(function)
    report = []
    for domain, functions in by_domain.items():
        x, y = (domain(t).bfloat16().float() for t in (a, b))
        sources = [(f.header, f.initialization, f.call) for f in functions]
        for function, got in zip(functions, sim_device("1x1").run(run_together, x, y, sources, "bfloat16")):
            expected = function.reference(x, y).bfloat16().float()
            pcc = agreement(got, expected)
            error = (got - expected).abs()
            relative = (error / expected.abs().clamp_min(1e-3)).max()
            logger.info("{}: PCC {:.6f}, max abs {:.3g}, max rel {:.3g}", function.name, pcc, error.max(), relative)
            if pcc < PCC or (function.exact and not torch.equal(got, expected)):
                row, column = divmod(int(error.nan_to_num(torch.inf).argmax()), 32)
                report.append(
                    f"{function.name}: PCC {pcc:.6f}, worst at {x[row, column]:.6g}, {y[row, column]:.6g}: "
                    f"{got[row, column]:.6g}, torch {expected[row, column]:.6g}"
                )
    assert not report, "\n".join(report)
