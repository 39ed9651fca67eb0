// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// If a vocabulary is split over cores, each part tells the others numbers of its ids: a line. The hub (hub.cpp) combines
// the lines of all parts and answers each part with the result. Sums are of whole numbers, so all parts get the same,
// whatever the order.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace lines {

using Words = volatile tt_l1_ptr uint32_t*;

// range: the largest and the least logit, as ordered integers, of the target and of the draft.
// sums: two numbers of 64 bits, low word first, then numbers of 32 bits.
enum Kind : uint32_t { range, sums, end };
enum Word : uint32_t {
    kind,
    count,  // words of content
    content,
    first_sum = content,
    second_sum = content + 2,
    numbers = content + 4,
};
// In an answer to `sums` the first sum of all parts before follows the content, 2 words.
constexpr uint32_t words = 80;
constexpr uint32_t bytes = words * sizeof(uint32_t);
constexpr uint32_t range_words = 4, sum_words = 4;

constexpr uint32_t max_groups = 8;
// Semaphores: on the hub what each group's cores have posted; on every other core the answers.
constexpr uint32_t first_posted = 0, answered = max_groups;

inline Words line(uint32_t base, uint32_t index) { return reinterpret_cast<Words>(base + index * bytes); }

inline uint64_t wide(Words words, uint32_t index) {
    return words[index] | static_cast<uint64_t>(words[index + 1]) << 32;
}
inline void set_wide(Words words, uint32_t index, uint64_t value) {
    words[index] = static_cast<uint32_t>(value);
    words[index + 1] = value >> 32;
}

inline void copy(Words from, Words to) {
    for (uint32_t i = 0; i < content + from[count]; ++i) {
        to[i] = from[i];
    }
}

// `to` = both combined.
inline void combine(Words to, Words from) {
    if (to[kind] == range) {
        for (uint32_t i = content; i < content + range_words; ++i) {
            const int32_t a = to[i], b = from[i];
            const bool largest = (i - content) % 2 == 0;
            to[i] = (a < b) == largest ? b : a;
        }
        return;
    }
    set_wide(to, first_sum, wide(to, first_sum) + wide(from, first_sum));
    set_wide(to, second_sum, wide(to, second_sum) + wide(from, second_sum));
    for (uint32_t i = numbers; i < content + to[count]; ++i) {
        to[i] = to[i] + from[i];
    }
}

}  // namespace lines
