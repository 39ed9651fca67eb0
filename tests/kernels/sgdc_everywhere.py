# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: every simulated chip of the session has the SGDC patch, with its gate open.

    python -m pytest -p tests.kernels.sgdc_everywhere -m sim

Loaded with -p, so before conftest.py takes `simulated_environment` from its module. L1 of a fresh simulated
chip is zero, which is an open gate.
"""

from __future__ import annotations

from runtime_patches import sgdc
from runtime_patches.simulated_n150 import environment

_stock = environment.simulated_environment


def simulated_environment(grid="1x1", overlays=None, **options):
    """As the stock one, with the patched stubs added."""
    return _stock(grid, {**sgdc.overlays(), **(overlays or {})}, **options)


environment.simulated_environment = simulated_environment
