# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Llama 3.1 8B on mock meshes: decode steps, those that speculate, and prefill chunks build, and fit, in the longest
contexts that the demo chooses.

Nothing executes; what is allocated, and every program's circular buffers, are the real ones.
"""

import re

import pytest
from loguru import logger

from models.llama31_8b.config import preset
from models.llama31_8b.demo.backends import n150
from models.llama31_8b.demo.options import DemoOptions
from models.llama31_8b.serving.cli import TRACE_REGION_BYTES as LARGEST_TRACE_REGION
from models.llama31_8b.simulated import BOARD_TRACE_BYTES
from models.llama31_8b.tt.dram_budget import RESERVE_BYTES, budget
from models.llama31_8b.tt.mesh import DRAM_BYTES, MeshShape
from models.llama31_8b.tt.precision import precision_config
from models.llama31_8b.tt.prefill import BANKED_PRODUCT_ROWS, PREFILL_CHUNK
from models.llama31_8b.tt.sharding import DECODE_SHARDINGS
from perf.footprint import __main__ as footprint
from perf.footprint.graph import CAPACITY, CHUNK, USERS, MeshMemory, largest_program, peak_per_bank
from perf.lib.data_file import read

LLAMA = preset("llama-3.1-8b")
L1_BYTES = 1464 * 1024  # of a Wormhole core, firmware and kernels included
SHAPES = [(1, 1), (1, 2), (1, 4), (2, 4), (1, 8)]


def measured(mesh, precision: str, users: int, capacity: int, chunk: int, how: dict) -> MeshMemory:
    """In the worker: what the model and its steps take. how: as of `measure`."""
    from perf.footprint.mesh_build import measure

    return measure(mesh, precision, users, capacity, chunk, **how)


USUAL = (USERS, CAPACITY)


@pytest.mark.mock_mesh
@pytest.mark.parametrize(
    "precision, shape, users, capacity",
    [
        *(("performance", shape, *USUAL) for shape in SHAPES if shape != (1, 4)),
        ("accuracy", (1, 1), *USUAL),
        ("performance", (1, 2), 1, LLAMA.max_position_embeddings),
        pytest.param("performance", (1, 4), *USUAL, marks=pytest.mark.slow),
        *(pytest.param("accuracy", shape, *USUAL, marks=pytest.mark.slow) for shape in SHAPES[1:]),
    ],
    ids=lambda value: f"{value[0]}x{value[1]}" if isinstance(value, tuple) else str(value),
)
def test_decode_step_and_prefill_chunk_build_and_fit(mock_mesh, precision, shape, users, capacity):
    """What the model takes agrees with the budget and fits."""
    plan = MeshShape(*shape)
    found = mock_mesh(shape).run(measured, precision, users, capacity, CHUNK, {}, timeout=1500)
    logger.info("{} x {}: {}", users, capacity, footprint.memory_row(plan, precision, found))
    assert found.logits == ((1, 1, users, LLAMA.vocab_size), (1, 1, 32, LLAMA.vocab_size))
    assert found.programs > 30
    expected, banks = budget(LLAMA, plan, precision_config(precision, 32), capacity, users), found.dram_banks
    # Buffers are spread over the banks in whole pages.
    assert expected.held <= found.dram_held * banks < expected.held * 1.01
    assert found.dram_peak * banks + BOARD_TRACE_BYTES <= found.dram_size * banks <= DRAM_BYTES
    activations = max(found.decode.dram_peak, found.prefill.dram_peak) * banks
    assert 0 < activations <= RESERVE_BYTES - BOARD_TRACE_BYTES, "the reserve of the budget covers a step"
    # Residual and products of a decode step stay in L1, beside the circular buffers of each program.
    assert found.l1_held > 0 and 0 < found.decode.l1_tensors < found.decode.l1_peak
    for step in (found.decode, found.prefill):
        assert L1_BYTES // 8 < step.largest_program <= found.l1_size and step.largest_op
    assert found.l1_peak <= found.l1_size < L1_BYTES


def prefilled(mesh, rows: list[int]) -> list[int]:
    """In the worker: bytes of activations at the peak of prefills of so many tokens, by two layers of sharded decode
    steps, whose weights stay in their banks."""
    import ttnn

    from perf.footprint.mesh_build import build_model, step_memory

    model = build_model(mesh, "performance", 1, PREFILL_CHUNK, 2, decode_sharding="sharded")
    banks = ttnn.get_memory_view(mesh, ttnn.BufferType.DRAM).num_banks
    return [step_memory(lambda n=n: model.prefill([0] * n, 0, 0, last=True))[0].dram_peak * banks for n in rows]


@pytest.mark.mock_mesh
@pytest.mark.parametrize(
    "shape", [(1, 1), pytest.param((2, 4), marks=pytest.mark.slow), (1, 8)], ids=lambda shape: f"{shape[0]}x{shape[1]}"
)
def test_prefills_of_sharded_weights_build_and_fit_the_reserve(mock_mesh, shape):
    found = mock_mesh(shape).run(prefilled, [160, BANKED_PRODUCT_ROWS, PREFILL_CHUNK], timeout=1500)
    assert 0 < found[0] < found[1] < found[2] <= RESERVE_BYTES - LARGEST_TRACE_REGION


def node(kind: str, **params) -> dict:
    return {"node_type": kind, "params": params}


def test_the_largest_program_of_a_captured_graph():
    """A matmul of 30 + 40 bytes, whose third buffer is a tensor's own memory, and an addition of 50 + 8."""
    graph = [
        node("capture_start"),
        node("function_start", name="ttnn.linear"),
        node("function_start", name="MatmulDeviceOperation"),
        node("function_start", name="tt::tt_metal::create_device_tensor"),
        node("circular_buffer_deallocate_all"),
        node("dataflow_buffer_allocate", size=30, borrows_memory="0"),
        node("dataflow_buffer_allocate", size=900, borrows_memory="1"),
        node("circular_buffer_allocate", size=40, globally_allocated="0"),
        node("circular_buffer_allocate", size=900, globally_allocated="1"),
        *[node("function_end")] * 3,
        node("function_start", name="ttnn.add"),
        node("circular_buffer_deallocate_all"),
        node("circular_buffer_allocate", size=50, globally_allocated="0"),
        node("scratchpad_allocate", size=8),
        node("function_end"),
        node("capture_end"),
    ]
    assert largest_program(graph) == (70, "MatmulDeviceOperation")
    assert largest_program([]) == (0, "")


def test_the_peak_of_a_bank_in_a_captured_graph():
    """10 and 5 bytes, then 10 less and 7 more: 15 at once; L1 is counted apart."""
    sizes = [("DRAM", 10), ("L1", 99), ("DRAM", 5), ("DRAM", -10), ("DRAM", 7)]
    graph = [
        node("buffer_allocate" if size > 0 else "buffer_deallocate", type=kind, max_size_per_bank=abs(size))
        for kind, size in sizes
    ]
    assert peak_per_bank(graph, "DRAM") == 15 and peak_per_bank(graph, "L1") == 99


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--chunk", "96"], "power of two of at least 32 that divides --context, got 96 and 1024"),
        (["--speculate", "128", "--users", "1", "--mesh", "1x2"], "needs a mesh of two rows, such as 2x1; 1x2"),
        (["--mesh", "1x1", "--context", "131072", "--users", "1"], "needs 16.* bytes per chip"),
    ],
)
def test_the_command_refuses_before_it_builds(arguments, words, capsys, monkeypatch):
    monkeypatch.setattr(footprint, "build", lambda *_, **__: pytest.fail("a mesh was built"))
    assert footprint.main(["memory", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and re.search(words, err)


@pytest.mark.mock_mesh
def test_the_command_writes_a_row_a_build(tmp_path):
    assert footprint.main(["memory", "--mesh", "1x2", "--write", str(tmp_path / "rows.json")]) == 0
    (line,) = read(tmp_path / "rows.json")[1]
    assert line["mesh"] == "1x2" and 0 < line["largest_program"] < line["l1_prefill"] <= line["l1_size"]
    assert line["dram_held"] < line["dram_peak"] < line["dram_size"] == 1e9 * line["dram_size_gb"]


@pytest.mark.mock_mesh
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "shape, layers, users, decode_sharding, predictor",
    [
        ((2, 2), 2, 8, "sharded", "budget"),
        ((2, 8), 2, 1, "sharded", "budget"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ((2, 1), 2, 8, "interleaved", "ends"),
                ((2, 1), 2, 1, "sharded", "budget"),
                ((2, 2), 2, 1, "interleaved", "ends"),
                *(((2, 4), 2, 1, sharding, "ends") for sharding in DECODE_SHARDINGS),
                *(
                    (shape, 32, 1, sharding, "ends")
                    for shape in [(2, 1), (2, 2), (2, 4)]
                    for sharding in DECODE_SHARDINGS
                ),
            ]
        ),
    ],
    ids=lambda value: str(value).replace(", ", "x"),
)
def test_the_speculative_step_builds_and_fits(mock_mesh, shape, layers, users, decode_sharding, predictor):
    """Exact and speculative steps of the first layers: both fit, and what speculation holds beside is small."""
    worker, how = mock_mesh(shape), {"layers": layers, "decode_sharding": decode_sharding}
    exact, speculative = (
        worker.run(measured, "performance", users, 4096, 512, how | guess, timeout=2900)
        for guess in ({"chunk_size": None}, {"chunk_size": 128, "predictor": predictor})
    )
    for name, found in (("exact", exact), ("speculative", speculative)):
        logger.info("{}x{}, {} layers, {}, {}, {} users: {}", *shape, layers, name, decode_sharding, users, found)
        assert found.logits[0] == (1, 1, users, LLAMA.vocab_size)
        assert found.l1_held + found.decode.l1_peak <= found.l1_size and found.dram_peak <= found.dram_size
    # The priorities, their gathered rows and the log in DRAM, and of each layer masses and chosen tiles; the states of
    # pairs and rows in L1.
    tiles = 0 if predictor == "ends" else (layers + 1) * users * (LLAMA.num_key_value_heads // shape[1]) * 1024
    assert 0 < speculative.dram_held - exact.dram_held < 64 * 1024 + tiles
    assert 0 < speculative.l1_held - exact.l1_held < 8192


PROMPT = 32768  # what users asked one N150 for


def built_and_filled(mesh, users: int, capacity: int, prompt: int, decode_sharding: str) -> dict:
    """In the worker: all layers, a decode step at the last position and a prompt of the last user, chunk by chunk."""
    import ttnn

    from models.llama31_8b.tt.model import cache_prompt
    from perf.footprint.mesh_build import build_model, in_use

    model = build_model(mesh, n150.PRECISION, users, capacity, decode_sharding=decode_sharding)
    held = in_use(mesh)
    decoded = tuple(model.decode(model.step_inputs([0] * users, [capacity - 1] * users)).shape)
    prefilled = cache_prompt(model, [0] * prompt, users - 1, PREFILL_CHUNK, logits=True)
    dram, l1 = (ttnn.get_memory_view(mesh, kind) for kind in (ttnn.BufferType.DRAM, ttnn.BufferType.L1))
    return {
        "dram": held[0] * dram.num_banks,
        "dram_size": dram.total_bytes_per_bank * dram.num_banks,
        "l1": held[1],
        "l1_size": l1.total_bytes_per_bank,
        "decoded": decoded,
        "prefilled": tuple(prefilled.shape),
    }


@pytest.mark.mock_mesh
@pytest.mark.parametrize(
    "users, prompt, decode_sharding",
    [
        (1, PROMPT, "sharded"),
        (1, PROMPT, "interleaved"),
        (1, None, "sharded"),
        (8, None, "sharded"),
        (8, None, "interleaved"),
    ],
    ids=["32K-sharded", "32K-interleaved", "longest-sharded", "eight users-sharded", "eight users-interleaved"],
)
def test_contexts_that_the_demo_chooses_build_with_a_whole_prompt(mock_mesh, users, prompt, decode_sharding):
    """On one N150 as the demo opens it. prompt: its tokens, 256 more follow; None is the longest that the longest
    context takes, or 32K."""
    options = DemoOptions(decode_sharding=decode_sharding, max_new_tokens=256)
    run = n150.plan_run(LLAMA, options, MeshShape(), prompt, users=users)
    assert (run.notice is None) == (prompt is not None)
    tokens = min(prompt or run.limit - 1, PROMPT)
    board = mock_mesh((1, 1), options={"trace_region_size": BOARD_TRACE_BYTES})
    found = board.run(built_and_filled, users, run.target.capacity, tokens, decode_sharding)
    logger.info("{} users, {} positions, {}: {}", users, run.target.capacity, decode_sharding, found)
    assert run.target.capacity >= (PROMPT if users == 1 else 8192)
    assert found["decoded"] == (1, 1, users, LLAMA.vocab_size) and found["prefilled"][3] == LLAMA.vocab_size
    assert found["dram"] < found["dram_size"] and found["l1"] < found["l1_size"]
