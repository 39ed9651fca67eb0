# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Split virtual registers into the values that really depend on each other."""

from .instructions import FIRST_VALUE, Instruction


def relax_assignments(blocks, flags):
    """Split webs; an assignment becomes a copy where no lane outside its own is used of its variable."""
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
    """Rename virtual registers so that each name is one connected set of definitions and uses."""
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
                mine = [u for u in uses[-len(ins.reads) :] if u[0] is ins and u[1] == r_index]
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
