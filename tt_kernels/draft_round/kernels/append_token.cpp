// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes each user's chosen token a node of its chain.

#include <cstdint>

#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/draft_round/kernels/pages.hpp"

using namespace draft_round;

void kernel_main() {
    constexpr uint32_t row_bytes = get_named_compile_time_arg_val("row_bytes");
    const auto chosen = TensorAccessor(ACCESSOR_ARGS(chosen), COMMON_ARG(chosen), user_bytes);
    const auto tree_tokens = TensorAccessor(ACCESSOR_ARGS(per_node), COMMON_ARG(tree_tokens), node_bytes);
    const auto tree_prefix = TensorAccessor(ACCESSOR_ARGS(per_user), COMMON_ARG(tree_prefix), user_bytes);
    const auto rows = TensorAccessor(ACCESSOR_ARGS(rows), COMMON_ARG(rows), row_bytes);
    const uint32_t node = COMMON_ARG(node);

    const uint32_t in_chosen = get_write_ptr(scratch_cb);
    const uint32_t in_prefix = read_pages(chosen, 1, user_bytes, in_chosen);
    const uint32_t out_tokens = read_pages(tree_prefix, 1, user_bytes, in_prefix);
    const uint32_t out_rows = read_pages(tree_tokens, 1, node_bytes, out_tokens);
    read_pages(rows, users, row_bytes, out_rows);
    noc_async_read_barrier();
    for (uint32_t user = 0; user < users; ++user) {
        if (words(in_prefix)[user] >= 0) {
            words(out_tokens)[user * nodes + node] = words(in_chosen)[user];
            words(out_rows + user * row_bytes)[node] = words(in_chosen)[user];
        }
    }
    write_pages(tree_tokens, 1, node_bytes, out_tokens);
    write_pages(rows, users, row_bytes, out_rows);
    noc_async_write_barrier();
}
