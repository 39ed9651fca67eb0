// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What the core that decides on guesses does with the numbers of all users (BRISC): if a user's heads are on several
// chips (TP_GROUP), these decide together by the sums of their numbers (tp_session.hpp); a guess is given away if it is
// accepted and the peer has it.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "arguments.hpp"
#include "guess_decision.hpp"
#include "priority.hpp"
#if defined(TP_GROUP)
#include "tp_session.hpp"
#endif

namespace guess_verdict {

constexpr uint32_t max_users = 8;

// Numbers of each user, float32 bits: the squared distance of guess and exact result, the squared norm of the exact
// one, and that times threshold^2.
enum Kind : uint32_t { distance_sq, norm_sq, bound, kinds };
using Numbers = uint32_t[kinds][max_users];

// Whether the peer has the guess, by the exchange core's report to this core's semaphore. Waits for it; its own waits
// are bounded and usually over long before.
inline bool delivered(uint32_t semaphore) {
    const volatile tt_l1_ptr uint32_t* delivery =
        reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_semaphore(semaphore));
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
    // their guesses, and all of these chips know it. accepts(user): whether its numbers pass; delivered(): as above.
    template <typename Accepts, typename Delivered>
    bool given_away(uint32_t users, Numbers& numbers, Accepts accepts, Delivered delivered) {
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

}  // namespace guess_verdict
