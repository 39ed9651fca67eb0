# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Describe meshes of N150 boards, for the runtime's mock devices.

Two files describe a mesh. The cluster descriptor lists the boards and their Ethernet links; it takes the place of what
the driver would discover. The mesh graph descriptor says which rectangle they form; the runtime has ready ones only for
the products Tenstorrent sells, and N150 meshes are built by their owners.

The wiring is one an owner can build: an N150 has two QSFP-DD cages of two links each and a Warp 100 bridge of two
links. Neighbours in a row are joined by QSFP cables (cage A of a board to cage B of the next), the two rows of a mesh
by Warp bridges. Two rows of n boards are also a ring of 2n: with FABRIC_1D_RING the runtime opens them as a mesh of 1 x
2n, down one row and back along the other. (It closes no single row to a ring: of all Wormhole products, its mesh graph
gives only the galaxies links that wrap around.)
"""

from __future__ import annotations

import yaml

SHAPES = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (2, 4), (1, 8), (2, 8))

CAGE_A = (0, 1)  # Ethernet channels of the Wormhole chip at each connector
CAGE_B = (6, 7)
WARP = (14, 15)

# An N150 has nine of the die's ten Tensix rows; the runtime tells the product by the number of rows that are off.
HARVESTED_ROWS = 1 << 9  # the last: the simulator numbers rows from the first, and readers are in the row of their bank
FIRST_BOARD_ID = 0x100018611900001


def check_shape(shape: tuple[int, int]) -> tuple[int, int]:
    """Return `shape` as (rows, columns) when a mesh of that shape is described; else raise ValueError."""
    rows_columns = tuple(int(n) for n in shape)
    if rows_columns not in SHAPES:
        known = ", ".join(f"{r}x{c}" for r, c in SHAPES)
        raise ValueError(
            f"no mesh of N150 boards of shape {'x'.join(map(str, shape))} is described; there are: {known}"
        )
    return rows_columns


def parse_shape(text: str) -> tuple[int, int]:
    """Return (rows, columns) of a mesh written ``"2x4"``; ValueError when it is not written so or not described."""
    try:
        rows, columns = (int(n) for n in text.lower().split("x"))
    except ValueError:
        raise ValueError(f"a mesh is written ROWSxCOLUMNS, for example 1x2; got {text!r}") from None
    return check_shape((rows, columns))


def links(shape: tuple[int, int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the Ethernet links of a mesh, each a pair of (chip, channel). Chips are numbered row by row."""
    rows, columns = check_shape(shape)
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []

    def join(one: int, one_channels: tuple[int, int], other: int, other_channels: tuple[int, int]) -> None:
        found.extend(((one, a), (other, b)) for a, b in zip(one_channels, other_channels, strict=True))

    for row in range(rows):
        first = row * columns
        for column in range(columns - 1):
            join(first + column, CAGE_A, first + column + 1, CAGE_B)
    for column in range(columns if rows == 2 else 0):
        join(column, WARP, columns + column, WARP)
    return found


def cluster_descriptor(shape: tuple[int, int]) -> str:
    """Return the text for ``TT_METAL_MOCK_CLUSTER_DESC_PATH``: boards, links and harvesting of a mesh of N150."""
    rows, columns = check_shape(shape)
    chips = range(rows * columns)
    masks = {
        "noc_translation": True,
        "harvest_mask": HARVESTED_ROWS,
        "dram_harvesting_mask": 0,
        "eth_harvesting_mask": 0,
        "pcie_harvesting_mask": 0,
    }
    description = {
        "arch": dict.fromkeys(chips, "wormhole_b0"),
        "chips": {chip: [chip % columns, chip // columns, 0, 0] for chip in chips},
        "ethernet_connections": [
            [{"chip": chip, "chan": channel} for chip, channel in link] for link in links((rows, columns))
        ],
        "chips_with_mmio": [{chip: chip} for chip in chips],
        "harvesting": {chip: dict(masks) for chip in chips},
        "chip_to_boardtype": dict.fromkeys(chips, "n150"),
        "boards": [[{"board_id": FIRST_BOARD_ID + chip}, {"board_type": "n150"}, {"chips": [chip]}] for chip in chips],
    }
    return yaml.safe_dump(description, sort_keys=False)


def mesh_graph_descriptor(shape: tuple[int, int]) -> str:
    """Return the text for ``TT_MESH_GRAPH_DESC_PATH``: one mesh of `shape` with two links between neighbours."""
    rows, columns = check_shape(shape)
    return (
        f'mesh_descriptors {{\n  name: "N150_{rows}x{columns}"\n  arch: WORMHOLE_B0\n'
        f"  device_topology {{ dims: [ {rows}, {columns} ] }}\n"
        "  host_topology { dims: [ 1, 1 ] }\n"
        "  channels { count: 2 policy: RELAXED }\n}\n"
        f'top_level_instance {{ mesh {{ mesh_descriptor: "N150_{rows}x{columns}" mesh_id: 0 }} }}\n'
    )
