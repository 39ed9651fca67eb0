# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The speculative decode step at Llama 3.1 8B shapes on mock meshes: it builds, and fits beside the exact one."""

from dataclasses import asdict

import pytest
from loguru import logger

from models.llama31_8b.config import preset
from perf.footprint.graph import MeshMemory

LLAMA = preset("llama-3.1-8b")
CAPACITY, CHUNK_SIZE = 4096, 128


def measured(
    mesh, users: int, capacity: int, layers: int, chunk_size: int | None, decode_sharding: str, predictor: str
) -> dict:
    """In the worker: what model and steps take, with exact attention or a guess of 2 x chunk_size keys."""
    from perf.footprint.mesh_build import measure

    chosen = {"layers": layers, "chunk_size": chunk_size, "decode_sharding": decode_sharding}
    chosen["predictor"] = predictor
    return asdict(measure(mesh, "performance", users, capacity, 512, **chosen))


@pytest.mark.mock_mesh
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "shape, users, decode_sharding, predictor",
    [
        pytest.param((2, 1), 8, "interleaved", "ends", marks=pytest.mark.slow),
        pytest.param((2, 1), 1, "sharded", "budget", marks=pytest.mark.slow),
        pytest.param((2, 2), 1, "interleaved", "ends", marks=pytest.mark.slow),
        ((2, 2), 8, "sharded", "budget"),
        pytest.param((2, 4), 1, "interleaved", "ends", marks=pytest.mark.slow),
        pytest.param((2, 4), 1, "sharded", "ends", marks=pytest.mark.slow),
        ((2, 8), 1, "sharded", "budget"),
    ],
    ids=lambda value: str(value).replace(", ", "x"),
)
def test_the_speculative_step_of_two_layers_builds_and_fits(mock_mesh, shape, users, decode_sharding, predictor):
    check(mock_mesh(shape), shape, users, layers=2, decode_sharding=decode_sharding, predictor=predictor)


@pytest.mark.mock_mesh
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("decode_sharding", ["interleaved", "sharded"])
@pytest.mark.parametrize("shape", [(2, 1), (2, 2), (2, 4)], ids=lambda shape: f"{shape[0]}x{shape[1]}")
def test_the_speculative_step_of_32_layers_builds_and_fits(mock_mesh, shape, decode_sharding):
    check(mock_mesh(shape), shape, 1, layers=32, decode_sharding=decode_sharding)


def check(
    worker, shape: tuple[int, int], users: int, layers: int, decode_sharding: str, predictor: str = "ends"
) -> None:
    """Exact and speculative steps of the first layers: both fit, and what speculation holds beside is small."""
    exact, speculative = (
        MeshMemory.of_dict(
            worker.run(measured, users, CAPACITY, layers, chunk_size, decode_sharding, chosen, timeout=2900)
        )
        for chunk_size, chosen in ((None, "ends"), (CHUNK_SIZE, predictor))
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
