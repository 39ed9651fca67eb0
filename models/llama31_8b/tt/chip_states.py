# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which chip gave up on another: the states of all ops of a model in which chips wait for each other."""

from __future__ import annotations

from collections.abc import Mapping

import ttnn

from tt_kernels.common.peer import ChipPairs, PeerError
from tt_kernels.common.tp_group import TpChips
from tt_kernels.token_guard.op import guard_result, guard_tokens


class ChipStates:
    """by_caller: each op's state, by the name that errors give it; none where chips run alone."""

    def __init__(self, by_caller: Mapping[str, ChipPairs | TpChips]) -> None:
        self.by_caller = dict(by_caller)

    def guard_tokens(self, tokens: ttnn.Tensor) -> None:
        """Overwrite the chosen tokens, uint32 [1, users], on a chip that gave up on another."""
        if self.by_caller:
            guard_tokens(tokens, list(self.by_caller.values()))

    def guard_result(self, result: ttnn.Tensor) -> None:
        """Overwrite a verification result (speculative_sampling) on a chip that gave up on another."""
        if self.by_caller:
            guard_result(result, list(self.by_caller.values()))

    def check(self) -> None:
        """Raise PeerError if a chip gave up on another: results since then are invalid. Waits for the device if there
        is a state to read."""
        for caller, state in self.by_caller.items():
            try:
                state.check()
            except PeerError as error:
                raise PeerError(f"{caller}: {error}") from error

    def failures(self) -> list[str]:
        """Return what each chip that gave up says; waits as `check`."""
        return [
            f"{caller} {name} {state.failure}"
            for caller, states in self.by_caller.items()
            for name, state in zip(states.names(), states.states(), strict=True)
            if state.failure
        ]

    def reset(self) -> None:
        """Forget counters and failures. No step may be running."""
        for state in self.by_caller.values():
            state.reset()
