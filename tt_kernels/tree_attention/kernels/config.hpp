// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What the host sets, by name: compile-time constants select code, common runtime arguments are the shapes
// (program.py), so that one binary serves all of them.

#pragma once

#include <cstdint>

#if defined(COMPILE_FOR_TRISC)
#include "api/compute/common.h"
#else
#include "api/dataflow/dataflow_api.h"
#endif
#include "tt_kernels/common/kernels/arguments.hpp"

namespace config {

constexpr uint32_t head_tiles = get_named_compile_time_arg_val("head_tiles");
constexpr bool speculate = get_named_compile_time_arg_val("speculate") == 1;
constexpr bool has_peer = get_named_compile_time_arg_val("has_peer") == 1;
constexpr bool paged = get_named_compile_time_arg_val("paged") == 1;

// Shapes.
inline uint32_t users() { return COMMON_ARG(users); }
inline uint32_t kv_heads() { return COMMON_ARG(kv_heads); }
inline uint32_t group_heads() { return COMMON_ARG(group_heads); }  // query heads per key/value head
inline uint32_t nodes() { return COMMON_ARG(nodes); }              // per tree
inline uint32_t cache_tiles() { return COMMON_ARG(cache_tiles); }  // that a user's head can have
inline uint32_t block_shift() { return COMMON_ARG(block_shift); }  // of a paged cache (head_rows.hpp)
// What the guess reads of the tokens up to a tree's root; 0 without speculation.
inline uint32_t guess_first() { return COMMON_ARG(guess_first); }
inline uint32_t guess_last() { return COMMON_ARG(guess_last); }
inline bool guess_whole_tail() { return COMMON_ARG(guess_whole_tail) != 0; }
// The split. A group of `workers` cores does one job at a time.
inline uint32_t query_tiles() { return COMMON_ARG(query_tiles); }  // per job
inline uint32_t passes() { return COMMON_ARG(passes); }            // jobs per key/value head
inline uint32_t workers() { return COMMON_ARG(workers); }
inline uint32_t chunk_tiles() { return COMMON_ARG(chunk_tiles); }  // of keys that a worker processes at once
inline uint32_t key_tiles() { return COMMON_ARG(key_tiles); }    // the same with the rest of the guess's end
inline uint32_t tree_tiles() { return COMMON_ARG(tree_tiles); }  // of them, those that can hold nodes
constexpr uint32_t max_users = 8;
constexpr uint32_t max_nodes = 256;
constexpr uint32_t tiles_in_flight = 16;  // on the exchange core

// Circular buffers.
constexpr uint32_t partial_tiles = head_tiles + 1;  // output and softmax row sums of a query tile
constexpr uint32_t cb_query = get_named_compile_time_arg_val("cb_query");
constexpr uint32_t cb_keys = get_named_compile_time_arg_val("cb_keys");
constexpr uint32_t cb_values = get_named_compile_time_arg_val("cb_values");
constexpr uint32_t cb_query_times = get_named_compile_time_arg_val("cb_query_times");
constexpr uint32_t cb_key_times = get_named_compile_time_arg_val("cb_key_times");
constexpr uint32_t cb_ones = get_named_compile_time_arg_val("cb_ones");
constexpr uint32_t cb_scores = get_named_compile_time_arg_val("cb_scores");
constexpr uint32_t cb_weights = get_named_compile_time_arg_val("cb_weights");
constexpr uint32_t cb_state = get_named_compile_time_arg_val("cb_state");
constexpr uint32_t cb_row_max_a = get_named_compile_time_arg_val("cb_row_max_a");
constexpr uint32_t cb_row_max_b = get_named_compile_time_arg_val("cb_row_max_b");
constexpr uint32_t cb_rescale = get_named_compile_time_arg_val("cb_rescale");
constexpr uint32_t cb_rescale_other = get_named_compile_time_arg_val("cb_rescale_other");
constexpr uint32_t cb_gathered = get_named_compile_time_arg_val("cb_gathered");
constexpr uint32_t cb_gathered_row_max = get_named_compile_time_arg_val("cb_gathered_row_max");
constexpr uint32_t cb_handover = get_named_compile_time_arg_val("cb_handover");
constexpr uint32_t cb_output = get_named_compile_time_arg_val("cb_output");
constexpr uint32_t cb_control = get_named_compile_time_arg_val("cb_control");
constexpr uint32_t cb_control_writer = get_named_compile_time_arg_val("cb_control_writer");
constexpr uint32_t cb_pages = get_named_compile_time_arg_val("cb_pages");
constexpr uint32_t cb_intervals = get_named_compile_time_arg_val("cb_intervals");
// With speculation.
constexpr uint32_t cb_guess = get_named_compile_time_arg_val("cb_guess");
constexpr uint32_t cb_measured_guess = get_named_compile_time_arg_val("cb_measured_guess");
constexpr uint32_t cb_measured_exact = get_named_compile_time_arg_val("cb_measured_exact");
constexpr uint32_t cb_norms = get_named_compile_time_arg_val("cb_norms");
constexpr uint32_t cb_sums = get_named_compile_time_arg_val("cb_sums");
constexpr uint32_t cb_outgoing = get_named_compile_time_arg_val("cb_outgoing");

// Semaphores (partial_link.hpp).
constexpr uint32_t sem_arrived = get_named_compile_time_arg_val("sem_arrived");
constexpr uint32_t sem_credit = get_named_compile_time_arg_val("sem_credit");
// Jobs whose guess is in DRAM, on their reducer and on the exchange core; jobs whose sums have landed, and whether the
// peer has the guess, on the deciding core.
constexpr uint32_t sem_guessed = get_named_compile_time_arg_val("sem_guessed");
constexpr uint32_t sem_measured = get_named_compile_time_arg_val("sem_measured");
constexpr uint32_t sem_delivery = get_named_compile_time_arg_val("sem_delivery");

}  // namespace config
