# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated DRAM rates against those that tt-isa-documentation measured on silicon, WormholeB0/DRAMTile/README.md."""

import json

import pytest

PROGRAM = """
import json
from statistics import mean
from runtime_patches.simulated_n150.simulator.behaviour import bandwidth
from runtime_patches.simulated_n150.simulator.patch import apply_all
from runtime_patches.simulated_n150.tests.simulator.behaviour.dram_readers import *

apply_all(bandwidth.PATCHES)
rates = {}
for noc in (0, 1):
    one = [(OPTIMAL[1], BANKS[1])]
    rates[f"one {noc}"] = bytes_per_cycle(one, noc=noc, page=8192, pages=128, in_flight=8)
    third = [*one, (OPTIMAL[0], ((0, 0), BANKS[1][1]))]
    rates[f"a channel through two tiles {noc}"] = bytes_per_cycle(third, noc=noc, page=8192, pages=64, in_flight=8)
    twelve = [(worker, BANKS[1]) for worker, _ in at_random(12, 0)]
    rates[f"twelve {noc}"] = bytes_per_cycle(twelve, noc=noc, page=8192, pages=16, in_flight=8)
    rates[f"beside {noc}"] = bytes_per_cycle(beside(noc), noc=noc, page=8192, pages=128, in_flight=8)
    runs = [bytes_per_cycle(at_random(12, seed), noc=noc, page=8192, pages=16, in_flight=16) for seed in range(8)]
    rates[f"random {noc}"] = mean(runs)
optimal = list(zip(OPTIMAL, BANKS))
rates["optimal 0"] = bytes_per_cycle(optimal, noc=0, page=6016, pages=128, in_flight=8)
print(json.dumps(rates))
"""
# Bytes per cycle (GB/s at 1 GHz) and how far off the model may be. Random pairs also wait for router buffers on
# silicon, which the model does not have, and each of its eight draws is another.
MEASURED = {
    "one 0": (22.2, 0.02), "one 1": (22.3, 0.02), "twelve 0": (22.3, 0.02), "twelve 1": (22.3, 0.02),
    "beside 0": (265.5, 0.02), "beside 1": (265.3, 0.02), "optimal 0": (265.5, 0.02),
    "random 0": (189.8, 0.25), "random 1": (82.1, 0.25),
}  # fmt: skip


@pytest.fixture(scope="module")
def rates(fresh_interpreter):
    return json.loads(fresh_interpreter(PROGRAM).splitlines()[-1])


@pytest.mark.parametrize("case", MEASURED)
def test_rates_are_those_measured_on_silicon(rates, case):
    measured, share = MEASURED[case]
    assert rates[case] == pytest.approx(measured, rel=share)


@pytest.mark.parametrize("noc", [0, 1])
def test_a_group_s_third_tile_reaches_the_same_channel(rates, noc):
    assert rates[f"a channel through two tiles {noc}"] == pytest.approx(22.3, rel=0.02)


def test_noc_1_is_the_slower_one_for_random_reads(rates):
    assert rates["random 1"] < 0.6 * rates["random 0"], "responses crowd the columns that hold the DRAM tiles"
