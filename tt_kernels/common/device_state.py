# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""State that kernels keep in L1 from call to call, and that the host reads and resets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tt_kernels.common.lazy_ttnn import ttnn


def clear_words(words: ttnn.Tensor, device: ttnn.MeshDevice) -> None:
    """Set a tensor of uint32 words to zeros, at the same address."""
    ttnn.copy_host_to_device_tensor(zero_words(device, tuple(words.shape), on_device=False), words)


def zero_words(
    device: ttnn.MeshDevice, shape: Sequence[int], memory: ttnn.MemoryConfig | None = None, on_device: bool = True
) -> ttnn.Tensor:
    """Return zeros, uint32 of this shape, ROW_MAJOR, the same on every chip. memory: DRAM by default. on_device: else
    they stay in host memory, to be copied."""
    place: dict[str, Any] = {"device": device, "memory_config": memory} if on_device else {}
    return ttnn.from_torch(
        torch.zeros(*shape, dtype=torch.int32),
        dtype=ttnn.uint32,
        layout=ttnn.ROW_MAJOR_LAYOUT,
        mesh_mapper=ttnn.ReplicateTensorToMesh(device),
        **place,
    )


def l1_words(device: ttnn.MeshDevice, cores: ttnn.CoreRangeSet, rows: int, words: int) -> ttnn.Tensor:
    """Return zeros, uint32 [1, 1, rows, words], a row in the L1 of each of `rows` cores, once they are there on all
    chips: else a chip could begin a call before this write reaches another chip, and the write would erase a message of
    the call."""
    shard = ttnn.ShardSpec(cores, [1, words], ttnn.ShardOrientation.ROW_MAJOR)
    memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shard)
    made = zero_words(device, (1, 1, rows, words), memory)
    ttnn.synchronize_device(device)
    return made


class PeerError(RuntimeError):
    """A call ended without a chip it needed, or with one in another state."""


@dataclass(frozen=True)
class KeptState:
    """What one core keeps: `calls` made, and the failure if there was one. status: a key of `reasons`. sent, ties: of a
    pair's calls. silent: the TP rank of the chip that was missed."""

    reasons: Mapping[int, str]
    calls: int
    status: int
    status_call: int
    sent: int = 0
    ties: int = 0
    silent: int = 0

    @property
    def failure(self) -> str | None:
        if self.status == 0:
            return None
        reason = self.reasons.get(self.status, f"unknown status {self.status}").format(silent=self.silent)
        return f"gave up in call {self.status_call}: {reason}"


class DeviceState(ABC):
    """`STATE_WORDS` words in the L1 of some cores of every chip, zeros at first; a subclass says what they mean.

    FIELDS: words of a KeptState by name. REASONS: by status, which is 0 while nothing has failed.
    """

    STATE_WORDS: int
    FIELDS: Mapping[str, int]
    REASONS: Mapping[int, str]

    def states(self) -> list[KeptState]:
        """Return the state of each keeper: chips in row-major order, then the keepers of a chip. Waits for the
        device."""
        fields = self.FIELDS.items()
        return [KeptState(self.REASONS, **{name: words[at] for name, at in fields}) for words in self.read_words()]

    @abstractmethod
    def names(self) -> list[str]:
        """Name the keepers, in the order of the states."""

    def make_state(self, device: ttnn.MeshDevice, cores: ttnn.CoreRangeSet, rows: int) -> None:
        """Allocate the state on `cores`, a ttnn.CoreRangeSet of `rows` cores."""
        self.device, self.state = device, l1_words(device, cores, rows, self.STATE_WORDS)
        if self.state.buffer_address() % 32:
            raise RuntimeError(f"the state is at {self.state.buffer_address():#x}, not 32-byte aligned")

    def reset(self) -> None:
        """Forget all calls and failures. No call may be under way on any chip."""
        ttnn.synchronize_device(self.device)
        clear_words(self.state, self.device)
        ttnn.synchronize_device(self.device)

    def read_words(self) -> list[list[int]]:
        """Return the words of each core, chips in row-major order. Waits for the device."""
        return [
            words
            for part in ttnn.get_device_tensors(self.state)
            for words in ttnn.to_torch(part).reshape(-1, self.STATE_WORDS).tolist()
        ]

    def check(self) -> None:
        """Raise PeerError that says who gave up, in which call and why. Waits for the device."""
        failed = [
            f"{name} {state.failure}" for name, state in zip(self.names(), self.states(), strict=True) if state.failure
        ]
        if failed:
            raise PeerError("; ".join(failed))


class MeshState(DeviceState):
    """State on one core of every chip of a mesh. shape: of the mesh. core: (x, y), the same on every chip."""

    shape: tuple[int, ...]
    core: tuple[int, int]

    def names(self) -> list[str]:
        return [f"chip {coordinate}" for coordinate in self.coordinates()]

    def coordinates(self) -> list[tuple[int, ...]]:
        """List all chips, row-major."""
        return [(row, column) for row in range(self.shape[0]) for column in range(self.shape[1])]

    def connection(
        self, here: tuple[int, ...], there: tuple[int, ...], program: ttnn.ProgramDescriptor, link: int = 0
    ) -> list[int]:
        """Return the runtime arguments of a link from one chip's core to another's; adds the connection's semaphores to
        `program`. link: which Ethernet link between the two."""
        core = ttnn.CoreCoord(*self.core)
        place = self.device.worker_core_from_logical_core(core)
        nodes = [self.device.get_fabric_node_id(ttnn.MeshCoordinate(*chip)) for chip in (here, there)]
        return [place.x, place.y, 1, *ttnn.setup_fabric_connection(*nodes, link, program, core)]
