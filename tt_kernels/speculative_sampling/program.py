# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ttnn program of the op: a walker and a calculator on each core, a row of logits in L1."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from runtime_patches.sgdc import UNGATED_DEFINE
from tt_kernels.common.cores import core_set
from tt_kernels.common.kernel import kernel_descriptor
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.common.ungated import require_ungated
from tt_kernels.speculative_sampling.checks import Problem

KERNELS = Path(__file__).parent / "kernels"
TILE_IDS = 1024
ROW_TILE_BYTES, RESULT_BYTES, COMMAND_BYTES, LINE_BYTES = 2048, 4096, 512, 128
OUTCOME_HEAD = 4
SCRATCH_LINES = 6  # the tree's three and the outcome
CBS = {
    name: index
    for index, name in enumerate(("cb_target", "cb_draft", "cb_command", "cb_result", "cb_scratch"))
}

Core = tuple[int, int]


def float_bits(value: float) -> int:
    """`value` as the word of a float32."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


def buffer_bytes(problem: Problem) -> dict[str, tuple[str, int, int]]:
    """Of each circular buffer the format, the bytes of a page and the pages. The rows have a tile more, for gathered
    logits."""
    tiles = -(-problem.vocab // TILE_IDS)
    scratch = -(-(SCRATCH_LINES * LINE_BYTES + 8 * tiles) // 32) * 32
    return {
        "cb_target": ("bfloat16", ROW_TILE_BYTES, tiles + 1),
        "cb_draft": ("bfloat16", ROW_TILE_BYTES, tiles + 1 if problem.has_draft else 1),
        "cb_command": ("uint32", COMMAND_BYTES, 2),
        "cb_result": ("float32", RESULT_BYTES, 4),
        "cb_scratch": ("uint32", scratch, 1),
    }


def build_program(
    problem: Problem, tensors: dict, cores: Sequence[Core], l1_free: int, sharpness: tuple[float, float],
    with_replacement: bool,
):  # fmt: skip
    """A ttnn.ProgramDescriptor. tensors: target, draft (or None), parents, tokens, uniforms, outcome. sharpness: of
    target and draft. Errors: UnsupportedError when the rows do not fit L1."""
    import ttnn

    buffers = buffer_bytes(problem)
    needed = sum(page * pages for _, page, pages in buffers.values())
    if needed > l1_free:
        raise UnsupportedError(
            f"a vocabulary of {problem.vocab} needs {needed} bytes of L1 on each core, {l1_free} are free"
        )
    constants = CBS | {
        "has_draft": int(problem.has_draft),
        "tiled": int(problem.tiled),
        "with_replacement": int(with_replacement),
    }
    draft = tensors["target"] if tensors["draft"] is None else tensors["draft"]
    common = {
        "users": problem.users,
        "nodes": problem.nodes,
        "vocab": problem.vocab,
        "cores": len(cores),
        "target_sharpness": float_bits(sharpness[0]),
        "draft_sharpness": float_bits(sharpness[1]),
        "target": tensors["target"].buffer_address(),
        "draft": draft.buffer_address(),
        **{name: tensors[name].buffer_address() for name in ("parents", "tokens", "uniforms", "outcome")},
    }
    everywhere = core_set(*cores)
    walker = kernel_descriptor(
        KERNELS / "walker.cpp",
        ttnn.WriterConfigDescriptor(),
        constants=constants,
        accessors={
            "target": tensors["target"],
            "draft": draft,
            "tree": tensors["tokens"],
            "outcome": tensors["outcome"],
        },
        common=common,
        per_core={core: {"first_user": index} for index, core in enumerate(cores)},
        defines=[UNGATED_DEFINE],
    )
    calculator = kernel_descriptor(
        KERNELS / "calculator.cpp",
        ttnn.ComputeConfigDescriptor(fp32_dest_acc_en=True),
        cores=everywhere,
        constants=constants,
        defines=[UNGATED_DEFINE],
    )
    program = ttnn.ProgramDescriptor(
        kernels=[walker, calculator],
        semaphores=[],
        cbs=[_circular_buffer(name, everywhere, *buffer) for name, buffer in buffers.items()],
    )
    return require_ungated(program, "speculative_sampling")


def greedy_program(users: int, nodes: int, vocab: int, tensors: dict):
    """A ttnn.ProgramDescriptor of greedy verification. tensors: parents, tokens, choices, outcome."""
    import ttnn

    core = core_set((0, 0))
    names = ("parents", "tokens", "choices", "outcome")
    kernel = kernel_descriptor(
        KERNELS / "greedy.cpp",
        ttnn.WriterConfigDescriptor(),
        cores=core,
        constants={"cb_scratch": CBS["cb_scratch"]},
        accessors={"tree": tensors["tokens"], "outcome": tensors["outcome"]},
        common={"users": users, "nodes": nodes, "vocab": vocab}
        | {name: tensors[name].buffer_address() for name in names},
        defines=[UNGATED_DEFINE],
    )
    scratch = _circular_buffer("cb_scratch", core, "uint32", SCRATCH_LINES * LINE_BYTES, 1)
    program = ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[scratch])
    return require_ungated(program, "greedy_verification")


def _circular_buffer(name: str, cores, dtype: str, page: int, pages: int):
    import ttnn

    form = ttnn.CBFormatDescriptor(buffer_index=CBS[name], data_format=getattr(ttnn, dtype), page_size=page)
    return ttnn.CBDescriptor(total_size=page * pages, core_ranges=cores, format_descriptors=[form])
