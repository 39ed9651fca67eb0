# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Broadcasts, inline writes and atomics of the NoC.

Rules (tt-isa-documentation, WormholeB0/NoC): MemoryMap.md "NOC_CTRL": without NOC_CMD_BRCST_SRC_INCLUDE the
initiating NIU is no recipient of its own broadcast; "NOC_TARG_ADDR and NOC_RET_ADDR": only Tensix tiles
receive broadcasts, and writes as well as atomics may be broadcast; "NOC_AT_LEN_BE": an inline write carries
NOC_AT_DATA to NOC_TARG_ADDR, byte i of the 16 when bit i or 16 + i is set.

The simulator sent a broadcast to its own sender too and counted that acknowledgement. A kernel waits until it
has received exactly as many as it asked for, so a sender inside its rectangle waited for ever: this is why
multicast matmuls deadlocked. It also took the data of an inline write from memory, ignored the rectangle of
an atomic, and treated every atomic as an addition.
"""

from __future__ import annotations

from framework.network.tt_noc import NUI

from runtime_patches.simulated_n150.simulator.patch import Patch

_INCREMENT = 1
_MMIO = 0xFFB00000
_SEND_RESPONSE, _BROADCAST, _INCLUDE_SOURCE = 1 << 4, 1 << 5, 1 << 17
_Names = NUI.NUICounters.CounterNames


def enabled_run(mask: int) -> tuple[int, int]:
    """Return (first byte, bytes) of the one run of set bits in a byte-enable mask of 16 or 32 bits;
    halves are or-ed."""
    mask = (mask | mask >> 16) & 0xFFFF
    if mask == 0:
        raise ValueError("an inline NoC write enables no byte")
    first = (mask & -mask).bit_length() - 1
    length = (mask >> first).bit_length()
    if mask >> first != (1 << length) - 1:
        raise ValueError(f"an inline NoC write with the byte mask {mask:#06x}: only one run of bytes is modelled")
    return first, length


def _recipients(initiator, corners):
    """Return the endpoints of a broadcast rectangle: its Tensix tiles, with the sender only if it asked for that."""
    nui = initiator.nui
    includes_source = initiator.ctrl & _INCLUDE_SOURCE
    x_start, y_start, x_end, y_end = corners
    recipients = []
    for x in range(min(x_start, x_end), max(x_start, x_end) + 1):
        for y in range(min(y_start, y_end), max(y_start, y_end) + 1):
            endpoint = nui.resolve_destination((x, y))
            if getattr(endpoint, "tile_kind", None) != "T" or (endpoint is nui and not includes_source):
                continue
            recipients.append((x, y))
    return recipients


def _target_rectangle(initiator):
    middle = initiator.target_addr_mid
    return tuple(middle >> shift & 63 for shift in (16, 22, 4, 10))


def _targets(initiator):
    """Return the endpoints that NOC_TARG_ADDR names: one, or those of a rectangle."""
    from framework.network import tt_noc

    nui = initiator.nui
    if not initiator.ctrl & _BROADCAST:
        return [nui.resolve_destination(nui.noc_coord_strategy.target_coord(initiator))]
    corners = _target_rectangle(initiator)
    tt_noc.check_corner_order(
        *corners, descending=nui.broadcast_corners_descend, noc_number=nui.noc_number, initiator=nui.id_pair
    )
    return [nui.resolve_destination(coordinate) for coordinate in _recipients(initiator, corners)]


def _count(nui, names, responses, transaction):
    nui.nui_counters.increment([*names, _Names.NIU_MST_CMD_ACCEPTED])
    if responses:
        nui.nui_counters.increment(_Names.NIU_MST_REQS_OUTSTANDING_ID_0 + transaction, responses)


def send_inline_write(initiator) -> None:
    """Send a write whose data is NOC_AT_DATA."""
    nui = initiator.nui
    marked = bool(initiator.ctrl & _SEND_RESPONSE)
    transaction = initiator.packet_tag >> 10 & 15
    targets = _targets(initiator)
    kind = "NONPOSTED" if marked else "POSTED"
    names = [getattr(_Names, f"NIU_MST_{kind}_WR_REQ_{stage}") for stage in ("STARTED", "SENT")]
    _count(nui, names, len(targets) if marked else 0, transaction)
    initiator.cmd_ctrl = 0
    address, data = initiator.target_addr_low, (initiator.at_data & 0xFFFFFFFF).to_bytes(4, "little")
    if address < _MMIO:
        first, length = enabled_run(initiator.at_len_be)
        address = (address & ~15) + first
        data = bytes(data[(first + byte) & 3] for byte in range(length))
    for endpoint in targets:
        sequence = nui.next_request_seq()
        request = NUI.NoCDataRequest(
            address,
            NUI.NoCDataRequest.DataRequestAction.WRITE,
            len(data),
            nui.id_pair,
            transaction,
            data,
            marked,
            reply_to=nui,
            seq=sequence,
        )
        nui.add_outstanding_noc_request(transaction, (True, marked), sequence)
        nui.send_to(endpoint, request)


def send_broadcast_atomic(initiator) -> None:
    """Add in the L1 of every recipient of a rectangle."""
    nui = initiator.nui
    marked = bool(initiator.ctrl & _SEND_RESPONSE)
    transaction = initiator.packet_tag >> 10 & 15
    targets = _targets(initiator)
    if marked:
        names = [_Names.NIU_MST_NONPOSTED_ATOMIC_STARTED, _Names.NIU_MST_NONPOSTED_ATOMIC_SENT]
    else:
        names = [_Names.NIU_MST_POSTED_ATOMIC_SENT]
    _count(nui, names, len(targets) if marked else 0, transaction)
    initiator.cmd_ctrl = 0
    for endpoint in targets:
        sequence = nui.next_request_seq()
        request = NUI.NoCDataRequest(
            initiator.target_addr_low,
            NUI.NoCDataRequest.DataRequestAction.ATOMIC,
            4,
            nui.id_pair,
            transaction,
            noc_cmd_resp_marked=marked,
            at_data=initiator.at_data,
            reply_to=nui,
            seq=sequence,
        )
        if marked:
            nui.add_outstanding_noc_request(transaction, None, sequence)
        nui.send_to(endpoint, request)


def _apply() -> None:
    from framework.network import tt_noc

    initiator_class = NUI.RequestInitiator
    broadcast_write, atomic = (
        initiator_class.handle_multicast_write_transfer,
        initiator_class.handle_atomic_transfer,
    )

    def handle_multicast_write_transfer(self, byte_enable, inline, marked):
        if inline:
            send_inline_write(self)
            return
        # The installed method asks this module-level function for the recipients.
        enumerate_rectangle = tt_noc.rectangle_destinations
        tt_noc.rectangle_destinations = lambda *corners: _recipients(self, corners)
        try:
            broadcast_write(self, byte_enable, inline, marked)
        finally:
            tt_noc.rectangle_destinations = enumerate_rectangle

    def handle_inline_write_transfer(self, _byte_enable, _inline, _marked):
        send_inline_write(self)

    def handle_atomic_transfer(self):
        operation = self.at_len_be >> 12 & 15
        if operation != _INCREMENT:
            raise NotImplementedError(f"NoC atomic operation {operation} is not modelled, only the addition (1)")
        if self.ctrl & _BROADCAST:
            send_broadcast_atomic(self)
        else:
            atomic(self)

    initiator_class.handle_multicast_write_transfer = handle_multicast_write_transfer
    initiator_class.handle_inline_write_transfer = handle_inline_write_transfer
    initiator_class.handle_atomic_transfer = handle_atomic_transfer


PATCH = Patch(
    name="NoC broadcasts and inline writes",
    rule="a broadcast leaves its sender out unless asked; only Tensix tiles receive it; inline data is NOC_AT_DATA",
    source="tt-isa-documentation, WormholeB0/NoC/MemoryMap.md",
    targets={"framework.network.tt_noc.NUI.RequestInitiator": "acf577b55bd79233"},
    apply=_apply,
)
