# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""All 32 layers of Llama 3.1 8B on mock meshes of 1 to 8 chips: a decode step and a prefill chunk build, and fit.

Nothing executes; what is allocated, and every program's circular buffers, are the real ones.
"""

import json
import re
from dataclasses import asdict

import pytest
from loguru import logger

from models.llama31_8b.config import preset
from models.llama31_8b.demo.board import TRACE_REGION_BYTES
from models.llama31_8b.tt.mesh import DRAM_BYTES, MeshPlan
from models.llama31_8b.tt.precision import precision_plan
from perf import mesh_memory
from perf.mesh_memory import CAPACITY, CHUNK, USERS, MeshMemory, StepMemory
from perf.roofline import RESERVE_BYTES, budget

LLAMA = preset("llama-3.1-8b")
L1_BYTES = 1464 * 1024  # of a Wormhole core, firmware and kernels included
SHAPES = [(1, 1), (1, 2), (1, 4), (2, 4), (1, 8)]
# Every mesh with the performance plan; the accuracy plan differs in weight formats only, so one mesh by default.
CASES = [pytest.param("performance", shape, id=f"performance-{shape[0]}x{shape[1]}") for shape in SHAPES] + [
    pytest.param(
        "accuracy", shape, id=f"accuracy-{shape[0]}x{shape[1]}", marks=() if shape == (1, 2) else pytest.mark.slow
    )
    for shape in SHAPES
]


def measured(mesh, precision: str) -> dict:
    """In the worker: what the model and its steps take."""
    from perf.mesh_build import measure

    return asdict(measure(mesh, precision, USERS, CAPACITY, CHUNK))


@pytest.mark.mock_mesh
@pytest.mark.parametrize("precision, shape", CASES)
def test_decode_step_and_prefill_chunk_build_and_fit(mock_mesh, precision, shape):
    found = MeshMemory.of_dict(mock_mesh(shape).run(measured, precision, timeout=800))
    plan = MeshPlan(*shape)
    logger.info("{}", mesh_memory.row(plan, precision, found))
    assert found.logits == ((1, 1, USERS, LLAMA.vocab_size), (1, 1, 32, LLAMA.vocab_size))
    assert found.programs > 30
    expected, banks = budget(LLAMA, plan, precision_plan(precision, 32), CAPACITY, USERS), found.dram_banks
    # Buffers are spread over the banks in whole pages.
    assert expected.held <= found.dram_held * banks < expected.held * 1.01
    assert found.dram_peak * banks + TRACE_REGION_BYTES <= found.dram_size * banks <= DRAM_BYTES
    activations = max(found.decode.dram_peak, found.prefill.dram_peak) * banks
    assert 0 < activations <= RESERVE_BYTES - TRACE_REGION_BYTES, "the reserve of the budget covers a step"
    # Residual and products of a decode step stay in L1, beside the circular buffers of each program.
    assert 0 < found.l1_held and 0 < found.decode.l1_buffers < found.decode.l1_peak
    assert 0 < min(found.decode.circular_buffers, found.prefill.circular_buffers)
    assert found.l1_peak <= found.l1_size < L1_BYTES


def node(kind: str, **params) -> dict:
    return {"node_type": kind, "params": params}


def circular(size: int, chip: int = 0, own: bool = True) -> dict:
    return node("circular_buffer_allocate", size=size, device_id=chip, globally_allocated="0" if own else "1")


def tensor(size: int, kind: str, free: bool = False) -> dict:
    return node("buffer_deallocate" if free else "buffer_allocate", type=kind, max_size_per_bank=size)


def test_memory_of_a_graph_on_two_chips():
    """A matmul of 70 bytes on each chip, one buffer of which is a tensor's own memory; then an addition of 50."""
    graph = [
        node("capture_start"), tensor(10, "L1"), node("function_start", name="ttnn.linear"),
        node("function_start", name="MatmulDeviceOperation"), tensor(100, "DRAM"), tensor(5, "DRAM"),
        node("function_start", name="tt::tt_metal::create_device_tensor"),
        circular(30), circular(40), circular(900, own=False), circular(30, 1), circular(40, 1),
        node("function_end"), node("function_end"), node("function_end"),
        *(node("circular_buffer_deallocate_all", device_id=chip) for chip in (0, 1)),
        tensor(10, "L1", free=True), tensor(100, "DRAM", free=True), tensor(25, "L1"), tensor(8, "L1"), tensor(7, "DRAM"),
        node("function_start", name="ttnn.add"), circular(50), node("function_end"), node("capture_end"),
    ]  # fmt: skip
    found = StepMemory.of_graph(graph)
    assert found == StepMemory(70, "MatmulDeviceOperation", l1_buffers=33, l1_peak=83, dram_peak=105)
    assert StepMemory.of_graph([]) == StepMemory(0, "", 0, 0, 0)


def one_chip_graph(mesh) -> dict:
    """In the worker: our figures and ttnn's of a product and a sum in L1."""
    import ttnn

    from perf.mesh_build import captured

    mesh.clear_program_cache()
    a = ttnn.empty([1, 1, 32, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh, ttnn.L1_MEMORY_CONFIG)
    b = ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG)
    graph, _ = captured(lambda: ttnn.add(ttnn.linear(a, b, memory_config=ttnn.L1_MEMORY_CONFIG), a))
    theirs = ttnn.graph.extract_resource_usage_per_core(graph)
    found = StepMemory.of_graph(graph)
    return {
        "ours": (found.circular_buffers, found.l1_buffers, found.l1_peak),
        "ttnn": (theirs.peak_cb, theirs.peak_l1, theirs.peak_total),
    }


@pytest.mark.mock_mesh
def test_figures_of_one_chip_are_those_of_ttnn(mock_mesh):
    told = mock_mesh((1, 1)).run(one_chip_graph)
    assert told["ours"] == told["ttnn"] and min(told["ours"]) > 0, told


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--mesh", "3x3"], "no mesh 3x3"),
        (["--chunk", "96"], "power of two of at least 32 that divides --context, got 96 and 1024"),
        (["--context", "2000"], "got 512 and 2000"),
        (["--users", "33"], "users must be 1 to 32, got 33"),
        (["--mesh", "1x1", "--context", "131072", "--users", "1"], "needs 16.* bytes a chip"),
    ],
)
def test_the_command_refuses_before_it_builds(arguments, words, capsys, monkeypatch):
    monkeypatch.setattr(mesh_memory, "build", lambda *_: pytest.fail("a mesh was built"))
    with pytest.raises(SystemExit) as ended:
        mesh_memory.main(arguments)
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and not out
    assert re.search(words, err)


@pytest.mark.mock_mesh
def test_the_command_prints_a_line_a_build(capsys):
    assert mesh_memory.main(["--mesh", "1x1", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["rows"]
    assert line["mesh"] == "1x1" and 0 < line["circular_buffers"] < line["l1_prefill"] <= line["l1_size"]
    assert line["dram_held"] < line["dram_peak"] < line["dram_size"]
