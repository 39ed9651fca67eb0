// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What the host fixes, by name (program.py), and what the two kernels of a core tell each other.
//
// The walker is in charge: it fills the row buffers, gives commands and takes results. The calculator turns rows of
// logits into weights. No row is ever pushed or popped: a command is given only once what it names is in place.

#pragma once

#include <cstdint>

#if defined(COMPILE_FOR_TRISC)
#include "api/compute/common.h"
#else
#include "api/dataflow/dataflow_api.h"
#endif
#include "tt_kernels/common/kernels/arguments.hpp"

namespace config {

constexpr bool has_draft = get_named_compile_time_arg_val("has_draft") == 1;
constexpr bool tiled = get_named_compile_time_arg_val("tiled") == 1;
constexpr bool sigmoid = get_named_compile_time_arg_val("sigmoid") == 1;  // the lossy approximation
constexpr bool split = get_named_compile_time_arg_val("split") == 1;      // a user has several cores

constexpr uint32_t cb_target = get_named_compile_time_arg_val("cb_target");
constexpr uint32_t cb_draft = get_named_compile_time_arg_val("cb_draft");
constexpr uint32_t cb_command = get_named_compile_time_arg_val("cb_command");
constexpr uint32_t cb_result = get_named_compile_time_arg_val("cb_result");
constexpr uint32_t cb_scratch = get_named_compile_time_arg_val("cb_scratch");
constexpr uint32_t cb_lines = get_named_compile_time_arg_val("cb_lines");

constexpr uint32_t max_nodes = 32;
constexpr uint32_t tile_ids = 1024;  // ids of one row that are one tile to the calculator
constexpr uint32_t logit_bytes = 2;
constexpr uint32_t scratch_lines = 6;  // of a word per node: the tree's three, and the result
constexpr uint32_t row_tile_bytes = tile_ids * logit_bytes;

}  // namespace config

namespace command {

enum Kind : uint32_t {
    end,
    range,  // the largest and the least logit of all tiles of a row -> a tile, see below
    sums,   // the sums of weights of tiles [begin, end), lane by lane -> a tile per tiles_per_result of them
    weights,  // the coarse parts of tile `begin`, then its fine parts -> 2 tiles
};
enum Source : uint32_t { target, draft };
// What a weight is: that of a softmax, after residuals; the sigmoid of a logit; or how far the sigmoid of the
// target's logit is above the draft's.
enum Form : uint32_t { softmax, sigmoid, difference };
// Words of a command. Floats as their bits.
enum Word : uint32_t {
    kind,
    source,
    form,
    begin,
    stop,
    last_vectors,  // of the tile before stop, as weights.hpp counts them
    // What is added to a logit of the target and of the draft, and what the sum is multiplied by. For sigmoids the
    // target's is added afterwards, to both.
    target_offset,
    draft_offset,
    sharpness,
    stages,        // residuals to form, each with:
    first_scales,  // of p, of q
};
constexpr uint32_t words = first_scales + 2 * config::max_nodes;
constexpr uint32_t bytes = 512;
static_assert(words * sizeof(uint32_t) <= bytes);

// A lane's two numbers are adjacent in a result: 32 pairs per tile of ids. range: the largest, the least. sums: coarse
// and fine parts, of value part * 2^16 and part, as weights.hpp leaves them.
constexpr uint32_t pairs = 32;
constexpr uint32_t result_pages = 2;  // always, so that two tiles never wrap
constexpr uint32_t tiles_per_result = config::tile_ids / (2 * pairs);

}  // namespace command
