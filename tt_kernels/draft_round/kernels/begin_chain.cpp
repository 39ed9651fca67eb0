// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Begins a user's chain with the likeliest token after the last decided one: the draft's next step reads it, and it is
// node 1 of the target's chain, whose root is that decided token.

#include <cstdint>

#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/draft_round/kernels/pages.hpp"

using namespace draft_round;

void kernel_main() {
    constexpr uint32_t row_bytes = get_named_compile_time_arg_val("row_bytes");
    const auto decided = TensorAccessor(ACCESSOR_ARGS(per_node), COMMON_ARG(decided), node_bytes);
    const auto choices = TensorAccessor(ACCESSOR_ARGS(choices), COMMON_ARG(choices), node_bytes);
    const auto cached = TensorAccessor(ACCESSOR_ARGS(per_user), COMMON_ARG(cached), user_bytes);
    const auto last = TensorAccessor(ACCESSOR_ARGS(per_user), COMMON_ARG(last), user_bytes);
    const auto token = TensorAccessor(ACCESSOR_ARGS(per_user), COMMON_ARG(token), user_bytes);
    const auto position = TensorAccessor(ACCESSOR_ARGS(per_user), COMMON_ARG(position), user_bytes);
    const auto angle = TensorAccessor(ACCESSOR_ARGS(per_user), COMMON_ARG(angle), user_bytes);
    const auto tree_tokens = TensorAccessor(ACCESSOR_ARGS(per_node), COMMON_ARG(tree_tokens), node_bytes);
    const auto tree_angles = TensorAccessor(ACCESSOR_ARGS(per_node), COMMON_ARG(tree_angles), node_bytes);
    const auto tree_prefix = TensorAccessor(ACCESSOR_ARGS(per_user), COMMON_ARG(tree_prefix), user_bytes);
    const auto rows = TensorAccessor(ACCESSOR_ARGS(rows), COMMON_ARG(rows), row_bytes);

    const uint32_t in_decided = get_write_ptr(scratch_cb);
    const uint32_t in_choices = read_pages(decided, 1, node_bytes, in_decided);
    const uint32_t in_cached = read_pages(choices, 1, node_bytes, in_choices);
    const uint32_t in_last = read_pages(cached, 1, user_bytes, in_cached);
    const uint32_t out_token = read_pages(last, 1, user_bytes, in_last);
    const uint32_t out_position = out_token + user_bytes;
    const uint32_t out_angle = out_position + user_bytes;
    const uint32_t out_prefix = out_angle + user_bytes;
    const uint32_t out_tokens = out_prefix + user_bytes;
    const uint32_t out_angles = out_tokens + node_bytes;
    const uint32_t out_rows = out_angles + node_bytes;
    noc_async_read_barrier();
    for (uint32_t user = 0; user < users; ++user) {
        const int32_t before = words(in_cached)[user];
        const bool skipped = before < 0;
        const uint32_t end = skipped ? 0 : user * nodes + words(in_last)[user];
        const int32_t root = skipped ? 0 : words(in_decided)[end];
        const int32_t first = skipped ? 0 : words(in_choices)[end];
        const int32_t root_position = skipped ? 0 : before + words(in_last)[user];
        words(out_token)[user] = first;
        words(out_position)[user] = skipped ? -1 : root_position + 1;
        words(out_angle)[user] = skipped ? 0 : root_position + 1;
        words(out_prefix)[user] = skipped ? -1 : root_position;
        for (uint32_t node = 0; node < nodes; ++node) {
            const int32_t given = node == 0 ? root : node == 1 ? first : 0;
            words(out_tokens)[user * nodes + node] = given;
            words(out_rows + user * row_bytes)[node] = given;
            words(out_angles)[user * nodes + node] = skipped ? 0 : root_position + static_cast<int32_t>(node);
        }
    }
    write_pages(token, 1, user_bytes, out_token);
    write_pages(position, 1, user_bytes, out_position);
    write_pages(angle, 1, user_bytes, out_angle);
    write_pages(tree_prefix, 1, user_bytes, out_prefix);
    write_pages(tree_tokens, 1, node_bytes, out_tokens);
    write_pages(tree_angles, 1, node_bytes, out_angles);
    write_pages(rows, users, row_bytes, out_rows);
    noc_async_write_barrier();
}
