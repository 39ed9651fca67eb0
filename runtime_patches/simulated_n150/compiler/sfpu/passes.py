# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Change vector code around register allocation: constants, folding, dead code, moving results."""

from .instructions import CONSTANT_BITS, FIRST_VALUE, IMMEDIATE_FORM, SETS_FLAGS, Instruction, raw_flags


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
    """Fold constants into operands and results into the assignment that follows; remove dead code."""
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
                    i for i in block.instructions if not (i.name in ("copy", "assign") and i.writes[0] == i.reads[-1])
                ]


def _takes_constant(ins, value, constant):
    """Return True unless `value` is written in place, or stored from LREG12-15, which SFPSTORE cannot name."""
    return not _is_tied_read(ins, value) and not (ins.name == "store" and constant >= 12)


def _is_tied_read(ins, value):
    return any(ins.reads[r] == value for _, r in ins.tied)


def _fold_into_assignment(block, ins, assignment, value):
    """Turn `t = op; x = t` under the same lane flags into an op that writes into x."""
    if ins.tied or len(ins.writes) != 1 or ins.name in ("copy", "raw") or assignment.reads[1] != value:
        return False
    start, end = block.instructions.index(ins), block.instructions.index(assignment)
    target = assignment.writes[0]
    for between in block.instructions[start + 1 : end]:
        if between.name in SETS_FLAGS or (between.name == "raw" and raw_flags(between.fields[0])):
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


def use_immediates(blocks):
    """Turn `t = constant; y = x + t` into `y = x; y += constant` where the immediate holds the constant."""
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


def rematerialise(blocks, candidates, next_value):
    """Load constants again before each of their uses: a quarter of those left, the ones in `candidates` first.

    Return the new count of values, or None if no constant was left.
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
    """Move results to their only use where that keeps no operand alive for longer; return whether any moved."""
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
