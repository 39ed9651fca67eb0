# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Where bytes queue between a DRAM channel and the core that reads it: interfaces, channels and routes.

The simulator has one NoC interface per NoC for each group of DRAM tiles, so the two channels of a group shared one
link of 32 bytes per cycle and no channel gave more than 16; two of a group's three tiles; a channel that is never
refreshed; and NoC 1 routed along rows first, as NoC 0 is. What the documents say instead is one patch each.
"""

from __future__ import annotations

import math

from runtime_patches.simulated_n150.simulator.patch import Patch

# (x, y) of the tile of each DRAM group that tt-metal gives no worker by default.
_THIRD_TILES = ((0, 0), (0, 6), (5, 0), (5, 10), (5, 4), (5, 6))


def _give_each_interface_its_link() -> None:
    from framework.device.tiles import DRAMEndpointNUI
    from framework.network.tt_noc import NUI

    def send_to(self, destination, packet, queued=None, link_wait=None, *, sent_from=None):
        # sent_from: the grid cell of the interface that answers, None for the cell that the tile itself stands on.
        others = self.__dict__.setdefault("links_free_at", {})
        own = self._tx_free_cycle
        if sent_from is not None:
            self._tx_free_cycle = others.get(sent_from, 0)
        try:
            NUI.send_to(self, destination, packet, queued, link_wait, sent_from=sent_from)
        finally:
            if sent_from is not None:
                others[sent_from], self._tx_free_cycle = self._tx_free_cycle, own

    DRAMEndpointNUI.send_to = send_to


def _give_each_group_three_tiles() -> None:
    from framework.arch.wormhole import WORMHOLE_PROFILE

    name = "dram_channel_physical_noc0_coords"
    pairs = zip(getattr(WORMHOLE_PROFILE, name), _THIRD_TILES, strict=True)
    object.__setattr__(WORMHOLE_PROFILE, name, tuple((*tiles, third) for tiles, third in pairs))


def _hold_channels_for_refreshes() -> None:
    from framework.device.tiles import DramChannels
    from framework.perf.costs import load_costs

    fraction = load_costs("wormhole").section("dram")["bandwidth"]["achievable_fraction"]

    def occupancy_cycles(self, payload_bytes, is_write=False):
        rate = self.write_bytes_per_cycle if is_write else self.bytes_per_cycle
        return math.ceil(payload_bytes / (rate * fraction)) if rate else None

    DramChannels.occupancy_cycles = occupancy_cycles


def _route_noc_1_upwards_first() -> None:
    from framework.network import tt_noc

    route_links_to = tt_noc.NUI.route_links_to

    def routed(self, destination, *, sent_from=None):
        if self.noc_number == 0 or self.noc_link_registry is None or self.noc_latency is None:
            return route_links_to(self, destination, sent_from=sent_from)
        source = (self.x_coord, self.y_coord) if sent_from is None else sent_from
        end = tt_noc._endpoint_noc_coord(destination)
        corner, grid = (source[0], end[1]), (self.noc_grid_x, self.noc_grid_y)
        try:
            return tt_noc.noc_route_links(source, corner, *grid) + tt_noc.noc_route_links(corner, end, *grid)
        except tt_noc.NoCCoordinateError as error:
            raise self._off_grid(error, destination) from None

    tt_noc.NUI.route_links_to = routed


INTERFACES = Patch(
    name="DRAM interfaces",
    rule="each of a DRAM group's three interfaces per NoC has a link of its own, one flit (32 bytes) per cycle",
    source="tt-isa-documentation, WormholeB0/NoC/README.md (six NIUs per 2 GiB; Performance), DRAMTile/README.md",
    targets={
        "framework.device.tiles.DRAMEndpointNUI": "7cbe9a25a18ec445",
        "framework.network.tt_noc.NUI.send_to": "98842d2ae6104418",
        "framework.network.tt_noc.NUI.claim_injection_port": "28a230fdc44ced89",
    },
    apply=_give_each_interface_its_link,
)
TILES = Patch(
    name="DRAM tiles",
    rule="each of a group's three DRAM tiles reaches all of the group's memory",
    source="tt-isa-documentation, WormholeB0/DRAMTile/README.md; tt-metal, soc_descriptors/wormhole_b0_80_arch.yaml",
    targets={"framework.arch.wormhole": "b91fa871bfbe654b"},
    apply=_give_each_group_three_tiles,
)
REFRESH = Patch(
    name="DRAM refresh",
    rule="self-refresh and other overheads leave 92 % of a channel's 24 bytes per cycle",
    source="tt-isa-documentation, WormholeB0/DRAMTile/README.md, Performance; tt-metal, Saturating_DRAM_bandwidth.md",
    targets={
        "framework.device.tiles.DramChannels": "969f7f43ecc05d2c",
        "framework.perf.costs.load_costs": "8ae6eee55507f0b6",
    },
    apply=_hold_channels_for_refreshes,
)
ROUTES = Patch(
    name="routes of NoC 1",
    rule="unicast packets of NoC 1 travel upwards first, then leftwards; those of NoC 0 rightwards, then downwards",
    source="tt-isa-documentation, WormholeB0/NoC/RoutingPaths.md",
    targets={
        "framework.network.tt_noc.noc_route_links": "017da497fe1a9677",
        "framework.network.tt_noc._endpoint_noc_coord": "44f23e59fdedeea1",
        "framework.network.tt_noc.NUI.route_links_to": "ef65cd592c3a6e4c",
    },
    apply=_route_noc_1_upwards_first,
)
PATCHES = (INTERFACES, TILES, REFRESH, ROUTES)
