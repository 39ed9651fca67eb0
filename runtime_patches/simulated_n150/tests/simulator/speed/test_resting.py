# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Leaving resting parts of a tile alone changes nothing: the same chip with and without, compared all along."""

import json

import pytest

from runtime_patches.simulated_n150.simulator.patch import check
from runtime_patches.simulated_n150.simulator.speed.resting import PATCH

ASSEMBLER = """
def lui(rd, value):
    return (value + 0x800 & 0xFFFFF000) | rd << 7 | 0x37
def addi(rd, rs, n):
    return (n & 0xFFF) << 20 | rs << 15 | rd << 7 | 0x13
def lw(rd, rs, n):
    return (n & 0xFFF) << 20 | rs << 15 | 2 << 12 | rd << 7 | 0x03
def sw(rs2, rs, n):
    return (n >> 5 & 0x7F) << 25 | rs2 << 20 | rs << 15 | 2 << 12 | (n & 31) << 7 | 0x23
def branch(f, a, b, n):
    high, low = (n >> 12 & 1) << 31 | (n >> 5 & 63) << 25, (n >> 1 & 15) << 8 | (n >> 11 & 1) << 7
    return high | b << 20 | a << 15 | f << 12 | low | 0x63
def jal(n):
    return (n >> 20 & 1) << 31 | (n >> 1 & 0x3FF) << 21 | (n >> 11 & 1) << 20 | (n >> 12 & 0xFF) << 12 | 0x6F
"""

# One tile. A core, the first or the last of a cycle, counts to random numbers, writing each to the flag of one of four
# waiting cores, now and then one that is there for a single cycle, or resets a core. A core that sees a new value of
# its flag counts it, copies it to its own place and waits again; a TRISC also has the Tensix unit write to a general
# register. The host stores at random, which wakes the tile. Compared: what the cores have counted after every few
# cycles, and at the end the registers, L1, the Tensix registers and for some cycles the program counters.
DIGESTS = """
import hashlib, json, os, random, struct
from framework.device.tt_device import DeviceTileDiagnostics
from framework.device.wormhole import Wormhole
from runtime_patches.simulated_n150.simulator.behaviour import waiting_loops
from runtime_patches.simulated_n150.simulator.speed import core, resting
waiting_loops.PATCH.apply()
core.PATCH.apply()
if os.environ["RESTING"] == "1":
    resting.PATCH.apply()

FLAGS, SEEN = 0x700, 0x740
START = {"brisc": 0, "ncrisc": 0x12000, "trisc0": 0x6000, "trisc1": 0xA000, "trisc2": 0xE000}
HELD = {"brisc": 11, "ncrisc": 18, "trisc0": 12, "trisc1": 13, "trisc2": 14}
DRIVER = os.environ["DRIVER"]
WAITERS = [name for name in START if name != DRIVER]

def waiter(index, tensix):
    words = [addi(5, 0, 0), addi(6, 0, 0)]
    loop = len(words)
    words += [lw(7, 0, FLAGS + 4 * index), branch(0, 7, 5, -4)]  # while the flag is what it was
    words += [addi(5, 7, 0), addi(6, 6, 1), sw(7, 0, SEEN + 8 * index), sw(6, 0, SEEN + 8 * index + 4)]
    if tensix:
        setdmareg = 0x45 << 24 | 0x1234 << 8 | (2 * index)  # a half of a general register
        words.append((setdmareg << 2 | setdmareg >> 30) & 0xFFFFFFFF)
    return words + [jal(4 * (loop - len(words)))]

def driver(draw):
    words = []
    for _ in range(40):
        count, target = draw.choice([1, 3, 150, 400, draw.randrange(1, 900)]), draw.randrange(4)
        words += [addi(9, 0, count), addi(9, 9, -1), branch(1, 9, 0, -4)]
        words += [addi(10, 0, draw.randrange(1, 2000)), sw(10, 0, FLAGS + 4 * target)]
        if draw.random() < 0.3:
            words.append(sw(0, 0, FLAGS + 4 * target))  # there for one cycle
        if draw.random() < 0.1:
            name = draw.choice(WAITERS)
            words += [lui(11, 0xFFB12000), lui(12, 1 << HELD[name]), sw(12, 11, 0x1B0), sw(0, 11, 0x1B0)]
    return words + [jal(0)]

def state(tile):
    digest = hashlib.sha256(tile.L1_mem.memory[:0x13000].tobytes())
    for name in START:
        baby = getattr(tile, name)
        if name != DRIVER:  # which may wait for ever by then; registers of a parked core are made up when it goes on
            assert not baby.spin_parked, name
            digest.update(b"".join(register.value for register in baby.register_file.registers[:32]))
    gpr = tile.tensix_coprocessor.getBackend().getGPR()
    digest.update(repr(gpr.registers if hasattr(gpr, "registers") else vars(gpr)).encode())
    return digest.hexdigest()

def counters(chip, tile):
    # None where it stands for another cycle, of one that is ahead or rests
    cores = [getattr(tile, name) for name in START]
    now = chip.clocks[0].clock_tick_num
    elsewhere = [core.spin_parked or getattr(core, "ahead", 0) > now for core in cores]
    return [None if e else core.pc_register.read_uint() for core, e in zip(cores, elsewhere)]

found, ticks, parks, at = [], 0, 0, []
for seed in range(2):
    draw = random.Random(seed)
    chip = Wormhole(DeviceTileDiagnostics(), tensix_coords=[(18, 18)])
    tile = chip.tile_directory[18, 18]
    programs = {DRIVER: driver(draw)} | {n: waiter(i, n.startswith("trisc")) for i, n in enumerate(WAITERS)}
    for name, words in programs.items():
        tile.write(START[name], struct.pack(f"<{len(words)}I", *words))
    chip.reset()
    tile.write(0xFFB121B0, bytes(4))
    for _ in range(700):
        chip.run(draw.randrange(1, 60))
        if draw.random() < 0.02:
            chip.write((18, 18), FLAGS + 4 * draw.randrange(4), draw.randrange(1 << 16).to_bytes(4, "little"))
        seen = bytes(tile.L1_mem.memory[SEEN : SEEN + 32])
        found.append(hashlib.sha256(seen).hexdigest()[:8])
    # Everything, a while after all cores have been made to leave their loops.
    for target in range(4):
        chip.write((18, 18), FLAGS + 4 * target, b"\\xff\\xff\\x00\\x00")
    chip.run(60)
    found.append(state(tile))
    for _ in range(30):
        chip.run(1)
        at += counters(chip, tile)
    parks += sum(getattr(tile, name)._spin.parks for name in START)
    ticks += sum(getattr(tile, name)._spin.skipped_cycles for name in START)
print(json.dumps({"found": found, "parks": parks, "skipped": ticks, "at": at}))
"""


@pytest.mark.parametrize("driver", ["brisc", "trisc2"])
@pytest.mark.parametrize("cost_model", ["0", "1"])
def test_a_tile_does_the_same_in_the_same_cycles(fresh_interpreter, cost_model, driver):
    with_rest, without = (
        json.loads(fresh_interpreter(ASSEMBLER + DIGESTS, RESTING=value, TT_SIM_COST_MODEL=cost_model, DRIVER=driver))
        for value in "10"
    )
    assert with_rest["parks"] > 20
    assert with_rest["skipped"] > 2 * without["skipped"] + 1000, "waiting cores were left alone"
    assert len(set(with_rest["found"])) > 50, "the flags were seen at many times"
    different = [i for i, pair in enumerate(zip(with_rest["found"], without["found"], strict=True)) if len({*pair}) > 1]
    assert different == []
    together = [pair for pair in zip(with_rest["at"], without["at"], strict=True) if None not in pair]
    assert len(together) > 20 and all(a == b for a, b in together)


# Three TRISCs with random instructions for their Tensix threads: more of them than a thread holds, such as wait for
# semaphores or units, and waits of the core until its thread or its expander is done. The third thread's instructions
# and its core post what the others' wait for; BRISC resets one of the first two now and then, or lets it go on although
# its thread is not done. Each core counts its steps in L1. Compared after every few cycles: the counts, the semaphores
# and what waits in each thread; at the end the Tensix registers.
THREADS = """
import hashlib, json, os, random, struct
from framework.device.tt_device import DeviceTileDiagnostics
from framework.device.wormhole import Wormhole
from runtime_patches.simulated_n150.simulator.behaviour import waiting_loops
from runtime_patches.simulated_n150.simulator.speed import core, resting
waiting_loops.PATCH.apply()
core.PATCH.apply()
if os.environ["RESTING"] == "1":
    resting.PATCH.apply()

SEEN, PC_BUFFER, SEMAPHORES, CONTROL = 0x740, 0xFFE80000, 0x20, 0xFFB12000
OVERRIDE, RESET, NCRISC = 0x90, 0x1B0, 1 << 18
START = {"brisc": 0, "trisc0": 0x6000, "trisc1": 0xA000, "trisc2": 0xE000}
NOP, MOP, SETDMAREG, ADDDMAREG = 0x02, 0x01, 0x45, 0x58
SEMPOST, SEMGET, SEMWAIT, STALLWAIT = 0xA4, 0xA5, 0xA6, 0xA2

def push(opcode, rest=0):
    word = opcode << 24 | rest
    return (word << 2 | word >> 30) & 0xFFFFFFFF

def pause(draw):
    return [addi(9, 0, draw.choice([1, 5, 30, 200])), addi(9, 9, -1), branch(1, 9, 0, -4)]

def thread(draw, number):
    words = [lui(10, PC_BUFFER), addi(6, 0, 0)]
    for _ in range(130):
        kind = draw.randrange(9)
        if kind == 0:
            words += [push(SETDMAREG, draw.randrange(1 << 14) << 8 | draw.randrange(120))] * draw.choice([1, 3, 90])
        elif kind == 1:
            words += [push(ADDDMAREG, draw.randrange(60) << 12 | draw.randrange(60) << 6 | draw.randrange(60))] * 4
        elif kind == 2:
            words += [push(MOP, 1 << 23), push(STALLWAIT, draw.choice([1, 0x40, 0x1FF]) << 15 | 1 << draw.randrange(7))]
        elif kind in (3, 4):
            wait = draw.choice([4, 8])  # its thread, or the expander
            words += [sw(0, 10, wait), lw(11, 10, wait)]
        elif kind in (5, 6) and number < 2:
            words += [push(SEMWAIT, 0x1FF << 15 | 4 << number | 1), push(SEMGET, 4 << number)]
        elif kind in (5, 6, 7):
            target = draw.randrange(2)
            words += [push(SEMPOST, 4 << target)] if draw.random() < 0.5 else [sw(0, 10, SEMAPHORES + 4 * target)]
        else:
            words += pause(draw)
        words += [addi(6, 6, 1), sw(6, 0, SEEN + 4 * number)]
    return words + [jal(0)]

def driver(draw):
    words = [lui(11, CONTROL), lui(14, NCRISC)]
    for _ in range(60):
        words += pause(draw) * 3
        if draw.random() < 0.15:
            words += [lui(12, NCRISC | 1 << draw.choice([12, 13])), sw(12, 11, RESET), sw(14, 11, RESET)]
        elif draw.random() < 0.2:
            words += [addi(12, 0, 3), sw(12, 11, OVERRIDE), sw(0, 11, OVERRIDE)]
    return words + [jal(0)]

found, waits, held = [], 0, 0
for seed in range(4):
    draw = random.Random(seed)
    chip = Wormhole(DeviceTileDiagnostics(), tensix_coords=[(18, 18)])
    tile = chip.tile_directory[18, 18]
    coprocessor = tile.tensix_coprocessor
    programs = {"brisc": driver(draw)} | {f"trisc{i}": thread(draw, i) for i in range(3)}
    for name, words in programs.items():
        tile.write(START[name], struct.pack(f"<{len(words)}I", *words))
    chip.reset()
    threads = [coprocessor.getThread(i) for i in range(3)]
    for one in threads:
        inner = NOP << 24
        one.mop_expander.mop_cfg[:] = [2, 3, inner, inner, inner, SETDMAREG << 24 | 77 << 8 | 9, inner, inner, inner]
    tile.write(CONTROL + RESET, NCRISC.to_bytes(4, "little"))
    backend = coprocessor.getBackend()
    for _ in range(500):
        chip.run(draw.randrange(1, 25))
        queues = [one.inflight_count() for one in threads]
        waits += max(queues) >= 64
        held += bool(getattr(tile.__dict__.get("_coprocessor_clock"), "held", False))
        values = [backend.getSyncUnit().getSemaphore(i).value for i in range(8)]
        state = [queues, values, tile.L1_mem.memory[SEEN : SEEN + 12].tolist()]
        found.append(hashlib.sha256(repr(state).encode()).hexdigest()[:8])
    found.append(hashlib.sha256(repr(backend.getGPR().registers).encode()).hexdigest())
print(json.dumps({"found": found, "waits": waits, "held": held}))
"""


def test_threads_of_the_coprocessor_do_the_same_in_the_same_cycles(fresh_interpreter):
    unchecked = {"TT_SIM_DISABLE_SEMAPHORE_CHECKS": "1"}  # posts may be too many
    with_rest, without = (
        json.loads(fresh_interpreter(ASSEMBLER + THREADS, RESTING=value, **unchecked)) for value in "10"
    )
    assert without["waits"] > 50, "threads held as many instructions as they may"
    assert with_rest["held"] > 50, "the coprocessor was left alone while gates held their threads back"
    assert len(set(without["found"])) > 500
    assert with_rest["found"] == without["found"]


# One core waits for a stream register, as a kernel for pages of a circular buffer: it adds what it sees to a sum. The
# host stores to the register at random times, now and then a value for a few cycles, and to the sum's neighbours.
STREAMS = """
import json, os, random, struct
from framework.device.tt_device import DeviceTileDiagnostics
from framework.device.wormhole import Wormhole
from runtime_patches.simulated_n150.simulator.behaviour import stream_registers, waiting_loops
from runtime_patches.simulated_n150.simulator.speed import core, resting
for patch in (stream_registers, waiting_loops, core):
    patch.PATCH.apply()
if os.environ["RESTING"] == "1":
    resting.PATCH.apply()
SEEN, REGISTER = 0x740, 0xFFB40000 + 0x1000 * 8 + 4 * 10
words = [lui(10, REGISTER), addi(5, 0, 0), addi(6, 0, 0)]
loop = len(words)
words += [lw(7, 10, REGISTER & 0xFFF), lw(8, 10, (REGISTER & 0xFFF) - 4), branch(0, 7, 5, -8)]
words += [addi(5, 7, 0), 7 << 20 | 6 << 15 | 6 << 7 | 0x33, sw(6, 0, SEEN), jal(4 * (loop - len(words) - 3))]
chip = Wormhole(DeviceTileDiagnostics(), tensix_coords=[(18, 18)])
tile, draw, found = chip.tile_directory[18, 18], random.Random(0), []
tile.write(0, struct.pack(f"<{len(words)}I", *words))
chip.reset()
tile.write(0xFFB121B0, (0x47000).to_bytes(4, "little"))
for _ in range(400):
    chip.run(draw.choice([draw.randrange(1, 30), draw.randrange(300, 900)]))
    chip.write((18, 18), REGISTER, draw.randrange(1 << 16).to_bytes(4, "little"))
    found.append(tile.L1_mem.memory[SEEN : SEEN + 4].tolist())
print(json.dumps({"found": found, "parks": tile.brisc._spin.parks}))
"""


def test_a_core_that_waits_for_a_stream_register_rests(fresh_interpreter):
    """It sees each value in the cycle in which a core that goes on reading sees it."""
    with_rest, without = (json.loads(fresh_interpreter(ASSEMBLER + STREAMS, RESTING=value)) for value in "10")
    assert with_rest["parks"] > 50 and without["parks"] == 0
    assert with_rest["found"] == without["found"] and len({*map(tuple, with_rest["found"])}) > 300


def test_targets_are_the_installed_code():
    check([PATCH])
