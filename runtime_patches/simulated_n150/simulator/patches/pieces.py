# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Pieces of code that a core executes at once, ahead of time.

Speed only. An instruction that works on registers alone, or on the memory that only this core can reach, does the same
whenever it is executed: nobody sees when. A piece is a run of such instructions, up to a jump or to the first one that
others could see or that could see what others do (L1, registers of the tile, the Tensix unit's queue). It is executed
in one go in the cycle of its first instruction, and the core then does nothing for as many cycles as the others would
have taken; so each instruction that others can see has its own cycle as before.

A core looks each time whether its memory still holds the piece's words. A core that is reset in the middle of a piece
has executed some more of its own instructions, of which nothing is left after the reset but words in its own memory,
which a start fills.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from framework.memory.memory import AddressableMemory

from runtime_patches.simulated_n150.simulator.patches import core as cores
from runtime_patches.simulated_n150.simulator.patches.core import NEXT, PC, STALLED

LONGEST = 32
LOCAL = 0xFFB00000  # where a core sees the memory that is its own
_VISITS = 2  # of a place before its piece is looked for
_CODES = 8  # that are remembered at one place
_MASK = 0xFFFFFFFF
_LOAD, _STORE = 0x03, 0x23
_REGISTERS_ONLY, _JUMPS = (0x13, 0x33, 0x37, 0x17, 0x0F), (0x6F, 0x67, 0x63)

Step = Callable[[int], Any]


def own_memory(core) -> AddressableMemory | None:
    """The memory that only this core can reach, where it begins at LOCAL and has whole words."""
    place, leaf = core.visible_memory.memory_map.locate(LOCAL)
    usable = isinstance(leaf, AddressableMemory) and place.low == LOCAL and not len(leaf.memory) & 3
    return leaf if usable else None


class Pieces:
    """The pieces of one core."""

    def __init__(self, core) -> None:
        self._core = core
        # At each place the codes that were there, the last one first: with its piece, or None where there is none.
        self._places: dict[int, list[tuple[bytes, list[Step] | None]]] = {}
        self._visits: dict[int, int] = {}
        self._found: dict[bytes, tuple[bytes, list[Step] | None]] = {}
        self._local: dict[int, Step] = {}
        own = own_memory(core)
        self.usable = own is not None
        self._own = memoryview(b"" if own is None else own.memory).cast("I")

    def run(self, words: list[int]) -> int:
        """Execute the piece at the program counter; how many instructions of it, 0 where there is none."""
        counter, at = words[PC], self._core._code
        if at is None or not at[0] <= counter <= at[1]:
            return 0
        first, memory = counter - at[2], at[4]
        known = self._places.get(counter)
        if known is None:
            return self._count(counter)
        code, piece = known[0]
        if memory[first : first + len(code)].tobytes() != code:
            for index, (code, piece) in enumerate(known):
                if memory[first : first + len(code)].tobytes() == code:
                    known.insert(0, known.pop(index))
                    break
            else:
                return self._count(counter)
        if piece is None:
            return 0
        done = 0
        for step in piece:
            following = step(counter)
            if following is None:
                counter += 4
            elif following is STALLED:
                break
            else:
                counter = following
            done += 1
        if done:
            words[NEXT] = words[PC] = counter
        else:
            known[0] = code, None
        return done

    def _count(self, counter: int) -> int:
        """Look for the piece at a place that is visited again."""
        visits = self._visits.get(counter, 0) + 1
        if visits < _VISITS:
            self._visits[counter] = visits
            return 0
        del self._visits[counter]
        at = self._core._code
        first = counter - at[2]
        code = at[4][first : first + 4 * LONGEST].tobytes()
        found = self._found.get(code)
        if found is None:
            piece = self._piece(at[3][first >> 2 : (first >> 2) + LONGEST])
            # One instruction takes no less time as a piece, so it is none.
            found = (code[: 4 * len(piece)], piece) if len(piece) > 1 else (code[: 4 * len(piece) + 4], None)
            self._found[code] = found
        known = self._places.setdefault(counter, [])
        known.insert(0, found)
        del known[_CODES:]
        return 0

    def _piece(self, code: memoryview) -> list[Step]:
        """What the instructions at the start of `code` do, as far as they make a piece."""
        piece: list[Step] = []
        translator = self._core._translator
        for word in code:
            opcode = word & 0x7F
            if word & 3 == 3 and opcode in (*_REGISTERS_ONLY, *_JUMPS):
                known = translator.functions
                step = known[word] if word in known else translator.function(word)
            elif opcode in (_LOAD, _STORE) and word >> 12 & 7 == 2:
                step = self._local.get(word) or self._access(word)
            else:
                break
            if step is None:
                break
            piece.append(step)
            if opcode in _JUMPS:
                break
        return piece

    def _access(self, word: int) -> Step:
        """A load or store of a whole word to the core's own memory; STALLED, and nothing done, where it is to other
        memory."""
        words, own, bound = self._core.words, self._own, 4 * len(self._own)
        rd, rs1, rs2 = word >> 7 & 31, word >> 15 & 31, word >> 20 & 31
        if word & 0x7F == _LOAD:
            offset = cores._extend(word >> 20, 12) - LOCAL

            def access(_pc):
                place = words[rs1] + offset & _MASK
                if place >= bound or place & 3:
                    return STALLED
                if rd:
                    words[rd] = own[place >> 2]
                return None
        else:
            offset = cores._extend((word >> 25) << 5 | rd, 12) - LOCAL

            def access(_pc):
                place = words[rs1] + offset & _MASK
                if place >= bound or place & 3:
                    return STALLED
                own[place >> 2] = words[rs2]
                return None

        self._local[word] = access
        return access
