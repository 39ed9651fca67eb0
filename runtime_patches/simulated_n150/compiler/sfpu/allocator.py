# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Allocate the eight LREGs to the vector values of one function.

The values arrive in up to 32 virtual registers with the control flow of the compiled function. Steps:

1. lane flags: which set of lanes each instruction runs under, as far as the nesting of v_if tells;
2. webs: each virtual register is split into the values that really depend on each other. An assignment writes
   into the old value, unless the lanes it leaves alone are never used: then it is a copy;
3. constants that the chip holds in LREG8-11 replace registers that were loaded with them, copies are folded;
4. interference graph, coalescing of copies, colouring with eight colours;
5. if that fails, a constant is loaded again at each use instead of being kept, then results move down to
   their uses, and step 4 is repeated.

There is no memory to spill to: a function that still does not fit is refused.
"""

from .instructions import COLOURS, FIRST_VALUE
from .lane_flags import keep_raw_lanes, mark_states
from .passes import fold, rematerialise, sink, use_immediates
from .webs import relax_assignments


class OutOfRegisters(Exception):
    """More than eight vector values are needed at once; `needed` tells how many."""

    def __init__(self, needed):
        super().__init__(needed)
        self.needed = needed


class Block:
    """A straight run of vector instructions; `successors` are indices of blocks."""

    __slots__ = ("instructions", "live_out", "successors")

    def __init__(self):
        self.instructions = []
        self.successors = []
        self.live_out = set()


def liveness(blocks, live_at_exit):
    use, kill = [], []
    for block in blocks:
        u, k = set(), set()
        for ins in block.instructions:
            u |= {r for r in ins.reads if r not in k and not 8 <= r < FIRST_VALUE}
            k |= set(ins.writes)
        use.append(u)
        kill.append(k)
    live_in = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for b in range(len(blocks) - 1, -1, -1):
            out = set() if blocks[b].successors else set(live_at_exit)
            for s in blocks[b].successors:
                out |= live_in[s]
            new = use[b] | (out - kill[b])
            blocks[b].live_out = out
            if new != live_in[b]:
                live_in[b] = new
                changed = True
    return live_in


def interference(blocks):
    """Return {value: values that are live where it is written}, and the largest number live at once."""
    graph, pressure = {n: set() for n in range(COLOURS)}, 0
    copies = []

    def edge(a, b):
        if a != b:
            graph.setdefault(a, set()).add(b)
            graph.setdefault(b, set()).add(a)

    for block in blocks:
        live = set(block.live_out)
        for ins in reversed(block.instructions):
            pressure = max(pressure, len(live | set(ins.writes)))
            for w in ins.writes:
                graph.setdefault(w, set())
                for other in live:
                    if not (ins.is_copy and other == ins.reads[0]):
                        edge(w, other)
                for other in ins.writes:
                    edge(w, other)
            if ins.is_copy and not 8 <= ins.reads[0] < FIRST_VALUE:
                copies.append((ins.writes[0], ins.reads[0]))
            live -= set(ins.writes)
            for r in ins.reads:
                if not 8 <= r < FIRST_VALUE:
                    graph.setdefault(r, set())
                    live.add(r)
    entry = live if blocks else set()
    return graph, copies, pressure, entry


def colour(graph, copies):
    """Return {value: LREG}, or (None, values that found no colour)."""
    merged = {}

    def find(x):
        while x in merged:
            x = merged[x]
        return x

    def degree(x):
        return 1000 if x < COLOURS else len(graph[x])

    progress = True
    while progress:
        progress = False
        for a, b in copies:
            a, b = find(a), find(b)
            if a == b or b in graph[a]:
                continue
            if b < COLOURS:
                a, b = b, a
            if b < COLOURS:
                continue
            if a < COLOURS:
                # Every neighbour of b already conflicts with the register, or is easy to colour.
                if not all(n in graph[a] or n < COLOURS or degree(n) < COLOURS for n in graph[b]):
                    continue
                if any(n < COLOURS and n == a for n in graph[b]):
                    continue
            elif sum(degree(n) >= COLOURS for n in graph[a] | graph[b]) >= COLOURS:
                continue
            merged[b] = a
            for n in graph.pop(b):
                graph[n].discard(b)
                graph[n].add(a)
                graph[a].add(n)
            progress = True

    work = {n: set(neighbours) for n, neighbours in graph.items()}
    stack, remaining = [], {n for n in graph if n >= COLOURS}
    while remaining:
        easy = next((n for n in sorted(remaining) if len(work[n]) < COLOURS), None)
        node = easy if easy is not None else max(remaining, key=lambda n: (len(work[n]), -n))
        stack.append(node)
        remaining.discard(node)
        for n in work[node]:
            work[n].discard(node)
    colours, failed = {n: n for n in range(COLOURS)}, []
    hints = {}
    for a, b in copies:
        hints.setdefault(find(a), set()).add(find(b))
        hints.setdefault(find(b), set()).add(find(a))
    while stack:
        node = stack.pop()
        taken = {colours[n] for n in graph[node] if n in colours}
        free = [c for c in range(COLOURS) if c not in taken]
        if not free:
            failed.append(node)
            continue
        wished = [colours[h] for h in hints.get(node, ()) if colours.get(h) in free]
        colours[node] = wished[0] if wished else free[0]
    if failed:
        members = set(failed)
        for value in list(merged):
            if find(value) in members:
                members.add(value)
        return None, members | {n for f in failed for n in graph[f]}
    for value in merged:
        colours[value] = colours[find(value)]
    return colours, ()


def _kept_registers(blocks):
    """Return the LREGs that vector code filled by name for a later function and no literal instruction here touches."""
    kept, touched = set(), set()
    for block in blocks:
        for ins in block.instructions:
            if ins.is_copy and "pin" in ins.fields:
                kept.add(ins.writes[0])
            elif ins.name == "raw":
                touched.update(ins.reads, ins.writes)
    return kept - touched


def allocate(blocks):
    """Replace every value by an LREG, in place.

    Errors: OutOfRegisters when more than eight values are needed at once and no constant can be loaded later.
    """
    flags = mark_states(blocks)
    keep_raw_lanes(blocks)
    next_value = relax_assignments(blocks, flags)
    fold(blocks)
    use_immediates(blocks)
    fold(blocks)
    live_at_exit = _kept_registers(blocks)
    rounds = 0
    while True:
        liveness(blocks, live_at_exit)
        graph, copies, pressure, _ = interference(blocks)
        colours, failed = colour(graph, copies)
        if colours is not None:
            break
        again = rematerialise(blocks, failed, next_value)
        if again is not None:
            next_value = again
        else:
            # Two results with one use may change places for ever.
            rounds += 1
            if rounds > 3 or not sink(blocks, flags):
                raise OutOfRegisters(pressure)
    for block in blocks:
        for ins in block.instructions:
            ins.writes = [colours[w] for w in ins.writes]
            ins.reads = [r if 8 <= r < FIRST_VALUE else colours[r] for r in ins.reads]
