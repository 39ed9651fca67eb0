# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of the speculative flash decode between two chips, each after a fault, in a worker with a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

import torch

from runtime_patches.simulated_n150.links import Delivery
from tests.support.mesh_tensors import on_chips
from tests.tt_kernels.speculative_flash_decode.flash_decode_mesh import EXCHANGE, PAIR_AXIS
from tests.tt_kernels.speculative_flash_decode.flash_decode_pair import gathered_words
from tests.tt_kernels.speculative_flash_decode.flash_decode_programs import Case, program_config

REGISTERS = 0xFFB00000  # from here on packets are the routers' own credits


@dataclass(frozen=True)
class Step:
    """One call, with what goes wrong before or in it.

    positions, gathered, patience_s: each chip's; gathered are the priority rows of both ranks as it was told them.
    running: the chips that take part. reset: of both states, before all else; forget: the chip whose state is set
    back to zeros alone. links: calls (method, keyword arguments) of Links just before the launch, after the clock was
    read.
    """

    positions: tuple[list[int], list[int]]
    gathered: tuple[list, list]
    threshold: float
    patience_s: tuple[float, float]
    running: tuple[int, ...] = (0, 1)
    reset: bool = True
    forget: int | None = None
    links: Sequence[tuple[str, dict]] = ()


@dataclass(frozen=True)
class Held:
    """What a call left. message: the error of check(); priorities and outputs: each chip's; statuses: each chip's;
    start: the cycle of the mesh's clock before the launch; deliveries: packets recorded, but for those of registers."""

    message: str | None
    statuses: list[int]
    priorities: list[list[int]]
    outputs: list[dict[str, torch.Tensor]]
    start: int
    deliveries: list[Delivery]


def steps_body(mesh, case: Case, q, k, v, before: int, steps: Sequence[Step]) -> list[Held]:
    """Run `steps` on one pair, whatever becomes of them. before: the priority row of either chip before each."""
    import os

    import ttnn

    from runtime_patches.simulated_n150.links import Links
    from tt_kernels.common import speculative_chips
    from tt_kernels.common.peer import ChipPairs, PeerError
    from tt_kernels.common.priority import priority_row
    from tt_kernels.speculative_flash_decode.op import Peer, speculative_flash_decode

    links, pairs = Links(os.getpid()), ChipPairs(mesh, PAIR_AXIS, EXCHANGE)

    def put(values, dtype, layout):
        mapper = ttnn.ReplicateTensorToMesh(mesh)
        return on_chips(mesh, values, getattr(ttnn, dtype), getattr(ttnn, layout), mapper)

    def a_chip_each(parts, dtype, **place):
        return ttnn.from_torch(
            torch.cat(parts),
            dtype=getattr(ttnn, dtype),
            layout=ttnn.ROW_MAJOR_LAYOUT,
            mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
            **place,
        )

    def parts(tensor):
        return [ttnn.to_torch(part) for part in ttnn.get_device_tensors(tensor)]

    def each_own(pairs, peer_exact, timeout_s, link, given=speculative_chips.peer_args):
        """Give each chip its own patience; launch() asks for the chips in order."""
        return given(pairs, peer_exact, patiences.pop(0), link)

    def forget(rank):
        words = [part.to(torch.int64).to(torch.int32) for part in parts(pairs.state)]
        words[rank] = torch.zeros_like(words[rank])
        ttnn.copy_host_to_device_tensor(a_chip_each(words, "uint32"), pairs.state)

    tensors = [put(part, "bfloat16", "TILE_LAYOUT") for part in (q, k, v)]
    found = []
    for step in steps:
        if step.reset:
            pairs.reset()
        if step.forget is not None:
            forget(step.forget)
        gathered = a_chip_each([gathered_words(rows) for rows in step.gathered], "uint32", device=mesh)
        positions = [torch.tensor(each, dtype=torch.int32) for each in step.positions]
        positions = a_chip_each(positions, "int32", device=mesh)
        priority = put(priority_row(before), "uint32", "ROW_MAJOR_LAYOUT")
        ttnn.synchronize_device(mesh)
        patiences = [step.patience_s[rank] for rank in step.running]
        everywhere = pairs.coordinates()
        pairs.coordinates = lambda: [everywhere[rank] for rank in step.running]
        start = links.cycle()
        for method, arguments in step.links:
            getattr(links, method)(**arguments)
        with mock.patch.object(speculative_chips, "peer_args", each_own):
            outputs = speculative_flash_decode(
                *tensors,
                positions,
                chunk_size=case.chunk_size,
                threshold=step.threshold,
                priority=priority,
                peer=Peer(pairs, gathered),
                program_config=program_config(case),
            )
        del pairs.coordinates
        try:
            pairs.check()
            message = None
        except PeerError as error:
            message = str(error)
        held = {name: parts(value) for name, value in outputs._asdict().items()}
        found.append(
            Held(
                message,
                [state.status for state in pairs.states()],
                [row[..., : case.users].flatten().tolist() for row in parts(priority)],
                [{name: values[rank] for name, values in held.items()} for rank in (0, 1)],
                start,
                [d for d in links.recorded() if d.address < REGISTERS],
            )
        )
    return found
