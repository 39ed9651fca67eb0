# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How much time goes by at the host's messages."""

import json
from types import SimpleNamespace

import pytest

from runtime_patches.simulated_n150.simulator.host.lockstep import Clock
from runtime_patches.simulated_n150.simulator.patch import check
from runtime_patches.simulated_n150.simulator.speed.polling import MAX, MIN, PATCH

# A device that notes how many cycles it is to run, of which one core is out of reset. TILES: awake, and woken when.
DEVICE = """
import json
from types import SimpleNamespace
from framework.bridge.device import Device
from runtime_patches.simulated_n150.simulator.speed import polling
polling.PATCH.apply()

class Chip:
    def __init__(self):
        self.cycles, self.words = [], {}
        tiles = [SimpleNamespace(awake=awake, wake_at=wake_at) for awake, wake_at in TILES]
        self.clocks = [SimpleNamespace(_tile_clocks=tiles)]
    def run(self, cycles):
        self.cycles.append(cycles)
    def read(self, place, address, size):
        return self.words.get(address, bytes(size))
    def write(self, place, address, data):
        self.words[address] = data

device = Device(lambda diagnostics: Chip(), {})
device._brisc_running[1, 1] = True
chip = device.tt_device
"""
MESSAGES = """
for _ in range(7):
    assert device.read((1, 1), 0x40, 4) == bytes(4)
device.write((1, 1), 0x40, b"\\x01\\x02\\x03\\x04")
device.write((1, 1), 0x80, bytes(2048))
for address, size in ((0x40, 4), (0x44, 4), (0x80, 2048), (0x880, 2048), (0x44, 4), (0x44, 4)):
    found = device.read((1, 1), address, size)
    assert found == chip.words.get(address, bytes(size))
print(json.dumps(chip.cycles))
"""


def test_reads_that_follow_each_other_wait_longer_until_something_else_comes(fresh_interpreter):
    waiting = [100, 200, 400, 800, 1600, 1600, 1600]
    assert (waiting[0], waiting[-1]) == (MIN, MAX)
    found = fresh_interpreter(f"TILES = [(True, None)]{DEVICE}{MESSAGES}")
    assert json.loads(found) == [*waiting, 100, 100, 100, 200, 100, 100, 100, 200]


# Ten polls, a write and another; after each, how many pauses there have been.
POLLS = """
pauses, counts = [], []
polling.time = SimpleNamespace(sleep=pauses.append)
for number in range(12):
    if number == 10:
        device.write((1, 1), 0x40, bytes(4))
    device.read((1, 1), 0x40, 4)
    counts.append(len(pauses))
print(json.dumps(counts))
"""


@pytest.mark.parametrize(
    "tiles, pauses",
    [
        ([(False, None)] * 2, [0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 5, 5]),
        ([(False, None), (True, None)], [0] * 12),
        ([(False, 5000), (False, None)], [0] * 12),
    ],
    ids=["at rest", "one awake", "one to wake up"],
)
def test_a_chip_at_rest_answers_after_a_pause(fresh_interpreter, tiles, pauses):
    """From the longest wait on, until the host writes; not while a tile is awake or is going to be."""
    assert json.loads(fresh_interpreter(f"TILES = {tiles}{DEVICE}{POLLS}")) == pauses


@pytest.mark.parametrize("part", ["nothing", "chip", "link", "event"])
def test_a_mesh_is_at_rest_when_all_of_it_is(part):
    def chip(awake):
        clock = SimpleNamespace(awake=awake, wake_at=None)
        return SimpleNamespace(clocks=[SimpleNamespace(_tile_clocks=[clock])])

    mesh = Clock()
    mesh.chips = [chip(False), chip(part == "chip")]
    ends = [SimpleNamespace(underway=[]), SimpleNamespace(underway=["packet"] if part == "link" else [])]
    mesh.links = [SimpleNamespace(ends=ends)]
    if part == "event":
        mesh.at(5, lambda: None)
    assert mesh.is_at_rest() == (part == "nothing")


def test_targets_are_the_installed_code():
    check([PATCH])
