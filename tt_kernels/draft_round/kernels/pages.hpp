// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Rows of 32-bit words in device memory, each held in L1 while the kernel works on it, and the sizes that all kernels
// of a round know: rows of one number per user, and rows of one number per node of all users.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace draft_round {

constexpr uint32_t scratch_cb = get_named_compile_time_arg_val("scratch_cb");
constexpr uint32_t users = get_named_compile_time_arg_val("users");
constexpr uint32_t nodes = get_named_compile_time_arg_val("nodes");
constexpr uint32_t user_bytes = get_named_compile_time_arg_val("user_bytes");
constexpr uint32_t node_bytes = get_named_compile_time_arg_val("node_bytes");

using Words = volatile tt_l1_ptr int32_t*;

// Starts reading `pages` pages of `page_bytes` each to consecutive places from `scratch`; returns the address after
// them.
template <typename Accessor>
inline uint32_t read_pages(const Accessor& tensor, uint32_t pages, uint32_t page_bytes, uint32_t scratch) {
    for (uint32_t page = 0; page < pages; ++page) {
        noc_async_read(tensor.get_noc_addr(page), scratch + page * page_bytes, page_bytes);
    }
    return scratch + pages * page_bytes;
}

template <typename Accessor>
inline void write_pages(const Accessor& tensor, uint32_t pages, uint32_t page_bytes, uint32_t scratch) {
    for (uint32_t page = 0; page < pages; ++page) {
        noc_async_write(scratch + page * page_bytes, tensor.get_noc_addr(page), page_bytes);
    }
}

inline Words words(uint32_t address) { return reinterpret_cast<Words>(address); }

}  // namespace draft_round
