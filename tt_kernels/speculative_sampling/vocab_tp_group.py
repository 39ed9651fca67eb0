# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The chips of a row that share a vocabulary. The kernels' side is `kernels/hub.cpp`."""

from __future__ import annotations

from dataclasses import dataclass

from tt_kernels.common.tp_group import TpGroup

_STATUS, _STATUS_CALL, _SILENT = 72, 73, 74
_REASONS = {
    1: "chip {silent} of the row sent no line",
    3: "the fabric link took no packet",
    4: "chip {silent} of the row is in another call",
}


@dataclass(frozen=True)
class HubState:
    """What the hub of a chip keeps: the failure, if there was one. silent: place in the row of the chip that was
    missed."""

    status: int
    status_call: int
    silent: int

    @property
    def failure(self) -> str | None:
        if self.status == 0:
            return None
        reason = _REASONS.get(self.status, f"unknown status {self.status}").format(silent=self.silent)
        return f"gave up in exchange {self.status_call} of a user: {reason}"


class VocabTpGroup(TpGroup):
    """Every row of chips along `row_axis` of a mesh, 2 to 8 of them: chip i has the i-th part of the ids of all rows of
    logits, all parts alike.

    core: (x, y) of the hub, the same on every chip, which no user gets. Other arguments, errors: TpGroup'.
    timeout_s: how long a hub waits for the line of another, in seconds at 1 GHz. Its state takes 41 KB of L1.
    """

    STATE_WORDS, STATUS_WORD = 10320, _STATUS  # sizeof(State) in hub.cpp

    def states(self) -> list[HubState]:
        """The state of every chip, row-major. Waits for the device."""
        return [HubState(words[_STATUS], words[_STATUS_CALL], words[_SILENT]) for words in self.read_words()]
