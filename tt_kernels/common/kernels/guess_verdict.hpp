// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The core that decides on guesses (BRISC): accepts or rejects each user's and writes distances, norms and this rank's
// priorities. If a user's heads are on several chips (TP_GROUP), these decide together by the sums of their numbers
// (tp_session.hpp). A guess is given away if it is accepted and the peer has it; else this rank holds the layer.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "arguments.hpp"
#include "attention_control.hpp"
#include "guess_decision.hpp"
#include "priority.hpp"
#if defined(TP_GROUP)
#include "tp_session.hpp"
#endif

namespace guess_verdict {

// Numbers of each user, float32 bits: the squared distance of guess and exact result, the squared norm of the exact
// one, and that times threshold^2.
enum Kind : uint32_t { distance_sq, norm_sq, bound, kinds };
using Numbers = uint32_t[kinds][config::max_users];

// Whether the peer has the guess, by the exchange core's report to this core's semaphore. Waits for it; its own waits
// are bounded and usually over long before.
inline bool delivered() {
    if constexpr (!config::has_peer) {
        return true;
    }
    const volatile tt_l1_ptr uint32_t* delivery =
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(config::sem_delivery));
    while (*delivery == 0) {
        invalidate_l1_cache();
    }
    return *delivery == priority::guess_delivered;
}

// Constructed before the numbers are there, since connections take time to open.
class Verdict {
public:
#if defined(TP_GROUP)
    Verdict() :
        timeout_(bounded::cycles_arg(RUNTIME_INDEX(tp_timeout))),
        session_(RUNTIME_ARG(tp_state), RUNTIME_ARG(tp_rank), RUNTIME_ARG(tp_chips), timeout_),
        usable_(session_.usable()),
        links_(RUNTIME_INDEX(tp_links), timeout_, usable_) {}
#endif

    // Replaces the numbers of `users` by their sums over the TP group. Returns whether the peers of all its chips have
    // their guesses, and all of these chips know it. accepts(user): whether its numbers pass.
    template <typename Accepts>
    bool given_away(uint32_t users, Numbers& numbers, Accepts accepts) {
        const auto any_accepted = [&] {
            for (uint32_t user = 0; user < users; ++user) {
                if (accepts(user)) {
                    return true;
                }
            }
            return false;
        };
#if defined(TP_GROUP)
        bool given = false;
        if (usable_ && session_.sum(links_, users, numbers)) {
            if (any_accepted()) {  // so it is on every chip of the group
                const bool favour = delivered();
                given = session_.vote(links_, favour) && favour && session_.all_in_favour();
            }
        } else if (usable_) {
            session_.vote(links_, false);
        }
        links_.close();
        return given;
#else
        return any_accepted() && delivered();
#endif
    }

#if defined(TP_GROUP)
private:
    uint64_t timeout_;
    tp::Session session_;
    bool usable_;
    tp::Links links_;
#endif
};

// Decides on what the control page `words` says, unless this rank receives. bypassed(tokens): whether a user with so many
// has no guess; gather(active, numbers): waits for the numbers of all users, of which `active` has a bit for each that is
// not skipped.
template <typename Bypassed, typename Gather>
inline void decide(const volatile tt_l1_ptr uint32_t* words, Bypassed bypassed, Gather gather) {
    if (words[control::receiving]) {
        return;
    }
    Verdict verdict;
    constexpr auto norm_args = ACCESSOR_ARGS(norm);
    const uint32_t priority_address = RUNTIME_ARG(priority);  // 0: there are none to update
    const uint64_t distances = TensorAccessor(norm_args, RUNTIME_ARG(distance_sq)).get_noc_addr(0);
    const uint64_t norms = TensorAccessor(norm_args, RUNTIME_ARG(norm_sq)).get_noc_addr(0);
    const uint64_t priorities = TensorAccessor(ACCESSOR_ARGS(priority), priority_address).get_noc_addr(0);
    const uint32_t users = config::users();

    // All that does not depend on the numbers is done before they are there: the lines are those of guesses that nobody
    // accepts. The scratch is free, since the control page has been made from it.
    const uint32_t scratch = get_write_ptr(config::cb_scratch);
    const auto line = [scratch](uint32_t index) {
        return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(scratch + index * priority::row_bytes);
    };
    uint32_t active = 0, guessed = 0;  // a bit for each user
    for (uint32_t user = 0; user < priority::max_users; ++user) {
        const uint32_t tokens = user < users ? words[control::first_tokens + user] : 0;
        const bool skipped = tokens == 0, bypasses = !skipped && bypassed(tokens);
        active |= (skipped ? 0u : 1u) << user;
        guessed |= (skipped || bypasses ? 0u : 1u) << user;
        line(2)[user] = guess_decision::priority_of(skipped, bypasses, false);
    }
    Numbers numbers{};
    const auto accepts = [&](uint32_t user) {
        return (guessed >> user & 1) != 0 &&
               guess_decision::passes(numbers[distance_sq][user], numbers[bound][user]);
    };
    gather(active, numbers);
    const bool given_away = verdict.given_away(users, numbers, accepts);
    for (uint32_t user = 0; user < users; ++user) {
        line(0)[user] = numbers[distance_sq][user];
        line(1)[user] = numbers[norm_sq][user];
        if (given_away && accepts(user)) {
            line(2)[user] = guess_decision::priority_of(false, false, true);
        }
    }
    (void)line(2)[0];  // read back: all have reached L1
    const auto write = [&](uint32_t index, uint64_t to, uint32_t size) {
        noc_async_write<priority::row_bytes>(scratch + index * priority::row_bytes, to, size);
    };
    write(0, distances, users * sizeof(uint32_t));
    write(1, norms, users * sizeof(uint32_t));
    if (priority_address != 0) {
        write(2, priorities, priority::row_bytes);
    }
    noc_async_write_barrier();
}

}  // namespace guess_verdict
