// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The ids of one core: two rows of logits in L1, and what the calculator makes of them. A core has a user's whole
// vocabulary, or it is split over cores (lines.hpp).

#pragma once

#include <cstdint>

#include "config.hpp"
#include "verification_result.hpp"
#include "row_reader.hpp"
#include "wide.hpp"

using verification::nobody;
using verification::Words;
using Logits = volatile tt_l1_ptr uint16_t*;

// Bits of floats as integers in the order of the numbers; NaNs lie beyond the infinities.
constexpr uint32_t sign = 0x80000000;
constexpr int32_t infinity = 0x7F800000;
inline int32_t ordered(uint32_t bits) {
    const int32_t magnitude = static_cast<int32_t>(bits & ~sign);
    return bits & sign ? -magnitude : magnitude;
}
inline uint32_t bits_of(int32_t ordered) {
    return ordered < 0 ? static_cast<uint32_t>(-ordered) | sign : static_cast<uint32_t>(ordered);
}

// A whole number as weights.hpp leaves it.
inline int32_t whole(uint32_t bits) { return static_cast<int32_t>(bits - 0x4B400000); }

struct Row {
    uint32_t address;
    uint32_t offset = 0;  // minus the largest logit, of all parts
    int32_t most = 0, least = 0;

    Logits logits() const { return reinterpret_cast<Logits>(address); }

    // Whether its logits are numbers or -infinity, and not all of them that.
    bool good() const { return most < infinity && most > -infinity && least >= -infinity; }
};

class Part {
public:
    Row target, draft;
    // Of the target's weights: the scales of residuals, and what they are of.
    uint32_t stages = 0;
    uint32_t scales[2 * config::max_nodes];
    uint32_t form = command::softmax;
    uint32_t sharpness = 0;  // 1 / temperature
    // What sigmoids take (command::Word).
    uint32_t center = 0, slope = 0;

    Part() :
        first_(RUNTIME_ARG(first_id)),
        ids_(RUNTIME_ARG(ids)),
        tiles_((ids_ + config::tile_ids - 1) / config::tile_ids) {
        target.address = get_write_ptr(config::cb_target);
        draft.address = get_write_ptr(config::cb_draft);
        tile_sums_ = reinterpret_cast<volatile tt_l1_ptr uint64_t*>(
            get_write_ptr(config::cb_scratch) + config::scratch_lines * verification::line_bytes);
    }

    void end() {
        begin_command(command::end, 0, 1);
        cb_push_back(config::cb_command, 1);
    }

    bool holds(uint32_t token) const { return token - first_ < ids_; }

    template <typename Accessor>
    void start_read(const Accessor& logits, const row_reader::Place& place, const Row& row) const {
        row_reader::start(logits, place, first_, ids_, row.address);
    }

    // Starts to read the piece that holds `token`'s logit, the i-th of those asked for.
    template <typename Accessor>
    void start_piece(
        const Accessor& logits, const row_reader::Place& place, uint32_t token, uint32_t i, const Row& row) {
        if (holds(token)) {
            row_reader::start_piece(logits, place, token, row.address + i * row_reader::piece_bytes);
        }
    }
    uint16_t in_piece(const Row& row, uint32_t token, uint32_t i) const {
        const uint32_t place = i * row_reader::piece_ids + token % row_reader::piece_ids;
        return holds(token) ? row.logits()[place] : row_reader::minus_infinity;
    }

    uint16_t logit(const Row& row, uint32_t token) const {
        return holds(token) ? row.logits()[token - first_] : row_reader::minus_infinity;
    }
    void set_logit(Row& row, uint32_t token, uint16_t logit) {
        if (holds(token)) {
            row.logits()[token - first_] = logit;
        }
    }

    // The largest and the least logit of a row that has just been read.
    void find_range(Row& row, uint32_t source) {
        row_reader::fill(row.address, ids_);
        Words words = begin_command(command::range, 0, tiles_);
        words[command::source] = source;
        cb_push_back(config::cb_command, 1);
        Words lanes = wait_result();
        row.most = ordered(lanes[0]);
        row.least = ordered(lanes[1]);
        for (uint32_t i = 1; i < command::pairs; ++i) {
            const int32_t most = ordered(lanes[2 * i]), least = ordered(lanes[2 * i + 1]);
            row.most = most > row.most ? most : row.most;
            row.least = least < row.least ? least : row.least;
        }
        end_result();
        // To the vector unit a NaN is an infinity of its sign. Only where there is the least of numbers are the bits
        // looked at: a NaN among them counts as less than all.
        if (row.least <= -infinity && holds_nan(row)) {
            row.least = -infinity - 1;
        }
    }

    // The sum of all weights; those of each tile are left for find().
    uint64_t sum_up(uint32_t source) {
        order(command::sums, source, 0, tiles_);
        sum_ = 0;
        Words lanes = nullptr;
        for (uint32_t tile = 0; tile < tiles_; ++tile) {
            const uint32_t slot = tile % command::tiles_per_result;
            if (slot == 0) {
                lanes = wait_result();
            }
            int32_t coarse = 0, fine_part = 0;
            for (uint32_t i = 0; i < command::pairs; ++i) {
                coarse += whole(lanes[2 * (slot * command::pairs + i)]);
                fine_part += whole(lanes[2 * (slot * command::pairs + i) + 1]);
            }
            const uint64_t sum = static_cast<uint64_t>((static_cast<int64_t>(coarse) << 16) + fine_part);
            tile_sums_[tile] = sum;
            sum_ += sum;
            if (slot + 1 == command::tiles_per_result || tile + 1 == tiles_) {
                end_result();
            }
        }
        return sum_;
    }

    // Puts logits into the tile behind the rows, for weigh().
    void gather(uint32_t i, uint16_t target_logit, uint16_t draft_logit) {
        target.logits()[tiles_ * config::tile_ids + i] = target_logit;
        if constexpr (config::has_draft) {
            draft.logits()[tiles_ * config::tile_ids + i] = draft_logit;
        }
    }

    // The weights of the first `count` gathered logits.
    void weigh(uint32_t source, uint32_t count, volatile tt_l1_ptr uint32_t* found) {
        gathered_ = count;
        order(command::weights, source, tiles_, tiles_ + 1);
        Words parts = wait_result();
        for (uint32_t i = 0; i < count; ++i) {
            found[i] = weight(parts, i);
        }
        end_result();
    }

    // The token at which the sum of weights exceeds `goal`, which is below the sum of this part.
    uint32_t find(uint64_t goal) {
        uint32_t tile = 0;
        while (tile + 1 < tiles_ && tile_sums_[tile] <= goal) {
            goal -= tile_sums_[tile++];
        }
        order(command::weights, command::target, tile, tile + 1);
        Words parts = wait_result();
        uint32_t place = 0;
        const uint32_t ids = ids_ - tile * config::tile_ids;
        const uint32_t last = (ids < config::tile_ids ? ids : config::tile_ids) - 1;
        for (; place < last; ++place) {
            const uint32_t here = weight(parts, place);
            if (goal < here) {
                break;
            }
            goal -= here;
        }
        end_result();
        return first_ + tile * config::tile_ids + place;
    }

    uint64_t sum() const { return sum_; }

private:
    // Its first id, and how many it has.
    uint32_t first_, ids_, tiles_;
    uint32_t gathered_ = 0;
    uint64_t sum_ = 0;
    volatile tt_l1_ptr uint64_t* tile_sums_;

    // Whether there is a NaN among the row's logits, two of them a word. After row_reader::fill().
    bool holds_nan(const Row& row) const {
        Words pairs = reinterpret_cast<Words>(row.address);
        for (uint32_t i = 0; 2 * i < ids_; ++i) {
            const uint32_t pair = pairs[i];
            if ((pair & 0x7FFF) > 0x7F80 || (pair & 0x7FFF0000) > 0x7F800000) {
                return true;
            }
        }
        return false;
    }

    // Vectors of the tile before `stop`: of the gathered logits, the row's last tile, or a whole one.
    uint32_t vectors_before(uint32_t stop) const {
        const uint32_t ids = stop > tiles_ ? gathered_ : ids_ - (stop - 1) * config::tile_ids;
        return ids >= config::tile_ids ? command::pairs : (ids + row_reader::step - 1) / row_reader::step * 2;
    }

    Words begin_command(uint32_t kind, uint32_t begin, uint32_t stop) {
        cb_reserve_back(config::cb_command, 1);
        Words words = reinterpret_cast<Words>(get_write_ptr(config::cb_command));
        words[command::kind] = kind;
        words[command::begin] = begin;
        words[command::stop] = stop;
        words[command::last_vectors] = vectors_before(stop);
        words[command::source] = command::target;
        words[command::form] = command::softmax;
        words[command::stages] = 0;
        return words;
    }

    // A command about weights, of the target's residual unless it is about the draft.
    void order(uint32_t kind, uint32_t source, uint32_t begin, uint32_t stop) {
        Words words = begin_command(kind, begin, stop);
        words[command::source] = source;
        words[command::form] = form;
        const bool softmax = form == command::softmax;
        words[command::target_offset] = softmax ? target.offset : center;
        words[command::draft_offset] = draft.offset;
        words[command::sharpness] = softmax ? sharpness : slope;
        if (source == command::target) {
            words[command::stages] = stages;
            for (uint32_t i = 0; i < 2 * stages; ++i) {
                words[command::first_scales + i] = scales[i];
            }
        }
        cb_push_back(config::cb_command, 1);
    }

    static Words wait_result() {
        cb_wait_front(config::cb_result, command::result_pages);
        return reinterpret_cast<Words>(get_read_ptr(config::cb_result));
    }
    static void end_result() { cb_pop_front(config::cb_result, command::result_pages); }

    // The weight at a place, of those asked for with order(command::weights, ...).
    static uint32_t weight(Words coarse, uint32_t place) {
        return static_cast<uint32_t>(whole(coarse[place]) * 65536 + whole(coarse[config::tile_ids + place]));
    }
};
