// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The masses of a worker's key tiles, for its writer. Compute hands out the weights of each chunk, summed over the keys of
// a tile (mass_columns.hpp); the writer keeps them, relative to what is some octaves above the first chunk's row maximum,
// so that they seldom change when the maximum rises. When the reducer has merged all partial results of the head, its
// reader sends each worker the row sums and maxima, and each adds the masses of its tiles (tile_mass.hpp) to moving
// averages in DRAM, a word for each tile of the cache: half of what it was and half of the mass.
//
// A row for each query head of a key/value head counts. They lie in the op's config::query_tiles() of a head: next() of its
// `Places` says, of one of these after another, which rows of it count.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "attention_config.hpp"
#include "chunk_split.hpp"
#include "mass_columns.hpp"
#include "tile_mass.hpp"

namespace masses {

using mass_columns::Rows;
using Words = volatile tt_l1_ptr uint32_t*;
using Halves = volatile tt_l1_ptr uint16_t*;

inline Words words_at(uint32_t address) { return reinterpret_cast<Words>(address); }

// cb_mass_words: of how many heads the totals have come and been taken, in 16 bytes of their own, and the row sum (float32)
// and the row maximum (bfloat16) of each row that counts; then, from whole lines of DRAM on, the words of the cache's tiles;
// then for each tile of this worker the weights of these rows.
constexpr uint32_t arrived_word = 0, taken_word = 1, totals_offset = 16, words_per_row = 2;
constexpr uint32_t line_words = 32 / sizeof(uint32_t);  // DRAM is read by lines

inline uint32_t whole_lines(uint32_t words) { return (words + line_words - 1) / line_words * line_words; }
inline Words words() { return words_at(get_write_ptr(config::cb_mass_words)); }
inline uint32_t line_start() {
    const uint32_t totals = totals_offset / sizeof(uint32_t) + words_per_row * config::group_heads();
    return get_write_ptr(config::cb_mass_words) + whole_lines(totals) * sizeof(uint32_t);
}
inline uint32_t* weights_start() {
    return reinterpret_cast<uint32_t*>(line_start()) + whole_lines(config::cache_tiles());
}

// The totals of a head, on the reducer. With other workers its reader takes and sends them, while its writer sends the
// result; a worker alone takes them by its writer, since its reader is then ahead, in the next head.
class Totals {
public:
    // Reads those of a head, from where compute hands over its partial results for this writer. read(partial, page, to):
    // writes the row sums and maxima of one of them from `to` on, given the page that says where it is; returns the end.
    template <typename Read>
    void take(Read read) {
        Words to = words() + totals_offset / sizeof(uint32_t);
        for (uint32_t partial = 0; partial < config::partials(); ++partial) {
            cb_wait_front(config::cb_handover, 1);
            while (words()[taken_word] < heads_) {
                invalidate_l1_cache();
            }
            to = read(partial, words_at(get_read_ptr(config::cb_handover)), to);
            (void)to[-1];  // read back
            cb_pop_front(config::cb_handover, 1);
        }
        words()[arrived_word] = ++heads_;
    }

    // Sends them to the other workers below `end`: first to the last one, which has the most runs of tiles to write.
    // at(worker, address): the NoC address there.
    template <typename At>
    void send(uint32_t end, const At& at) const {
        const uint32_t here = get_write_ptr(config::cb_mass_words);
        const uint32_t bytes = config::group_heads() * words_per_row * sizeof(uint32_t);
        const auto for_each_worker = [&](auto visit) {
            for (uint32_t worker = end - 1; worker > 0; --worker) {
                visit(worker);
            }
        };
        for_each_worker([&](uint32_t worker) {
            noc_async_write(here + totals_offset, at(worker, here + totals_offset), bytes);
        });
        noc_async_write_barrier();
        for_each_worker([&](uint32_t worker) {
            noc_semaphore_inc(at(worker, here + arrived_word * sizeof(uint32_t)), 1);
        });
    }

private:
    uint32_t heads_ = 0;
};

// Calls visit(tile, count) for the tiles that rows of the cache are, run by run. order: of the rows.
template <typename Order, typename Visit>
inline void for_each_run(Order& order, const attention::Range& rows, Visit visit) {
    if constexpr (config::with_chosen) {
        constexpr uint32_t none = ~0u;
        uint32_t tile = rows.size() > 0 ? order.tile(rows.begin) : none;
        for (uint32_t row = rows.begin; row < rows.end;) {
            uint32_t count = 0, next = none;
            do {
                ++count;
                next = row + count < rows.end ? order.tile(row + count) : none;
            } while (next == tile + count);
            visit(tile, count);
            row += count;
            tile = next;
        }
    } else {
        visit(rows.begin, rows.size());
    }
}

template <typename Places>
class Keeper {
public:
    explicit Keeper(uint32_t scale_log2e) : scale_log2e_(scale_log2e) {
        if constexpr (config::hands_out_masses) {  // else cb_mass_words is where an earlier program had it
            words()[arrived_word] = words()[taken_word] = 0;
            (void)words()[arrived_word];  // read back: before any worker has sent anything
        }
    }

    // A head of which this worker has `part`. end: rows of the cache from this one on do not count.
    void begin(const Places& places, const attention::Part& part, uint32_t end) {
        places_ = places;
        part_ = part;
        end_ = end;
        kept_ = weights_start();
        for (uint32_t row = 0; row < config::group_heads(); ++row) {
            rows_[row].octaves = no_chunk;
        }
    }

    // Keep what compute hands out: of the guess, but for its last chunk, which can wait until the guess has been sent; of
    // that and of the rest, but for the part's last chunk, which can wait until its partial result has been sent; of that.
    void keep_guess() {
        keep(part_.first, ends_with_first() ? Chunks::all_but_last : Chunks::all);
        keep(part_.last, Chunks::all_but_last);
    }
    void keep_rest() {
        if (part_.middle.size() > 0) {
            keep(guess_end(), Chunks::last);
            keep(part_.middle, Chunks::all_but_last);
        }
    }
    void keep_last() { keep(part_.middle.size() > 0 ? part_.middle : guess_end(), Chunks::last); }

    // Waits for the totals of the head, and takes from them the factor of each row's weights. Not inlined, like others
    // here, as a kernel's code must stay small.
    __attribute__((noinline)) void take_totals() {
        ++heads_;
        while (words()[arrived_word] < heads_) {
            invalidate_l1_cache();
        }
        const Words totals = words() + totals_offset / sizeof(uint32_t);
        for (uint32_t row = 0; row < config::group_heads(); ++row) {
            const uint32_t distance =
                tile_mass::distance(rows_[row].reference, totals[words_per_row * row + 1], scale_log2e_);
            rows_[row].factor = tile_mass::factor(totals[words_per_row * row], distance, rows_[row].octaves);
        }
        words()[taken_word] = heads_;
    }

    // Starts to read the words of the tiles of the part from `line`: of each range, from its first tile to its last.
    // order: of the rows.
    template <typename Order>
    void fetch(Order& order, uint64_t line) {
        noc_async_write_barrier();  // those of the head before have been sent from here
        constexpr uint32_t last_of_line = line_words - 1;
        for (const attention::Range& all : {part_.first, part_.last, part_.middle}) {
            if (const attention::Range range = counted(all); range.size() > 0) {
                const uint32_t begin = order.tile(range.begin) & ~last_of_line;
                const uint32_t end = (order.tile(range.end - 1) | last_of_line) + 1;
                const uint32_t offset = begin * sizeof(uint32_t);
                noc_async_read(line + offset, line_start() + offset, (end - begin) * sizeof(uint32_t));
            }
        }
    }

    // Writes the masses of the part to `line`, the NoC address of the head's: run by run, or at once where the part is the
    // whole head. They are there after the barrier of writes. order: of the rows.
    template <typename Order>
    void write(Order& order, uint64_t line, bool whole) {
        noc_async_read_barrier();  // of fetch()
        const uint32_t rows = config::group_heads();
        uint32_t* masses = reinterpret_cast<uint32_t*>(line_start());
        const uint32_t* weights = weights_start();
        for (const attention::Range& range : {part_.first, part_.last, part_.middle}) {
            for_each_run(order, counted(range), [&](uint32_t tile, uint32_t count) {
                weigh(weights, masses + tile, count);
                weights += count * rows;
                if (!whole) {
                    send(masses, line, tile, count);
                }
            });
        }
        if (whole) {
            send(masses, line, 0, attention::min(part_.tiles(), end_));
        }
    }

private:
    // Packet by packet: the write of any length, or two copies of this, would be too many bytes.
    static __attribute__((noinline)) void send(
        uint32_t* masses, uint64_t line, uint32_t tile, uint32_t count) {
        (void)*static_cast<Words>(masses + tile + count - 1);  // read back
        constexpr uint32_t packet = NOC_MAX_BURST_SIZE / sizeof(uint32_t);
        for (const uint32_t end = tile + count; tile < end; tile += packet) {
            noc_async_write<NOC_MAX_BURST_SIZE>(
                reinterpret_cast<uint32_t>(masses + tile), line + tile * sizeof(uint32_t),
                attention::min(packet, end - tile) * sizeof(uint32_t));
        }
    }

    bool ends_with_first() const { return part_.last.size() == 0; }
    const attention::Range& guess_end() const { return ends_with_first() ? part_.first : part_.last; }

    // The rows of `range` that count.
    attention::Range counted(const attention::Range& range) const {
        return {attention::min(range.begin, end_), attention::min(range.end, end_)};
    }

    // Keeps what compute hands out of the chunks of `range`: of all, of all but the last, or of that alone.
    enum class Chunks { all, all_but_last, last };
    __attribute__((noinline)) void keep(attention::Range range, Chunks which) {
        while (range.size() > 0) {
            const attention::Range chunk =
                attention::next_chunk(range, config::chunk_tiles(), config::key_tiles());
            if (which == Chunks::all || (range.size() == 0) == (which == Chunks::last)) {
                keep_chunk(counted(chunk).size());
            }
        }
    }

    // A row of the head. Its weights are kept relative to what is so many octaves above `reference`.
    struct Row {
        uint16_t reference, maximum;  // its maximum in the first chunk and in the last one, bfloat16
        uint32_t octaves;             // no_chunk: before the first one
        uint32_t factor;  // of the last chunk's weights as they are kept; then of all, of their masses
    };
    static constexpr uint32_t no_chunk = ~0u;
    // For the maximum to rise by. Factors (tile_mass.hpp) hold one more.
    static constexpr uint32_t spare_octaves = 2;

    void keep_chunk(uint32_t tiles) {
        const uint32_t rows = config::group_heads();
        uint32_t row = 0;
        Places places = places_;
        for (uint32_t query_tile = 0; query_tile < config::query_tiles(); ++query_tile) {
            const Rows here = places.next();
            if (here.count == 0) {
                continue;
            }
            cb_wait_front(config::cb_masses, 1);
            const uint32_t page = get_read_ptr(config::cb_masses);
            for (uint32_t i = 0; i < here.count; ++i, ++row) {
                raise(row, words_at(page + mass_columns::tile_bytes)[i]);
                const uint32_t factor = rows_[row].factor;
                const uint32_t from = page + mass_columns::row_offset(here.at(i));
                uint32_t* to = kept_ + row;
                for (uint32_t tile = 0; tile < tiles; ++tile) {
                    const uint32_t weight = *words_at(from + mass_columns::column_offset(tile));
                    *to = tile_mass::product(tile_mass::fixed(weight), factor);
                    to += rows;
                }
            }
            cb_pop_front(config::cb_masses, 1);
        }
        kept_ += tiles * rows;
    }

    // Takes a row's maximum of a chunk. What is kept of the row changes only where the maximum passes what that is
    // relative to: seldom, as that was above it. A maximum below the first one is of a worker that has begun anew.
    void raise(uint32_t row, uint32_t maximum) {
        Row& kept = rows_[row];
        const bool is_first = kept.octaves == no_chunk;
        if (!is_first && kept.maximum == maximum) {
            return;
        }
        kept.maximum = maximum;
        uint32_t distance =
            is_first ? tile_mass::far : tile_mass::distance(kept.reference, maximum, scale_log2e_);
        uint32_t below = distance == 0 ? tile_mass::distance(maximum, kept.reference, scale_log2e_) : 0;
        uint32_t up = 0;
        if (distance == tile_mass::far) {  // nothing before counts
            kept.reference = maximum;
            kept.octaves = spare_octaves;
            distance = 0;
            up = 32;
        } else if (const uint32_t least = tile_mass::octaves(distance); least > kept.octaves) {
            up = least + spare_octaves - kept.octaves;
            kept.octaves += up;
        }
        if (up > 0) {
            for (uint32_t* weight = weights_start() + row; weight < kept_; weight += config::group_heads()) {
                *weight = up < 32 ? *weight >> up : 0;
            }
        }
        constexpr uint32_t nothing = 32 << tile_mass::distance_bits;
        below = attention::min(below, nothing);
        kept.factor = tile_mass::decay((kept.octaves << tile_mass::distance_bits) + below - distance);
    }

    // Adds the masses of `count` tiles to their averages. Four rows, Llama's, have their factors in registers.
    void weigh(const uint32_t* weights, uint32_t* masses, uint32_t count) const {
        const uint32_t rows = config::group_heads();
        if (rows == 4) {
            const uint32_t a = rows_[0].factor, b = rows_[1].factor, c = rows_[2].factor, d = rows_[3].factor;
            for (uint32_t i = 0; i < count; ++i) {
                const uint32_t first = weights[0], second = weights[1], third = weights[2],
                               fourth = weights[3];
                const uint32_t mass = tile_mass::product(first, a) + tile_mass::product(second, b) +
                                      tile_mass::product(third, c) + tile_mass::product(fourth, d);
                masses[i] = (masses[i] + mass) / 2;
                weights += 4;
            }
        } else {
            for (uint32_t i = 0; i < count; ++i) {
                uint32_t mass = 0;
                for (uint32_t row = 0; row < rows; ++row) {
                    mass += tile_mass::product(*weights++, rows_[row].factor);
                }
                masses[i] = (masses[i] + mass) / 2;
            }
        }
    }

    uint32_t scale_log2e_;
    Places places_{};
    attention::Part part_{};
    uint32_t end_ = 0;
    uint32_t* kept_ = nullptr;  // the next weights: of each tile and row
    uint32_t heads_ = 0;
    Row rows_[mass_columns::max_rows];
};

}  // namespace masses
