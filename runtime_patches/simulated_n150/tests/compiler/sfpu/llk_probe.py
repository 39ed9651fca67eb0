# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the wheel's own vector functions, several in one compute kernel. Imported in workers only."""

from __future__ import annotations

import torch
import ttnn

from runtime_patches.simulated_n150.tests.compiler.sfpu.vector_probe import run_probes

COMPUTE = """
#include "api/compute/common.h"
#include "api/compute/compute_kernel_api.h"
#include "api/compute/tile_move_copy.h"
#include "api/compute/eltwise_unary/eltwise_unary.h"
@INCLUDES@

template <class Initialize, class Apply>
__attribute__((noinline)) void probe(Initialize initialize, Apply apply) {
    tile_regs_acquire();
    copy_tile_to_dst_init_short(0);
    copy_tile(0, 0, 0);
    copy_tile(1, 0, 1);
    initialize();
    apply();
    tile_regs_commit();
    tile_regs_wait();
    cb_reserve_back(2, 1);
    pack_tile(0, 2);
    cb_push_back(2, 1);
    tile_regs_release();
}

void kernel_main() {
    unary_op_init_common(0, 2);
    cb_wait_front(0, 1);
    cb_wait_front(1, 1);
@PROBES@
}
"""


def run_functions(
    device, a: torch.Tensor, b: torch.Tensor, functions: list[tuple[str, str, str]], dtype: str
) -> torch.Tensor:
    """Each function on its own copy of tile a in destination 0 and b in 1; destination 0 is the result.

    a, b: float32 [32, 32]; functions: (header, initialization, call); dtype: "bfloat16" or "float32", of
    operands and destination. Returns float32 [functions, 32, 32].
    """
    headers = dict.fromkeys(header for header, _, _ in functions if header)
    includes = "\n".join(f'#include "api/compute/{header}"' for header in headers)
    probes = "\n".join(
        f"    probe([]() {{ {initialization}; }}, []() {{ {call}; }});" for _, initialization, call in functions
    )
    source = COMPUTE.replace("@INCLUDES@", includes).replace("@PROBES@", probes)
    straight = 2 if dtype == "float32" else 0
    return run_probes(device, a, b, source, len(functions), getattr(ttnn, dtype), straight).float()
