# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens that no chip emits after an exchange that failed.

A core that gave up on another chip goes on silently, and only the `check()` of its state tells; to read all states
at every token would cost more than the tokens do. Instead every chip overwrites its tokens where one of its own
states tells of a failure, so that the host needs to read nothing else:

    guard_tokens(tokens, [exchange.pairs, attention_pairs])
    FAILED in read(tokens)  ->  check() says who gave up on whom
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tt_kernels.common.cores import check_on_device, core_set
from tt_kernels.common.peer import ChipPairs
from tt_kernels.common.row import ChipRows
from tt_kernels.common.ungated import UNGATED_DEFINE, require_ungated

KERNEL = Path(__file__).parent / "kernels" / "guard.cpp"
FAILED = 0xFFFFFFFF
_SCRATCH_CB = 0
_STATE_HEAD_BYTES = 64


def guard_tokens(tokens, states: Sequence[ChipPairs | ChipRows]) -> None:
    """Overwrite all of `tokens` with FAILED on each chip where one of its `states` tells of a failure.

    tokens: uint32 [1, users], ROW_MAJOR, interleaved, one page. Runs inside and outside `skip_compute` alike.
    Errors: ValueError.
    """
    import ttnn

    if not isinstance(tokens, ttnn.Tensor) or tokens.storage_type() != ttnn.StorageType.DEVICE:
        raise ValueError(f"tokens must be a ttnn.Tensor on the device, not {type(tokens).__qualname__}")
    shape = tuple(tokens.shape)
    if tokens.dtype != ttnn.uint32 or tokens.layout != ttnn.ROW_MAJOR_LAYOUT or tokens.is_sharded():
        raise ValueError(
            f"tokens must be uint32, ROW_MAJOR and interleaved, they are {tokens.dtype}, {tokens.layout}"
        )
    if len(shape) != 2 or shape[0] != 1:
        raise ValueError(f"tokens must be [1, users], their shape is {shape}")
    if not states or not all(isinstance(state, (ChipPairs, ChipRows)) for state in states):
        raise ValueError(f"states must be a list of ChipPairs and ChipRows, not {states!r}")
    for state in states:
        check_on_device("tokens", tokens, state.device)
    ttnn.generic_op([tokens, tokens], _program(tokens, states))


def _program(tokens, states: Sequence[ChipPairs | ChipRows]):
    import ttnn

    core, device = core_set((0, 0)), tokens.device()
    page_bytes = tokens.buffer_aligned_page_size()
    runtime = ttnn.RuntimeArgs()
    places = []
    for state in states:
        there = device.worker_core_from_logical_core(ttnn.CoreCoord(*state.core))
        places += [there.x, there.y, state.state.buffer_address(), state.STATUS_WORD]
    runtime[0][0] = [tokens.buffer_address(), *places]
    accessor = ttnn.TensorAccessorArgs(tokens).get_compile_time_args()
    scratch = max(_STATE_HEAD_BYTES * len(states), page_bytes)
    page = ttnn.CBFormatDescriptor(buffer_index=_SCRATCH_CB, data_format=ttnn.uint32, page_size=scratch)
    program = ttnn.ProgramDescriptor(
        kernels=[
            ttnn.KernelDescriptor(
                kernel_source=str(KERNEL),
                core_ranges=core,
                compile_time_args=[_SCRATCH_CB, len(states), page_bytes, FAILED, *accessor],
                runtime_args=runtime,
                defines=[UNGATED_DEFINE],
                config=ttnn.DataMovementConfigDescriptor(),
            )
        ],
        semaphores=[],
        cbs=[ttnn.CBDescriptor(total_size=scratch, core_ranges=core, format_descriptors=[page])],
    )
    return require_ungated(program, "token_guard")
