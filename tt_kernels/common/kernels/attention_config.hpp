// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What the host sets for every attention op, by name (tt_kernels/common/attention_program.py): compile-time constants
// select code, common runtime arguments are the shapes, so that one binary serves all of them.

#pragma once

#include <cstdint>

#if defined(COMPILE_FOR_TRISC)
#include "api/compute/common.h"
#else
#include "api/dataflow/dataflow_api.h"
#endif
#include "arguments.hpp"
#include "chunk_split.hpp"

namespace config {

constexpr uint32_t head_tiles = get_named_compile_time_arg_val("head_tiles");
constexpr bool speculate = get_named_compile_time_arg_val("speculate") == 1;
constexpr bool paged = get_named_compile_time_arg_val("paged") == 1;
constexpr bool has_peer = get_named_compile_time_arg_val("has_peer") == 1;
constexpr bool with_chosen = get_named_compile_time_arg_val("with_chosen") == 1;  // chosen_tiles.hpp
constexpr bool hands_out_masses = get_named_compile_time_arg_val("masses") == 1;  // masses.hpp

// Shapes. A group of `workers` cores shares one head of one user at a time.
inline uint32_t users() { return COMMON_ARG(users); }
inline uint32_t kv_heads() { return COMMON_ARG(kv_heads); }
inline uint32_t group_heads() { return COMMON_ARG(group_heads); }  // query heads per key/value head
inline uint32_t cache_tiles() { return COMMON_ARG(cache_tiles); }  // that a user's head can have
inline uint32_t block_shift() { return COMMON_ARG(block_shift); }  // of a paged cache (head_rows.hpp)
inline attention::GuessRange guess() {
    return {COMMON_ARG(guess_first), COMMON_ARG(guess_last), COMMON_ARG(guess_whole_tail) != 0};
}
inline uint32_t workers() { return COMMON_ARG(workers); }
inline uint32_t key_tiles() { return COMMON_ARG(key_tiles); }  // that a worker processes at once
constexpr uint32_t max_users = 8;

// Circular buffers. A state is head_tiles of output and one tile of softmax row sums.
constexpr uint32_t partial_tiles = head_tiles + 1;
// A buffer with a slot for each worker that sends partial results: pages of one of these.
struct SlotBuffer {
    uint32_t cb, pages;
};
constexpr uint32_t cb_query = get_named_compile_time_arg_val("cb_query");
constexpr uint32_t cb_keys = get_named_compile_time_arg_val("cb_keys");
constexpr uint32_t cb_values = get_named_compile_time_arg_val("cb_values");
constexpr uint32_t cb_ones = get_named_compile_time_arg_val("cb_ones");
constexpr uint32_t cb_scores = get_named_compile_time_arg_val("cb_scores");
constexpr uint32_t cb_weights = get_named_compile_time_arg_val("cb_weights");
constexpr uint32_t cb_state = get_named_compile_time_arg_val("cb_state");
constexpr uint32_t cb_row_max_a = get_named_compile_time_arg_val("cb_row_max_a");
constexpr uint32_t cb_row_max_b = get_named_compile_time_arg_val("cb_row_max_b");
constexpr uint32_t cb_rescale = get_named_compile_time_arg_val("cb_rescale");
constexpr uint32_t cb_gathered = get_named_compile_time_arg_val("cb_gathered");
constexpr uint32_t cb_handover = get_named_compile_time_arg_val("cb_handover");
constexpr uint32_t cb_control = get_named_compile_time_arg_val("cb_control");  // attention_control.hpp
constexpr uint32_t cb_control_writer = get_named_compile_time_arg_val("cb_control_writer");
constexpr uint32_t cb_share = get_named_compile_time_arg_val("cb_share");  // head_share.hpp
constexpr uint32_t cb_share_writer = get_named_compile_time_arg_val("cb_share_writer");
constexpr uint32_t cb_scratch = get_named_compile_time_arg_val("cb_scratch");
constexpr uint32_t cb_chosen = get_named_compile_time_arg_val("cb_chosen");  // chosen_heads.hpp
constexpr uint32_t cb_pages = get_named_compile_time_arg_val("cb_pages");
constexpr uint32_t cb_masses = get_named_compile_time_arg_val("cb_masses");  // mass_columns.hpp
constexpr uint32_t cb_mass_words = get_named_compile_time_arg_val("cb_mass_words");
// With speculation; the last one on the exchange core.
constexpr uint32_t cb_guess = get_named_compile_time_arg_val("cb_guess");
constexpr uint32_t cb_norms = get_named_compile_time_arg_val("cb_norms");
constexpr uint32_t cb_outgoing = get_named_compile_time_arg_val("cb_outgoing");

// Semaphores: of partial_link.hpp, and on the deciding core whether the peer has the guess.
constexpr uint32_t sem_arrived = get_named_compile_time_arg_val("sem_arrived");
constexpr uint32_t sem_credit = get_named_compile_time_arg_val("sem_credit");
constexpr uint32_t sem_delivery = get_named_compile_time_arg_val("sem_delivery");

}  // namespace config
