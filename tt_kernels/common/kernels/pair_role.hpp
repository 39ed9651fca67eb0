// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Which role a rank has, from the gathered priorities of both (priority.hpp); for data movement kernels.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"
#include "priority.hpp"

namespace pair_role {

// alone: the exchange before this call did not reach the peer.
struct Role {
    bool receiving;
    bool alone;
};

// Starts to read both ranks' priorities, this rank's and then the peer's, to `rows`; page r of `gathered` is rank r's.
template <typename Accessor>
inline void fetch(const Accessor& gathered, uint32_t sp_rank, uint32_t rows) {
    noc_async_read(gathered.get_noc_addr(sp_rank), rows, priority::row_bytes);
    noc_async_read(gathered.get_noc_addr(1 - sp_rank), rows + priority::row_bytes, priority::row_bytes);
}

// The role of `sp_rank`, once they are there.
inline Role of(uint32_t rows, uint32_t sp_rank, uint32_t users) {
    const auto highest = [users](uint32_t row) {
        return priority::highest(reinterpret_cast<const volatile tt_l1_ptr uint32_t*>(row), users);
    };
    const uint32_t mine = highest(rows), peers = highest(rows + priority::row_bytes);
    return {!priority::sends(mine, peers, sp_rank), peers == priority::unknown};
}

}  // namespace pair_role
