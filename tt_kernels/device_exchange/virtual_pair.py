# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The exchange between two cores of one chip, for benches and tests: the op's own kernels with the NoC in place of the
fabric, which makes faults of a peer cheap to test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tt_kernels.common.core_pair import CorePair
from tt_kernels.common.ungated import require_ungated
from tt_kernels.compute_gate.region import refuse_in_region
from tt_kernels.device_exchange.op import DEFAULT_TIMEOUT_S, DeviceExchange


class CorePairExchange(DeviceExchange):
    """See DeviceExchange; each tensor is a pair of tensors of equal specification, one per rank, as are the priorities
    and `gathered`."""

    def __init__(self, pairs: CorePair, users: int, timeout_s: float = DEFAULT_TIMEOUT_S):
        self._make(pairs, users, timeout_s)
        self.gathered: Any = [self._make_gathered() for _ in range(2)]
        self._landing: Any = [self._make_landing() for _ in range(2)]

    def __call__(self, tensor, priority, *more):
        import ttnn

        refuse_in_region("device_exchange")
        pairs = [tensor, *more]
        for parts in (*pairs, priority):
            if not isinstance(parts, Sequence) or len(parts) != 2:
                raise ValueError(f"two ranks need a list of two tensors, not a {type(parts).__qualname__}")
        for rank in range(2):
            self._check([parts[rank] for parts in pairs], priority[rank])
        for name, parts in (*(("tensor", parts) for parts in pairs), ("priority", priority)):
            if parts[0].buffer_address() == parts[1].buffer_address():
                raise ValueError(f"the ranks of a pair need a {name} each; the same one was given twice")
            specs = [(tuple(t.shape), t.dtype, t.layout, t.memory_config()) for t in parts]
            if specs[0] != specs[1]:
                raise ValueError(f"the ranks' tensors differ: {specs[0]} and {specs[1]}")
        program = self.core_pair_program(pairs, priority)
        given = [part for parts in pairs for part in parts]
        ttnn.generic_op([*given, *priority, *self._landing, *self.gathered], program)
        return self.gathered

    def core_pair_program(self, tensors, priorities, ranks: Sequence[int] = (0, 1)):
        """Return the ttnn.ProgramDescriptor of a call. ranks: those that run; the peer of one that runs alone stays
        silent."""
        import ttnn

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
        program = ttnn.ProgramDescriptor(kernels=[], semaphores=self._semaphores(helpers), cbs=[])
        rest = [parts[0] for parts in (self._landing, priorities, self.gathered)]
        self._add_kernels(program, arguments, helpers, firsts, *rest)
        return require_ungated(program, "device_exchange")
