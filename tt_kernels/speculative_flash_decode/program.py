# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ttnn program of the op: its kernels with what each is given by name, circular buffers and semaphores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tt_kernels.common.attention_program import SEMAPHORES as COMMON_SEMAPHORES
from tt_kernels.common.attention_program import KernelSet, NocCore, Rank, Settings
from tt_kernels.common.attention_program import empty_program as program_with_semaphores
from tt_kernels.common.attention_split import CoreAssignment, WorkSplit
from tt_kernels.common.kernel import Values, float_bits, require_ungated
from tt_kernels.speculative_flash_decode.checks import Problem
from tt_kernels.speculative_flash_decode.work_split import INDICES

KERNELS = Path(__file__).parent / "kernels"
MAX_SEMAPHORES = 16
SEMAPHORES = COMMON_SEMAPHORES | {"sem_outgoing": 3, "sem_user": 4}  # the last is the first of one per user


def empty_program(problem: Problem, assignments: Sequence[CoreAssignment]) -> Any:
    """Return a ttnn.ProgramDescriptor with the op's semaphores only, to which a fabric connection may add its own."""
    count = SEMAPHORES["sem_user"] + problem.users
    assert count <= MAX_SEMAPHORES
    return program_with_semaphores(assignments, count)


def fill_program(
    program: Any, problem: Problem, settings: Settings, ranks: Sequence[Rank], split: WorkSplit, noc_core: NocCore
) -> Any:
    """Add to an `empty_program` what runs each of `ranks` on its own cores of one chip; return the program.

    split: the split of one rank; the others' differ in the cores only. noc_core: Core -> (x, y) on the NoC.
    """
    masses = ranks[0].tensors.masses is not None
    flags = {"with_chosen": int(problem.with_chosen), "masses": int(masses)}
    kernels = KernelSet(
        *(KERNELS, problem, settings, ranks, split, noc_core),
        guess=problem.guess,
        constants=flags | INDICES | SEMAPHORES,
        shapes={"guess_alone": int(settings.guess_alone)},
        ungated=True,
    )
    output = _output(kernels) if settings.speculate else []
    kernels.fill(program, _workers(kernels) + output + kernels.exchange())
    return require_ungated(program, "speculative_flash_decode")


def _workers(kernels: KernelSet) -> list[Any]:
    import ttnn

    def reader(rank: Rank) -> Values:
        tensors = rank.tensors
        caches = {"queries": "q", "keys": "k", "values": "v", "pages": "pages", "chosen": "chosen"}
        return {name: tensors.address(of) for name, of in caches.items()} | kernels.control(rank)

    def writer(rank: Rank) -> Values:
        scale_log2e = float_bits(kernels.settings.scale * math.log2(math.e))
        return rank.tensors.addresses("exact", "masses") | {"scale_log2e": scale_log2e}

    scale, tensors = float_bits(kernels.settings.scale), kernels.tensors
    read = {"query": tensors.q, "cache": tensors.k} | kernels.control_accessors()
    read |= {name: tensors.described(name) for name in ("pages", "chosen")}
    written = {"output": tensors.exact, "masses": tensors.described("masses")}
    reads = kernels.per_worker(reader, "group_cores")
    writes = kernels.per_worker(writer, "receiver_core", "deciding_core", "exchange_core")
    computes = kernels.per_worker(lambda _: {"scale": scale})
    return [
        kernels.kernel("worker_reader.cpp", ttnn.ReaderConfigDescriptor(), read, reads),
        kernels.kernel("worker_writer.cpp", ttnn.WriterConfigDescriptor(), written, writes),
        kernels.kernel("worker_compute.cpp", kernels.compute_config(), {}, computes),
    ]


def _output(kernels: KernelSet) -> list[Any]:
    import ttnn

    def reader(rank: Rank) -> Values:
        return kernels.control(rank) | rank.tensors.addresses("exact", "guess")

    threshold_sq = {"threshold_sq": float_bits(kernels.settings.threshold**2)}
    read = {"output": kernels.tensors.exact} | kernels.control_accessors()
    return [
        kernels.kernel("output_reader.cpp", ttnn.ReaderConfigDescriptor(), read, kernels.per_decider(reader)),
        kernels.deciding("output_writer.cpp"),
        kernels.kernel("output_compute.cpp", kernels.compute_config(), {}, kernels.per_decider(lambda _: threshold_sq)),
    ]
