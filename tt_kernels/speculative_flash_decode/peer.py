# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The two members of a pair in the speculative op: between chips, or as two groups of cores of one chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tt_kernels.common.peer import ChipPairs, CorePair, timeout_words
from tt_kernels.common.priority import MAX_USERS
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_flash_decode.member import PeerArgs

DEFAULT_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Peer:
    """How a call finds its peer.

    pairs: ChipPairs or CorePair of this op alone (device_exchange needs its own): its cores are the exchange
        cores and its state counts the calls. `pairs.check()` raises PeerError that says which member gave up.
    gathered: the priorities of both members as device_exchange returns them, uint32 [1, 1, 2, MAX_USERS]; for
        CorePair one a member. The member whose users have the highest priority sends; on a tie member 0.
    timeout_s: how long a member waits for its peer, in seconds at 1 GHz. A sender that gave up accepts no guess;
        the outputs of a receiver that did are undefined. Neither speaks to its peer until `pairs.reset()`.
    """

    pairs: ChipPairs | CorePair
    gathered: Any
    timeout_s: float = DEFAULT_TIMEOUT_S

    def gathered_of(self, member: int) -> Any:
        """The priorities as `member` of a pair on one chip gathered them, or this chip's."""
        return self.gathered[member] if isinstance(self.pairs, CorePair) else self.gathered

    def args(self, peer_exact, link: Sequence[int]) -> PeerArgs:
        """For the exchange core: peer_exact: the peer's output tensor; link: arguments of its PeerLink."""
        return PeerArgs(
            tuple(self.pairs.defines),
            self.pairs.max_write(),
            self.pairs.state.buffer_address(),
            peer_exact,
            timeout_words(self.timeout_s),
            link,
        )


def check_gathered(facts: TensorFacts) -> None:
    """Refuse what is no `gathered` of device_exchange."""
    found = (facts.shape, facts.dtype, facts.layout, facts.on_device, facts.interleaved)
    wanted = ((1, 1, 2, MAX_USERS), "UINT32", "ROW_MAJOR", True, True)
    if found != wanted:
        raise UnsupportedError(
            f"peer.gathered must be UINT32 ROW_MAJOR {wanted[0]}, interleaved, on device; it is "
            f"{facts.dtype} {facts.layout} {facts.shape}, interleaved: {facts.interleaved}, "
            f"on device: {facts.on_device}"
        )
