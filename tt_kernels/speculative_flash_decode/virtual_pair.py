# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Both speculative ranks on one chip, for benches and tests: the op's own kernels on two groups of cores, with the NoC
in place of the fabric. It measures the op without a link and makes faults of a peer cheap to test; models use
`op.speculative_flash_decode` between chips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tt_kernels.common.core_pair import CorePair
from tt_kernels.common.placement import noc_core_of
from tt_kernels.common.speculative_chips import DEFAULT_TIMEOUT_S, check_rank, peer_args
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.compute_gate.region import refuse_in_region
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.launch import OP, ProgramConfig, check_config, problem_of, split_of
from tt_kernels.speculative_flash_decode.op import Decoded, empty_outputs, settings_of
from tt_kernels.speculative_flash_decode.program import Rank, Tensors, empty_program, fill_program


@dataclass(frozen=True)
class RankInputs:
    """The inputs of one rank, as `op.speculative_flash_decode` takes them, and its part of the chip.

    gathered: both ranks' priorities as this rank knows them, uint32 [1, 1, 2, MAX_USERS]. timeout_s: see `op.Peer`.
    """

    q: Any
    k: Any
    v: Any
    cur_pos: Any
    priority: Any
    gathered: Any
    program_config: ProgramConfig
    timeout_s: float = DEFAULT_TIMEOUT_S
    tile_lists: Any = None
    tile_masses: Any = None


def speculative_flash_decode_pair(
    inputs: Sequence[RankInputs],
    pairs: CorePair,
    *,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    threshold: float = 0.1,
    scale: float | None = None,
    running: Sequence[int] = (0, 1),
) -> list[Decoded]:
    """Run both ranks in one program, on disjoint cores, and return the outputs of both.

    running: the ranks that run; the peer of one that runs alone stays silent. Errors: UnsupportedError,
    GatedRegionError.
    """
    import ttnn

    for rank in inputs:
        check_config(rank.program_config)
    problems = [
        problem_of(r.q, r.k, r.v, r.cur_pos, r.priority, chunk_size, guess_range, None, r.tile_lists, r.tile_masses)
        for r in inputs
    ]
    if len(problems) != 2 or problems[0] != problems[1]:
        raise UnsupportedError(f"a pair has two ranks of the same shapes, got {problems}")
    configs = [rank.program_config for rank in inputs]
    settings = settings_of(inputs[0].q, threshold, scale, True, configs[0])
    if configs[0].math_fidelity != configs[1].math_fidelity:
        names = " and ".join(config.math_fidelity for config in configs)
        raise UnsupportedError(f"the ranks have math_fidelity {names}: they must be equal")
    refuse_in_region(f"{OP}_pair")
    outputs = [empty_outputs(rank.q) for rank in inputs]
    tensors = [
        Tensors(
            rank.q,
            rank.k,
            rank.v,
            rank.cur_pos,
            *out,
            rank.priority,
            rank.gathered,
            None,
            rank.tile_lists,
            rank.tile_masses,
        )
        for rank, out in zip(inputs, outputs, strict=True)
    ]
    for rank, own in zip(inputs, tensors, strict=True):
        check_rank(own.priority, rank.gathered, rank.timeout_s)
    if inputs[0].priority.buffer_address() == inputs[1].priority.buffer_address():
        raise UnsupportedError("both ranks were given the same priority tensor: each updates its own")

    device = inputs[0].q.device()
    splits = [
        split_of(device, problems[0], settings, config, core, masses=rank.tile_masses is not None)
        for config, core, rank in zip(configs, pairs.cores, inputs, strict=True)
    ]
    assignments = [split.assignment for split in splits]
    if shared := sorted(set(assignments[0].cores) & set(assignments[1].cores)):
        raise UnsupportedError(f"core {shared[0]} belongs to both ranks of the pair")
    if assignments[0].workers_per_group != assignments[1].workers_per_group:
        sizes = [assignment.workers_per_group for assignment in assignments]
        raise UnsupportedError(f"the ranks have {sizes[0]} and {sizes[1]} workers per head: they must be equal")
    if splits[0].key_tiles != splits[1].key_tiles:
        sizes = [split.key_tiles * 32 for split in splits]
        raise UnsupportedError(f"the ranks have a key_chunk of {sizes[0]} and {sizes[1]}: they must be equal")
    ranks = [
        Rank(
            tensors[i],
            assignments[i],
            i,
            peer_args(pairs, tensors[1 - i].exact, inputs[i].timeout_s, pairs.link_args(i)),
        )
        for i in running
    ]
    program = empty_program(problems[0], [rank.assignment for rank in ranks])
    fill_program(program, problems[0], settings, ranks, splits[0], noc_core_of(device))
    ttnn.generic_op([tensor for own in tensors for tensor in own.all()], program)
    return outputs
