# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The chips of a tensor-parallel row, one after the other on one simulated chip (in a worker, see sim_worker.py).

Each runs the model's own code in a thread, on its own part of the weights, until it meets a collective. When all have,
the last one computes what the collective gives each of them, and the first goes on. What stays untested is the links.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

from models.llama31_8b.tt.mesh import MeshPlan


@dataclass(frozen=True)
class _Part:
    """Stands for a mesh mapper: one chip's part of a host tensor."""

    dim: int
    chip: int
    chips: int


@dataclass(frozen=True)
class Chip(MeshPlan):
    """The plan of a mesh, as one chip of a row sees it."""

    chip: int = 0

    def mapper(self, mesh, dim):
        return super().mapper(mesh, None) if dim is None else _Part(dim, self.chip, self.tp)


class _Row:
    """Hands the turn from chip to chip at every collective."""

    def __init__(self, chips: int) -> None:
        self.chips, self.turn, self.failure = chips, 0, None
        self.changed, self.local = threading.Condition(), threading.local()
        self.given: list = [None] * chips
        self.taken: list = [None] * chips
        self.collectives = 0

    def run(self, body: Callable, chip: int, results: list) -> None:
        self.local.chip = chip
        try:
            self._wait(chip)
            results[chip] = body(chip)
            self._pass_on(chip)
        except BaseException as error:  # noqa: BLE001 - handed to the caller, and the other chips must end
            with self.changed:
                self.failure = self.failure or error
                self.changed.notify_all()

    def meet(self, x, combine: Callable):
        """`combine`, of the parts of all chips, gives a list with the result of each."""
        chip = self.local.chip
        self.given[chip] = x
        if chip == self.chips - 1:
            self.taken = combine(self.given)
            self.collectives += 1
        self._pass_on(chip)
        self._wait(chip)
        return self.taken[chip]

    def _pass_on(self, chip: int) -> None:
        with self.changed:
            self.turn = (chip + 1) % self.chips
            self.changed.notify_all()

    def _wait(self, chip: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.failure is not None or self.turn == chip)
            if self.failure is not None:
                raise RuntimeError(f"chip {chip} ends because another failed") from self.failure


def on_chips(chips: int, body: Callable[[int], object]) -> tuple[list, int]:
    """`body(chip)` for every chip of a row: the results, and how many collectives they met in."""
    import ttnn

    row, results, from_torch = _Row(chips), [None] * chips, ttnn.from_torch

    def put(tensor, *arguments, mesh_mapper=None, **options):
        if isinstance(mesh_mapper, _Part):
            tensor = tensor.chunk(mesh_mapper.chips, mesh_mapper.dim)[mesh_mapper.chip].contiguous()
            mesh_mapper = None
        return from_torch(tensor, *arguments, mesh_mapper=mesh_mapper, **options)

    def all_gather(x, dim, cluster_axis):
        assert dim in (0, 3) and cluster_axis == 1, "sums of all chips, or the columns of a row of the mesh"
        memory = x.memory_config()
        return row.meet(x, lambda parts: [ttnn.concat(parts, dim=dim, memory_config=memory) for _ in parts])

    def reduce_scatter(x, dim, cluster_axis, topology):
        assert (dim, cluster_axis) == (3, 1) and topology == ttnn.Topology.Linear

        def combine(parts):
            total = parts[0]
            for part in parts[1:]:
                total = ttnn.add(total, part)
            rows, width = total.shape[2], total.shape[3] // chips
            return [
                ttnn.slice(total, [0, 0, 0, c * width], [1, 1, rows, (c + 1) * width]) for c in range(chips)
            ]

        return row.meet(x, combine)

    with (
        mock.patch.object(ttnn, "from_torch", put),
        mock.patch.object(ttnn, "all_gather", all_gather),
        mock.patch.object(ttnn, "reduce_scatter", reduce_scatter),
    ):
        threads = [threading.Thread(target=row.run, args=(body, chip, results)) for chip in range(chips)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if row.failure is not None:
        raise row.failure
    return results, row.collectives
