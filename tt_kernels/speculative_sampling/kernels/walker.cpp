// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The data movement kernel (BRISC): walks the tree of each of this core's users from the root down to where a token is
// drawn (exact_walk.hpp, sigmoid_walk.hpp), and writes the result.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "exact_walk.hpp"
#include "verification_result.hpp"
#include "row_reader.hpp"
#include "sigmoid_walk.hpp"

namespace {

using verification::line;
using verification::line_bytes;

template <bool sigmoid>
struct WalkOf {
    using Type = ExactWalk;
};
template <>
struct WalkOf<true> {
    using Type = SigmoidWalk;
};

}  // namespace

void kernel_main() {
    const auto targets = TensorAccessor(ACCESSOR_ARGS(target), COMMON_ARG(target));
    const auto drafts = TensorAccessor(ACCESSOR_ARGS(draft), COMMON_ARG(draft));
    const auto parents = TensorAccessor(ACCESSOR_ARGS(tree), COMMON_ARG(parents));
    const auto tokens = TensorAccessor(ACCESSOR_ARGS(tree), COMMON_ARG(tokens));
    const auto uniforms = TensorAccessor(ACCESSOR_ARGS(tree), COMMON_ARG(uniforms));
    const auto results = TensorAccessor(ACCESSOR_ARGS(result), COMMON_ARG(result));
    const uint32_t users = COMMON_ARG(users), nodes = COMMON_ARG(nodes);
    const uint32_t bytes = nodes * sizeof(uint32_t), scratch = get_write_ptr(config::cb_scratch);
    const Tree tree{nodes, line(scratch, 0), line(scratch, 1), line(scratch, 2)};
    const Words result = line(scratch, 3);
    Part part;
    part.sharpness = COMMON_ARG(sharpness);
    part.center = COMMON_ARG(center);
    part.slope = COMMON_ARG(slope);
    Shares shares;
    WalkOf<config::sigmoid>::Type walk(part, shares, tree);
    for (uint32_t user = RUNTIME_ARG(first_user); user < users; user += COMMON_ARG(groups)) {
        noc_async_read(parents.get_noc_addr(user), scratch, bytes);
        noc_async_read(tokens.get_noc_addr(user), scratch + line_bytes, bytes);
        noc_async_read(uniforms.get_noc_addr(user), scratch + 2 * line_bytes, bytes);
        noc_async_read_barrier();
        uint32_t length = 0;
        row_reader::Place place{user, 0, nodes, COMMON_ARG(vocab)};
        const bool good = verification::tree_is_good(tree.parents, tree.tokens, nodes, COMMON_ARG(vocab));
        Step step;
        step.status = good ? verification::fine : verification::bad_tree;
        while (step.status == verification::fine) {
            step = walk.visit(targets, drafts, place);
            if (step.child == nobody) {
                break;
            }
            result[verification::head + length++] = step.child;
            place.node = step.child;
        }
        if (RUNTIME_ARG(reports) != 0) {
            verification::report(result, tree.tokens, nodes, step.status, length, step.bonus);
            noc_async_write(scratch + 3 * line_bytes, results.get_noc_addr(user), verification::bytes(nodes));
            noc_async_write_barrier();
        }
    }
    shares.end();
    part.end();
}
