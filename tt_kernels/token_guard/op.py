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

from collections.abc import Sequence
from pathlib import Path

from tt_kernels.common.cores import check_on_device, core_set
from tt_kernels.common.kernel import kernel_descriptor
from tt_kernels.common.peer import ChipPairs
from tt_kernels.common.tp_group import TpGroup
from tt_kernels.common.ungated import UNGATED_DEFINE, require_ungated

KERNEL = Path(__file__).parent / "kernels" / "guard.cpp"
FAILED = 0xFFFFFFFF
_SCRATCH_CB = 0
_LINE_BYTES = 32


def guard_tokens(tokens, pairs: Sequence[ChipPairs | TpGroup]) -> None:
    """Overwrite all of `tokens` with FAILED on each chip where a core of `pairs` (or TP groups) gave up.

    tokens: uint32 [1, users], ROW_MAJOR, interleaved, one page. Runs inside and outside `skip_compute` alike.
    Errors: ValueError.
    """
    import ttnn

    if not isinstance(tokens, ttnn.Tensor) or tokens.storage_type() != ttnn.StorageType.DEVICE:
        raise ValueError(f"tokens must be a ttnn.Tensor on the device, not {type(tokens).__qualname__}")
    shape = tuple(tokens.shape)
    if tokens.dtype != ttnn.uint32 or tokens.layout != ttnn.ROW_MAJOR_LAYOUT or tokens.is_sharded():
        raise ValueError(f"tokens must be uint32, ROW_MAJOR and interleaved, they are {tokens.dtype}, {tokens.layout}")
    if len(shape) != 2 or shape[0] != 1:
        raise ValueError(f"tokens must be [1, users], their shape is {shape}")
    if not pairs or not all(isinstance(pair, (ChipPairs, TpGroup)) for pair in pairs):
        raise ValueError(f"pairs must be a list of ChipPairs and TpGroup, not {pairs!r}")
    for pair in pairs:
        check_on_device("tokens", tokens, pair.device)
    ttnn.generic_op([tokens, tokens], _program(tokens, pairs))


def _program(tokens, states: Sequence[ChipPairs | TpGroup]):
    import ttnn

    device = tokens.device()
    page_bytes = tokens.buffer_aligned_page_size()
    places: list[int] = []
    for state in states:
        there = device.worker_core_from_logical_core(ttnn.CoreCoord(*state.core))
        word = 4 * state.STATUS_WORD
        line = state.state.buffer_address() + word // _LINE_BYTES * _LINE_BYTES
        places += [there.x, there.y, line, word % _LINE_BYTES // 4]
    scratch = max(_LINE_BYTES * len(states), page_bytes)
    page = ttnn.CBFormatDescriptor(buffer_index=_SCRATCH_CB, data_format=ttnn.uint32, page_size=scratch)
    kernel = kernel_descriptor(
        KERNEL,
        ttnn.DataMovementConfigDescriptor(),
        constants={
            "scratch_cb": _SCRATCH_CB,
            "states": len(states),
            "page_bytes": page_bytes,
            "failed": FAILED,
            "line_bytes": _LINE_BYTES,
        },
        accessors={"tokens": tokens},
        per_core={(0, 0): {"tokens": tokens.buffer_address(), "places": places}},
        defines=[UNGATED_DEFINE],
    )
    buffer = ttnn.CBDescriptor(total_size=scratch, core_ranges=core_set((0, 0)), format_descriptors=[page])
    program = ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[buffer])
    return require_ungated(program, "token_guard")
