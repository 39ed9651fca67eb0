// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The hub (BRISC of its own core), where a vocabulary is split. A group is the cores that a user's ids are split over.
// When all cores of a group have posted a line, the hub combines them and answers the cores. It polls the groups in turn
// and blocks on none.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "lines.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/bounded_wait.hpp"

namespace {

using lines::Words;

constexpr uint32_t cb_lines = get_named_compile_time_arg_val("cb_lines");

class Hub {
public:
    Hub() : groups_(COMMON_ARG(groups)), cores_(COMMON_ARG(cores)), lines_(get_write_ptr(cb_lines)) {}

    void run() {
        uint32_t left = groups_;
        while (left > 0) {
            for (uint32_t group = 0; group < groups_; ++group) {
                left -= take(group);
            }
        }
    }

private:
    uint32_t groups_, cores_, lines_;
    uint32_t posted_[lines::max_groups] = {};

    // Lines: those posted by the cores of each group in turn, then the answer.
    Words posted(uint32_t group, uint32_t core) const { return lines::line(lines_, group * cores_ + core); }

    // Answers a group's cores if all have posted; returns 1 once they have ended.
    uint32_t take(uint32_t group) {
        const volatile tt_l1_ptr uint32_t* count =
            reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_semaphore(lines::first_posted + group));
        if (!bounded::reached(count, posted_[group] + cores_)) {
            return 0;
        }
        posted_[group] += cores_;
        Words line = lines::line(lines_, groups_ * cores_);
        lines::copy(posted(group, 0), line);
        if (line[lines::kind] == lines::end) {
            posted_[group] = 0x7FFFFFFF - cores_;  // which no counter reaches
            return 1;
        }
        for (uint32_t core = 1; core < cores_; ++core) {
            lines::combine(line, posted(group, core));
        }
        answer(group, line);
        return 0;
    }

    void answer(uint32_t group, Words line) {
        const uint32_t behind = lines::content + line[lines::count];
        const uint32_t bytes = (behind + 2) * sizeof(uint32_t);
        uint64_t before = 0;
        for (uint32_t core = 0; core < cores_; ++core) {
            const uint32_t index = RUNTIME_INDEX(places) + 2 * (group * cores_ + core);
            const uint32_t x = get_arg_val<uint32_t>(index), y = get_arg_val<uint32_t>(index + 1);
            lines::set_wide(line, behind, before);
            before += lines::wide(posted(group, core), lines::first_sum);
            noc_async_write(
                reinterpret_cast<uint32_t>(line), get_noc_addr(x, y, lines_ + lines::bytes), bytes);
            noc_async_write_barrier();
            noc_semaphore_inc(get_noc_addr(x, y, get_semaphore(lines::answered)), 1);
        }
        noc_async_atomic_barrier();
    }
};

}  // namespace

void kernel_main() {
    Hub hub;
    hub.run();
}
