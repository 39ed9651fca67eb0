# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Both speculative ranks on one chip, for benches and tests: two groups of cores in place of two chips, joined by the
NoC in place of the fabric. The ops' own kernels run, which measures them without a link and makes faults of a peer
cheap to test; models use the ops between chips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tt_kernels.common.attention_program import (
    Decoded,
    ProgramConfig,
    Rank,
    Tensors,
    config_of,
    empty_outputs,
    empty_program,
    settings_of,
    split_of,
)
from tt_kernels.common.cores import check_core, noc_core_of, single_cores
from tt_kernels.common.peer import Pairs
from tt_kernels.common.speculative_chips import DEFAULT_TIMEOUT_S, ChipArgs, check_rank, peer_args
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.compute_gate.region import refuse_in_region
from tt_kernels.device_exchange.op import DeviceExchange
from tt_kernels.speculative_flash_decode.guess_range import GuessRange
from tt_kernels.speculative_flash_decode.op import OP, how_to_run, problem_of


class CorePair(Pairs):
    """Two cores of one chip as a pair: rank 0 at `cores[0]`, rank 1 at `cores[1]`, which comes behind it row by row, as
    the shards of the state do."""

    defines = (("PEER_LINK_NOC", "1"),)

    def __init__(self, device, cores: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (1, 0))):
        for core in cores:
            check_core(device, core)
        self.cores = tuple(cores)
        self.make_state(device, single_cores(*cores), 2)

    def names(self) -> list[str]:
        return [f"rank {rank} (core {core})" for rank, core in enumerate(self.cores)]

    def max_write(self) -> int:
        return 8192  # one NoC packet

    def link_args(self, rank: int) -> list[int]:
        """Return the runtime arguments of PeerLink on that rank's core."""
        return list(noc_core_of(self.device)(self.cores[1 - rank]))


class CorePairExchange(DeviceExchange):
    """See DeviceExchange; each tensor is a pair of tensors of equal specification, one per rank, as are the priorities
    and `gathered`."""

    def __init__(self, pairs: CorePair, users: int, timeout_s: float = DEFAULT_TIMEOUT_S):
        self._make(pairs, users, timeout_s)
        self.gathered: Any
        self._landing: Any
        self.gathered, self._landing = self._make_buffers(2)

    def __call__(self, tensor, priority, *more):
        import ttnn

        refuse_in_region("device_exchange")
        pairs = [tensor, *more]
        for rank in range(2):
            self._check([parts[rank] for parts in pairs], priority[rank])
        program = self.core_pair_program(pairs, priority)
        given = [part for parts in pairs for part in parts]
        ttnn.generic_op([*given, *priority, *self._landing, *self.gathered], program)
        return self.gathered

    def core_pair_program(self, tensors, priorities, ranks: Sequence[int] = (0, 1)):
        """Return the ttnn.ProgramDescriptor of a call. ranks: those that run; the peer of one that runs alone stays
        silent."""
        arguments, firsts = {}, [parts[0] for parts in tensors]
        helpers = self._helpers(firsts, [self.pairs.cores[rank] for rank in ranks])
        for rank in ranks:
            order = (rank, 1 - rank)
            arguments[self.pairs.cores[rank]] = self._arguments(
                rank,
                [[parts[r] for parts in tensors] for r in order],
                [self._landing[r] for r in order],
                priorities[rank],
                self.gathered[rank],
                self.pairs.link_args(rank),
                helpers[self.pairs.cores[rank]],
            )
        rest = [parts[0] for parts in (self._landing, priorities, self.gathered)]
        return self._add_kernels(self._empty_program(helpers), arguments, helpers, firsts, *rest)


@dataclass(frozen=True)
class RankInputs:
    """The inputs of one rank, as `op.speculative_flash_decode` takes them, and its part of the chip.

    tensors: `gathered` are both ranks' priorities as this rank knows them. timeout_s: see `op.Peer`.
    """

    tensors: Tensors
    program_config: ProgramConfig
    timeout_s: float


def speculative_flash_decode_pair(
    inputs: Sequence[RankInputs],
    pairs: CorePair,
    *,
    chunk_size: int,
    guess_range: GuessRange | None = None,
    threshold: float = 0.1,
    running: Sequence[int] = (0, 1),
) -> list[Decoded]:
    """Run both ranks in one program, on disjoint cores, and return the outputs of both.

    running: the ranks that run; the peer of one that runs alone stays silent. Errors: UnsupportedError,
    GatedRegionError.
    """
    import ttnn

    given = [rank.tensors for rank in inputs]
    problems = [problem_of(tensors, chunk_size, guess_range) for tensors in given]
    if len(problems) != 2 or problems[0] != problems[1]:
        raise UnsupportedError(f"a pair has two ranks of the same shapes, got {problems}")
    configs = [config_of(rank.program_config, ProgramConfig) for rank in inputs]
    settings = settings_of(problems[0].head_dim, configs[0], None, threshold, speculate=True)
    refuse_in_region(f"{OP}_pair")
    outputs = [empty_outputs(own.q, problems[0].users) for own in given]
    tensors = [replace(own, **out._asdict()) for own, out in zip(given, outputs, strict=True)]
    for rank in inputs:
        check_rank(rank.tensors.priority, rank.tensors.gathered, rank.timeout_s)

    device = given[0].q.device()
    choose, _, semaphores, fill = how_to_run(problems[0], settings, configs[0])
    splits = [split_of(choose, device, config, core) for config, core in zip(configs, pairs.cores, strict=True)]
    ranks = []
    for i in running:
        peer = peer_args(pairs, tensors[1 - i].exact, inputs[i].timeout_s, pairs.link_args(i))
        ranks.append(Rank(tensors[i], splits[i].assignment, ChipArgs(i, peer)))
    program = empty_program([rank.assignment for rank in ranks], semaphores)
    fill(program, ranks, splits[0], noc_core_of(device))
    ttnn.generic_op([tensor for own in tensors for tensor in own.all()], program)
    return outputs
