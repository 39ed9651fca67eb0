// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A part's side of lines.hpp. Without a split, a line is its own answer.

#pragma once

#include <cstdint>

#include "config.hpp"
#include "lines.hpp"

class Shares {
public:
    Shares() : line_(lines::line(get_write_ptr(config::cb_lines), 0)) {}

    // The line to fill, of `count` words of content; then exchange() it.
    lines::Words begin(uint32_t kind, uint32_t count) {
        line_[lines::kind] = kind;
        line_[lines::count] = count;
        for (uint32_t i = 0; i < count; ++i) {
            line_[lines::content + i] = 0;
        }
        return line_;
    }

    // Returns the line of all parts.
    lines::Words exchange() {
        if constexpr (!config::split) {
            lines::set_wide(line_, lines::content + line_[lines::count], 0);
            return line_;
        } else {
            post();
            volatile tt_l1_ptr uint32_t* answered =
                reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(lines::answered));
            noc_semaphore_wait_min(answered, ++answers_);
            return lines::line(get_write_ptr(config::cb_lines), 1);
        }
    }

    void end() {
        if constexpr (config::split) {
            begin(lines::end, 0);
            post();
            noc_async_atomic_barrier();
        }
    }

    // The first sum of all parts before this one, from an answer to `sums`.
    static uint64_t before(lines::Words answer) {
        return lines::wide(answer, lines::content + answer[lines::count]);
    }

private:
    lines::Words line_;
    uint32_t answers_ = 0;

    void post() {
        const uint32_t x = RUNTIME_ARG(hub_x), y = RUNTIME_ARG(hub_y);
        const uint32_t lines_base = get_write_ptr(config::cb_lines);  // the same on all cores
        const uint32_t bytes = (lines::content + line_[lines::count]) * sizeof(uint32_t);
        noc_async_write(
            lines_base, get_noc_addr(x, y, lines_base + RUNTIME_ARG(place) * lines::bytes), bytes);
        noc_async_write_barrier();
        noc_semaphore_inc(get_noc_addr(x, y, get_semaphore(lines::first_posted + RUNTIME_ARG(group))), 1);
    }
};
