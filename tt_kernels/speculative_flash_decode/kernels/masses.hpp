// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The masses of a worker's key tiles, for its writer. Compute hands out the weights of each chunk, summed over the keys of
// a tile (mass_columns.hpp); the writer keeps them. When the reducer has merged all partial results of the head, it sends
// each worker the row sums and maxima, and each writes the masses of its tiles (tile_mass.hpp) to DRAM: a word for each
// tile of the cache.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "config.hpp"
#include "control.hpp"
#include "tt_kernels/common/kernels/chunk_split.hpp"
#include "tt_kernels/common/kernels/mass_columns.hpp"
#include "tt_kernels/common/kernels/tile_list.hpp"
#include "tt_kernels/common/kernels/tile_mass.hpp"

namespace masses {

using Words = volatile tt_l1_ptr uint32_t*;
using Halves = volatile tt_l1_ptr uint16_t*;

inline Words words_at(uint32_t address) { return reinterpret_cast<Words>(address); }

// cb_totals: how many heads' totals have come, in a word of its own 16 bytes, then the row sum (float32) and the row
// maximum (bfloat16) of each row of the head.
constexpr uint32_t totals_offset = 16, words_per_row = 2;

// The rows of the cache in their places: listed tiles follow the first (tile_list.hpp).
inline uint32_t tile_of([[maybe_unused]] uint32_t item, [[maybe_unused]] uint32_t listed, uint32_t row) {
    if constexpr (config::followed) {
        struct Places {
            uint32_t page(uint32_t place) const { return place; }
        };
        const auto tiles = reinterpret_cast<tile_list::Row>(
            get_write_ptr(config::cb_lists) + item * tile_list::row_bytes +
            tile_list::first_tile * sizeof(uint32_t));
        return tile_list::Renumbered<Places>{{}, tiles, config::guess().first, listed}.page(row);
    }
    return row;
}

class Keeper {
public:
    explicit Keeper(uint32_t scale_log2e) : scale_log2e_(scale_log2e) {
        *words_at(get_write_ptr(config::cb_totals)) = 0;
        (void)*words_at(get_write_ptr(config::cb_totals));  // read back: before any worker has sent anything
    }

    // A head of rows [begin, begin + rows_per_head).
    void begin(uint32_t first_row) {
        first_row_ = first_row;
        kept_ = get_write_ptr(config::cb_mass_weights);
    }

    // Keeps what compute hands out of the chunks of `range`; of all but the last if `leave_last`, or of that alone.
    enum class Chunks { all, all_but_last, last };
    void keep(const attention::Range& range, Chunks which = Chunks::all) {
        const uint32_t key_tiles = config::key_tiles();
        for (uint32_t begin = range.begin; begin < range.end; begin += key_tiles) {
            const uint32_t end = attention::min(begin + key_tiles, range.end);
            if (which == Chunks::all || (end == range.end) == (which == Chunks::last)) {
                keep_chunk(end - begin);
            }
        }
    }

    // Reads the totals of a head from where compute hands over its state, and sends them to the workers that has(worker).
    // core_of(worker): its NoC coordinates, as get_noc_addr takes them with an address.
    template <typename Has, typename At>
    void send_totals(const Has& has, const At& at) {
        cb_wait_front(config::cb_handover, 1);
        const Words page = words_at(get_read_ptr(config::cb_handover));
        const uint32_t sums = page[0] + config::head_tiles * mass_columns::tile_bytes, maxima = page[1];
        const uint32_t here = get_write_ptr(config::cb_totals);
        Words to = words_at(here + totals_offset);
        for (uint32_t row = first_row_; row < first_row_ + config::rows_per_head(); ++row) {
            const uint32_t offset = mass_columns::row_offset(row);
            *to++ = *words_at(sums + offset);
            *to++ = *reinterpret_cast<Halves>(maxima + offset / 2);
        }
        (void)to[-1];  // read back
        cb_pop_front(config::cb_handover, 1);
        const uint32_t bytes = config::rows_per_head() * words_per_row * sizeof(uint32_t);
        for (uint32_t worker = 1; worker < config::workers(); ++worker) {
            if (has(worker)) {
                noc_async_write(here + totals_offset, at(worker, here + totals_offset), bytes);
            }
        }
        noc_async_write_barrier();
        for (uint32_t worker = 1; worker < config::workers(); ++worker) {
            if (has(worker)) {
                noc_semaphore_inc(at(worker, here), 1);
            }
        }
    }

    void await_totals() {
        ++heads_;
        while (*words_at(get_write_ptr(config::cb_totals)) < heads_) {
            invalidate_l1_cache();
        }
    }

    // Writes the masses of what was kept of `part`, the item's, to `line`, the NoC address of the item's.
    void write(const attention::Part& part, uint32_t item, uint32_t listed, uint64_t line) {
        kept_ = get_write_ptr(config::cb_mass_weights);
        run_begin_ = run_end_ = 0;
        last_maxima_ = 0;
        for (const attention::Range& range : {part.first, part.last, part.middle}) {
            for (uint32_t begin = range.begin; begin < range.end; begin += config::key_tiles()) {
                const uint32_t end = attention::min(begin + config::key_tiles(), range.end);
                begin_chunk();
                for (uint32_t row = begin; row < end; ++row) {
                    add(tile_of(item, listed, row), next_mass(), line);
                }
            }
        }
        flush(line);
        noc_async_write_barrier();
    }

private:
    void keep_chunk(uint32_t tiles) {
        const uint32_t rows = config::rows_per_head();
        cb_wait_front(config::cb_masses, 1);
        const uint32_t page = get_read_ptr(config::cb_masses);
        Halves to = reinterpret_cast<Halves>(kept_);
        for (uint32_t row = 0; row < rows; ++row) {
            *to++ = words_at(page + mass_columns::tile_bytes)[row];
        }
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            for (uint32_t row = 0; row < rows; ++row) {
                *to++ = tile_mass::rounded(
                    *words_at(page + mass_columns::element_offset(first_row_ + row, tile)));
            }
        }
        kept_ = reinterpret_cast<uint32_t>(to);
        cb_pop_front(config::cb_masses, 1);
    }

    // The factors of the rows of the next chunk, which mostly are those of the chunk before.
    void begin_chunk() {
        const Words totals = words_at(get_write_ptr(config::cb_totals) + totals_offset);
        const Halves maxima = reinterpret_cast<Halves>(kept_);
        const uint32_t rows = config::rows_per_head();
        for (uint32_t row = 0; row < rows; ++row) {
            if (last_maxima_ == 0 || maxima[row] != reinterpret_cast<Halves>(last_maxima_)[row]) {
                factors_[row] = tile_mass::factor(
                    totals[words_per_row * row],
                    tile_mass::distance(maxima[row], totals[words_per_row * row + 1], scale_log2e_));
            }
        }
        last_maxima_ = kept_;
        kept_ += rows * sizeof(uint16_t);
    }

    uint32_t next_mass() {
        const Halves weights = reinterpret_cast<Halves>(kept_);
        const uint32_t rows = config::rows_per_head();
        uint32_t mass = 0;
        for (uint32_t row = 0; row < rows; ++row) {
            mass += tile_mass::of(weights[row], factors_[row]);
        }
        kept_ += rows * sizeof(uint16_t);
        return mass;
    }

    // Tiles that follow each other are written at once, from the same place of a line of this core.
    void add(uint32_t tile, uint32_t mass, uint64_t line) {
        if (tile != run_end_) {
            flush(line);
            run_begin_ = tile;
        }
        run_end_ = tile + 1;
        words_at(get_write_ptr(config::cb_mass_line))[tile] = mass;
    }

    void flush(uint64_t line) {
        if (run_end_ > run_begin_) {
            const Words words = words_at(get_write_ptr(config::cb_mass_line));
            (void)words[run_end_ - 1];  // read back
            noc_async_write(
                reinterpret_cast<uint32_t>(words + run_begin_), line + run_begin_ * sizeof(uint32_t),
                (run_end_ - run_begin_) * sizeof(uint32_t));
        }
    }

    uint32_t scale_log2e_;
    uint32_t first_row_ = 0;
    uint32_t kept_ = 0;  // address of the next weights: of each chunk its row maxima, then those of each tile
    uint32_t last_maxima_ = 0;  // address of those that factors_ are for, 0 for none
    uint32_t heads_ = 0;
    uint32_t run_begin_ = 0, run_end_ = 0;
    tile_mass::Factor factors_[mass_columns::max_rows];
};

}  // namespace masses
