# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Looking at the awake tiles alone changes nothing: the same tiles with and without, in each cycle."""

import json

from runtime_patches.simulated_n150.simulator.patch import check
from runtime_patches.simulated_n150.simulator.speed.strides import PATCH

# Tiles that do nothing but note their cycles, fall asleep for a random time or for ever, and wake others at random:
# earlier and later ones, and new ones. The host wakes some between its runs. A watch wants cycles of its own.
LOG = """
import json, os, random
from framework.device.clock import MultiTileClock, TileClock
from runtime_patches.simulated_n150.simulator.speed import strides
if os.environ["STRIDES"] == "1":
    strides.PATCH.apply()

class Part:
    def __init__(self, number):
        self.number = number
    def clock_tick(self, cycle):
        log.append((cycle, self.number, pump.current_cycle))
        draw = random.Random(self.number << 20 | cycle)
        for other in draw.sample(tiles, draw.choice([0, 0, 1, 2])):
            other.wake()
        if draw.random() < 0.01 and len(tiles) < 24:
            add(heavy=draw.random() < 0.5)

def add(heavy):
    number = len(tiles)
    def next_wake(cycle):
        draw = random.Random(number << 20 | cycle | 1 << 40)
        return draw.choice([None, cycle + 1, cycle + 1, cycle + draw.randrange(1, 60)])
    tiles.append(TileClock([Part(number)], next_wake=next_wake))
    pump.add_tile_clock(tiles[-1], heavy=heavy)

def watch_tick(cycle):
    seen.append(cycle)
    if random.Random(cycle).random() < 0.05:
        tiles[cycle % len(tiles)].wake()

log, seen, horizons, host = [], [], [], random.Random(1)
for watched in (False, True):
    tiles, pump = [], MultiTileClock(on_tick=watch_tick if watched else None)
    pump.on_tick_wake = (lambda cycle: cycle // 37 * 37 + 37) if watched else None
    for number in range(12):
        add(heavy=number % 3 == 0)
    for _ in range(60):
        pump.run(host.randrange(1, 90))
        horizons.append((pump.clock_tick_num, str(pump.quiescent_until), [t.clock_tick_num for t in tiles]))
        if host.random() < 0.4:
            host.choice(tiles).wake()
print(json.dumps([log, seen, horizons]))
"""


def test_the_same_tiles_are_ticked_in_the_same_order(fresh_interpreter):
    with_strides, without = (json.loads(fresh_interpreter(LOG, STRIDES=value)) for value in "10")
    ticks, seen, _ = without
    assert len({number for _, number, _ in ticks}) > 15 and len(seen) > 300, "tiles were added, and watched"
    assert 0.05 < len(ticks) / (max(cycle for cycle, *_ in ticks) * 24) < 0.9, "they slept at times"
    assert with_strides == without


def test_targets_are_the_installed_code():
    check([PATCH])
