# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Small programs with side effects, for the tests of the gate and the exchange. Imported in workers only."""

import torch
import ttnn

from tt_kernels.common.cores import core_set
from tt_kernels.common.priority import priority_row

UNGATED = [("SGDC_UNGATED", "1")]
PAGE_WORDS = 64
PAGE_BYTES = 4 * PAGE_WORDS
WRITER = ttnn.DataMovementConfigDescriptor(processor=ttnn.DataMovementProcessor.RISCV_0, noc=ttnn.NOC.RISCV_0_default)

# Fills a buffer with `seed`, writes it to row `row` of the output with the buffer's address as its first
# word, and counts in a semaphore on its own core and in one on another core.
STAMP = """
#include "api/dataflow/dataflow_api.h"
void kernel_main() {
    constexpr uint32_t buffer = get_compile_time_arg_val(0);
    constexpr uint32_t words = get_compile_time_arg_val(1);
    constexpr auto output_args = TensorAccessorArgs<2>();
    const uint32_t row = get_common_arg_val<uint32_t>(1), seed = get_common_arg_val<uint32_t>(2);
    const uint32_t counter = get_common_arg_val<uint32_t>(3);
    const auto output = TensorAccessor(output_args, get_common_arg_val<uint32_t>(0), words * 4);
    cb_reserve_back(buffer, 1);
    const uint32_t address = get_write_ptr(buffer);
    volatile tt_l1_ptr uint32_t* data = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(address);
    for (uint32_t i = 0; i < words; ++i) data[i] = seed + i;
    data[0] = address;
    cb_push_back(buffer, 1);
    noc_async_write(address, output.get_noc_addr(row), words * 4);
    if (counter) {
        noc_semaphore_inc(get_noc_addr(counter), 1);
        const uint32_t x = get_common_arg_val<uint32_t>(4), y = get_common_arg_val<uint32_t>(5);
        noc_semaphore_inc(get_noc_addr(x, y, counter), 1);
        noc_async_atomic_barrier();
    }
    noc_async_write_barrier();
}
"""

# Copies `bytes` of this core's L1 at `address` to a row of the output.
PROBE = """
#include "api/dataflow/dataflow_api.h"
void kernel_main() {
    constexpr auto output_args = TensorAccessorArgs<0>();
    const uint32_t bytes = get_common_arg_val<uint32_t>(2);
    const auto output = TensorAccessor(output_args, get_common_arg_val<uint32_t>(0), bytes);
    const uint64_t row = output.get_noc_addr(get_common_arg_val<uint32_t>(3));
    noc_async_write(get_common_arg_val<uint32_t>(1), row, bytes);
    noc_async_write_barrier();
}
"""


# Adds 1 to three words of L1, one from each RISC of a compute kernel.
COUNT = """
#include "api/compute/common.h"
void kernel_main() {
    UNPACK((*reinterpret_cast<volatile uint32_t*>(get_common_arg_val<uint32_t>(0)) += 1));
    MATH((*reinterpret_cast<volatile uint32_t*>(get_common_arg_val<uint32_t>(1)) += 1));
    PACK((*reinterpret_cast<volatile uint32_t*>(get_common_arg_val<uint32_t>(2)) += 1));
}
"""


def words(device, rows: int, values: torch.Tensor | int = 0) -> ttnn.Tensor:
    """A uint32 row-major DRAM tensor [1, 1, rows, PAGE_WORDS]."""
    if isinstance(values, int):
        values = torch.full((1, 1, rows, PAGE_WORDS), values, dtype=torch.int32)
    return ttnn.from_torch(values, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)


def priorities(device, values) -> ttnn.Tensor:
    """A rank's priority tensor."""
    return ttnn.from_torch(priority_row(values), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)


def _kernel(source, cores, compile_args, common, defines=(), config=None):
    return ttnn.KernelDescriptor(
        kernel_source=source,
        source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
        core_ranges=cores,
        compile_time_args=compile_args,
        common_runtime_args=common,
        defines=list(defines),
        config=config or WRITER,
    )


def _buffer(index: int, cores, size: int):
    page = ttnn.CBFormatDescriptor(buffer_index=index, data_format=ttnn.uint32, page_size=size)
    return ttnn.CBDescriptor(total_size=size, core_ranges=cores, format_descriptors=[page])


def _accessor(tensor) -> list[int]:
    return list(ttnn.TensorAccessorArgs(tensor).get_compile_time_args())


def _run(tensor, kernels, cbs=(), semaphores=()):
    ttnn.generic_op([tensor, tensor], ttnn.ProgramDescriptor(list(kernels), list(semaphores), list(cbs)))


class Counter:
    """A semaphore on two cores. other: the second one, in NoC coordinates."""

    def __init__(self, device):
        self.semaphore = ttnn.create_global_semaphore(device, core_set((0, 0), (1, 0)), 0)
        self.address = ttnn.get_global_semaphore_address(self.semaphore)
        other = device.worker_core_from_logical_core(ttnn.CoreCoord(1, 0))
        self.other = (other.x, other.y)


def stamp(output, row: int, seed: int, *, core=(0, 0), counter: Counter | None = None):
    """Run STAMP on one core. Its data lie in the second buffer: the gate writer's scratch lies where the first does."""
    cores = core_set(core)
    counted = [counter.address, *counter.other] if counter else [0, 0, 0]
    common = [output.buffer_address(), row, seed, *counted]
    kernel = _kernel(STAMP, cores, [1, PAGE_WORDS, *_accessor(output)], common)
    _run(output, [kernel], [_buffer(0, cores, 4096), _buffer(1, cores, PAGE_BYTES)])


def probe(output, address: int, size: int, row: int, core=(0, 0)):
    """Run PROBE, ungated, on one core."""
    common = [output.buffer_address(), address, size, row]
    _run(output, [_kernel(PROBE, core_set(core), _accessor(output), common, UNGATED)])


def look(output, view, counter: Counter):
    """Copy the circular buffer whose address STAMP left in the output, and a counter on both cores, to rows of view."""
    address = int(ttnn.to_torch(output)[0, 0, 0, 0]) & 0xFFFFFFFF
    probe(view, address, PAGE_BYTES, 0)
    for row, core in ((1, (0, 0)), (2, (1, 0))):
        probe(view, counter.address, 32, row, core)


def count(view, counters, *, defines=(), head: str = ""):
    """Run COUNT on the first core, `head` before its source, and copy the counters to rows of view."""
    config = ttnn.ComputeConfigDescriptor()
    addresses = [counter.address for counter in counters]
    _run(view, [_kernel(head + COUNT, core_set((0, 0)), [], addresses, defines, config)])
    for row, address in enumerate(addresses):
        probe(view, address, 32, row)


# Many calls of a session in one kernel. In call n rank (n * 7 / 3) % 2 sends a payload of 8 words that name
# call and rank. Delays before a call differ by rank and call; in every fourth call a rank is also late
# to read its peer's row, while the peer goes on to the next call and writes its row for that one.
# Reports [calls done, wrong rows, wrong payloads, status].
STRESS = """
#include "COMMON/peer_link.hpp"
#include "COMMON/peer_session.hpp"
void kernel_main() {
    const uint32_t rank = get_arg_val<uint32_t>(0), state = get_arg_val<uint32_t>(1);
    const uint32_t calls = get_arg_val<uint32_t>(2), output_address = get_arg_val<uint32_t>(3);
    constexpr auto output_args = TensorAccessorArgs<0>();
    const auto output = TensorAccessor(output_args, output_address);
    uint32_t next = 4;
    PeerLink link(next, 1000000);
    peer::Session session(state, 1000000);
    const uint32_t inbox = get_write_ptr(0), outbox = inbox + 64, report = inbox + 128;
    volatile tt_l1_ptr uint32_t* received = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(inbox);
    volatile tt_l1_ptr uint32_t* sent = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(outbox);
    volatile tt_l1_ptr uint32_t* found = reinterpret_cast<volatile tt_l1_ptr uint32_t*>(report);
    uint32_t wrong_rows = 0, wrong_payloads = 0, done = 0;
    for (uint32_t call = 1; call <= calls; ++call) {
        for (volatile uint32_t delay = (call * (rank ? 37 : 11)) % 64; delay > 0; delay = delay - 1);
        volatile tt_l1_ptr uint32_t* row =
            reinterpret_cast<volatile tt_l1_ptr uint32_t*>(session.priorities_address());
        for (uint32_t i = 0; i < 8; ++i) row[i] = call * 100 + rank * 10 + i;
        bool ok = session.arrive(link) && session.await_peer();
        if (!ok) break;
        for (volatile uint32_t late = (call + rank) % 4 == 0 ? 200 : 0; late > 0; late = late - 1);
        const uint32_t expected = call * 100 + (1 - rank) * 10;
        for (uint32_t i = 0; i < 8; ++i) wrong_rows += session.peer_priorities()[i] != expected + i;
        const uint32_t sender = (call * 7 / 3) % 2;
        if (sender == rank) {
            for (uint32_t i = 0; i < 8; ++i) sent[i] = call * 1000 + rank * 100 + i;
            ok = link.write(outbox, link.core_address(inbox), 32) && session.confirm(link);
            link.drain();
        } else {
            ok = session.await_delivery();
            for (uint32_t i = 0; i < 8; ++i) wrong_payloads += received[i] != call * 1000 + sender * 100 + i;
        }
        if (!ok) break;
        ++done;
    }
    link.close();
    found[0] = done; found[1] = wrong_rows; found[2] = wrong_payloads; found[3] = session.state().status;
    noc_async_write(report, output.get_noc_addr(rank), 32);
    noc_async_write_barrier();
}
"""


def _with_common(source: str) -> str:
    from tt_kernels import common

    return source.replace("COMMON", f"{next(iter(common.__path__))}/kernels")


def put_into_mailbox(pairs, call: int, role: int, users: int, row_value: int = 0) -> None:
    """Write what rank 0 finds once rank 1 has arrived in a call: words of peer::State."""
    state = ttnn.to_torch(pairs.state).to(torch.int32)
    state[0, 0, 0, 0] = 1  # arrivals
    state[0, 0, 0, 104:107] = torch.tensor([call, role, users], dtype=torch.int32)
    state[0, 0, 0, 112] = row_value
    host = ttnn.from_torch(state, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    ttnn.copy_host_to_device_tensor(host, pairs.state)


def stress_sessions(device, pairs, calls: int) -> ttnn.Tensor:
    """Run STRESS on both ranks; return a page with each one's report."""
    output = words(device, 2)
    cores = core_set(*pairs.cores)
    kernel = _kernel(_with_common(STRESS), cores, _accessor(output), [], [*UNGATED, *pairs.defines])
    arguments = ttnn.RuntimeArgs()
    for rank, (x, y) in enumerate(pairs.cores):
        address = pairs.state.buffer_address()
        arguments[x][y] = [rank, address, calls, output.buffer_address(), *pairs.link_args(rank)]
    kernel.runtime_args = arguments
    _run(output, [kernel], [_buffer(0, cores, PAGE_BYTES)])
    return output
