# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of compute kernels that real Wormholes get wrong and simulators do not: no program of the model has them.

Products of the matrix unit in HiFi4 with float32 accumulation have single wrong outputs on every board (tt-metal issue
38306, no fix). An operand reused from the destination registers is corrupt after float32 numbers were unpacked into
them (tt-metal issue 45216)."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from loguru import logger

from runtime_patches.simulated_n150.compiler.driver import EMPTY_STOCK_KERNELS

FIDELITIES = {0: "LoFi", 2: "HiFi2", 3: "HiFi3", 4: "HiFi4"}
FLOAT32_FORMAT = 0
OURS = "tt_kernels"
_FIDELITY = re.compile(r"MATH_FIDELITY = static_cast<ckernel::MathFidelity>\((\d)\)")
_FLOAT32 = re.compile(r"bool DST_ACCUM_MODE = (true|false)")
_FORMATS = re.compile(r"unpack_dst_format\[32\] = \{([^}]*)\}")
_SOURCE = re.compile(r'#include "(/[^"]+\.cpp)"')
_LOCAL = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# Functions of a compute kernel that multiply in the matrix unit. What adds, copies, transposes and sorts there does not
# depend on the fidelity, and the vector unit has none.
_PRODUCTS = re.compile(
    r"\b(matmul_\w+|mm_\w+|mul_tiles\w*|mul_bcast\w*|reduce_\w+|reduce<|binary_dest_reuse_tiles|EltwiseBinaryType|"
    r"ELWMUL|BINARY_OP)\b"
)


@dataclass(frozen=True)
class ComputeSettings:
    """kernel: the name of its source file. float32: whether the destination registers accumulate in float32.
    products: whether it multiplies in the matrix unit, by its source; true of all of ours. reuses: whether it takes an
    operand from the destination registers while it unpacks float32 numbers into them."""

    kernel: str
    fidelity: str
    float32: bool
    products: bool = True
    reuses: bool = False


def settings_in(cache: Path) -> set[ComputeSettings]:
    """Read the settings of all compute kernels in a cache, a folder that TT_METAL_CACHE named."""
    found = set()
    for descriptors in cache.rglob("chlkc_descriptors.h"):
        folder = descriptors.parent
        if not (folder / "trisc1").is_dir():
            continue  # a data movement kernel
        text, source = descriptors.read_text(), Path(_SOURCE.search((folder / "chlkc_math.cpp").read_text())[1])
        # The kernel, the macros it was built with and the headers beside it.
        texts = [source.read_text(), (folder / "defines_generated.h").read_text()]
        texts += [path.read_text() for name in _LOCAL.findall(texts[0]) if (path := source.parent / name).is_file()]
        calls = {name for part in texts for name in _PRODUCTS.findall(part)}
        fidelity, float32, formats = (part.search(text)[1] for part in (_FIDELITY, _FLOAT32, _FORMATS))
        products, reuses = bool(calls) or OURS in source.parts, "binary_dest_reuse_tiles" in calls
        reuses &= FLOAT32_FORMAT in map(int, formats.split(","))
        how = FIDELITIES[int(fidelity)], float32 == "true", products, reuses
        found.add(ComputeSettings(folder.parent.name, *how))
    return found


CAPACITY, LAYERS, NODES = 1024, 2, 16


def launch_steps(mesh, precision: str, decode_sharding: str) -> int:
    """In the worker: prefill, decode steps, choices of tokens and tree steps; of two rows that speculate a decode step
    and the guard of its tokens. Returns the number of their programs."""
    import torch

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.tt.sampling.top_k import Sampler
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep
    from perf.footprint.mesh_build import build_model

    if tuple(mesh.shape)[0] == 2:
        # Of the sizes of test_tt_mesh.py, whose compiled kernels then serve here.
        users, capacity, how = 8, 4096, {"decode_sharding": decode_sharding, "predictor": "budget"}
        model = build_model(mesh, precision, users, capacity, LAYERS, 128, **how)
        model.decode(model.step_inputs([0] * users, [capacity - 1] * users))
        model.guard_tokens(model.put_integers(torch.zeros(1, users), "uint32"))
        return mesh.num_program_cache_entries()
    model = build_model(mesh, precision, 1, CAPACITY, LAYERS, decode_sharding=decode_sharding)
    model.prefill([0] * 128, 0, CAPACITY - 128, last=True)
    logits = model.decode(model.step_inputs([0], [CAPACITY - 1]), gather_logits=False)
    for sampling in (SamplingParams(), SamplingParams(0.7, top_k=20, top_p=0.9), SamplingParams(0.7)):
        sampler = Sampler(model.site, sampling)
        sampler(logits, sampler.uniforms([0.5]))
    for temperature in (0.0, 0.7):
        TreeStep(model, NODES, SamplingParams(temperature))()
    return mesh.num_program_cache_entries()


@pytest.mark.mock_mesh
@pytest.mark.parametrize(
    "shape, precision, decode_sharding",
    [
        ((1, 1), "bfloat16", "interleaved"),
        ((2, 2), "performance", "sharded"),
        pytest.param((1, 1), "performance", "sharded", marks=pytest.mark.slow),
        pytest.param((1, 1), "bfloat16", "sharded", marks=pytest.mark.slow),
        pytest.param((1, 1), "performance", "interleaved", marks=pytest.mark.slow),
    ],
)
def test_no_step_multiplies_in_hifi4_with_float32(mock_mesh, tmp_path, shape, precision, decode_sharding):
    """With a kernel cache of its own and the runtime's own buffer for kernels, 69 KB a core: our programs must fit.
    ttnn's kernels are empty, since those of the stand-in compiler do not all fit."""
    variables = {"TT_METAL_CACHE": str(tmp_path), EMPTY_STOCK_KERNELS: "1"}
    worker = mock_mesh(shape, variables=variables, options={"worker_l1_size": 0})
    try:
        programs = worker.run(launch_steps, precision, decode_sharding)
    finally:
        worker.kill()
    found = settings_in(tmp_path)
    logger.info("{} programs; {}", programs, sorted(map(str, found)))
    ours = {"worker_compute", "output_compute"} if shape[0] == 2 else {"compute", "calculator"}
    ours |= {"worker_compute", "multiply", "rotate"} if decode_sharding == "sharded" else set()
    assert ours <= {settings.kernel for settings in found} and programs > 20
    # By ttnn's products or ours.
    assert {"bmm_large_block_zm_fused_bias_activation_metal2", "multiply"} & {s.kernel for s in found if s.products}
    assert not [s for s in found if s.fidelity == "HiFi4" and s.float32 and s.products]
    assert not [s for s in found if s.reuses]


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
