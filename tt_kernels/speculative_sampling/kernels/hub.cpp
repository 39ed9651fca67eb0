// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The hub of a chip (BRISC of its own core), where a vocabulary is split. A group is the cores that a user's ids on
// this chip are split over. When all cores of a group have posted a line, the hub combines them, exchanges the line
// with the hubs of the TP group's other chips, and answers the cores. It polls the groups in turn and blocks on none.
//
// Exchange n of a group, counted since the state was made: lines go to slot n % 2 of the other hubs, and a counter
// there tells that they have arrived. No hub leaves n before it has the lines of all others, which they send after they
// have read those of n - 1: two slots suffice. A hub that waits in vain records it in the state, answers all groups
// that the TP group is broken, and takes no part in later calls.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "lines.hpp"
#include "tt_kernels/common/kernels/arguments.hpp"
#include "tt_kernels/common/kernels/bounded_wait.hpp"
#if defined(TP_GROUP)
#include "tt_kernels/common/kernels/tp_session.hpp"
#endif

namespace {

using lines::Words;

constexpr uint32_t cb_lines = get_named_compile_time_arg_val("cb_lines");
constexpr uint32_t max_groups = lines::max_groups;

// tt_kernels/speculative_sampling/program.py reads the state on the host and must agree.
struct State {
    uint32_t arrivals[lines::max_chips][max_groups];
    uint32_t calls[max_groups];
    uint32_t status, status_call, silent, padding[5];
    uint32_t mailbox[2][lines::max_chips][max_groups][lines::words];
};
enum Status : uint32_t { fine = 0, lines_absent = 1, link_blocked = 3, out_of_step = 4 };

class Hub {
public:
    Hub() :
        chips_(COMMON_ARG(chips)),
        self_(COMMON_ARG(chip)),
        groups_(COMMON_ARG(groups)),
        cores_(COMMON_ARG(cores)),
        lines_(get_write_ptr(cb_lines)),
        state_(reinterpret_cast<volatile tt_l1_ptr State*>(COMMON_ARG(state))) {}

    bool broken() const { return chips_ > 1 && state_->status != fine; }

    template <typename Links>
    void run(Links& links) {
        uint32_t left = groups_;
        while (left > 0) {
            for (uint32_t group = 0; group < groups_; ++group) {
                if (!waiting_[group]) {
                    left -= take(group, links);
                } else {
                    look(group);
                }
            }
        }
    }

private:
    uint32_t chips_, self_, groups_, cores_, lines_;
    volatile tt_l1_ptr State* state_;
    uint32_t posted_[max_groups] = {};
    bool waiting_[max_groups] = {};
    uint64_t start_[max_groups] = {};

    // Lines: those posted by the cores of each group in turn, then one per group, then the answer.
    Words posted(uint32_t group, uint32_t core) const { return lines::line(lines_, group * cores_ + core); }
    Words of_group(uint32_t group) const { return lines::line(lines_, groups_ * cores_ + group); }
    uint32_t answer_index() const { return groups_ * (cores_ + 1); }

    // Takes what a group's cores have posted, if all have; returns 1 once they have ended.
    template <typename Links>
    uint32_t take(uint32_t group, Links& links) {
        const volatile tt_l1_ptr uint32_t* count =
            reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(get_semaphore(lines::first_posted + group));
        if (!bounded::reached(count, posted_[group] + cores_)) {
            return 0;
        }
        posted_[group] += cores_;
        Words line = of_group(group);
        lines::copy(posted(group, 0), line);
        if (line[lines::kind] == lines::end) {
            posted_[group] = 0x7FFFFFFF - cores_;  // which no counter reaches
            return 1;
        }
        for (uint32_t core = 1; core < cores_; ++core) {
            lines::combine(line, posted(group, core));
        }
        if (chips_ > 1 && !broken()) {
            send(group, links);
        } else {
            answer(group, line, 0);
        }
        return 0;
    }

    template <typename Links>
    void send(uint32_t group, Links& links) {
#if defined(TP_GROUP)
        const uint32_t call = state_->calls[group] + 1;
        state_->calls[group] = call;
        Words line = of_group(group);
        line[lines::call] = call;
        const uint32_t from = reinterpret_cast<uint32_t>(line);
        const uint32_t to = address(mailbox(call, self_, group));
        const uint32_t arrivals = address(&state_->arrivals[self_][group]);
        for (uint32_t other = 0; other < chips_; ++other) {
            if (other == self_) {
                continue;
            }
            PeerLink& link = links.towards(self_, other);
            if (!link.write(from, link.core_address(to), lines::bytes) || !link.increment(arrivals)) {
                return fail(link_blocked, self_, group);
            }
        }
        waiting_[group] = true;
        start_[group] = get_timestamp();
#endif
    }

    // Answers the group if all lines of its exchange have arrived.
    void look(uint32_t group) {
#if defined(TP_GROUP)
        const uint32_t call = state_->calls[group];
        if (broken()) {
            return answer(group, of_group(group), 0);
        }
        for (uint32_t other = 0; other < chips_; ++other) {
            if (other == self_) {
                continue;
            }
            if (!bounded::reached(&state_->arrivals[other][group], call)) {
                if (get_timestamp() - start_[group] >= bounded::cycles_arg(RUNTIME_INDEX(timeout))) {
                    fail(lines_absent, other, group);
                }
                return;
            }
            if (mailbox(call, other, group)[lines::call] != call) {
                return fail(out_of_step, other, group);
            }
        }
        // Chip 0 first, so that this chip's parts know the sum before them.
        Words own = of_group(group), total = lines::line(lines_, answer_index());
        uint64_t before = 0;
        for (uint32_t chip = 0; chip < chips_; ++chip) {
            Words line = chip == self_ ? own : mailbox(call, chip, group);
            before += chip < self_ ? lines::wide(line, lines::first_sum) : 0;
            if (chip == 0) {
                lines::copy(line, total);
            } else {
                lines::combine(total, line);
            }
        }
        answer(group, total, before);
#endif
    }

    // before: the first sum of the chips before this one.
    void answer(uint32_t group, Words total, uint64_t before) {
        Words line = lines::line(lines_, answer_index());
        if (line != total) {
            lines::copy(total, line);
        }
        line[lines::status] = broken();
        const uint32_t behind = lines::content + line[lines::count];
        const uint32_t bytes = (behind + 2) * sizeof(uint32_t);
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
        waiting_[group] = false;
    }

    Words mailbox(uint32_t call, uint32_t chip, uint32_t group) const {
        return &state_->mailbox[call % 2][chip][group][0];
    }
    static uint32_t address(const volatile uint32_t* word) { return reinterpret_cast<uint32_t>(word); }

    // The group's answer follows when its turn comes.
    void fail(Status status, uint32_t chip, uint32_t group) {
        state_->status = status;
        state_->status_call = state_->calls[group];
        state_->silent = chip;
        waiting_[group] = true;
    }
};

}  // namespace

void kernel_main() {
    Hub hub;
#if defined(TP_GROUP)
    tp::Links links(RUNTIME_INDEX(links), bounded::cycles_arg(RUNTIME_INDEX(timeout)), !hub.broken());
    hub.run(links);
    links.close();
#else
    struct {
    } links;
    hub.run(links);
#endif
}
