// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The data-movement kernel (BRISC): walks the tree of each of this core's users from the root, tries children in node
// order, and draws the bonus token where no child is accepted. It reads the rows of visited nodes only, once each.
// All decisions are whole-number comparisons; see reference.py for the arithmetic.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "outcome.hpp"
#include "row_reader.hpp"
#include "wide.hpp"

namespace {

using outcome::bad_draft;
using outcome::bad_target;
using outcome::bad_tree;
using outcome::fine;
using outcome::line_bytes;
using outcome::nobody;
using outcome::Words;
using Logits = volatile tt_l1_ptr uint16_t*;

constexpr uint32_t infinity = 0x7F800000, sign = 0x80000000;

// Bits of floats as integers in the order of the numbers; NaNs lie beyond the infinities.
int32_t ordered(uint32_t bits) {
    const int32_t magnitude = static_cast<int32_t>(bits & ~sign);
    return bits & sign ? -magnitude : magnitude;
}

// A whole number as weights.hpp leaves it.
int32_t whole(uint32_t bits) { return static_cast<int32_t>(bits - 0x4B400000); }

struct Row {
    uint32_t address;
    uint32_t offset = 0;     // minus the largest logit
    uint32_t sharpness = 0;  // 1 / temperature
    uint64_t sum = 0;

    Logits logits() const { return reinterpret_cast<Logits>(address); }
};

class Walker {
public:
    Walker() :
        vocab_(COMMON_ARG(vocab)),
        nodes_(COMMON_ARG(nodes)),
        tiles_((vocab_ + config::tile_ids - 1) / config::tile_ids),
        scratch_(get_write_ptr(config::cb_scratch)),
        parents_(line(0)),
        tokens_(line(1)),
        uniforms_(line(2)),
        outcome_(line(3)),
        tile_sums_(reinterpret_cast<volatile tt_l1_ptr uint64_t*>(scratch_ + 6 * line_bytes)) {
        target_.address = get_write_ptr(config::cb_target);
        draft_.address = get_write_ptr(config::cb_draft);
    }

    template <typename Targets, typename Drafts>
    void walk(
        const Targets& targets,
        const Drafts& drafts,
        uint32_t user,
        uint32_t target_sharpness,
        uint32_t draft_sharpness) {
        target_.sharpness = target_sharpness;
        draft_.sharpness = draft_sharpness;
        length_ = 0;
        uint32_t status = outcome::tree_is_good(parents_, tokens_, nodes_, vocab_) ? fine : bad_tree;
        uint32_t node = 0, bonus = 0;
        while (status == fine) {
            row_reader::start(targets, user, node, nodes_, vocab_, target_.address);
            const bool with_draft = config::has_draft && next_child(node, 0) < nodes_;
            if (with_draft) {
                row_reader::start(drafts, user, node, nodes_, vocab_, draft_.address);
            }
            noc_async_read_barrier();
            status = prepare(target_, command::target) ? fine : bad_target;
            if (status == fine && with_draft && !prepare(draft_, command::draft)) {
                status = bad_draft;
            }
            if (status != fine) {
                break;
            }
            const uint32_t child = try_children(node);
            if (child == nobody) {
                bonus = draw();
                break;
            }
            path(length_++) = child;
            node = child;
        }
        outcome::report(outcome_, tokens_, nodes_, status, length_, bonus);
    }

    void end() {
        begin_command(command::end, 0, 1);
        cb_push_back(config::cb_command, 1);
    }

    uint32_t parents() const { return scratch_; }
    uint32_t tokens() const { return scratch_ + line_bytes; }
    uint32_t uniforms() const { return scratch_ + 2 * line_bytes; }
    uint32_t result() const { return scratch_ + 3 * line_bytes; }

private:
    uint32_t vocab_, nodes_, tiles_;
    uint32_t scratch_;
    Words parents_, tokens_, uniforms_, outcome_;
    volatile tt_l1_ptr uint64_t* tile_sums_;
    Row target_, draft_;
    uint32_t length_ = 0;
    // Of the node at hand: the sums of what remains of the target and of the draft, and how it came about.
    uint64_t target_sum_ = 0, draft_sum_ = 0;
    uint32_t stages_ = 0;
    uint32_t scales_[2 * config::most_nodes];
    bool stale_ = false;  // whether tile_sums_ are of other weights

    Words line(uint32_t index) const { return outcome::line(scratch_, index); }
    volatile tt_l1_ptr uint32_t& path(uint32_t i) { return outcome_[outcome::head + i]; }

    // The first child of `node` from `from` on; nodes_ if there is none.
    uint32_t next_child(uint32_t node, uint32_t from) const {
        while (from < nodes_ && parents_[from] != node) {
            ++from;
        }
        return from;
    }

    // Vectors of the tile before `stop`: of the gathered logits, the row's last tile, or a whole one.
    uint32_t vectors_before(uint32_t stop) const {
        const uint32_t ids = stop > tiles_ ? nodes_ : vocab_ - (stop - 1) * config::tile_ids;
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
        words[command::stages] = 0;
        return words;
    }

    // A command about weights, of the target's residual unless it is about the draft.
    void order(uint32_t kind, uint32_t source, uint32_t begin, uint32_t stop) {
        Words words = begin_command(kind, begin, stop);
        words[command::source] = source;
        words[command::target_offset] = target_.offset;
        words[command::target_sharpness] = target_.sharpness;
        words[command::draft_offset] = draft_.offset;
        words[command::draft_sharpness] = draft_.sharpness;
        if (source == command::target) {
            words[command::stages] = stages_;
            for (uint32_t i = 0; i < 2 * stages_; ++i) {
                words[command::first_scales + i] = scales_[i];
            }
        }
        cb_push_back(config::cb_command, 1);
    }

    static Words wait_result() {
        cb_wait_front(config::cb_result, command::result_pages);
        return reinterpret_cast<Words>(get_read_ptr(config::cb_result));
    }
    static void end_result() { cb_pop_front(config::cb_result, command::result_pages); }

    // Largest logit and sum of weights of a row that has just been read; false for a NaN, infinity or nothing finite.
    bool prepare(Row& row, uint32_t source) {
        row_reader::fill(row.address, vocab_);
        Words words = begin_command(command::range, 0, tiles_);
        words[command::source] = source;
        cb_push_back(config::cb_command, 1);
        Words lanes = wait_result();
        uint32_t most = lanes[0], least = lanes[1];
        for (uint32_t i = 1; i < command::pairs; ++i) {
            most = ordered(lanes[2 * i]) > ordered(most) ? lanes[2 * i] : most;
            least = ordered(lanes[2 * i + 1]) < ordered(least) ? lanes[2 * i + 1] : least;
        }
        end_result();
        const int32_t limit = infinity;
        if (ordered(most) >= limit || ordered(most) <= -limit || ordered(least) < -limit) {
            return false;
        }
        row.offset = most ^ sign;
        stages_ = 0;
        row.sum = sum_up(source);
        return true;
    }

    // The sum of all weights; those of each tile are left in tile_sums_.
    uint64_t sum_up(uint32_t source) {
        order(command::sums, source, 0, tiles_);
        uint64_t total = 0;
        Words lanes = nullptr;
        for (uint32_t tile = 0; tile < tiles_; ++tile) {
            const uint32_t slot = tile % command::tiles_a_result;
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
            total += sum;
            if (slot + 1 == command::tiles_a_result || tile + 1 == tiles_) {
                end_result();
            }
        }
        return total;
    }

    // The weight of a token, of those asked for with order(command::weights, ...).
    static uint32_t weight(Words coarse, uint32_t place) {
        return static_cast<uint32_t>(whole(coarse[place]) * 65536 + whole(coarse[config::tile_ids + place]));
    }

    // The weights of `node`'s children from `child` on, which are put into the tile behind the rows.
    void probe(uint32_t source, uint32_t node, uint32_t child, uint32_t (&found)[config::most_nodes]) {
        const uint32_t place = tiles_ * config::tile_ids;
        const auto for_each = [&](auto visit) {
            for (uint32_t i = next_child(node, child); i < nodes_; i = next_child(node, i + 1)) {
                visit(i);
            }
        };
        for_each([&](uint32_t i) {
            target_.logits()[place + i] = target_.logits()[tokens_[i]];
            if constexpr (config::has_draft) {
                draft_.logits()[place + i] = draft_.logits()[tokens_[i]];
            }
        });
        order(command::weights, source, tiles_, tiles_ + 1);
        Words parts = wait_result();
        for_each([&](uint32_t i) { found[i] = weight(parts, i); });
        end_result();
    }

    // Whether the draft could draw the token at all.
    bool drawable(uint32_t token) const { return draft_.logits()[token] != row_reader::minus_infinity; }

    bool tried_before(uint32_t child) const {
        for (uint32_t i = next_child(parents_[child], 0); i < child; i = next_child(parents_[child], i + 1)) {
            if (tokens_[i] == tokens_[child]) {
                return true;
            }
        }
        return false;
    }

    // The accepted child of `node`, or nobody; then target_sum_ and stages_ are of what to draw from.
    uint32_t try_children(uint32_t node) {
        target_sum_ = target_.sum;
        draft_sum_ = draft_.sum;
        stages_ = 0;
        uint32_t child = next_child(node, 0);
        stale_ = config::has_draft && child < nodes_;  // then the draft's sums came last
        if (child >= nodes_) {
            return nobody;
        }
        uint32_t p[config::most_nodes], q[config::most_nodes];
        probe(command::target, node, child, p);
        if constexpr (config::has_draft) {
            probe(command::draft, node, child, q);
        }
        for (; child < nodes_; child = next_child(node, child + 1)) {
            if constexpr (config::has_draft) {
                const bool dropped = !config::with_replacement && tried_before(child);
                if (!drawable(tokens_[child]) || dropped || draft_sum_ == 0) {
                    continue;
                }
                if (accepts(uniforms_[child], q[child], p[child])) {
                    return child;
                }
                if (reject(child) && next_child(node, child + 1) < nodes_) {
                    probe(command::target, node, child + 1, p);
                }
                if constexpr (!config::with_replacement) {
                    draft_sum_ -= q[child];
                }
            } else {
                const uint32_t weight = tried_before(child) && removed(child) ? 0 : p[child];
                const wide::Product goal = wide::multiply(uniforms_[child], target_sum_);
                if (wide::less(goal, wide::multiply(static_cast<uint64_t>(weight) << 32, 1))) {
                    return child;
                }
                if (weight != 0 && target_sum_ != weight) {
                    target_sum_ -= weight;
                    remove(tokens_[child]);
                    stale_ = true;
                }
            }
        }
        return nobody;
    }

    bool accepts(uint32_t uniform, uint32_t q, uint32_t p) const {
        return wide::less(wide::scaled_draft(uniform, q, target_sum_), wide::scaled_target(p, draft_sum_));
    }

    void remove(uint32_t token) { target_.logits()[token] = row_reader::minus_infinity; }
    bool removed(uint32_t child) const {
        return target_.logits()[tokens_[child]] == row_reader::minus_infinity;
    }

    // Forms the residual after a rejection; false when nothing remains, and what was before stays.
    bool reject(uint32_t child) {
        const uint32_t token = tokens_[child];
        const uint16_t before = target_.logits()[token];
        scales_[2 * stages_] = wide::reciprocal(target_sum_);
        scales_[2 * stages_ + 1] = wide::reciprocal(draft_sum_);
        ++stages_;
        remove(token);
        const uint64_t left = sum_up(command::target);
        if (left == 0) {
            --stages_;
            target_.logits()[token] = before;
            stale_ = true;
            return false;
        }
        target_sum_ = left;
        stale_ = false;
        return true;
    }

    // The token at which the sum of weights exceeds the root's uniform times the whole.
    uint32_t draw() {
        if (stale_) {
            target_sum_ = sum_up(command::target);
        }
        uint64_t goal = wide::share(uniforms_[0], target_sum_);
        uint32_t tile = 0;
        while (tile + 1 < tiles_ && tile_sums_[tile] <= goal) {
            goal -= tile_sums_[tile++];
        }
        order(command::weights, command::target, tile, tile + 1);
        Words parts = wait_result();
        uint32_t place = 0;
        const uint32_t ids = vocab_ - tile * config::tile_ids;
        const uint32_t last = (ids < config::tile_ids ? ids : config::tile_ids) - 1;
        for (; place < last; ++place) {
            const uint32_t here = weight(parts, place);
            if (goal < here) {
                break;
            }
            goal -= here;
        }
        end_result();
        return tile * config::tile_ids + place;
    }
};

}  // namespace

void kernel_main() {
    const auto targets = TensorAccessor(ACCESSOR_ARGS(target), COMMON_ARG(target));
    const auto drafts = TensorAccessor(ACCESSOR_ARGS(draft), COMMON_ARG(draft));
    const auto parents = TensorAccessor(ACCESSOR_ARGS(tree), COMMON_ARG(parents));
    const auto tokens = TensorAccessor(ACCESSOR_ARGS(tree), COMMON_ARG(tokens));
    const auto uniforms = TensorAccessor(ACCESSOR_ARGS(tree), COMMON_ARG(uniforms));
    const auto outcomes = TensorAccessor(ACCESSOR_ARGS(outcome), COMMON_ARG(outcome));
    const uint32_t users = COMMON_ARG(users), step = COMMON_ARG(cores),
                   bytes = COMMON_ARG(nodes) * sizeof(uint32_t);
    Walker walker;
    for (uint32_t user = RUNTIME_ARG(first_user); user < users; user += step) {
        noc_async_read(parents.get_noc_addr(user), walker.parents(), bytes);
        noc_async_read(tokens.get_noc_addr(user), walker.tokens(), bytes);
        noc_async_read(uniforms.get_noc_addr(user), walker.uniforms(), bytes);
        noc_async_read_barrier();
        walker.walk(targets, drafts, user, COMMON_ARG(target_sharpness), COMMON_ARG(draft_sharpness));
        noc_async_write(walker.result(), outcomes.get_noc_addr(user), outcome::bytes(COMMON_ARG(nodes)));
        noc_async_write_barrier();
    }
    walker.end();
}
