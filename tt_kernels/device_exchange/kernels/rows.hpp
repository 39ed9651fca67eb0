// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The rows in use of tiles that have few of them, packed: of each tile `row_bytes` of the first face, then of the
// second. Tiles come in runs that lie one after another at one place of the NoC, a bank's pages or a shard, so that a
// run sets up the NoC once; what a packed exchange takes is its many small requests.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace rows {

constexpr uint32_t tile_bytes = 2048, face_bytes = tile_bytes / 4;  // of two-byte elements

template <typename Accessor>
uint32_t runs(const Accessor& tensor, uint32_t pages) {
    if constexpr (Accessor::DSpec::is_interleaved) {
        const uint32_t banks = Accessor::DSpec::is_dram ? NUM_DRAM_BANKS : NUM_L1_BANKS;
        return pages < banks ? pages : banks;
    } else {
        return pages / tensor.dspec().shard_volume();
    }
}

template <typename Accessor>
uint64_t start(const Accessor& tensor, uint32_t run) {
    if constexpr (Accessor::DSpec::is_interleaved) {
        return tensor.get_noc_addr(run);
    } else {
        return tensor.get_shard_noc_addr(run);
    }
}

// Calls visit(run, tiles, packed) for every run of a tensor of `pages` tiles with its tiles and the place of its rows in
// L1, `packed` for the first. Returns the end of the packed rows.
template <uint32_t pages, uint32_t row_bytes, typename Accessor, typename Visit>
uint32_t for_each_run(const Accessor& tensor, uint32_t packed, Visit visit) {
    const uint32_t count = runs(tensor, pages);
    for (uint32_t run = 0; run < count; ++run) {
        const uint32_t tiles = (pages - run + count - 1) / count;
        visit(run, tiles, packed);
        packed += tiles * 2 * row_bytes;
    }
    return packed;
}

// Calls visit(tile, packed), both 32-bit addresses, for both faces' rows of each of a run's tiles.
template <uint32_t row_bytes, typename Visit>
void for_each_row(uint64_t run_start, uint32_t tiles, uint32_t packed, Visit visit) {
    uint32_t tile = static_cast<uint32_t>(run_start);
    for (const uint32_t end = packed + tiles * 2 * row_bytes; packed != end; packed += 2 * row_bytes) {
        visit(tile, packed);
        visit(tile + face_bytes, packed + row_bytes);
        tile += tile_bytes;
    }
}

// Reads the rows of `tensor` to L1, without a barrier.
template <uint32_t pages, uint32_t row_bytes, typename Accessor>
uint32_t gather(const Accessor& tensor, uint32_t packed) {
    if constexpr (row_bytes == 0) {
        return packed;
    } else {
        return for_each_run<pages, row_bytes>(tensor, packed, [&](uint32_t run, uint32_t tiles, uint32_t to) {
            const uint64_t from = start(tensor, run);
            noc_async_read_one_packet_set_state(from, row_bytes);
            for_each_row<row_bytes>(from, tiles, to, [](uint32_t tile, uint32_t at) {
                noc_async_read_one_packet_with_state(tile, at);
            });
        });
    }
}

// Writes packed rows back to every second run of `tensor`, the even or the odd ones, without a barrier.
template <uint32_t pages, uint32_t row_bytes, typename Accessor>
uint32_t spread(const Accessor& tensor, uint32_t packed, uint32_t parity) {
    if constexpr (row_bytes == 0) {
        return packed;
    } else {
        return for_each_run<pages, row_bytes>(
            tensor, packed, [&](uint32_t run, uint32_t tiles, uint32_t from) {
                if (run % 2 != parity) {
                    return;
                }
                const uint64_t to = start(tensor, run);
                noc_async_write_one_packet_set_state(to, row_bytes);
                for_each_row<row_bytes>(to, tiles, from, [](uint32_t tile, uint32_t at) {
                    noc_async_write_one_packet_with_state(at, tile);
                });
            });
    }
}

}  // namespace rows

#define GATHER_ROWS(name) at = rows::gather<ROWS_OF(name)>(OWN_TENSOR(name), at);
#define SPREAD_EVEN_RUNS(name) at = rows::spread<ROWS_OF(name)>(OWN_TENSOR(name), at, 0);
#define SPREAD_ODD_RUNS(name) at = rows::spread<ROWS_OF(name)>(OWN_TENSOR(name), at, 1);
