// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Greedy verification (BRISC): a child is accepted if its token is the target's choice after its parent. There is one
// word of work per node, so one core serves all users.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/speculative_sampling/kernels/verification_result.hpp"

void kernel_main() {
    constexpr uint32_t cb_scratch = get_named_compile_time_arg_val("cb_scratch");
    const auto parents = TensorAccessor(ACCESSOR_ARGS(tree), COMMON_ARG(parents));
    const auto tokens = TensorAccessor(ACCESSOR_ARGS(tree), COMMON_ARG(tokens));
    const auto choices = TensorAccessor(ACCESSOR_ARGS(tree), COMMON_ARG(choices));
    const auto results = TensorAccessor(ACCESSOR_ARGS(result), COMMON_ARG(result));
    const uint32_t users = COMMON_ARG(users), nodes = COMMON_ARG(nodes), vocab = COMMON_ARG(vocab);
    const uint32_t scratch = get_write_ptr(cb_scratch), bytes = nodes * sizeof(uint32_t);
    const verification::Words parent = verification::line(scratch, 0), token = verification::line(scratch, 1);
    const verification::Words choice = verification::line(scratch, 2), row = verification::line(scratch, 3);
    for (uint32_t user = 0; user < users; ++user) {
        noc_async_read(parents.get_noc_addr(user), scratch, bytes);
        noc_async_read(tokens.get_noc_addr(user), scratch + verification::line_bytes, bytes);
        noc_async_read(choices.get_noc_addr(user), scratch + 2 * verification::line_bytes, bytes);
        noc_async_read_barrier();
        uint32_t node = 0, length = 0;
        const bool good = verification::tree_is_good(parent, token, nodes, vocab);
        // Parents come before children: what follows an accepted node is its child or irrelevant.
        for (uint32_t child = 1; good && child < nodes; ++child) {
            if (parent[child] == node && token[child] == choice[node]) {
                row[verification::head + length++] = child;
                node = child;
            }
        }
        const bool chosen = choice[node] < vocab;
        const uint32_t status =
            !good ? verification::bad_tree : (chosen ? verification::fine : verification::bad_target);
        verification::report(row, token, nodes, status, length, choice[node]);
        noc_async_write(
            scratch + 3 * verification::line_bytes, results.get_noc_addr(user), verification::bytes(nodes));
        noc_async_write_barrier();
    }
}
