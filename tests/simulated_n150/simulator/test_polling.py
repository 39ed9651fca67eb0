# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""How much time goes by at the host's messages."""

import json

from runtime_patches.simulated_n150.simulator.patch import check
from runtime_patches.simulated_n150.simulator.patches.polling import LEAST, MOST, PATCH

# A device that notes how many cycles it is to run, of which one core is out of reset.
MESSAGES = """
import json
from framework.bridge.device import Device
from runtime_patches.simulated_n150.simulator.patches import polling
polling.PATCH.apply()

class Chip:
    def __init__(self):
        self.cycles, self.words = [], {}
    def run(self, cycles):
        self.cycles.append(cycles)
    def read(self, place, address, size):
        return self.words.get(address, bytes(size))
    def write(self, place, address, data):
        self.words[address] = data

device = Device(lambda diagnostics: Chip(), {})
device._brisc_running[1, 1] = True
chip = device.tt_device
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
    assert (waiting[0], waiting[-1]) == (LEAST, MOST)
    assert json.loads(fresh_interpreter(MESSAGES)) == [*waiting, 100, 100, 100, 200, 100, 100, 100, 200]


def test_targets_are_the_installed_code():
    check([PATCH])
