# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What every kernel of a core reads sooner or later: the headers that precompiled.py precompiles.

None may look at what is generated for a kernel (its formats, its compile-time arguments) nor at the macros
that differ from chip to chip: then one precompiled header serves all kernels of all roots.
"""

# How many units ask for a header before it is made: the few kinds that come to so many are wanted by hundreds, and
# most others by less than would pay for one.
WANTED = 8

CORE = (
    "string_view", "ckernel_globals.h", "internal/tensix_functions.h", "dev_mem_map.h",
    "hostdevcommon/kernel_structs.h", "hostdev/rta_constants.h", "hostdev/dev_msgs.h", "risc_common.h",
    "ckernel.h", "internal/template_string.h", "api/debug/dprint.h", "api/debug/assert.h",
)  # fmt: skip
TRISC = (
    *CORE, "internal/debug/fw_debug.h", "ckernel_template.h", "sanitizer/api.h",
    "llk_param_structs.h", "api/lock.h", "internal/ethernet/erisc.h",
)  # fmt: skip
DATA_MOVEMENT = (
    *CORE, "tensix.h", "tensix_types.h", "noc.h", "noc_overlay_parameters.h", "noc_nonblocking_api.h",
    "stream_io_map.h", "c_tensix_core.h", "hostdevcommon/tensor_accessor/arg_config.hpp",
    "internal/tensor/const.h", "tt-metalium/constants.hpp",
)  # fmt: skip
# Macro of the command line that names the core -> what its kernels read.
HEADERS = {
    "-DCOMPILE_FOR_TRISC=0": (*TRISC, "llk_unpack_common.h", "llk_unpack_A.h", "llk_unpack_AB.h"),
    "-DCOMPILE_FOR_TRISC=1": (
        *TRISC, "llk_math_common.h", "llk_math_matmul.h", "llk_math_eltwise_unary_datacopy.h",
        "llk_math_eltwise_binary.h", "llk_math_eltwise_unary_sfpu.h",
    ),
    "-DCOMPILE_FOR_TRISC=2": (*TRISC, "llk_pack_common.h", "llk_pack.h"),
    "-DCOMPILE_FOR_BRISC": DATA_MOVEMENT,
    "-DCOMPILE_FOR_NCRISC": DATA_MOVEMENT,
}  # fmt: skip
# Of these, the ones with functions that land in every object whose unit includes them, called or not: a unit without
# them (a kernel that computes nothing) must do without the precompiled header.
EMITTING = {
    "-DCOMPILE_FOR_TRISC=0": ("llk_unpack_common.h",),
    "-DCOMPILE_FOR_TRISC=2": ("llk_pack_common.h",),
}  # fmt: skip
# Macros that every kernel of a core has; the others are a kernel's own.
SHARED_MACROS = (
    "__riscv_xtttensixwh", "TENSIX_FIRMWARE", "LOCAL_MEM_EN", "ROUTING_FW_ENABLED", "DISABLE_SFPLOADMACRO",
    "PROCESSOR_INDEX", "UCK_CHLKC_UNPACK", "UCK_CHLKC_MATH", "UCK_CHLKC_PACK", "COMPILE_FOR_TRISC",
    "COMPILE_FOR_BRISC", "COMPILE_FOR_NCRISC", "PROGRAMMABLE_CORE_TYPE", "ARCH_WORMHOLE", "KERNEL_BUILD",
    "NOC_INDEX", "NOC_MODE",
)  # fmt: skip
