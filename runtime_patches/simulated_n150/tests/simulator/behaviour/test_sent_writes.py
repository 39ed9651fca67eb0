# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A write counts as sent when its packet leaves: a flag's broadcast after that of its block has left."""

import json

import pytest

# A tile broadcasts a block of 8192 bytes to two tiles, itself one of them, and then 16 bytes to the same two.
PROGRAM = """
import json, os
from framework.device.wormhole import Wormhole
from runtime_patches.simulated_n150.simulator.behaviour import noc, sent_writes
from runtime_patches.simulated_n150.simulator.patch import apply_all
apply_all([noc.PATCH, sent_writes.PATCH] if os.environ["PATCHED"] == "1" else [noc.PATCH])
device = Wormhole(tensix_coords=[(18, 18), (19, 18)])
nui = min((tile.noc0_router for tile in device.tensix_tiles), key=lambda one: one.id_pair)
x, y = nui.id_pair
BLOCK, SIZE = 0x80000, 8192
END = BLOCK + SIZE
memory = nui.attached_memory
memory.write(0x40000, b"\\x5a" * SIZE)
device.run(10)

def broadcast(source, end, size):
    values = {0x0: source, 0xC: end, 0x10: x << 16 | y << 22 | (x + 1) << 4 | y << 10, 0x18: 0,
              0x1C: 2 | 1 << 4 | 1 << 5 | 1 << 17, 0x20: size, 0x28: 1}
    for address, value in values.items():
        nui.write(address, value.to_bytes(4, "little"))

broadcast(0x40000, BLOCK, SIZE)
broadcast(0x40000, END, 16)
seen = []
for cycle in range(600):
    sent = int.from_bytes(nui.read(0x200 + 4 * 10, 4), "little")
    seen.append((sent, memory.read(END - 1, 1) == b"\\x5a", memory.read(END, 1) == b"\\x5a"))
    device.run(1)
device.shutdown()
print(json.dumps({"sent": [sum(row[0] < n for row in seen) for n in (1, 2)],
                  "block": sum(not row[1] for row in seen), "flag": sum(not row[2] for row in seen)}))
"""
FLITS = 8192 // 32
TO_ITSELF = 12  # cycles, at most: out of the interface to its router and back (~5 each, NoC/README.md, Performance)


@pytest.fixture(scope="module")
def run(fresh_interpreter):
    return lambda **names: json.loads(fresh_interpreter(PROGRAM, **names).splitlines()[-1])


def test_a_flag_counts_as_sent_after_its_block_has_left(run):
    seen = run(TT_SIM_COST_MODEL="1", PATCHED="1")
    assert seen["sent"][0] == 0, "the block finds the port free"
    assert seen["sent"][1] >= FLITS
    assert seen["block"] - seen["sent"][1] <= TO_ITSELF, "a core that waited for its writes finds its own block soon"
    assert seen["block"] < seen["flag"]


def test_the_installed_simulator_counts_it_with_the_command(run):
    seen = run(TT_SIM_COST_MODEL="1", PATCHED="0")
    assert seen["sent"] == [0, 0]
    assert seen["block"] > FLITS


def test_without_the_cost_model_nothing_waits(run):
    seen = run(TT_SIM_COST_MODEL="0", PATCHED="1")
    assert seen["sent"] == [0, 0]
