# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Find which lanes each vector instruction runs under, as far as the nesting of v_if tells."""

from .instructions import raw_flags


class Flags:
    """Lane-flag states of a function: 0 is all lanes, every other a set of lanes within its parent's."""

    def __init__(self):
        self.parent = {0: 0}
        self.numbers = {}

    def new(self, place, parent):
        """Return the state that begins at `place`; the same place gives the same state."""
        number = self.numbers.setdefault(place, len(self.numbers) + 1)
        self.parent[number] = parent
        return number

    def within(self, inner, outer):
        while inner != outer and inner:
            inner = self.parent[inner]
        return inner == outer


def mark_states(blocks):
    """Set `state` on every instruction: the lane-flag state it runs under. Return the states."""
    flags = Flags()
    entry, work = {0: (0,)}, [0]
    while work:
        index = work.pop()
        stack = list(entry[index])
        for position, ins in enumerate(blocks[index].instructions):
            ins.state = stack[-1]
            change = {"pushc": "push", "popc": "pop", "setcc": "narrow", "compc": "complement"}.get(ins.name)
            if ins.name == "raw":
                change = raw_flags(ins.fields[0])
            if change == "push":
                stack.append(stack[-1])
            elif change == "pop" and len(stack) > 1:
                stack.pop()
            elif change == "narrow":
                stack[-1] = flags.new((index, position), stack[-1])
            elif change == "complement":
                stack[-1] = flags.new((index, position), stack[-2] if len(stack) > 1 else 0)
            elif change == "reset":
                stack = [0] * len(stack)
        for successor in blocks[index].successors:
            old, new = entry.get(successor), tuple(stack)
            if old is not None and old != new:
                # Paths disagree: some unknown set of lanes.
                new = (flags.new(("merge", successor), 0),)
            if new != old:
                entry[successor] = new
                work.append(successor)
    return flags


def keep_raw_lanes(blocks):
    """Let a literal instruction under narrowed flags keep the other lanes of what it writes."""
    for block in blocks:
        for ins in block.instructions:
            if ins.name == "raw" and ins.state:
                ins.reads = sorted(set(ins.reads) | set(ins.writes))
