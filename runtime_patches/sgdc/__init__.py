# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Static graph, dynamic concurrency: a gate in the kernel stubs of tt-metal (ALSpec paper, section 4.2).

``python -m runtime_patches.sgdc apply|check|where [--root PATH]``; the README says how the gate works.
"""

from runtime_patches.sgdc.patch import (
    SUPPORTED_VERSIONS,
    UNGATED_DEFINE,
    GateState,
    StubMismatchError,
    UnpatchedRuntimeError,
    apply_to_checkout,
    build_patched_root,
    describe,
    overlays,
    require_patched,
    runtime_in_use,
    state,
)

__all__ = [
    "SUPPORTED_VERSIONS",
    "UNGATED_DEFINE",
    "GateState",
    "StubMismatchError",
    "UnpatchedRuntimeError",
    "apply_to_checkout",
    "build_patched_root",
    "describe",
    "overlays",
    "require_patched",
    "runtime_in_use",
    "state",
]
