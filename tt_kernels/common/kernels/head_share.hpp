// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's share of a head (head_split.hpp) on its way from the reader to compute (cb_share) and to the writer
// (cb_share_writer), head by head: worked out once, it takes a tenth of the code that five processors would need.

#pragma once

#include <cstdint>

#include "attention_config.hpp"
#include "head_split.hpp"

namespace head_share {

constexpr uint32_t words = sizeof(attention::Share) / sizeof(uint32_t);

#if defined(COMPILE_FOR_TRISC)

inline attention::Share take() {
    attention::Share share;
    cb_wait_front(config::cb_share, 1);
    for (uint32_t i = 0; i < words; ++i) {
        reinterpret_cast<uint32_t*>(&share)[i] = read_tile_value(config::cb_share, 0, i);
    }
    cb_pop_front(config::cb_share, 1);
    return share;
}

#else

inline volatile tt_l1_ptr uint32_t* words_at(uint32_t address) {
    return reinterpret_cast<volatile tt_l1_ptr uint32_t*>(address);
}

inline void pass_on(const attention::Share& share) {
    for (const uint32_t cb : {config::cb_share, config::cb_share_writer}) {
        cb_reserve_back(cb, 1);
        for (uint32_t i = 0; i < words; ++i) {
            words_at(get_write_ptr(cb))[i] = reinterpret_cast<const uint32_t*>(&share)[i];
        }
        (void)words_at(get_write_ptr(cb))[words - 1];  // read back: it has reached L1
        cb_push_back(cb, 1);
    }
}

inline attention::Share take() {
    attention::Share share;
    cb_wait_front(config::cb_share_writer, 1);
    for (uint32_t i = 0; i < words; ++i) {
        reinterpret_cast<uint32_t*>(&share)[i] = words_at(get_read_ptr(config::cb_share_writer))[i];
    }
    cb_pop_front(config::cb_share_writer, 1);
    return share;
}

#endif

}  // namespace head_share
