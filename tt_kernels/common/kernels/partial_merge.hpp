// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// What compute kernels that merge the partial results of the workers of a head share: these come in slots by
// partial_link.hpp, level by level, and go the same way. An op's config.hpp says how many a slot has (`partials`), and in
// which buffers (`slot_buffers`).

#pragma once

#include <cstdint>

#include "attention_config.hpp"
#include "merge_tree.hpp"

namespace partial_merge {

// Calls visit(slots, last) for each level at which something arrives in slots of `sources`, with the bits of those, once it
// has landed; then frees all slots.
template <typename Visit>
inline void for_each_level(uint32_t sources, Visit visit) {
    const uint32_t slots = merge_tree::slots(config::workers()), partials = config::partials();
    constexpr uint32_t level = (1u << merge_tree::senders) - 1;
    for (uint32_t first = 0; first < slots; first += merge_tree::senders) {
        const uint32_t arriving = sources & level << first;
        if (arriving != 0) {
            uint32_t end = first + 1;
            while (arriving >> end != 0) {
                ++end;
            }
            for (const auto& buffer : config::slot_buffers) {
                cb_wait_front(buffer.cb, end * partials * buffer.pages);
            }
            visit(arriving, sources >> first >> merge_tree::senders == 0);
        }
    }
    for (const auto& buffer : config::slot_buffers) {
        cb_wait_front(buffer.cb, slots * partials * buffer.pages);
        cb_pop_front(buffer.cb, slots * partials * buffer.pages);
    }
}

// The first of the slots whose bits are set: one at least.
inline uint32_t first_of(uint32_t slots) {
    uint32_t slot = 0;
    while ((slots >> slot & 1) == 0) {
        ++slot;
    }
    return slot;
}

// The last `tiles` tiles pushed into `cb` before the last `since` times as many.
struct Pushed {
    uint32_t cb, tiles, since;

#if defined(TRISC_PACK)
    uint32_t address() const {
        const auto& buffer = get_local_cb_interface(cb);
        uint32_t at = buffer.fifo_wr_ptr - (since + 1) * tiles * buffer.fifo_page_size;
        if (at < buffer.fifo_limit - buffer.fifo_size) {
            at += buffer.fifo_size;
        }
        return at << 4;
    }
#endif
};

// Tells the data movement kernel, by a page of cb_handover, where the parts of a partial result are. Until that kernel has
// popped the page (cb_reserve_back of all pages but those pushed since), nothing may be packed there.
template <typename... Parts>
inline void hand_over([[maybe_unused]] Parts... parts) {
    constexpr uint32_t handover = config::cb_handover;
    cb_reserve_back(handover, 1);
    PACK(({
        volatile tt_l1_ptr uint32_t* word =
            reinterpret_cast<volatile tt_l1_ptr uint32_t*>(get_local_cb_interface(handover).fifo_wr_ptr << 4);
        ((*word++ = parts.address()), ...);
        (void)word[-1];  // read back: they have reached L1
    }));
    cb_push_back(handover, 1);
}

}  // namespace partial_merge
