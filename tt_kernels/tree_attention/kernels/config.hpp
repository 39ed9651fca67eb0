// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What this op has besides attention_config.hpp.

#pragma once

#include "tt_kernels/common/kernels/attention_config.hpp"

namespace config {

// A prefill chunk of one user is trees too: consecutive chains, each of which sees those before it.
constexpr bool prefills = get_named_compile_time_arg_val("prefills") == 1;
inline uint32_t trees() { return COMMON_ARG(trees); }  // one for each user, or those of the chunk
inline uint32_t nodes() { return COMMON_ARG(nodes); }  // per tree
// With prefills: key/value heads of the cache's blocks, so many of which have a row of the page table.
inline uint32_t block_heads() { return COMMON_ARG(block_heads); }
// The split. A group of workers does one job at a time.
inline uint32_t query_tiles() { return COMMON_ARG(query_tiles); }  // per job
inline uint32_t partials() { return query_tiles(); }               // that a worker sends of a job
inline uint32_t chunk_tiles() { return COMMON_ARG(chunk_tiles); }  // of keys, at a time
inline uint32_t passes() { return COMMON_ARG(passes); }            // jobs per key/value head
inline uint32_t tree_tiles() { return COMMON_ARG(tree_tiles); }    // of key_tiles, those that can hold nodes
constexpr uint32_t max_nodes = 256;
constexpr uint32_t tiles_in_flight = 16;  // on the exchange core

constexpr uint32_t cb_gathered_row_max = get_named_compile_time_arg_val("cb_gathered_row_max");
constexpr uint32_t cb_rescale_other = get_named_compile_time_arg_val("cb_rescale_other");
constexpr SlotBuffer slot_buffers[] = {{cb_gathered, partial_tiles}, {cb_gathered_row_max, 1}};
constexpr uint32_t cb_query_times = get_named_compile_time_arg_val("cb_query_times");
constexpr uint32_t cb_key_times = get_named_compile_time_arg_val("cb_key_times");
constexpr uint32_t cb_output = get_named_compile_time_arg_val("cb_output");
constexpr uint32_t cb_intervals = get_named_compile_time_arg_val("cb_intervals");
// With prefills (steady_softmax.hpp).
constexpr uint32_t cb_highest = get_named_compile_time_arg_val("cb_highest");
constexpr uint32_t cb_cache_ones = get_named_compile_time_arg_val("cb_cache_ones");
constexpr uint32_t cb_verdicts = get_named_compile_time_arg_val("cb_verdicts");
// With speculation.
constexpr uint32_t cb_measured_guess = get_named_compile_time_arg_val("cb_measured_guess");
constexpr uint32_t cb_measured_exact = get_named_compile_time_arg_val("cb_measured_exact");
constexpr uint32_t cb_sums = get_named_compile_time_arg_val("cb_sums");

// Jobs whose guess is in DRAM, on the exchange core; jobs whose sums have landed on the deciding core.
constexpr uint32_t sem_guessed = get_named_compile_time_arg_val("sem_guessed");
constexpr uint32_t sem_measured = get_named_compile_time_arg_val("sem_measured");

}  // namespace config
