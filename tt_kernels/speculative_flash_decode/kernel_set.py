# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The kernels of the op and what each of them is given, by name (common/kernel.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime_patches.sgdc import UNGATED_DEFINE
from tt_kernels.common import merge_tree
from tt_kernels.common.circular_buffers import TILE_BYTES
from tt_kernels.common.kernel import Values, float_bits, kernel_descriptor
from tt_kernels.speculative_flash_decode.member import Member, PeerArgs, RowArgs, Settings
from tt_kernels.speculative_flash_decode.work_split import Core

KERNELS = Path(__file__).parent / "kernels"


class KernelSet:
    """The kernels of `members`, which lie on one chip and differ in addresses and cores only.

    constants, shapes: compile-time constants and common runtime arguments of all kernels. noc_core: Core -> (x, y) on
    the NoC.
    """

    def __init__(
        self,
        members: Sequence[Member],
        settings: Settings,
        constants: Mapping[str, int],
        shapes: Values,
        noc_core: Callable[[Core], tuple[int, int]],
    ):
        self.members, self.settings = members, settings
        self.constants, self.shapes, self.noc_core = constants, shapes, noc_core

    def workers(self) -> list:
        import ttnn

        tensors = self.members[0].tensors
        read = {"query": tensors.q, "cache": tensors.k} | self._source_accessors()
        written = {"output": tensors.exact}
        return [
            self._kernel("worker_reader.cpp", ttnn.ReaderConfigDescriptor(), read, self._per_worker(self._reader)),
            self._kernel("worker_writer.cpp", ttnn.WriterConfigDescriptor(), written, self._per_worker(self._writer)),
            self._kernel("worker_compute.cpp", self._compute_config(), {}, self._per_worker(self._compute)),
        ]

    def output(self) -> list:
        import ttnn

        tensors = self.members[0].tensors
        read = {"output": tensors.exact} | self._source_accessors()
        written = {"norm": tensors.distance_sq, "priority": _present(tensors.priority, tensors.distance_sq)}
        row = self.members[0].row
        threshold_sq = float_bits(self.settings.threshold**2)

        def per_member(values):
            return {member.plan.output: values(member) for member in self.members}

        return [
            self._kernel("output_reader.cpp", ttnn.ReaderConfigDescriptor(), read, per_member(self._output_reader)),
            self._kernel(
                "output_writer.cpp",
                ttnn.WriterConfigDescriptor(),
                written,
                per_member(self._output_writer),
                () if row is None else row.defines,
            ),
            self._kernel(
                "output_compute.cpp",
                self._compute_config(),
                {},
                per_member(lambda _: {"threshold_sq": threshold_sq}),
            ),
        ]

    def exchange(self) -> list:
        """The kernel that speaks to the peer, where there is one."""
        import ttnn

        tensors, peer = self.members[0].tensors, self.members[0].peer
        if peer is None:
            return []
        accessors = {
            "output": tensors.exact,
            "norm": tensors.distance_sq,
            "priority": tensors.priority,
        } | self._source_accessors()
        per_core = {
            member.plan.exchange: self._exchange(member, member.peer)
            for member in self.members
            if member.peer is not None
        }
        defines = [*peer.defines, ("PEER_MAX_WRITE", str(min(peer.max_write, TILE_BYTES["BFLOAT16"])))]
        return [self._kernel("exchange.cpp", ttnn.WriterConfigDescriptor(), accessors, per_core, defines)]

    def _reader(self, member: Member, group: int, worker: int) -> Values:
        tensors = member.tensors
        return {
            **_place(member, group, worker),
            "queries": tensors.q.buffer_address(),
            "keys": tensors.k.buffer_address(),
            "values": tensors.v.buffer_address(),
            **_sources(member),
            "group_cores": [part for core in member.plan.groups[group] for part in self.noc_core(core)],
        }

    def _writer(self, member: Member, group: int, worker: int) -> Values:
        plan = member.plan
        return {
            **_place(member, group, worker),
            "exact": member.tensors.exact.buffer_address(),
            "receiver_core": self.noc_core(plan.groups[group][merge_tree.parent_of(worker)]),
            "output_core": self._noc_core_or_none(plan.output),
            "exchange_core": self._noc_core_or_none(plan.exchange),
        }

    def _compute(self, member: Member, group: int, worker: int) -> Values:
        return {**_place(member, group, worker), "scale": float_bits(self.settings.scale)}

    def _output_reader(self, member: Member) -> Values:
        tensors = member.tensors
        return {
            **_sources(member),
            "exact": tensors.exact.buffer_address(),
            "guess": tensors.guess.buffer_address(),
        }

    def _output_writer(self, member: Member) -> Values:
        tensors = member.tensors
        return {
            "distance_sq": tensors.distance_sq.buffer_address(),
            "norm_sq": tensors.norm_sq.buffer_address(),
            "own_priority": _address(tensors.priority),
            **({} if member.row is None else _row(member.row)),
        }

    def _exchange(self, member: Member, peer: PeerArgs) -> Values:
        tensors = member.tensors
        return {
            **_sources(member),
            "state": peer.state,
            "timeout": peer.timeout,
            "output_core": self._noc_core_or_none(member.plan.output),
            "peer_exact": peer.exact.buffer_address(),
            "exact": tensors.exact.buffer_address(),
            "guess": tensors.guess.buffer_address(),
            "distance_sq": tensors.distance_sq.buffer_address(),
            "norm_sq": tensors.norm_sq.buffer_address(),
            "own_priority": tensors.priority.buffer_address(),
            "link": peer.link,
        }

    def _per_worker(self, values) -> dict[Core, Values]:
        return {
            core: values(member, group, worker)
            for member in self.members
            for group, cores in enumerate(member.plan.groups)
            for worker, core in enumerate(cores)
        }

    def _source_accessors(self) -> dict[str, Any]:
        tensors = self.members[0].tensors
        return {"positions": tensors.cur_pos, "gathered": _present(tensors.gathered, tensors.cur_pos)}

    def _noc_core_or_none(self, core: Core | None) -> tuple[int, int]:
        return (0, 0) if core is None else self.noc_core(core)

    def _compute_config(self):
        import ttnn

        fidelity = getattr(ttnn.MathFidelity, self.settings.math_fidelity)
        return ttnn.ComputeConfigDescriptor(math_fidelity=fidelity, fp32_dest_acc_en=True)

    def _kernel(self, source: str, config, accessors, per_core, defines=()):
        return kernel_descriptor(
            KERNELS / source,
            config,
            constants=self.constants,
            accessors=accessors,
            common=self.shapes,
            per_core=per_core,
            defines=[UNGATED_DEFINE, *defines],
        )


def _place(member: Member, group: int, worker: int) -> dict[str, int]:
    return {"group": group, "groups": len(member.plan.groups), "worker": worker}


def _row(row: RowArgs) -> Values:
    return {
        "row_state": row.state,
        "row_index": row.index,
        "row_chips": row.chips,
        "row_timeout": row.timeout,
        "row_links": row.links,
    }


def _sources(member: Member) -> dict[str, int]:
    """What a control page is made from (kernels/fetch_control.hpp)."""
    tensors = member.tensors
    return {
        "positions": tensors.cur_pos.buffer_address(),
        "gathered_priorities": _address(tensors.gathered),
        "member": member.index,
    }


def _present(tensor, otherwise):
    """`tensor`, or where the program has none another to describe to a kernel that will not read it."""
    return otherwise if tensor is None else tensor


def _address(tensor) -> int:
    return 0 if tensor is None else tensor.buffer_address()
