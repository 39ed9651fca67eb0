// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The check of a tree, and a user's verification result: a row of words. The status, the number of accepted nodes, the
// bonus token, the number of new tokens; then the path and the new tokens, `nodes` words each, padded.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace verification {

using Words = volatile tt_l1_ptr uint32_t*;

enum Status : uint32_t { fine, bad_tree, bad_target, bad_draft };

constexpr uint32_t nobody = 0xFFFFFFFF;
constexpr uint32_t head = 4;
constexpr uint32_t max_nodes = 32;
constexpr uint32_t line_bytes = max_nodes * sizeof(uint32_t);  // a word per node

inline Words line(uint32_t scratch, uint32_t index) {
    return reinterpret_cast<Words>(scratch + index * line_bytes);
}
inline uint32_t bytes(uint32_t nodes) { return (head + 2 * nodes) * sizeof(uint32_t); }

// Whether node 0 is a root, the others are roots or come after their parents, and tokens that have a parent are in the
// vocabulary.
inline bool tree_is_good(Words parents, Words tokens, uint32_t nodes, uint32_t vocab) {
    bool good = parents[0] == nobody;
    for (uint32_t i = 0; i < nodes; ++i) {
        good = good && (parents[i] == nobody || (parents[i] < i && tokens[i] < vocab));
    }
    return good;
}

// Completes a row whose path is written already. After an error only the status is left.
inline void report(
    Words row, Words tokens, uint32_t nodes, uint32_t status, uint32_t length, uint32_t bonus) {
    const bool good = status == fine;
    length = good ? length : 0;
    row[0] = status;
    row[1] = length;
    row[2] = good ? bonus : 0;
    row[3] = good ? length + 1 : 0;
    for (uint32_t i = length; i < nodes; ++i) {
        row[head + i] = nobody;
    }
    for (uint32_t i = 0; i < nodes; ++i) {
        const uint32_t token = i < length ? tokens[row[head + i]] : bonus;
        row[head + nodes + i] = good && i <= length ? token : nobody;
    }
}

}  // namespace verification
