// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// The rows in use of tiles that have few of them, packed: of each tile `row_bytes` of the first face, then of the
// second. Tiles come in runs that lie one after another at one place of the NoC, a bank's pages or a shard, so that a
// run sets up the NoC once. What a packed exchange takes is its many small requests, so the runs are shared out: to the
// exchange core's reader and to both data movement cores of each helper.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "tt_kernels/common/kernels/arguments.hpp"

namespace rows {

constexpr uint32_t tile_bytes = 2048, face_bytes = tile_bytes / 4;  // of two-byte elements
constexpr uint32_t shares = 1 + 2 * get_named_compile_time_arg_val("helpers");

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

// Calls visit(run, at, bytes) for every run of this share of a tensor of `pages` tiles: its rows lie in `bytes` of L1,
// from `at` on, `packed` for the first run of all. Returns the end of the packed rows.
template <uint32_t pages, uint32_t row_bytes, typename Accessor, typename Visit>
uint32_t for_each_run(const Accessor& tensor, uint32_t packed, uint32_t share, Visit visit) {
    if constexpr (row_bytes == 0) {
        return packed;
    } else {
        constexpr uint32_t tile = 2 * row_bytes;
        const uint32_t count = runs(tensor, pages);
        const uint32_t tiles = pages / count,
                       longer = pages - tiles * count;  // the first runs have a tile more
        for (uint32_t run = share; run < count; run += shares) {
            const uint32_t before = run < longer ? run : longer;
            visit(run, packed + (run * tiles + before) * tile, (tiles + (run < longer ? 1 : 0)) * tile);
        }
        return packed + pages * tile;
    }
}

// Calls visit(tile, packed), both 32-bit addresses, for both faces' rows of each of a run's tiles.
template <uint32_t row_bytes, typename Visit>
void for_each_row(uint64_t run_start, uint32_t packed, uint32_t bytes, Visit visit) {
    uint32_t tile = static_cast<uint32_t>(run_start);
    for (const uint32_t end = packed + bytes; packed != end; packed += 2 * row_bytes) {
        visit(tile, packed);
        visit(tile + face_bytes, packed + row_bytes);
        tile += tile_bytes;
    }
}

// Reads this share of a tensor's rows to L1, without a barrier, as what follows.
template <uint32_t pages, uint32_t row_bytes, typename Accessor>
uint32_t gather(const Accessor& tensor, uint32_t packed, uint32_t share) {
    return for_each_run<pages, row_bytes>(
        tensor, packed, share, [&](uint32_t run, uint32_t to, uint32_t bytes) {
            const uint64_t from = start(tensor, run);
            noc_async_read_one_packet_set_state(from, row_bytes);
            for_each_row<row_bytes>(from, to, bytes, [](uint32_t tile, uint32_t at) {
                noc_async_read_one_packet_with_state(tile, at);
            });
        });
}

// Writes this share of the packed rows to the same place of the L1 of another core.
template <uint32_t pages, uint32_t row_bytes, typename Accessor>
uint32_t hand_over(const Accessor& tensor, uint32_t packed, uint32_t share, uint32_t x, uint32_t y) {
    return for_each_run<pages, row_bytes>(tensor, packed, share, [&](uint32_t, uint32_t at, uint32_t bytes) {
        noc_async_write(at, get_noc_addr(x, y, at), bytes);
    });
}

// Reads this share of the rows that landed, whose first is for L1's `base`.
template <uint32_t pages, uint32_t row_bytes, uint32_t packet_bytes, typename Accessor, typename Landing>
uint32_t fetch(
    const Accessor& tensor, const Landing& landing, uint32_t base, uint32_t packed, uint32_t share) {
    return for_each_run<pages, row_bytes>(tensor, packed, share, [&](uint32_t, uint32_t to, uint32_t bytes) {
        for (const uint32_t end = to + bytes; to != end;) {
            const uint32_t packet = (to - base) / packet_bytes, offset = to - base - packet * packet_bytes;
            const uint32_t part = end - to < packet_bytes - offset ? end - to : packet_bytes - offset;
            noc_async_read(landing.get_noc_addr(packet, offset), to, part);
            to += part;
        }
    });
}

// Writes this share of the packed rows to the tensor.
template <uint32_t pages, uint32_t row_bytes, typename Accessor>
uint32_t spread(const Accessor& tensor, uint32_t packed, uint32_t share) {
    return for_each_run<pages, row_bytes>(
        tensor, packed, share, [&](uint32_t run, uint32_t from, uint32_t bytes) {
            const uint64_t to = start(tensor, run);
            noc_async_write_one_packet_set_state(to, row_bytes);
            for_each_row<row_bytes>(to, from, bytes, [](uint32_t tile, uint32_t at) {
                noc_async_write_one_packet_with_state(at, tile);
            });
        });
}

}  // namespace rows

#define GATHER_ROWS(name) at = rows::gather<ROWS_OF(name)>(OWN_TENSOR(name), at, share);
#define HAND_OVER_ROWS(name) at = rows::hand_over<ROWS_OF(name)>(OWN_TENSOR(name), at, share, x, y);
#define FETCH_ROWS(name) \
    at = rows::fetch<ROWS_OF(name), packet_bytes>(OWN_TENSOR(name), landing, base, at, share);
#define SPREAD_ROWS(name) at = rows::spread<ROWS_OF(name)>(OWN_TENSOR(name), at, share);
// What a share does once rows have landed; `base` is the place of the packed rows in this core's L1.
#define PUT_ROWS_INTO_PLACE                                                                              \
    {                                                                                                    \
        const auto landing = TensorAccessor(ACCESSOR_ARGS(landing), RUNTIME_ARG(landing), packet_bytes); \
        uint32_t at = base;                                                                              \
        FOR_EACH_TENSOR(FETCH_ROWS)                                                                      \
        noc_async_read_barrier();                                                                        \
        at = base;                                                                                       \
        FOR_EACH_TENSOR(SPREAD_ROWS)                                                                     \
        noc_async_write_barrier();                                                                       \
    }
