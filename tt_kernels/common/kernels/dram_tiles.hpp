// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// Which DRAM tile a Wormhole core reads a bank through, where all cores read all banks.
//
// Each of a DRAM group's three tiles reaches all of the group's two banks. tt-metal gives each bank one of them, so that on
// NoC 0 four rows carry what two banks send: in column 0 those of groups 0 and 1, in column 5 those of groups 2 and 5.
// Their links between the columns would need 34 bytes per cycle and have 32. Cores beyond column 5 read the banks in
// column 0 through their group's third tile instead, in a row of its own: no link needs more than 23.
//
// Source: tt-isa-documentation, WormholeB0/DRAMTile/README.md and NoC/RoutingPaths.md; tt-metal,
// soc_descriptors/wormhole_b0_80_arch.yaml.

#pragma once

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

namespace dram_tiles {

constexpr uint32_t middle_column = 5;

inline bool beyond_middle() {
    return noc_index == 0 &&
           (NOC_CMD_BUF_READ_REG(noc_index, 0, NOC_NODE_ID) & NOC_NODE_ID_MASK) > middle_column;
}

// The NoC address in DRAM `from` through the tile to use. beyond_middle: what that says of this core.
inline uint64_t address(uint64_t from, bool beyond_middle) {
    constexpr uint32_t x_bits = NOC_ADDR_LOCAL_BITS - 32, y_bits = x_bits + NOC_ADDR_NODE_ID_BITS;
    constexpr uint32_t mask = (1u << NOC_ADDR_NODE_ID_BITS) - 1;
    uint32_t high = static_cast<uint32_t>(from >> 32);
    if (beyond_middle && (high >> x_bits & mask) == 0) {
        const uint32_t row = high >> y_bits & mask;
        const uint32_t third =
            row >= 5 && row <= 7 ? 6 : 0;  // group 1 has rows 5 to 7, group 0 rows 11, 0 and 1
        high = (high & ~(mask << y_bits)) | third << y_bits;
    }
    return static_cast<uint64_t>(high) << 32 | static_cast<uint32_t>(from);
}

}  // namespace dram_tiles
