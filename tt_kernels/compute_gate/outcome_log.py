# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What speculation did, counted on the device and read only when asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_EXACT_UNVERIFIED, HOLDS_GUESS, MAX_USERS, YIELDED, check_users

_COUNTERS = 8
ROW_WORDS = _COUNTERS + MAX_USERS


@dataclass(frozen=True)
class DeviceCounters:
    """What one chip counted at one layer; each count is in (calls, users) except `calls`."""

    calls: int
    accepted: int
    received: int
    rejected: int
    bypassed: int
    invalid: int
    last: tuple[int, ...] = field(repr=False)
    """The priorities after the last call, one per user."""

    @property
    def hit_rate(self) -> float | None:
        """Accepted guesses over all guesses this chip made as the sender; None if it made none."""
        made = self.accepted + self.rejected
        return self.accepted / made if made else None


class OutcomeLog:
    """A row of counters per layer in one device tensor: uint32 [1, 1, layers, ROW_WORDS], row-major, DRAM.

    The gate writer adds to it when it is given to `skip_compute`. On a mesh every chip keeps its own rows.
    """

    def __init__(self, device, layers: int, users: int):
        if type(layers) is not int or layers < 1:
            raise ValueError(f"layers must be a positive integer, not {layers!r}")
        self.layers, self.users, self.device = layers, check_users(users), device
        self.tensor: Any = None
        self.reset()

    def reset(self) -> None:
        """Set all counters to zero, at the same address."""
        import ttnn

        zeros = torch.zeros(1, 1, self.layers, ROW_WORDS, dtype=torch.int32)
        mapper = ttnn.ReplicateTensorToMesh(self.device)
        if self.tensor is None:
            self.tensor = ttnn.from_torch(
                zeros, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=self.device, mesh_mapper=mapper
            )
        else:
            host = ttnn.from_torch(zeros, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, mesh_mapper=mapper)
            ttnn.copy_host_to_device_tensor(host, self.tensor)

    def check_layer(self, layer: int) -> int:
        if type(layer) is not int or not 0 <= layer < self.layers:
            raise ValueError(f"layer must be from 0 to {self.layers - 1}, not {layer!r}")
        return layer

    def read(self) -> list[list[DeviceCounters]]:
        """Return the counters of every chip (row-major over the mesh), by layer. Waits for the device."""
        import ttnn

        chips = [ttnn.to_torch(part) for part in ttnn.get_device_tensors(self.tensor)]
        return [[self._row(row) for row in chip.reshape(self.layers, ROW_WORDS).tolist()] for chip in chips]

    def _row(self, words: list[int]) -> DeviceCounters:
        return DeviceCounters(
            calls=words[0],
            accepted=words[1 + YIELDED],
            received=words[1 + HOLDS_GUESS],
            rejected=words[1 + HOLDS_EXACT],
            bypassed=words[1 + HOLDS_EXACT_UNVERIFIED],
            invalid=words[_COUNTERS - 1],
            last=tuple(words[_COUNTERS : _COUNTERS + self.users]),
        )
