# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Overwrite the tokens of a chip whose exchange failed.

An exchange core that gave up on its peer goes on silently, and only `pairs.check()` tells; reading its state at every
token would cost more than reading the tokens. Instead, every chip overwrites its tokens if one of its own exchange
cores has failed, so that the host needs to read nothing else:

    guard_tokens(tokens, [exchange.pairs, attention_pairs])
    FAILED in read(tokens)  ->  pairs.check() says who gave up on whom
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tt_kernels.common.circular_buffers import word_buffer
from tt_kernels.common.cores import check_on_device, core_set, noc_core_of
from tt_kernels.common.kernel import UNGATED_DEFINE, kernel_descriptor, program_of
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.peer import ChipPairs, PeerError
from tt_kernels.common.tensor_facts import check_words, facts
from tt_kernels.common.tp_group import TpChips

KERNEL = Path(__file__).parent / "kernels" / "guard.cpp"
FAILED = 0xFFFFFFFF
_SCRATCH_CB = 0
_LINE_BYTES = 32


class ChipStates:
    """The states of all ops of a step in which chips wait for each other.

    by_caller: each op's, by the name that errors give it; none where chips run alone.
    """

    def __init__(self, by_caller: Mapping[str, ChipPairs | TpChips]) -> None:
        self.by_caller = dict(by_caller)

    def guard_tokens(self, tokens: ttnn.Tensor) -> None:
        """Overwrite the chosen tokens, uint32 [1, users], on a chip that gave up on another."""
        if self.by_caller:
            guard_tokens(tokens, list(self.by_caller.values()))

    def guard_result(self, result: ttnn.Tensor) -> None:
        """Give every user of a verification result (speculative_sampling) the status FAILED and no tokens on a chip
        that gave up on another. result: int32 [users, words], ROW_MAJOR, interleaved."""
        if self.by_caller:
            _guard("result", result, "INT32", list(self.by_caller.values()), words=1)

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


def guard_tokens(tokens: Any, pairs: Sequence[ChipPairs | TpChips]) -> None:
    """Overwrite all of `tokens` with FAILED on each chip where a core of `pairs` (or TP groups) gave up.

    tokens: uint32 [1, users], ROW_MAJOR, interleaved, one page. Runs inside and outside `skip_compute` alike.
    Errors: ValueError.
    """
    shape = tuple(getattr(tokens, "shape", ()))
    if shape and (len(shape) != 2 or shape[0] != 1):
        raise ValueError(f"tokens must be [1, users], their shape is {shape}")
    _guard("tokens", tokens, "UINT32", pairs)


def _guard(
    name: str, tensor: ttnn.Tensor, dtype: str, pairs: Sequence[ChipPairs | TpChips], words: int | None = None
) -> None:
    """Overwrite the first `words` words (default: all) of each row with FAILED and the others with 0."""
    found = facts(name, tensor)
    check_words(name, found, dtype, found.shape)
    if not pairs or not all(isinstance(pair, (ChipPairs, TpChips)) for pair in pairs):
        raise ValueError(f"pairs must be a list of ChipPairs and TpGroup, not {pairs!r}")
    for pair in pairs:
        check_on_device(name, tensor, pair.device)
    ttnn.generic_op([tensor, tensor], _program(tensor, pairs, words))


def _program(tokens: Any, states: Sequence[ChipPairs | TpChips], failed_words: int | None) -> Any:
    device = tokens.device()
    page_bytes = tokens.buffer_aligned_page_size()
    noc_core = noc_core_of(device)
    places: list[int] = []
    for state in states:
        word = 4 * state.FIELDS["status"]
        line = state.state.buffer_address() + word // _LINE_BYTES * _LINE_BYTES
        places += [*noc_core(state.core), line, word % _LINE_BYTES // 4]
    scratch = max(_LINE_BYTES * len(states), page_bytes)
    kernel = kernel_descriptor(
        KERNEL,
        "DataMovement",
        constants={
            "scratch_cb": _SCRATCH_CB,
            "states": len(states),
            "page_bytes": page_bytes,
            "pages": tokens.buffer_num_pages(),
            "failed_words": page_bytes // 4 if failed_words is None else failed_words,
            "failed": FAILED,
            "line_bytes": _LINE_BYTES,
        },
        accessors={"tokens": tokens},
        per_core={(0, 0): {"tokens": tokens.buffer_address(), "places": places}},
        defines=[UNGATED_DEFINE],
    )
    buffer = word_buffer(_SCRATCH_CB, scratch, core_set((0, 0)))
    return program_of([kernel], [buffer], ungated="token_guard")
