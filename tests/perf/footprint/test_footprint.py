# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a model takes of a chip: the DRAM budget against independent counts, the sizes of programs, the command."""

import pytest

from models.llama31_8b.checkpoint.tensor_shapes import tensor_shapes
from models.llama31_8b.config import preset
from models.llama31_8b.tt import dram_budget as memory
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.precision import precision_config
from perf.footprint.__main__ import main
from perf.footprint.kernel_sizes import room_of, size_in
from perf.lib.data_file import FOLDER, ROOT, read
from runtime_patches.board.environment import real_sfpi

LLAMA = preset("llama-3.1-8b")


def budget(mesh=(1, 1), precision="performance", context=1024, users=1, decode_sharding="interleaved"):
    return memory.budget(LLAMA, MeshShape(*mesh), precision_config(precision, 32), context, users, decode_sharding)


def test_weights_are_those_of_the_checkpoint():
    """Every matrix of the checkpoint but the embedding, in bfloat8_b: 1088 bytes for 1024 numbers."""
    elements = sum(
        shape[0] * shape[1] for name, shape in tensor_shapes(LLAMA).items() if len(shape) == 2 and "embed" not in name
    )
    assert budget(precision="accuracy").weights == elements * 1088 // 1024
    four_bit = 31 * 2 * 4096 * 14336 // 1024 * (1088 - 576)
    assert budget(precision="performance").weights == elements * 1088 // 1024 - four_bit


def test_sharded_weights_fill_twelve_banks_alike():
    """On one chip 128 tile columns of a matrix become 12 x 11, 896 become 12 x 75, 192 are 12 x 16; those of the LM
    head, 1008 and 996 a block, are whole rounds."""
    simple, fast = budget(), budget(decode_sharding="sharded")
    tile = {"bfloat4_b": 576, "bfloat8_b": 1088}
    wo, down = (rows * (12 * 11 - 128) * tile["bfloat8_b"] for rows in (128, 448))
    gate_up = 128 * (12 * 75 - 896)
    padding = 32 * (wo + down) + gate_up * (31 * tile["bfloat4_b"] + tile["bfloat8_b"])
    more = fast.padding - simple.padding
    assert more == padding == fast.weights - simple.weights == fast.read_per_step - simple.read_per_step
    assert fast.numbers_per_step == simple.numbers_per_step
    assert fast.held == simple.held + padding and fast.tokens_per_s() < simple.tokens_per_s()


def test_the_numbers_of_a_step_are_those_of_the_checkpoint():
    """Matrices in bfloat8_b, 65 norms of 4096 bfloat16 numbers (0.5 MB, read as 17.0 MB of tiles), the cache, a row of
    the embedding and of either table of angles."""
    found = budget(precision="accuracy")
    norms = 65 * 4096 * 2
    assert found.norms == 32 * norms and found.padding == 31 * norms
    assert found.numbers_per_step == found.weights + norms + found.kv_cache + 2 * 4096 + 2 * 2 * 128


def test_cache_bytes_a_position():
    """2 x 32 layers x 8 heads x 128 in bfloat8_b: 69632 bytes, for each user."""
    assert budget(context=2048).kv_cache - budget(context=1024).kv_cache == 1024 * 69632
    assert budget(context=1024, users=7).kv_cache == 7 * budget(context=1024).kv_cache
    assert budget(context=1).kv_cache == 32 * 69632, "whole tiles"
    assert max(budget(context=65536).tokens_per_s(), budget(users=32).tokens_per_s()) < budget().tokens_per_s()


@pytest.mark.parametrize("mesh", [(1, 2), (1, 4), (2, 4), (1, 8)])
@pytest.mark.parametrize("precision", ["performance", "accuracy"])
def test_columns_share_what_a_row_holds(mesh, precision):
    one, shared = budget(precision=precision), budget(mesh, precision)
    assert abs(shared.weights * mesh[1] / one.weights - 1) < 0.001  # the vocabulary is padded for 8 chips
    assert shared.kv_cache * mesh[1] == one.kv_cache
    assert shared.tokens_per_s() > one.tokens_per_s() * mesh[1] * 0.95
    assert shared.norms == one.norms, "every chip norms the whole residual"


def test_the_recorded_bytes_are_counted_again(tmp_path, capsys):
    facts, rows = read(FOLDER / "footprint" / "roofline.json")
    words = facts["command"].split()
    assert words[:4] == ["python", "-m", "perf.footprint", "bytes"]
    assert main([*words[3:], "--write", str(tmp_path / "again.json")]) == 0
    assert read(tmp_path / "again.json")[1] == rows and "46.14" in capsys.readouterr().out


def test_what_does_not_fit_is_refused_with_its_bytes(capsys):
    assert main(["bytes", "--mesh", "1x1", "1x2", "--context", "131072", "--precision", "performance"]) == 0
    out = capsys.readouterr().out
    assert out.count("refused: llama-3.1-8b on 1x1 in performance") == 1 and "| 1x1 " in out and "| - | - |" in out
    assert main(["bytes", "--mesh", "1x1", "--context", "131072"]) == 2
    said = capsys.readouterr()
    assert not said.out and "needs 16951869440 bytes per chip" in said.err


def test_another_error_of_the_runtime_is_told():
    with pytest.raises(ValueError, match="op ended with another error: out of L1"):
        size_in("op", "out of L1")


RECORDED = read(FOLDER / "footprint" / "kernel_sizes.json")[1]
GROWTH = 1.02  # of a program beyond its figure in perf/data, before it has to be recorded again


@pytest.mark.mock_mesh
@pytest.mark.timeout(900)
def test_every_op_fits_the_default_buffer_and_is_as_large_as_recorded(tmp_path):
    assert main(["kernels", "--write", str(tmp_path / "sizes.json")]) == 0
    sizes = {row["op"]: row["total"] for row in read(tmp_path / "sizes.json")[1]}
    known = {row["op"]: row["total"] for row in RECORDED}
    assert list(sizes) == list(known) and all(size <= room_of(op) for op, size in sizes.items())
    if real_sfpi() is None:  # figures are of the stand-in compiler
        grown = {op: (size, known[op]) for op, size in sizes.items() if size > GROWTH * known[op]}
        assert not grown, "python -m perf.footprint kernels --write perf/data/footprint/kernel_sizes.json"


def test_the_figures_name_every_op():
    """Each module of tt_kernels is one of ours, by its own name or one of its calls."""
    calls = {"compute_gate": "set_compute_gate", "draft_round": "begin_chain", "tile_selection": "select_tiles"}
    calls |= {"speculative_flash_decode": "flash_decode", "token_guard": "guard_tokens", "tree_cache": "commit_path"}
    calls["rotated_heads"] = "cached_heads"
    ops = {path.parent.name for path in ROOT.glob("tt_kernels/*/op.py")}
    assert len(ops) == 14 and {calls.get(op, op) for op in ops} <= {row["op"] for row in RECORDED}
