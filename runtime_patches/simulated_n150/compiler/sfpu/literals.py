# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Find which vector instructions the literal Tensix words of a function execute, and where."""

from collections import deque

from .instructions import parse_raw, parse_replay


class Literals:
    """The literal Tensix instructions of a function, in the order of its lines.

    They come as `.ttinsn`, or as a constant that is stored to the instruction buffer. What is only recorded for the
    replay buffer touches its registers where it is replayed.
    """

    def __init__(self):
        self.constants = {}  # integer register: what it holds, in the straight code since the last label or jump
        self.slots, self.recording = (
            {},
            deque(),
        )  # of the replay buffer: words; those still to come, and if they run

    def interrupt(self):
        """Forget what is known: other code joins here, or the instructions become a number not known here."""
        self.constants.clear()
        self.recording.clear()

    def executed(self, word, line):
        """Return the vector instructions that a literal word at `line` executes."""
        replay = parse_replay(word)
        if replay is not None and replay.records:
            self.recording = deque((slot, replay.executes) for slot in replay.slots)
            return []
        words = [word] if replay is None else [self.slots[s] for s in replay.slots if s in self.slots]
        if self.recording:
            slot, executes = self.recording.popleft()
            self.slots[slot] = word
            words = words if executes else []
        return [ins for ins in (parse_raw(w, line) for w in words) if ins is not None]

    def stored(self, tokens):
        """Return the word that this integer instruction stores to the instruction buffer, as far as it is constant.

        No other constant with the opcode of a vector instruction is expected where kernels store.
        """
        mnemonic, *operands = tokens
        if mnemonic == "sw":
            word = self.constants.get(operands[0]) if operands[1].startswith("0(") else None
            return word if word is not None and parse_raw(word, -1) is not None else None
        known = None
        if mnemonic == "li":
            known = int(operands[1], 0)
        elif mnemonic == "mv":
            known = self.constants.get(operands[1])
        elif mnemonic == "addi" and operands[1] in self.constants and operands[2].lstrip("-").isdigit():
            known = self.constants[operands[1]] + int(operands[2])
        if operands:
            self.constants.pop(operands[0], None)
            if known is not None:
                self.constants[operands[0]] = known & 0xFFFFFFFF
        return None
