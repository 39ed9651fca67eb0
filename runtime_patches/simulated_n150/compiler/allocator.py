# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Eight LREGs for the vector values of one function.

The values arrive in up to 32 virtual registers with the control flow of the compiled function. Steps:

1. lane flags: which set of lanes each instruction runs under, as far as the nesting of v_if tells;
2. webs: each virtual register is split into the values that really depend on each other. An assignment writes into
   the old value, unless the lanes it leaves alone are never used: then it is a copy;
3. constants the chip holds in LREG8-11 replace registers that were loaded with them, copies are folded;
4. interference graph, coalescing of copies, colouring with eight colours;
5. if that fails, a constant is loaded again at each use instead of being kept, then results move down to their
   uses, and step 4 is repeated.

There is no memory to spill to: a function that still does not fit is refused.
"""

from instructions import CONSTANT_BITS, IMMEDIATE_FORM, SETS_FLAGS, Instruction, raw_flags

COLOURS = 8
FIRST_VALUE = 16  # 0-7: LREG0-7; 8-15: constant LREGs


class OutOfRegisters(Exception):
    """More than eight vector values are needed at once; `needed` tells how many."""

    def __init__(self, needed):
        super().__init__(needed)
        self.needed = needed


class Block:
    """A straight run of vector instructions; `successors` are indices of blocks."""

    __slots__ = ("instructions", "successors", "live_out")

    def __init__(self):
        self.instructions = []
        self.successors = []
        self.live_out = set()


class Flags:
    """Lane-flag states of a function: 0 is all lanes, every other a set of lanes within its parent's."""

    def __init__(self):
        self.parent = {0: 0}
        self.numbers = {}

    def new(self, place, parent):
        """The state that begins at `place`; the same place gives the same state."""
        number = self.numbers.setdefault(place, len(self.numbers) + 1)
        self.parent[number] = parent
        return number

    def within(self, inner, outer):
        while inner != outer and inner:
            inner = self.parent[inner]
        return inner == outer


def mark_states(blocks):
    """Sets `state` on every instruction: the lane-flag state it runs under. Returns the states."""
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
    """A literal instruction under narrowed flags keeps the other lanes of what it writes."""
    for block in blocks:
        for ins in block.instructions:
            if ins.name == "raw" and ins.state:
                ins.reads = sorted(set(ins.reads) | set(ins.writes))


def relax_assignments(blocks, flags):
    """Splits webs, and turns an assignment into a copy where no lane outside its own is ever used of its variable."""
    while True:
        next_value = split_webs(blocks)
        needed, copies = {}, []
        for block in blocks:
            for ins in block.instructions:
                if ins.is_copy:
                    copies.append((ins.reads[0], ins.writes[0]))
                    continue
                kept = {r for _, r in ins.tied} if ins.name == "assign" else ()
                for k, r in enumerate(ins.reads):
                    if k not in kept:
                        needed.setdefault(r, set()).add(ins.state)
        changed = True
        while changed:
            changed = False
            for source, target in copies:
                extra = {0} if target < FIRST_VALUE else needed.get(target, set())
                if extra - needed.setdefault(source, set()):
                    needed[source] |= extra
                    changed = True
        relaxed = False
        for block in blocks:
            for ins in block.instructions:
                if ins.name == "assign" and all(flags.within(u, ins.state) for u in needed.get(ins.writes[0], ())):
                    ins.name, ins.reads, ins.tied = "copy", [ins.reads[1]], []
                    relaxed = True
        if not relaxed:
            return next_value


def split_webs(blocks):
    """Renames virtual registers so that each name is one connected set of definitions and uses."""
    definitions = []  # (register)
    at = {}
    for b, block in enumerate(blocks):
        for i, ins in enumerate(block.instructions):
            for k, w in enumerate(ins.writes):
                if w >= FIRST_VALUE:
                    at[b, i, k] = len(definitions)
                    definitions.append(w)
    of_register = {}
    for d, w in enumerate(definitions):
        of_register[w] = of_register.get(w, 0) | 1 << d

    def transfer(b, state):
        for i, ins in enumerate(blocks[b].instructions):
            for k, w in enumerate(ins.writes):
                if w >= FIRST_VALUE:
                    state = state & ~of_register[w] | 1 << at[b, i, k]
        return state

    reach = [0] * len(blocks)
    work = list(range(len(blocks)))
    while work:
        b = work.pop(0)
        out = transfer(b, reach[b])
        for s in blocks[b].successors:
            if out & ~reach[s]:
                reach[s] |= out
                if s not in work:
                    work.append(s)

    parent = list(range(len(definitions)))

    def find(x):
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    uses = []  # (ins, position, one reaching definition or None)
    for b, block in enumerate(blocks):
        state = reach[b]
        for i, ins in enumerate(block.instructions):
            for k, r in enumerate(ins.reads):
                if r < FIRST_VALUE:
                    continue
                reaching = state & of_register.get(r, 0)
                first = None
                while reaching:
                    low = reaching & -reaching
                    d = low.bit_length() - 1
                    reaching ^= low
                    if first is None:
                        first = d
                    else:
                        parent[find(d)] = find(first)
                uses.append((ins, k, first))
            for w_index, r_index in ins.tied:
                r = ins.reads[r_index]
                if r < FIRST_VALUE:
                    continue
                mine = [u for u in uses[-len(ins.reads):] if u[0] is ins and u[1] == r_index]
                if mine and mine[0][2] is not None:
                    parent[find(at[b, i, w_index])] = find(mine[0][2])
            for k, w in enumerate(ins.writes):
                if w >= FIRST_VALUE:
                    state = state & ~of_register[w] | 1 << at[b, i, k]

    names = {}

    def name(d):
        return names.setdefault(find(d), FIRST_VALUE + len(names))

    for b, block in enumerate(blocks):
        for i, ins in enumerate(block.instructions):
            for k, w in enumerate(ins.writes):
                if w >= FIRST_VALUE:
                    ins.writes[k] = name(at[b, i, k])
    fresh = FIRST_VALUE + len(definitions) + 1
    undefined = {}
    for ins, k, d in uses:
        if d is not None:
            ins.reads[k] = name(d)
            continue
        # Read before any write. In place, the value begins here, with whatever the register holds.
        tied = [w for w, r in ins.tied if r == k]
        if tied:
            ins.reads[k] = ins.writes[tied[0]]
        else:
            ins.reads[k], fresh = fresh, fresh + 1
        undefined.setdefault(id(ins), []).append(ins.reads[k])
    if undefined:
        for block in blocks:
            block.instructions = [
                new
                for ins in block.instructions
                for new in (
                    *(Instruction("undefined", [v], line=ins.line) for v in undefined.get(id(ins), ())),
                    ins,
                )
            ]
    return fresh


def _occurrences(blocks):
    writers, readers = {}, {}
    for block in blocks:
        for i, ins in enumerate(block.instructions):
            for w in ins.writes:
                writers.setdefault(w, []).append((block, ins))
            for r in ins.reads:
                readers.setdefault(r, []).append((block, ins))
    return writers, readers


def fold(blocks):
    """Constants into operands, results into the assignment that follows, dead code away."""
    changed = True
    while changed:
        changed = False
        writers, readers = _occurrences(blocks)
        for value, defs in writers.items():
            if value < FIRST_VALUE or len(defs) != 1:
                continue
            block, ins = defs[0]
            if ins not in block.instructions:
                continue
            constant = None
            if ins.name == "loadi" and ins.fields[0] in CONSTANT_BITS:
                constant = CONSTANT_BITS[ins.fields[0]]
            elif ins.is_copy and 8 <= ins.reads[0] < FIRST_VALUE:
                constant = ins.reads[0]
            users = readers.get(value, [])
            if constant is not None and users:
                if all(_takes_constant(u, value, constant) for _, u in users):
                    for _, u in users:
                        u.reads = [constant if r == value else r for r in u.reads]
                    block.instructions.remove(ins)
                    changed = True
                    continue
            if not users and ins.is_pure and len(ins.writes) == 1:
                block.instructions.remove(ins)
                changed = True
                continue
            if len(users) == 1 and users[0][1].name == "assign" and users[0][0] is block:
                if _fold_into_assignment(block, ins, users[0][1], value):
                    changed = True
        if changed:
            for block in blocks:
                block.instructions = [
                    i for i in block.instructions
                    if not (i.name in ("copy", "assign") and i.writes[0] == i.reads[-1])
                ]  # fmt: skip


def _takes_constant(ins, value, constant):
    """True unless `value` is written in place, or stored from LREG12-15, which SFPSTORE cannot name."""
    return not _is_tied_read(ins, value) and not (ins.name == "store" and constant >= 12)


def use_immediates(blocks):
    """`t = constant; y = x + t` becomes `y = x; y += constant` where the immediate holds the constant."""
    writers, _ = _occurrences(blocks)
    for block in blocks:
        output = []
        for ins in block.instructions:
            if ins.name in IMMEDIATE_FORM and not ins.tied and ins.writes[0] >= FIRST_VALUE:
                for k in (1, 0):
                    defs = writers.get(ins.reads[k], ())
                    if len(defs) == 1 and defs[0][1].name == "loadi" and not defs[0][1].fields[0] & 0xFFFF:
                        copy = Instruction("copy", [ins.writes[0]], [ins.reads[1 - k]], line=ins.line)
                        copy.state = ins.state
                        output.append(copy)
                        ins.name = IMMEDIATE_FORM[ins.name][0]
                        ins.fields = (defs[0][1].fields[0] >> 16,)
                        ins.reads, ins.tied = [ins.writes[0]], [(0, 0)]
                        break
            output.append(ins)
        block.instructions = output


def _is_tied_read(ins, value):
    return any(ins.reads[r] == value for _, r in ins.tied)


def _fold_into_assignment(block, ins, assignment, value):
    """`t = op; x = t` under the same lane flags becomes an op that writes into x."""
    if ins.tied or len(ins.writes) != 1 or ins.name in ("copy", "raw") or assignment.reads[1] != value:
        return False
    start, end = block.instructions.index(ins), block.instructions.index(assignment)
    target = assignment.writes[0]
    for between in block.instructions[start + 1 : end]:
        if between.name in SETS_FLAGS or between.name == "raw" and raw_flags(between.fields[0]):
            return False
        if target in between.reads or target in between.writes:
            return False
    if ins.name in ("lut", "lutfp32") and target < FIRST_VALUE:
        return False
    ins.writes[0] = target
    ins.reads = ins.reads + [target]
    ins.tied = [(0, len(ins.reads) - 1)]
    block.instructions.remove(assignment)
    return True


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
    """Value -> values that are live where it is written, and the largest number live at once."""
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
    """Value -> LREG, or (None, values that found no colour)."""
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


def rematerialise(blocks, candidates, next_value):
    """Loads constants again before each of their uses: a quarter of those left, the ones in `candidates` first.

    Returns the new count of values, or None if no constant was left.
    """
    writers, readers = _occurrences(blocks)
    found = []
    for value, defs in writers.items():
        users = readers.get(value, [])
        if value < FIRST_VALUE or len(defs) != 1 or defs[0][1].name != "loadi" or not users:
            continue
        if "again" in defs[0][1].fields or any(_is_tied_read(u, value) for _, u in users):
            continue
        found.append(((value not in candidates, len(users)), value, *defs[0], users))
    if not found:
        return None
    found.sort(key=lambda f: f[:2])
    near = [f for f in found if not f[0][0]]
    for _, value, block, ins, users in (near or found)[: max(1, len(near or found) // 4)]:
        block.instructions.remove(ins)
        for user_block, user in dict.fromkeys(users):
            again = Instruction("loadi", [next_value], fields=(*ins.fields, "again"), line=user.line)
            again.state = user.state
            user_block.instructions.insert(user_block.instructions.index(user), again)
            user.reads = [next_value if r == value else r for r in user.reads]
            next_value += 1
    return next_value


def sink(blocks, flags):
    """Moves results down to their only use where that keeps no operand alive for longer. False if nothing moved."""
    moved = False
    _, readers = _occurrences(blocks)
    for block in blocks:
        live_after, live = {}, set(block.live_out)
        for ins in reversed(block.instructions):
            live_after[id(ins)] = set(live)
            live = (live - set(ins.writes)) | set(ins.reads)
        for ins in list(reversed(block.instructions)):
            if ins.tied or len(ins.writes) != 1 or not ins.is_pure or ins.runtime or ins.writes[0] < FIRST_VALUE:
                continue
            if ins.name in ("load", "undefined", "lut", "lutfp32") or any(r < 8 for r in ins.reads):
                continue
            users = readers.get(ins.writes[0], [])
            if len(users) != 1 or users[0][0] is not block:
                continue
            user = users[0][1]
            start, end = block.instructions.index(ins), block.instructions.index(user)
            if end - start < 2 or not flags.within(user.state, ins.state):
                continue
            operands = {r for r in ins.reads if r >= FIRST_VALUE}
            between = block.instructions[start + 1 : end]
            if any(operands & set(other.writes) for other in between):
                continue
            last = between[-1]
            if not operands <= live_after[id(last)] - set(ins.writes):
                continue
            if ins.is_copy and not operands:
                continue
            block.instructions.remove(ins)
            block.instructions.insert(block.instructions.index(user), ins)
            ins.state = user.state
            moved = True
    return moved


def _kept_registers(blocks):
    """LREGs that vector code filled by name for a later function, and that no literal instruction here touches."""
    kept, touched = set(), set()
    for block in blocks:
        for ins in block.instructions:
            if ins.is_copy and "pin" in ins.fields:
                kept.add(ins.writes[0])
            elif ins.name == "raw":
                touched.update(ins.reads, ins.writes)
    return kept - touched


def allocate(blocks):
    """Replaces every value by an LREG, in place.

    Raises:
        OutOfRegisters: more than eight values are needed at once and no constant can be loaded later.
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
            # Two results of one user may change places for ever.
            rounds += 1
            if rounds > 3 or not sink(blocks, flags):
                raise OutOfRegisters(pressure)
    for block in blocks:
        for ins in block.instructions:
            ins.writes = [colours[w] for w in ins.writes]
            ins.reads = [r if 8 <= r < FIRST_VALUE else colours[r] for r in ins.reads]
