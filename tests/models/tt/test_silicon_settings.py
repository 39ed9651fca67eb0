# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of compute kernels that real Wormholes get wrong and simulators do not: no program of the model has them.

Products of the matrix unit in HiFi4 with float32 accumulation have single wrong outputs on every board (tt-metal issue
38306, no fix). An operand reused from the destination registers is corrupt after float32 numbers were unpacked into
them (tt-metal issue 45216).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from loguru import logger

from runtime_patches.simulated_n150.compiler.driver import EMPTY_STOCK_KERNELS
from tests.models.tt.compute_settings import ComputeSettings, settings_in

CAPACITY, LAYERS, NODES = 1024, 2, 16


def launch_steps(mesh, precision: str, decode_sharding: str) -> int:
    """In the worker: prefill, decode steps, choices of tokens and tree steps; the number of their programs."""
    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.tt.sampling.top_k import Sampler
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from perf.footprint.mesh_build import build_model

    model = build_model(mesh, precision, 1, CAPACITY, LAYERS, decode_sharding=decode_sharding)
    model.prefill([0] * 128, 0, CAPACITY - 128, last=True)
    logits = model.decode(model.step_inputs([0], [CAPACITY - 1]), gather_logits=False)
    for sampling in (
        SamplingParams(),
        SamplingParams(0.7, top_k=20, top_p=0.9),
        SamplingParams(0.7),
    ):
        sampler = Sampler(mesh, model.mesh_shape, model.config, sampling)
        sampler(logits, sampler.uniforms([0.5]))
    for temperature in (0.0, 0.7):
        TreeStep(model, NODES, SamplingParams(temperature))()
    return mesh.num_program_cache_entries()


def launch_speculation(mesh, decode_sharding: str) -> int:
    """In the worker: a speculating decode step and the guard of its tokens."""
    import torch

    from perf.footprint.mesh_build import build_model

    model = build_model(mesh, "performance", 1, CAPACITY, LAYERS, 128, decode_sharding=decode_sharding)
    model.decode(model.step_inputs([0], [CAPACITY - 1]))
    model.guard_tokens(model.put_integers(torch.zeros(1, 1), "uint32"))
    return mesh.num_program_cache_entries()


def with_default_buffer(mock_mesh, shape: tuple[int, int], cache: Path):
    """A mock mesh with a kernel cache of its own and the runtime's own buffer for kernels, 69 KB a core: our programs
    must fit. ttnn's kernels are empty, since those of the stand-in compiler do not all fit."""
    variables = {"TT_METAL_CACHE": str(cache), EMPTY_STOCK_KERNELS: "1"}
    return mock_mesh(shape, variables=variables, options={"worker_l1_size": 0})


def check(cache: Path, programs: int, expected: set[str]) -> None:
    """No kernel in the cache has such settings; expected: kernels that must be among them."""
    found = settings_in(cache)
    logger.info("{} programs; {}", programs, sorted(map(str, found)))
    assert expected <= {settings.kernel for settings in found} and programs > 20
    assert {"bmm_large_block_zm_fused_bias_activation_metal2"} <= {s.kernel for s in found if s.products}
    assert not [s for s in found if s.fidelity == "HiFi4" and s.float32 and s.products]
    assert not [s for s in found if s.reuses]


@pytest.mark.mock_mesh
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "precision, decode_sharding",
    [
        ("bfloat16", "interleaved"),
        ("performance", "sharded"),
        pytest.param("bfloat16", "sharded", marks=pytest.mark.slow),
        pytest.param("performance", "interleaved", marks=pytest.mark.slow),
    ],
)
def test_no_step_multiplies_in_hifi4_with_float32(mock_mesh, tmp_path, precision, decode_sharding):
    worker = with_default_buffer(mock_mesh, (1, 1), tmp_path)
    try:
        programs = worker.run(launch_steps, precision, decode_sharding, timeout=880)
    finally:
        worker.kill()
    ours = {"compute", "calculator"} | ({"worker_compute"} if decode_sharding == "sharded" else set())
    check(tmp_path, programs, ours)


@pytest.mark.mock_mesh
@pytest.mark.timeout(900)
def test_no_speculating_step_multiplies_in_hifi4_with_float32(mock_mesh, tmp_path):
    worker = with_default_buffer(mock_mesh, (2, 2), tmp_path)
    try:
        programs = worker.run(launch_speculation, "sharded", timeout=880)
    finally:
        worker.kill()
    check(tmp_path, programs, {"worker_compute", "output_compute"})


@pytest.mark.parametrize(
    "source, formats, products, reuses",
    [
        ("matmul_tiles(a, b, 0, 0, 0);", "5,5", True, False),
        ("copy_tile(a, 0, 0); mul_binary_tile(0, 1, 0);", "0,5", False, False),
        ("binary_dest_reuse_tiles<ELWMUL, DEST_TO_SRCB>(a, 0, 0);", "0,5", True, True),
        ("binary_dest_reuse_tiles<ELWMUL, DEST_TO_SRCB>(a, 0, 0);", "4,5", True, False),
        ('#include "helper.hpp"', "5,5", True, False),
    ],
)
@pytest.mark.parametrize("fidelity, float32", [(4, "true"), (3, "false")])
def test_the_settings_of_a_cache_are_read(tmp_path, source, formats, products, reuses, fidelity, float32):
    kernel, folder = tmp_path / "bmm.cpp", tmp_path / "root" / "bmm" / "1"
    kernel.write_text(source)
    (tmp_path / "helper.hpp").write_text("reduce_tile(0);")
    (folder / "trisc1").mkdir(parents=True)
    (folder / "chlkc_math.cpp").write_text(f'#include "{kernel}"\n')
    (folder / "defines_generated.h").write_text("#pragma once\n")
    (folder / "chlkc_descriptors.h").write_text(
        f"constexpr ckernel::MathFidelity MATH_FIDELITY = static_cast<ckernel::MathFidelity>({fidelity});\n"
        f"constexpr uint8_t unpack_dst_format[32] = {{\n    {formats}\n}};\n"
        f"constexpr bool DST_ACCUM_MODE = {float32};\n"
    )
    expected = ComputeSettings("bmm", f"HiFi{fidelity}", float32 == "true", products, reuses)
    assert settings_in(tmp_path) == {expected}
