// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The pipeline of the functions of online_softmax.hpp over chunks of keys and tiles of queries; for compute kernels.

#pragma once

#include <cstdint>

#include "attention_config.hpp"
#include "online_softmax.hpp"

namespace online_softmax {

// One step: attention of one tile of queries to a chunk of `rows` key tiles. Small, as stacks are; L1 holds fewer than
// 256 tiles of either.
struct ChunkStep {
    uint8_t tile;  // of queries, in the job
    uint8_t rows;
    uint8_t first_band, end_band;
    bool last : 1;   // of the chunk's tiles of queries
    bool emits : 1;  // Op::emit() reads the state after it
    // Set by Steps: whether the chunk is the first, with no state before it; whether row maxima go from buffer a to b.
    bool first : 1 = false, to_b : 1 = false;

    Bands bands() const { return {first_band, end_band}; }
    void set_bands(Bands bands) {
        first_band = bands.begin;
        end_band = bands.end;
    }
};

// The state of a last step goes to its buffer alone: see accumulate().
struct Nowhere {
    static constexpr bool taken() { return false; }
    static constexpr bool keeps() { return true; }
    static void add_to_sums(uint32_t) {}
    static void pack_output() {}
    static void pack_sums(uint32_t) {}
};

// Runs the steps of one job after another, each in stages that alternate with those of the next two steps:
//
//     weights of step u, state of u - 1, rescale of u, row maxima of u + 1, scores of u + 2
//
// so that a stage reads what was packed some stages before, and the matrix unit makes the state while the vector unit
// computes the exponentials. If a step emits, its own state comes at once if another core waits for it, which holds the
// stages up, or in its turn.
// Row maxima are in two buffers, which alternate by chunk. They move by the slots() tiles of queries that a job may
// have, so that pointers stay at the start. Op, a class derived from this one, has
//     masses                          constant: a buffer of pages of mass_columns.hpp, or `none`
//     mass_rows(step)                 those of its tile of queries; a step without any has no page
//     slots(), scale()                tiles of queries of a job, see above
//     score(step)                     the scores of a step; pops the keys after the last tile of queries
//     emits_at_once                   constant: see above
//     emit(step)                      with the state at the front of its buffer
// and may have
//     before_raise(step)              may wait until row maxima and a state may be packed
//     before_emission(row_max)        if emits_at_once: before the state of a step that emits, with its row maxima
//     last()                          where the state of the last step goes instead: see accumulate()
template <typename OpStep, typename Op>
class Steps {
    static constexpr uint32_t row_max_a = config::cb_row_max_a, row_max_b = config::cb_row_max_b;
    static uint32_t capacity() { return config::key_tiles(); }  // of a chunk

public:
    // The buffer with the maxima of the state, or of the last step taken; and the one they are raised into next.
    uint32_t row_max() const { return in_b_ ? row_max_b : row_max_a; }
    uint32_t other_row_max() const { return in_b_ ? row_max_a : row_max_b; }
    void swap_row_maxima() { in_b_ = !in_b_; }

    // The state holds `step` after the next three, or finish().
    void take(OpStep step) {
        if (step.tile == 0) {
            swap_row_maxima();
            first_ = empty;
            empty = false;
        }
        if (pending_ == 0 && !weighed_) {
            register_rows::prepare(Op::scale());
        }
        step.first = first_;
        step.to_b = in_b_;
        if (pending_ == 2) {
            advance(&step);
        } else {
            Op::score(step);
        }
        steps_[pending_++] = step;
        if (pending_ == 1) {
            raise(step);
        }
    }

    void finish() {
        weigh_all();
        add_last();
        cb_wait_front(config::cb_state, head_tiles + 1);
    }

    // finish() in two parts. The row maxima are there after the first one; then the last step's part of the state may be
    // missing.
    bool weigh_all() {
        while (pending_ > 0) {
            advance(nullptr);
        }
        return weighed_;
    }
    void add_last() {
        if (weighed_) {
            add();
            weighed_ = false;
        }
    }

    void before_raise(const OpStep&) {}
    void before_emission(uint32_t) {}
    static Nowhere last() { return {}; }

    bool empty = true;  // no state, and no step taken

private:
    static uint32_t before(const OpStep& step) { return step.to_b ? row_max_a : row_max_b; }
    static uint32_t raised(const OpStep& step) { return step.to_b ? row_max_b : row_max_a; }
    static uint32_t unused_slots(const OpStep& step) { return step.last ? Op::slots() - step.tile - 1 : 0; }

    __attribute__((noinline)) void raise(const OpStep& step) {
        static_cast<Op&>(*this).before_raise(step);
        cb_wait_front(config::cb_scores, capacity());
        raise_row_max(step.rows, before(step), step.first, raised(step));
        if (const uint32_t rest = unused_slots(step); rest > 0) {
            cb_reserve_back(raised(step), rest);
            cb_push_back(raised(step), rest);
        }
    }

    // The state takes in the last step that was weighed.
    __attribute__((noinline)) void add() {
        if (!last_.first) {
            cb_wait_front(config::cb_rescale, 1);
            cb_wait_front(config::cb_state, head_tiles + 1);
        }
        cb_wait_front(config::cb_weights, capacity());
        constexpr bool with_masses = Op::masses != mass_columns::none;
        [[maybe_unused]] mass_columns::Rows rows{};
        if constexpr (with_masses) {
            rows = static_cast<const Op&>(*this).mass_rows(last_);
            if (rows.count > 0) {
                cb_reserve_back(Op::masses, 1);
            }
        }
        accumulate<with_masses>(
            last_.first, last_.rows, last_.bands(),
            [&]([[maybe_unused]] uint32_t index) {
                if constexpr (with_masses) {
                    if (rows.count > 0) {
                        hand_out_masses(Op::masses, index, raised(last_), last_.tile, rows);
                    }
                }
            },
            static_cast<const Op&>(*this).last());
        if (with_masses && rows.count > 0) {
            cb_push_back(Op::masses, 1);
        }
        if (!last_.first) {
            cb_pop_front(config::cb_rescale, 1);
        }
        if (last_.last) {
            pop_chunk(config::cb_values, capacity() * value_rows::stride<head_tiles>);
        }
        if (!Op::emits_at_once && last_.emits) {
            static_cast<Op&>(*this).emit(last_);
            register_rows::prepare(Op::scale());
        }
    }

    __attribute__((noinline)) void advance(const OpStep* next) {
        const OpStep& step = steps_[0];
        cb_wait_front(raised(step), step.tile + 1);
        weigh(raised(step), step.rows, step.bands(), step.tile);
        if (weighed_) {
            add();
        }
        if (!step.first) {
            rescale_of(before(step), raised(step), step.bands(), step.tile);
            const uint32_t popped = 1 + unused_slots(step);
            cb_wait_front(before(step), popped);
            cb_pop_front(before(step), popped);
        }
        last_ = step;
        const bool emits = Op::emits_at_once && step.emits;
        weighed_ = !emits;
        if (emits) {
            static_cast<Op&>(*this).before_emission(raised(step));
            add();
            if (next != nullptr) {
                Op::score(*next);  // between the state and what reads it
            }
            cb_wait_front(config::cb_state, head_tiles + 1);
            static_cast<Op&>(*this).emit(step);
            register_rows::prepare(Op::scale());
        }
        if (pending_ == 2) {
            raise(steps_[1]);
        }
        if (next != nullptr && !emits) {
            Op::score(*next);
        }
        steps_[0] = steps_[1];
        --pending_;
    }

    bool in_b_ = false;
    bool first_ = false;    // chunk
    bool weighed_ = false;  // `last_` has its weights and is not in the state
    uint8_t pending_ = 0;   // of steps_: the first has its row maxima, the second its scores
    OpStep last_;
    OpStep steps_[2];
};

}  // namespace online_softmax
