# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The same program, the same packets: again, and without compiled execution.

Neither cycles nor the order of packets are compared: the host starts the chips from threads of its own and polls them
as it comes to it, so that two workers who share a link may take turns the other way round.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
import torch

from runtime_patches.simulated_n150.tests.mesh.mesh_programs import collective_body, gather_body

REGISTERS = 0xFFB00000


def packets_of(worker):
    """{direction of a link: size and CRC of the L1 writes it carried, counted} over two collectives, and what
    these gave."""
    x = torch.randn(1, 1, 128, 256, generator=torch.Generator().manual_seed(2)).bfloat16()
    worker.links.record()
    gathered = worker.run(gather_body, x, 3, 1)
    sent = {"sender_coord": (0, 0), "receiver_coord": (0, 1)}
    held = worker.run(collective_body, "point_to_point", torch.cat([x, -x]), "bfloat16", "DRAM_MEMORY_CONFIG", sent)
    packets = defaultdict(Counter)
    for delivery in worker.links.recorded():
        if delivery.address < REGISTERS:
            packets[delivery.source][delivery.bytes, delivery.crc] += 1
    worker.kill()
    return dict(packets), [part.tolist() for part in gathered], held[1].tolist()


@pytest.mark.sim
def test_two_runs_and_a_run_in_python_carry_the_same_packets(sim_mesh):
    # Workers of their own, all fresh: packets also carry what earlier programs left in L1 after their headers.
    compiled, python = ({"SIMULATED_N150_BURST": switch} for switch in "10")
    packets, *results = packets_of(sim_mesh((1, 2), variables=compiled))
    assert set(packets) >= {"chip 0 channel 1", "chip 1 channel 7"}
    assert sum(map(Counter.total, packets.values())) > 20
    for variables in (compiled, python):
        again, *others = packets_of(sim_mesh((1, 2), variables=variables))
        moved = {place: (again[place] - packets[place], packets[place] - again[place]) for place in packets}
        assert again == packets, (variables, moved)
        assert others == results, variables
