# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ttnn program of the op: its kernels, what each is given by name, and its circular buffers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tt_kernels.common.attention_program import SEMAPHORES as COMMON_SEMAPHORES
from tt_kernels.common.attention_program import KernelSet, NocCore, Rank, Settings
from tt_kernels.common.kernel import Values, float_bits, require_ungated
from tt_kernels.common.speculative_chips import ALONE
from tt_kernels.tree_attention.checks import Problem
from tt_kernels.tree_attention.work_split import INDICES, JobSplit, rest_tiles, times_tiles

KERNELS = Path(__file__).parent / "kernels"
SEMAPHORES = COMMON_SEMAPHORES | {"sem_guessed": 3, "sem_measured": 4}


def fill_program(
    program: Any, problem: Problem, settings: Settings, rank: Rank, split: JobSplit, noc_core: NocCore
) -> Any:
    """Add to a program with semaphores what runs a call on one chip; return it. noc_core: Core -> (x, y) on the NoC."""
    import ttnn

    tensors, ungated = rank.tensors, rank.chip != ALONE
    key_tiles = split.key_tiles + rest_tiles(problem, split.key_tiles)
    kernels = KernelSet(
        *(KERNELS, problem, settings, [rank], split, noc_core),
        guess=problem.guess,
        constants=INDICES | SEMAPHORES,
        shapes={
            "nodes": problem.nodes,
            "query_tiles": split.query_tiles,
            "passes": split.passes,
            "chunk_tiles": split.key_tiles,
            "key_tiles": key_tiles,
            "tree_tiles": times_tiles(problem, key_tiles),
        },
        ungated=ungated,
    )
    places = {"queries": "q", "keys": "k", "values": "v", "pages": "pages"}
    read: Values = {name: tensors.address(of) for name, of in places.items()} | kernels.control(rank)
    written: Values = tensors.addresses("intervals", "exact", "guess")
    numbers = {"scale": float_bits(settings.scale), "threshold_sq": float_bits(settings.threshold**2)}
    of_reader = {"query": tensors.q, "cache": tensors.k, "pages": tensors.described("pages")}
    of_reader |= kernels.control_accessors()
    of_writer = {"intervals": tensors.intervals, "output": tensors.exact}
    reads, computes = kernels.per_worker(lambda _: read, "group_cores"), kernels.per_worker(lambda _: numbers)
    writes = kernels.per_worker(lambda _: written, "receiver_core", "reducer_core", "deciding_core", "exchange_core")
    built = [
        kernels.kernel("reader.cpp", ttnn.ReaderConfigDescriptor(), of_reader, reads),
        kernels.kernel("writer.cpp", ttnn.WriterConfigDescriptor(), of_writer, writes),
        kernels.kernel("compute.cpp", kernels.compute_config(), {}, computes),
    ]
    if settings.speculate:
        built.append(kernels.deciding("decision.cpp"))
    kernels.fill(program, built + kernels.exchange())
    return require_ungated(program, "speculative_tree_attention") if ungated else program
