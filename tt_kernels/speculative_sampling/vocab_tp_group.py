# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The chips of a TP group that share a vocabulary. The kernel side is `kernels/hub.cpp`."""

from __future__ import annotations

from dataclasses import dataclass

from tt_kernels.common.tp_group import TpGroup, failure_of

_STATUS, _STATUS_CALL, _SILENT = 72, 73, 74
_REASONS = {
    1: "TP rank {silent} sent no line",
    3: "the fabric link took no packet",
    4: "TP rank {silent} is in another call",
}


@dataclass(frozen=True)
class HubState:
    """What the hub of a chip keeps: the failure, if there was one. silent: the TP rank of the chip that was missed."""

    status: int
    status_call: int
    silent: int

    @property
    def failure(self) -> str | None:
        return failure_of(self.status, self.silent, _REASONS, f"exchange {self.status_call} of a user")


class VocabTpGroup(TpGroup):
    """Every TP group along `tp_axis` of a mesh, 2 to 8 chips: chip i has the i-th part of the ids of all rows of
    logits, all parts of the same size.

    core: (x, y) of the hub, the same on every chip; no user gets it. Other arguments and errors: see TpGroup.
        timeout_s: how long a hub waits for the line of another, in seconds at 1 GHz. Its state takes 41 KB of L1.
    """

    STATE_WORDS, STATUS_WORD = 10320, _STATUS  # sizeof(State) in hub.cpp

    def states(self) -> list[HubState]:
        """Return the state of every chip, row-major. Waits for the device."""
        return [HubState(words[_STATUS], words[_STATUS_CALL], words[_SILENT]) for words in self.read_words()]
