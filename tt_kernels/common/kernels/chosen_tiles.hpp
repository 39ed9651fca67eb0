// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The tiles between the two ends of the cache that a head's guess reads too, as a bitmap: bit t % 32 of word t // 32 is
// set for tile t (tt_kernels/speculative_flash_decode/guess_range.py). It is data: whatever the words hold, a guess reads
// no tile twice and none outside the middle.
//
// Rows of the cache are numbered so that the chosen tiles follow the first ones: everything but who reads DRAM sees a
// guess with a longer first range.

#pragma once

#include <cstdint>

namespace chosen_tiles {

constexpr uint32_t word_bits = 32;

// The words of a head: whole lines of 32 bytes, by which DRAM is read.
constexpr uint32_t words_of(uint32_t tiles) { return (tiles + 255) / 256 * 8; }

inline uint32_t bits_of(uint32_t word) {
    word -= word >> 1 & 0x55555555;
    word = (word & 0x33333333) + (word >> 2 & 0x33333333);
    return ((word + (word >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24;
}

// Keeps the bits of tiles [begin, end) in `words`, and writes how many of them are before each word `count` words
// behind. Returns how many there are. No key is read before that, so the loop has no more than it must.
inline uint32_t keep(volatile uint32_t* words, uint32_t count, uint32_t begin, uint32_t end) {
    if (begin >= end) {
        return 0;
    }
    const uint32_t first = begin / word_bits, last = (end - 1) / word_bits;
    words[first] = words[first] & ~0u << begin % word_bits;
    words[last] = words[last] & ~0u >> (word_bits - 1 - (end - 1) % word_bits);
    uint32_t kept = 0, word = words[first];
    for (uint32_t at = first; at <= last; ++at) {
        const uint32_t next = words[at + 1];  // it takes a while; the last one, of the counts, is not used
        words[count + at] = kept;
        kept += bits_of(word);
        word = next;
    }
    return kept;
}

// The order of rows: tiles [0, begin), those of [begin, end) that are kept, those that are not, and tiles from `end` on.
class Order {
public:
    // words, count: as keep() left them; kept: what it returned.
    Order(const volatile uint32_t* words, uint32_t count, uint32_t begin, uint32_t end, uint32_t kept) :
        words_(words), count_(count), begin_(begin), end_(end), others_(begin + kept) {}

    // The tile of a row. Rows in turn cost least.
    uint32_t tile(uint32_t row) {
        if (row < begin_ || row >= end_) {
            return row;
        }
        if (row != next_ || row == others_) {
            seek(row);
        }
        next_ = row + 1;
        while (left_ == 0) {
            left_ = words_[++at_] ^ flip_;
        }
        const uint32_t bit = bits_of(~left_ & (left_ - 1));
        left_ &= left_ - 1;
        return at_ * word_bits + bit;
    }

private:
    __attribute__((noinline)) void seek(uint32_t row) {
        flip_ = row < others_ ? 0 : ~0u;
        const uint32_t first = begin_ / word_bits;
        const uint32_t rank = row - (flip_ ? others_ : begin_);
        const auto before = [&](uint32_t at) {
            const uint32_t kept = words_[count_ + at];
            return flip_ ? at * word_bits - begin_ - kept : kept;
        };
        at_ = first;
        for (uint32_t end = (end_ - 1) / word_bits + 1; end - at_ > 1;) {
            const uint32_t middle = (at_ + end) / 2;
            (before(middle) <= rank ? at_ : end) = middle;
        }
        left_ = words_[at_] ^ flip_;
        if (at_ == first) {
            left_ &= ~0u << begin_ % word_bits;
        }
        for (uint32_t skipped = rank - (at_ == first ? 0 : before(at_)); skipped > 0; --skipped) {
            left_ &= left_ - 1;
        }
    }

    const volatile uint32_t* words_;
    uint32_t count_, begin_, end_, others_;
    uint32_t next_ = 0;
    uint32_t at_ = 0, left_ = 0;  // the word that is walked, and its bits that are left
    uint32_t flip_ = 0;           // all ones: the bits are those of tiles that are not kept
};

// Head rows (head_rows.hpp) in such an order.
template <typename Rows, typename Order>
struct Rearranged {
    Rows rows;
    mutable Order order;

    uint32_t page(uint32_t row) const { return rows.page(order.tile(row)); }
};

}  // namespace chosen_tiles
