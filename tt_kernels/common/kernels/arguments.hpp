// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The arguments of a kernel, by name. tt_kernels/common/kernel.py places the values and passes their indices as named
// compile-time arguments, so no index is written twice. A name that the host does not pass does not compile.
// Compile-time constants need no macro: constexpr uint32_t x = get_named_compile_time_arg_val("x").
//
//   RUNTIME_ARG(name)     a runtime argument of this core
//   RUNTIME_INDEX(name)   its index: of the first word, where the argument is a list
//   COMMON_ARG(name)      a runtime argument that all cores share
//   COMMON_INDEX(name)    its index: of the first word, where the argument is a list
//   ACCESSOR_ARGS(name)   the TensorAccessorArgs of a tensor

#pragma once

#include <cstdint>

namespace arguments {

// A template argument, so that a missing name fails to compile instead of being looked up at run time.
template <uint32_t value>
constexpr uint32_t constant = value;

}  // namespace arguments

#define RUNTIME_INDEX(name) (arguments::constant<get_named_compile_time_arg_val("arg_" #name)>)
#define RUNTIME_ARG(name) (get_arg_val<uint32_t>(RUNTIME_INDEX(name)))
#define COMMON_INDEX(name) (arguments::constant<get_named_compile_time_arg_val("common_" #name)>)
#define COMMON_ARG(name) (get_common_arg_val<uint32_t>(COMMON_INDEX(name)))
#define ACCESSOR_ARGS(name) (TensorAccessorArgs<get_named_compile_time_arg_val("accessor_" #name)>())
