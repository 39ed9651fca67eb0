// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes the verified tokens those that the draft's next exact pass reads, after those it has cached.

#include <cstdint>

#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/draft_round/kernels/pages.hpp"

using namespace draft_round;

void kernel_main() {
    constexpr uint32_t result_bytes = get_named_compile_time_arg_val("result_bytes");
    // Words of a result: the number of new tokens, and the first of them.
    constexpr uint32_t count_word = get_named_compile_time_arg_val("count_word");
    constexpr uint32_t tokens_word = get_named_compile_time_arg_val("tokens_word");
    const auto result = TensorAccessor(ACCESSOR_ARGS(result), COMMON_ARG(result), result_bytes);
    const auto decided = TensorAccessor(ACCESSOR_ARGS(per_node), COMMON_ARG(decided), node_bytes);
    const auto angles = TensorAccessor(ACCESSOR_ARGS(per_node), COMMON_ARG(angles), node_bytes);
    const auto cached = TensorAccessor(ACCESSOR_ARGS(per_user), COMMON_ARG(cached), user_bytes);
    const auto last = TensorAccessor(ACCESSOR_ARGS(per_user), COMMON_ARG(last), user_bytes);
    const auto row_of_last = TensorAccessor(ACCESSOR_ARGS(per_user), COMMON_ARG(row), user_bytes);

    const uint32_t in_result = get_write_ptr(scratch_cb);
    const uint32_t at_cached = read_pages(result, users, result_bytes, in_result);
    const uint32_t at_last = read_pages(cached, 1, user_bytes, at_cached);
    const uint32_t at_row = read_pages(last, 1, user_bytes, at_last);
    const uint32_t at_decided = read_pages(row_of_last, 1, user_bytes, at_row);
    const uint32_t at_angles = read_pages(decided, 1, node_bytes, at_decided);
    read_pages(angles, 1, node_bytes, at_angles);
    noc_async_read_barrier();
    for (uint32_t user = 0; user < users; ++user) {
        const auto row = words(in_result + user * result_bytes);
        const int32_t count = row[count_word];
        if (words(at_cached)[user] < 0 || count < 1) {
            continue;  // skipped, or a verification that failed: the host raises
        }
        const int32_t held = words(at_cached)[user] + words(at_last)[user] + 1;
        words(at_cached)[user] = held;
        words(at_last)[user] = count - 1;
        words(at_row)[user] = user * nodes + count - 1;
        for (uint32_t node = 0; node < nodes; ++node) {
            const bool given = static_cast<int32_t>(node) < count;
            words(at_decided)[user * nodes + node] = given ? row[tokens_word + node] : 0;
            words(at_angles)[user * nodes + node] = held + static_cast<int32_t>(node);
        }
    }
    write_pages(cached, 1, user_bytes, at_cached);
    write_pages(last, 1, user_bytes, at_last);
    write_pages(row_of_last, 1, user_bytes, at_row);
    write_pages(decided, 1, node_bytes, at_decided);
    write_pages(angles, 1, node_bytes, at_angles);
    noc_async_write_barrier();
}
