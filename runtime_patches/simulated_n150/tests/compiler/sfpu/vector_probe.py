# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Runs vector expressions: one compute kernel for a list of C++ expressions over two tiles of raw bits.

Imported in workers only. In an expression x, y are the operands as vFloat, i, j as vInt and u, w as vUInt.
"""

from __future__ import annotations

import torch
import ttnn

COPY_IN = """
#include "api/dataflow/dataflow_api.h"
void kernel_main() {
    constexpr auto a_args = TensorAccessorArgs<0>();
    constexpr auto b_args = TensorAccessorArgs<a_args.next_compile_time_args_offset()>();
    const uint32_t addresses[2] = {get_common_arg_val<uint32_t>(0), get_common_arg_val<uint32_t>(1)};
    const auto a = TensorAccessor(a_args, addresses[0], @TILE_BYTES@);
    const auto b = TensorAccessor(b_args, addresses[1], @TILE_BYTES@);
    for (uint32_t buffer = 0; buffer < 2; ++buffer) {
        cb_reserve_back(buffer, 1);
        noc_async_read(buffer ? b.get_noc_addr(0) : a.get_noc_addr(0), get_write_ptr(buffer), @TILE_BYTES@);
        noc_async_read_barrier();
        cb_push_back(buffer, 1);
    }
}
"""

COPY_OUT = """
#include "api/dataflow/dataflow_api.h"
void kernel_main() {
    constexpr auto out_args = TensorAccessorArgs<0>();
    const auto out = TensorAccessor(out_args, get_common_arg_val<uint32_t>(0), @TILE_BYTES@);
    const uint32_t tiles = get_common_arg_val<uint32_t>(1);
    for (uint32_t tile = 0; tile < tiles; ++tile) {
        cb_wait_front(2, 1);
        noc_async_write(get_read_ptr(2), out.get_noc_addr(tile), @TILE_BYTES@);
        noc_async_write_barrier();
        cb_pop_front(2, 1);
    }
}
"""

COMPUTE = """
#include "api/compute/common.h"
#include "api/compute/tile_move_copy.h"
#include "api/compute/eltwise_unary/eltwise_unary.h"
#include "api/compute/eltwise_unary/negative.h"
#ifdef TRISC_MATH
#include "sfpi.h"
using namespace sfpi;

template <class Condition>
sfpi_inline vUInt flag(const Condition& condition) {
    vUInt result = 0;
    v_if(condition) { result = 1; }
    v_endif;
    return result;
}

template <class Operation>
sfpi_inline void rows(Operation operation) {
    constexpr uint32_t tile = 32;
#pragma GCC unroll 0
    for (int row = 0; row < 8; ++row) {
        const vUInt u = dst_reg[0].mode<sfpi::DataLayout::U32>();
        const vUInt w = dst_reg[tile].mode<sfpi::DataLayout::U32>();
        dst_reg[2 * tile].mode<sfpi::DataLayout::U32>() = operation(u, w);
        dst_reg++;
    }
}
#endif

#define PROBE(expression)                                                                  \\
    tile_regs_acquire();                                                                   \\
    copy_tile(0, 0, 0);                                                                    \\
    copy_tile(1, 0, 1);                                                                    \\
    MATH((_llk_math_eltwise_unary_sfpu_params_([]() __attribute__((noinline)) {            \\
        rows([](const vUInt& u, const vUInt& w) __attribute__((always_inline)) -> vUInt {  \\
            [[maybe_unused]] const vFloat x = as<vFloat>(u), y = as<vFloat>(w);            \\
            [[maybe_unused]] const vInt i = as<vInt>(u), j = as<vInt>(w);                  \\
            return as<vUInt>(expression);                                                  \\
        });                                                                                \\
    }, 0)));                                                                               \\
    tile_regs_commit();                                                                    \\
    tile_regs_wait();                                                                      \\
    cb_reserve_back(2, 1);                                                                 \\
    pack_tile(2, 2);                                                                       \\
    cb_push_back(2, 1);                                                                    \\
    tile_regs_release();

void kernel_main() {
    unary_op_init_common(0, 2);
    copy_tile_to_dst_init_short(0);
    negative_tile_init();
    cb_wait_front(0, 1);
    cb_wait_front(1, 1);
@PROBES@
}
"""


def run_expressions(device, a: torch.Tensor, b: torch.Tensor, expressions: list[str]) -> torch.Tensor:
    """Each expression over every pair of words.

    a, b: int32 [32, 32]. Returns int32 [expressions, 32, 32]: bits of the results.
    """
    probes = "\n".join(f"    PROBE(({text}))" for text in expressions)
    # Straight into 32-bit destination registers: the bits arrive as they are.
    source = COMPUTE.replace("@PROBES@", probes)
    return run_probes(device, a, b, source, len(expressions), ttnn.int32, straight=2)


def run_probes(
    device, a: torch.Tensor, b: torch.Tensor, compute: str, count: int, dtype: ttnn.DataType, straight: int
) -> torch.Tensor:
    """A compute kernel that makes `count` tiles in buffer 2 of the tiles a and b in buffers 0 and 1.

    a, b: [32, 32]; dtype: of operands and results; straight: how many operands go into 32-bit destination
    registers past the matrix unit's source registers. Returns [count, 32, 32].
    """
    size = 1024 * (2 if dtype == ttnn.bfloat16 else 4)

    def tile(values):
        return ttnn.from_torch(values, dtype=dtype, layout=ttnn.TILE_LAYOUT, device=device)

    first, second, out = tile(a), tile(b), tile(torch.zeros(32 * count, 32, dtype=a.dtype))
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 0))])

    def kernel(source, config, compile_args=(), common=()):
        return ttnn.KernelDescriptor(
            kernel_source=source.replace("@TILE_BYTES@", str(size)),
            source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
            core_ranges=cores,
            compile_time_args=list(compile_args),
            common_runtime_args=list(common),
            config=config,
        )

    def accessor(tensor):
        return list(ttnn.TensorAccessorArgs(tensor).get_compile_time_args())

    def buffer(index):
        page = ttnn.CBFormatDescriptor(buffer_index=index, data_format=dtype, page_size=size)
        return ttnn.CBDescriptor(total_size=size, core_ranges=cores, format_descriptors=[page])

    config = ttnn.ComputeConfigDescriptor(fp32_dest_acc_en=dtype != ttnn.bfloat16)
    modes = [ttnn.UnpackToDestMode.Default] * 32
    modes[:straight] = [ttnn.UnpackToDestMode.UnpackToDestFp32] * straight
    config.unpack_to_dest_mode = ttnn._ttnn.program_descriptor.VectorUnpackToDestMode(modes)
    addresses = [first.buffer_address(), second.buffer_address()]
    kernels = [
        kernel(COPY_IN, ttnn.ReaderConfigDescriptor(), [*accessor(first), *accessor(second)], addresses),
        kernel(COPY_OUT, ttnn.WriterConfigDescriptor(), accessor(out), [out.buffer_address(), count]),
        kernel(compute, config),
    ]
    program = ttnn.ProgramDescriptor(kernels=kernels, semaphores=[], cbs=[buffer(index) for index in range(3)])
    ttnn.generic_op([first, second, out], program)
    return ttnn.to_torch(out).reshape(count, 32, 32)
