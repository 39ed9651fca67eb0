# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Small programs with side effects, for the tests of the gate and the exchange. Imported in workers only."""

from pathlib import Path

import torch
import ttnn

from tt_kernels.common.circular_buffers import word_buffer
from tt_kernels.common.cores import core_set
from tt_kernels.common.kernel import UNGATED_DEFINE, kernel_descriptor

KERNELS = Path(__file__).parent / "kernels"
PAGE_WORDS = 64
PAGE_BYTES = 4 * PAGE_WORDS


def _run(tensor, kernel, buffers=()) -> None:
    ttnn.generic_op([tensor, tensor], ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=list(buffers)))


class Counter:
    """A semaphore on two cores. other: the second one, in NoC coordinates."""

    def __init__(self, device):
        self.semaphore = ttnn.create_global_semaphore(device, core_set((0, 0), (1, 0)), 0)
        self.address = ttnn.get_global_semaphore_address(self.semaphore)
        other = device.worker_core_from_logical_core(ttnn.CoreCoord(1, 0))
        self.other = {"other_x": other.x, "other_y": other.y}


def stamp(output, row: int, seed: int, *, counter: Counter | None = None) -> None:
    """Run stamp.cpp. Its data lie in the second buffer: the gate writer's scratch lies where the first does."""
    cores = core_set((0, 0))
    counted = {"counter": counter.address, **counter.other} if counter else {"counter": 0, "other_x": 0, "other_y": 0}
    kernel = kernel_descriptor(
        KERNELS / "stamp.cpp",
        ttnn.WriterConfigDescriptor(),
        cores=cores,
        constants={"buffer": 1, "words": PAGE_WORDS},
        accessors={"output": output},
        common={"output": output.buffer_address(), "row": row, "seed": seed, **counted},
    )
    _run(output, kernel, [word_buffer(0, 4096, cores), word_buffer(1, PAGE_BYTES, cores)])


def probe(output, address: int, size: int, row: int, core=(0, 0)) -> None:
    """Run probe.cpp, ungated, on one core."""
    kernel = kernel_descriptor(
        KERNELS / "probe.cpp",
        ttnn.WriterConfigDescriptor(),
        cores=core_set(core),
        accessors={"output": output},
        common={"output": output.buffer_address(), "address": address, "bytes": size, "row": row},
        defines=[UNGATED_DEFINE],
    )
    _run(output, kernel)


def look(output, view, counter: Counter) -> None:
    """Copy the circular buffer whose address `stamp` left in the output, and a counter on both cores, to rows of
    view."""
    address = int(ttnn.to_torch(output)[0, 0, 0, 0]) & 0xFFFFFFFF
    probe(view, address, PAGE_BYTES, 0)
    for row, core in ((1, (0, 0)), (2, (1, 0))):
        probe(view, counter.address, 32, row, core)


def count(view, counters, *, source: str = "count.cpp", defines=()) -> None:
    """Run a kernel that counts from each of its RISCs, and copy the counters to rows of view."""
    addresses = dict(zip(("unpack", "math", "pack"), (counter.address for counter in counters), strict=True))
    config = ttnn.ComputeConfigDescriptor()
    _run(
        view,
        kernel_descriptor(KERNELS / source, config, cores=core_set((0, 0)), common=addresses, defines=defines),
    )
    for row, address in enumerate(addresses.values()):
        probe(view, address, 32, row)


def put_into_mailbox(pairs, call: int, role: int, users: int, row_value: int = 0) -> None:
    """Write what rank 0 finds once rank 1 has arrived in a call: words of peer::State."""
    state = ttnn.to_torch(pairs.state).to(torch.int32)
    state[0, 0, 0, 0] = 1  # arrivals
    state[0, 0, 0, 104:107] = torch.tensor([call, role, users], dtype=torch.int32)
    state[0, 0, 0, 112] = row_value
    host = ttnn.from_torch(state, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    ttnn.copy_host_to_device_tensor(host, pairs.state)
