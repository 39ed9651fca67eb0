// SPDX-FileCopyrightText: © 2026 The llama-alspec authors
// SPDX-License-Identifier: Apache-2.0

// The replay buffer of the Tensix front end: 32 slots per thread, recorded once and played back by one
// instruction. Fields of REPLAY: start [23:14], length [13:4], execute while recording [1], record [0].

#pragma once

#include <cstdint>

namespace lltt {

enum ExecBool : bool { NoExec = false, Exec = true };

namespace detail {

constexpr std::uint32_t replay_word(std::uint32_t start, std::uint32_t length, bool execute, bool record) {
    return 0x04u << 24 | start << 14 | length << 4 | std::uint32_t(execute) << 1 | std::uint32_t(record);
}

// A word known at compile time becomes an instruction; any other is stored to the instruction buffer.
__attribute__((always_inline)) inline void issue(std::uint32_t word) {
    if (__builtin_constant_p(word)) {
        asm volatile(".ttinsn %0" ::"n"(word));
    } else {
        extern volatile std::uint32_t instruction_queue[] asm("__instrn_buffer");
        instruction_queue[0] = word;
    }
}

}  // namespace detail

// The next `length` instructions go to slots start..start+length-1; with Exec they are executed as well.
template <ExecBool execute = NoExec>
__attribute__((always_inline)) inline void record(std::uint32_t start, std::uint32_t length) {
    detail::issue(detail::replay_word(start, length, execute, true));
}

// Executes slots start..start+length-1.
__attribute__((always_inline)) inline void replay(std::uint32_t start, std::uint32_t length) {
    detail::issue(detail::replay_word(start, length, false, false));
}

// The instruction word that replays those slots, for a MOP template.
constexpr std::uint32_t replay_insn(std::uint32_t start, std::uint32_t length) {
    return detail::replay_word(start, length, false, false);
}

}  // namespace lltt
