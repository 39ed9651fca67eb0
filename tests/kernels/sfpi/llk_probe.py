# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the wheel's own vector functions, several in one compute kernel. Imported in workers only."""

from __future__ import annotations

import torch
import ttnn
from vector_probe import COPY_IN, COPY_OUT

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
    kind = getattr(ttnn, dtype)
    size = 1024 * (2 if dtype == "bfloat16" else 4)

    def tile(values):
        return ttnn.from_torch(values, dtype=kind, layout=ttnn.TILE_LAYOUT, device=device)

    first, second, out = tile(a), tile(b), tile(torch.zeros(32 * len(functions), 32))
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 0))])

    def kernel(source, config, compile_args=(), common=()):
        return ttnn.KernelDescriptor(
            kernel_source=source.replace("4096", str(size)),
            source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
            core_ranges=cores,
            compile_time_args=list(compile_args),
            common_runtime_args=list(common),
            config=config,
        )

    def accessor(tensor):
        return list(ttnn.TensorAccessorArgs(tensor).get_compile_time_args())

    def buffer(index):
        page = ttnn.CBFormatDescriptor(buffer_index=index, data_format=kind, page_size=size)
        return ttnn.CBDescriptor(total_size=size, core_ranges=cores, format_descriptors=[page])

    headers = dict.fromkeys(header for header, _, _ in functions if header)
    includes = "\n".join(f'#include "api/compute/{header}"' for header in headers)
    probes = "\n".join(
        f"    probe([]() {{ {initialization}; }}, []() {{ {call}; }});"
        for _, initialization, call in functions
    )
    compute = ttnn.ComputeConfigDescriptor(fp32_dest_acc_en=dtype == "float32")
    if dtype == "float32":
        modes = [ttnn.UnpackToDestMode.UnpackToDestFp32] * 2 + [ttnn.UnpackToDestMode.Default] * 30
        compute.unpack_to_dest_mode = ttnn._ttnn.program_descriptor.VectorUnpackToDestMode(modes)
    kernels = [
        kernel(
            COPY_IN,
            ttnn.ReaderConfigDescriptor(),
            [*accessor(first), *accessor(second)],
            [first.buffer_address(), second.buffer_address()],
        ),
        kernel(
            COPY_OUT, ttnn.WriterConfigDescriptor(), accessor(out), [out.buffer_address(), len(functions)]
        ),
        kernel(COMPUTE.replace("@INCLUDES@", includes).replace("@PROBES@", probes), compute),
    ]
    program = ttnn.ProgramDescriptor(
        kernels=kernels, semaphores=[], cbs=[buffer(index) for index in range(3)]
    )
    ttnn.generic_op([first, second, out], program)
    return ttnn.to_torch(out).float().reshape(len(functions), 32, 32)
