# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Every op's program fits what a device keeps for kernels by default, and is as large as perf/data says."""

import re

import pytest

from perf.footprint import kernel_sizes
from perf.footprint.kernel_sizes import (
    DEFAULT_BYTES,
    MAX_ARGUMENTS,
    MAX_BUFFERS,
    MAX_SEMAPHORES,
    NCRISC_BYTES,
    ProgramSize,
    recorded,
)
from perf.lib.data_file import ROOT
from runtime_patches.board.environment import real_sfpi
from runtime_patches.board.runtime_root import find_ttnn_dir

GROWTH = 1.02  # of a program beyond its figure in perf/data, before it has to be recorded again

MESSAGE = """TT_FATAL @ program.cpp:3759: state.offset <= max_size
info:
Program size (58304) too large for kernel config buffer (57344) on TENSIX, 960 B over:
  runtime args                 304 B
  semaphores                   80 B
  circular buffers             352 B
  dataflow buffers             0 B
  kernel text                  57568 B
    brisc                      3500 B
    ncrisc                     6232 B
    trisc0                     19600 B
    trisc1                     11676 B
    trisc2                     16540 B
    text-sizing group, cores   {[0-0 - 7-7]}
"""


def test_the_message_of_the_runtime_is_read():
    found = ProgramSize.of_message("op", MESSAGE)
    assert found == ProgramSize("op", 304, 80, 352, 3500, 6232, 19600, 11676, 16540, 58304)
    with pytest.raises(ValueError, match="op ended with another error: out of L1"):
        ProgramSize.of_message("op", "out of L1")


@pytest.mark.mock_mesh
@pytest.mark.timeout(900)
def test_every_op_fits_the_default_buffer_and_is_as_large_as_recorded(capsys):
    assert kernel_sizes.main([]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    sizes = {cells[1]: int(cells[8]) for line in lines if (cells := re.split(r" *\| *", line))}
    known = {one.op: one for one in recorded()}
    assert list(sizes) == list(known)
    if real_sfpi() is None:  # figures are of the stand-in compiler
        grown = {op: (size, known[op].total) for op, size in sizes.items() if size > GROWTH * known[op].total}
        assert not grown, "python -m perf.footprint.kernel_sizes --write perf/data/footprint/kernel_sizes.json"


@pytest.mark.parametrize("one", recorded(), ids=lambda one: one.op)
def test_recorded_programs_keep_the_limits(one):
    parts = one.args + one.semaphores + one.buffers + one.brisc + one.ncrisc + one.trisc0 + one.trisc1 + one.trisc2
    assert parts <= one.total <= DEFAULT_BYTES
    assert one.ncrisc <= NCRISC_BYTES and one.args <= 4 * MAX_ARGUMENTS
    assert one.semaphores <= 16 * MAX_SEMAPHORES and one.buffers <= 16 * MAX_BUFFERS


def test_the_figures_name_every_op():
    """Each module of tt_kernels that launches programs is one of ours."""
    ops = {path.parent.name for path in ROOT.glob("tt_kernels/*/op.py")}
    named = {
        "compute_gate": "set_compute_gate",
        "device_exchange": "device_exchange",
        "draft_round": "begin_chain",
        "speculative_flash_decode": "flash_decode",
        "speculative_sampling": "speculative_sampling",
        "tile_selection": "select_tiles",
        "token_guard": "guard_tokens",
        "tree_attention": "tree_attention",
        "tree_cache": "commit_path",
    }
    assert set(named) == ops and set(named.values()) <= {one.op for one in recorded()}


def test_the_memory_of_ncrisc_is_that_of_the_runtime():
    memory = find_ttnn_dir() / "tt_metal/hw/inc/internal/tt-1xx/wormhole/dev_mem_map.h"
    (size,) = re.findall(r"#define MEM_NCRISC_IRAM_SIZE \((\d+) \* 1024\)", memory.read_text())
    assert int(size) * 1024 == NCRISC_BYTES
