// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0
//
// When each program ran on this core, written by BRISC's firmware one after another. See timeline.py.
#pragma once

namespace timeline {

// In the region tt-metal reserves for LLK debugging, after the cycle counts of kernel_cycles.hpp.
constexpr uint32_t CONTROL = MEM_LLK_DEBUG_BASE + 640;
constexpr uint32_t MAGIC = 0x714E11E5;
enum Word : uint32_t { armed, address, capacity, count };  // armed: MAGIC + address, since L1 is not cleared
constexpr uint32_t WORDS_PER_ENTRY = 4;                    // program, start and end by the wall clock, 0
static_assert(640 + 16 <= MEM_LLK_DEBUG_SIZE - 128, "the words leave their region");

inline uint32_t now() { return *reinterpret_cast<volatile uint32_t*>(RISCV_DEBUG_REG_WALL_CLOCK_L); }

// From the go message to the notice that the program is done.
struct Entry {
    uint32_t program;
    bool runs;
    uint32_t start;

    Entry(uint32_t program, uint32_t enables) : program(program), runs(enables != 0), start(now()) {}
    ~Entry() {
        volatile uint32_t* control = reinterpret_cast<volatile uint32_t*>(CONTROL);
        const uint32_t index = control[count];
        if (!runs || control[armed] != MAGIC + control[address] || index >= control[capacity]) {
            return;
        }
        volatile uint32_t* entry = reinterpret_cast<volatile uint32_t*>(
            control[address] + index * WORDS_PER_ENTRY * sizeof(uint32_t));
        entry[0] = program;
        entry[1] = start;
        entry[2] = now();
        control[count] = index + 1;
    }
};

}  // namespace timeline
