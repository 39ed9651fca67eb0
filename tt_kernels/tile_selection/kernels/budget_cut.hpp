// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Which tiles of a key/value head a guess reads by a budget: all but the lightest, whose masses together are at most the
// part that may stay unread. Exact to the tile, of equal ones the lower, in integers and without a sort: a histogram by
// the masses' leading bits tells in which range of masses the cut lies, a finer one of that range's tiles where in it.

#pragma once

#include <cstdint>

namespace budget {

constexpr uint32_t one = 1u << 16;  // of a part
constexpr uint32_t digit_bits = 5, digits = 1u << digit_bits;
constexpr uint32_t word_bits = 32;

// The place of the highest bit set, 0 for 0.
inline uint32_t leading_bit(uint32_t mass) {
    uint32_t place = 0;
    if (mass >> 16) {
        mass >>= 16, place = 16;
    }
    if (mass >> 8) {
        mass >>= 8, place += 8;
    }
    if (mass >> 4) {
        mass >>= 4, place += 4;
    }
    if (mass >> 2) {
        mass >>= 2, place += 2;
    }
    return place + (mass >> 1);
}

// Sums of masses by a class of them, and the class in which the cut lies.
class Histogram {
public:
    void clear() {
        for (uint32_t digit = 0; digit < digits; ++digit) {
            low_[digit] = high_[digit] = 0;
        }
    }

    void add(uint32_t digit, uint32_t mass) {
        const uint32_t sum = low_[digit] + mass;
        low_[digit] = sum;
        if (sum < mass) {
            ++high_[digit];
        }
    }

    uint64_t sum(uint32_t digit) const { return static_cast<uint64_t>(high_[digit]) << 32 | low_[digit]; }

    uint64_t sum() const {
        uint64_t all = 0;
        for (uint32_t digit = 0; digit < digits; ++digit) {
            all += sum(digit);
        }
        return all;
    }

    // Takes whole classes, the lightest first, off what may stay unread; returns the first that does not fit, or
    // `digits` where all do.
    uint32_t cut(uint64_t& left) const {
        uint32_t digit = 0;
        while (digit < digits && sum(digit) <= left) {
            left -= sum(digit++);
        }
        return digit;
    }

private:
    uint32_t low_[digits], high_[digits];
};

inline void choose(volatile uint32_t* bits, uint32_t tile) {
    bits[tile / word_bits] = bits[tile / word_bits] | 1u << tile % word_bits;
}

// Calls visit(tile, mass) for the tiles of [begin, end). Four masses are read from L1 before the first is looked at.
template <typename Visit>
inline void for_each(const uint32_t* masses, uint32_t begin, uint32_t end, Visit visit) {
    uint32_t tile = begin;
    for (; tile + 4 <= end; tile += 4) {
        const uint32_t a = masses[tile], b = masses[tile + 1], c = masses[tile + 2], d = masses[tile + 3];
        visit(tile, a);
        visit(tile + 1, b);
        visit(tile + 2, c);
        visit(tile + 3, d);
    }
    for (; tile < end; ++tile) {
        visit(tile, masses[tile]);
    }
}

// Sets in `bits`, which are zero, those of the tiles of [begin, end) that are read. part: of the `total` masses of a
// head, how much may stay unread, in units of 1 / one. near: room for end - begin numbers.
inline void fill(
    const uint32_t* masses,
    uint32_t begin,
    uint32_t end,
    uint32_t total,
    uint32_t part,
    volatile uint32_t* bits,
    uint32_t* near) {
    Histogram sums;
    sums.clear();
    for_each(masses, begin, end, [&](uint32_t, uint32_t mass) { sums.add(leading_bit(mass), mass); });
    uint64_t all = sums.sum();
    const auto add = [&](uint32_t, uint32_t mass) { all += mass; };
    for_each(masses, 0, begin, add);
    for_each(masses, end, total, add);
    uint64_t left = all * part / one;
    const uint32_t place = sums.cut(left);
    if (place == digits) {
        return;
    }
    // Masses of the cut's class are [lowest, beyond]; they differ in their lower `free` bits alone.
    const uint32_t lowest = place ? 1u << place : 0, beyond = lowest + (place ? lowest - 1 : 1);
    uint32_t free = place ? place : 1, count = 0;
    for (uint32_t first = begin; first < end;) {
        const uint32_t word = first / word_bits, next = (word + 1) * word_bits;
        uint32_t read = 0;
        for_each(masses, first, next < end ? next : end, [&](uint32_t tile, uint32_t mass) {
            if (mass > beyond) {
                read |= 1u << tile % word_bits;
            } else if (mass >= lowest) {
                near[count++] = tile;
            }
        });
        bits[word] = read;
        first = next;
    }
    while (free) {
        const uint32_t width = free < digit_bits ? free : digit_bits;
        free -= width;
        const auto digit = [&](uint32_t i) { return masses[near[i]] >> free & ((1u << width) - 1); };
        sums.clear();
        for (uint32_t i = 0; i < count; ++i) {
            sums.add(digit(i), masses[near[i]]);
        }
        const uint32_t at = sums.cut(left);
        uint32_t kept = 0;
        for (uint32_t i = 0; i < count; ++i) {
            if (digit(i) > at) {
                choose(bits, near[i]);
            } else if (digit(i) == at) {
                near[kept++] = near[i];
            }
        }
        count = kept;
    }
    // The rest have the same mass: the higher ones stay unread as long as they fit.
    for (; count && left >= masses[near[count - 1]]; --count) {
        left -= masses[near[count - 1]];
    }
    for (uint32_t i = 0; i < count; ++i) {
        choose(bits, near[i]);
    }
}

}  // namespace budget
