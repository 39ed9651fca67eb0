# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A virtual pair for benches and tests: two cores of one chip in place of two chips, joined by the NoC."""

from __future__ import annotations

from tt_kernels.common.cores import check_core, single_cores
from tt_kernels.common.peer import Pairs
from tt_kernels.common.placement import noc_core_of


class CorePair(Pairs):
    """Two cores of one chip as a pair: rank 0 at `cores[0]`, rank 1 at `cores[1]`."""

    defines = (("PEER_LINK_NOC", "1"),)

    def __init__(self, device, cores: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (1, 0))):
        if len(cores) != 2 or cores[0] == cores[1]:
            raise ValueError(f"a pair is two different cores, not {cores}")
        for core in cores:
            check_core(device, core)
        if (cores[0][1], cores[0][0]) > (cores[1][1], cores[1][0]):
            raise ValueError(f"rank 0 comes first, row by row; got {cores}")  # the order of the state's shards
        self.cores = tuple(cores)
        self.make_state(device, single_cores(*cores), 2)

    def names(self) -> list[str]:
        return [f"rank {rank} (core {core})" for rank, core in enumerate(self.cores)]

    def max_write(self) -> int:
        return 8192  # one NoC packet

    def link_args(self, rank: int) -> list[int]:
        """Return the runtime arguments of PeerLink on that rank's core."""
        return list(noc_core_of(self.device)(self.cores[1 - rank]))
