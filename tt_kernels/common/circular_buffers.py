# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The circular buffers of a program, and the L1 they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tt_kernels.common.cores import core_set, l1_free
from tt_kernels.common.kernel import Core
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import UnsupportedError

# A block float tile adds an exponent byte for every 16 numbers.
TILE_BYTES = {"BFLOAT16": 2048, "BFLOAT8_B": 1088, "BFLOAT4_B": 576, "FLOAT32": 4096}
# Fidelity of products with weights of a format: the fewest passes that use all its bits. bfloat16 weights accumulate in
# float32, with which HiFi4 gives single wrong outputs on Wormhole (tt-metal issue 38306); HiFi3 leaves out only the
# product of both lower halves.
FIDELITY = {"BFLOAT16": "HiFi3", "BFLOAT8_B": "HiFi2", "BFLOAT4_B": "LoFi"}


def aligned(size: int, alignment: int = 16) -> int:
    """Return the least multiple of `alignment` that is not below `size`."""
    return -(-size // alignment) * alignment


@dataclass(frozen=True)
class Buffer:
    """`pages` pages of `page_bytes` on the cores of `roles`. dtype: the name of a ttnn dtype. tile_rows: that are
    computed of a page that is a tile."""

    index: int
    dtype: str
    page_bytes: int
    pages: int
    roles: frozenset[str]
    tile_rows: int = 32

    @property
    def bytes(self) -> int:
        return self.page_bytes * self.pages


def largest_buffers(buffers: Mapping[str, Buffer]) -> str:
    """Name the three largest buffers and their bytes, for a message about L1."""
    largest = sorted(buffers.items(), key=lambda item: -item[1].bytes)[:3]
    return ", ".join(f"{name} {buffer.bytes}" for name, buffer in largest)


def l1_bytes(buffers: dict[str, Buffer]) -> dict[str, int]:
    """Return the L1 bytes that a core of each role needs. The runtime places buffers in order, each above everything
    that its cores already hold."""
    tops: dict[str, int] = {}
    for buffer in sorted(buffers.values(), key=lambda buffer: buffer.index):
        top = max(tops.get(role, 0) for role in buffer.roles) + buffer.bytes
        tops.update(dict.fromkeys(buffer.roles, top))
    return tops


def check_l1(buffers: dict[str, Buffer], device: ttnn.MeshDevice) -> None:
    """Raise UnsupportedError for buffers that take more L1 than a core of `device` has free now."""
    needed, free = max(l1_bytes(buffers).values()), l1_free(device)
    if needed > free:
        raise UnsupportedError(f"buffers take {needed} bytes of L1, {free} are free ({largest_buffers(buffers)})")


def word_buffer(index: int, page_bytes: int, cores: Any, pages: int = 1) -> Any:
    """Return the ttnn.CBDescriptor of a buffer of 32-bit words on `cores`, a ttnn.CoreRangeSet."""
    page = ttnn.CBFormatDescriptor(buffer_index=index, data_format=ttnn.uint32, page_size=page_bytes)
    return ttnn.CBDescriptor(total_size=pages * page_bytes, core_ranges=cores, format_descriptors=[page])


def circular_buffer(buffer: Buffer, cores: Mapping[str, Sequence[Core]]) -> Any:
    """Return the ttnn.CBDescriptor of `buffer`. cores: by role."""
    names = {
        "BFLOAT16": ttnn.bfloat16,
        "BFLOAT8_B": ttnn.bfloat8_b,
        "BFLOAT4_B": ttnn.bfloat4_b,
        "FLOAT32": ttnn.float32,
        "UINT32": ttnn.uint32,
    }
    page = ttnn.CBFormatDescriptor(
        buffer_index=buffer.index,
        data_format=names[buffer.dtype],
        page_size=buffer.page_bytes,
        tile=ttnn.TileDescriptor(buffer.tile_rows, 32),
    )
    on = [core for role in sorted(buffer.roles) for core in cores[role]]
    return ttnn.CBDescriptor(total_size=buffer.bytes, core_ranges=core_set(*on), format_descriptors=[page])
