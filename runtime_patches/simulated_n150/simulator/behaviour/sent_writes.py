# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""When a write counts as sent.

Rule (tt-isa-documentation, WormholeB0/NoC/Counters.md, "Write requests with NOC_CMD_WR_INLINE=false"): a write counts
in NIU_MST_*_WR_REQ_SENT once it has the virtual channel of its first hop and its data is being read; README.md,
"Virtual channels" and "Performance": a linked packet has its predecessor's channel, which is free when that one has
left, and no data of a broadcast with a reserved path leaves before its whole tree is reserved.

The simulator counted a write as its command was given, even while with the cost model the packet still waited for the
port. A kernel that waits until its writes are sent (noc_async_writes_flushed) then did not wait. The stock DRAM-sharded
matmul's cores that send and multiply set their own flag before their block has come back to them; what keeps them from
using it too early is that wait, behind the broadcast of the flag that is linked to the block's.
"""

from __future__ import annotations

from framework.network.tt_noc import NUI

from runtime_patches.simulated_n150.simulator.patch import Patch

_COUNTERS = 0x200
_Names = NUI.NUICounters.CounterNames
_SENT = (_Names.NIU_MST_NONPOSTED_WR_REQ_SENT, _Names.NIU_MST_POSTED_WR_REQ_SENT)
SENT_COUNTERS = {_COUNTERS + 4 * name: name for name in _SENT}  # by their places in an interface's registers


def _waiting(nui, name) -> int:
    """Return how many of the writes that the counter has already counted still wait for the port."""
    waiting = nui.__dict__.get("writes_waiting")
    if not waiting:
        return 0
    now = nui._current_cycle()
    waiting[:] = [write for write in waiting if write[0] > now]
    return sum(count for _, which, count in waiting if which == name)


def _apply() -> None:
    initiator_class = NUI.RequestInitiator
    write, read, claim_port, claim_links = (
        initiator_class.handle_write_transfer,
        NUI.read,
        NUI.claim_injection_port,
        NUI.claim_route_links,
    )

    def claim_injection_port(self, payload_bytes):
        self.packet_waits = claim_port(self, payload_bytes)
        return self.packet_waits

    def claim_route_links(self, links, payload_bytes, queued=0):
        waited = claim_links(self, links, payload_bytes, queued)
        self.packet_waits = queued + waited
        return waited

    def handle_write_transfer(self):
        nui = self.nui
        before = [nui.nui_counters[name] for name in _SENT]
        nui.packet_waits = 0
        write(self)
        if nui.packet_waits:
            leaves = nui._current_cycle() + nui.packet_waits
            waiting = nui.__dict__.setdefault("writes_waiting", [])
            for name, count in zip(_SENT, before, strict=True):
                if nui.nui_counters[name] > count:
                    waiting.append((leaves, name, nui.nui_counters[name] - count))

    def counted(self, addr, size):
        name = SENT_COUNTERS.get(self._to_canonical_cmd_addr(addr))
        if name is None or not (waiting := _waiting(self, name)):
            return read(self, addr, size)
        return (self.nui_counters[name] - waiting & 0xFFFFFFFF).to_bytes(4, "little")

    initiator_class.handle_write_transfer = handle_write_transfer
    NUI.claim_injection_port, NUI.claim_route_links = claim_injection_port, claim_route_links
    NUI.read = counted


PATCH = Patch(
    name="sent writes",
    rule="a write counts as sent when its packet leaves, not while it waits for the port or for its broadcast's tree",
    source="tt-isa-documentation, WormholeB0/NoC/Counters.md and README.md",
    targets={
        "framework.network.tt_noc.NUI.RequestInitiator.handle_write_transfer": "27dbb2baefef487e",
        "framework.network.tt_noc.NUI.claim_injection_port": "28a230fdc44ced89",
        "framework.network.tt_noc.NUI.claim_route_links": "6c37f354e316fb00",
        "framework.network.tt_noc.NUI.read": "edd40b0a05a58ee3",
        "framework.network.tt_noc.NUI._to_canonical_cmd_addr": "cb66d488192e1ab5",
    },
    apply=_apply,
)
