# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The DRAM budget: independent counts, what does not fit, and the command line."""

import json
import re
import subprocess
import sys

import pytest

from models.llama31_8b.checkpoint.tensor_shapes import tensor_shapes
from models.llama31_8b.config import preset
from models.llama31_8b.tt import dram_budget as memory
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.precision import precision_config
from perf.footprint import roofline

LLAMA = preset("llama-3.1-8b")
MESHES = [(1, 1), (1, 2), (1, 4), (2, 4), (1, 8)]


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
    """On one chip 128 tile columns of a matrix become 12 x 11, 448 become 12 x 38, 192 are 12 x 16; those of the LM
    head, 1008 and 996 a block, are whole rounds."""
    simple, fast = budget(), budget(decode_sharding="sharded")
    tile = {"bfloat4_b": 576, "bfloat8_b": 1088}
    wo, ff2 = (rows * (12 * 11 - 128) * tile["bfloat8_b"] for rows in (128, 448))
    up = 128 * (12 * 38 - 448)
    padding = 32 * (wo + ff2) + 2 * up * (31 * tile["bfloat4_b"] + tile["bfloat8_b"])
    more = fast.padding - simple.padding
    assert more == padding == fast.weights - simple.weights == fast.read_per_step - simple.read_per_step
    assert fast.numbers_per_step == simple.numbers_per_step
    assert fast.held == simple.held + padding and fast.tokens_per_s() < simple.tokens_per_s()
    with pytest.raises(ValueError, match="no decode sharding 'fastest'"):
        budget(decode_sharding="fastest")


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


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("precision", ["performance", "accuracy"])
def test_columns_share_what_a_row_holds(mesh, precision):
    one, shared = budget(precision=precision), budget(mesh, precision)
    assert abs(shared.weights * mesh[1] / one.weights - 1) < 0.001  # the vocabulary is padded for 8 chips
    assert shared.kv_cache * mesh[1] == one.kv_cache
    assert shared.tokens_per_s() > one.tokens_per_s() * mesh[1] * 0.95
    assert shared.norms == one.norms, "every chip norms the whole residual"


def test_bound_falls_with_context_and_users():
    assert budget(context=65536).tokens_per_s() < budget(context=1024).tokens_per_s()
    assert budget(users=32).tokens_per_s() < budget(users=1).tokens_per_s()


def test_published_speeds_lie_under_the_bound():
    """28.3 t/s/u on an N150 is 61 % of the bound; none of nine published rows beats its own."""
    compared = [
        row
        for row in roofline.rows(
            "llama-3.1-8b", ["1x1", "1x2", "1x8"], [1024, 65536], ["performance", "accuracy"], 1, 288e9
        )
        if row["published_tokens_per_s"]
    ]
    assert len(compared) == 9
    assert all(row["published_tokens_per_s"] < row["bound_tokens_per_s"] for row in compared)
    one = next(row for row in compared if row["mesh"] == "1x1" and row["precision"] == "performance")
    assert one["published_tokens_per_s"] == 28.3
    assert 0.60 < 28.3 / one["bound_tokens_per_s"] < 0.63


def test_a_model_beyond_12_gb_is_refused_with_both_numbers():
    found = budget(context=131072)
    with pytest.raises(memory.DoesNotFit, match=f"needs {found.needed} bytes per chip.*12884901888"):
        found.check("it")
    budget((1, 2), context=131072).check("it")


@pytest.mark.parametrize("users, context", [(0, 1024), (33, 1024), (1, 0), (1, 131073)])
def test_values_out_of_range_are_refused(users, context):
    with pytest.raises(ValueError, match="must be 1 to"):
        budget(context=context, users=users)


def test_json(capsys):
    code = roofline.main(["--mesh", "1x1", "1x2", "--context", "131072", "--precision", "performance", "--json"])
    printed = json.loads(capsys.readouterr().out)
    one, two = printed["rows"]
    assert code == 0 and one["bound_tokens_per_s"] is None and "needs" in one["refused"]
    assert two["refused"] is None and two["bound_tokens_per_s"] == pytest.approx(288e9 / two["read_per_step"])


def test_text_lists_every_combination(capsys):
    assert roofline.main([]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()[2:]
    assert len(lines) == len(roofline.MESHES) * len(roofline.CONTEXTS) * 2
    assert re.search(r"^1x1 +performance +interleaved +1024 .* 46\.\d +28\.3 +61%$", lines[0])
    assert err.count("refused:") == out.count("refused") == 3


def test_both_shardings_side_by_side(capsys):
    assert (
        roofline.main(["--mesh", "1x1", "--context", "1024", "--precision", "performance", "--plan", "simple", "fast"])
        == 0
    )
    out, err = capsys.readouterr()
    assert err.startswith("--plan simple fast is now --decode-sharding interleaved sharded; the old name")
    simple, fast = out.splitlines()[2:]
    assert re.search(r" interleaved +1024 .* 6\.23 +6\.24 +46\.1 ", simple)
    assert re.search(r" sharded +1024 .* 6\.23 +6\.36 +45\.3 ", fast)


def test_nothing_that_fits_ends_with_2(capsys):
    assert roofline.main(["--mesh", "1x1", "--context", "131072"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--mesh", "3x3"],
        ["--users", "40"],
        ["--context", "0"],
        ["--dram-gb-per-s", "0"],
        ["--dram-gb-per-s", "inf"],
        ["--dram-gb-per-s", "nan"],
        ["--dram-gb-per-s", "1e+300"],
        ["--precision-overrides", "x"],
        ["--precision-overrides", "."],
    ],
)
def test_bad_arguments_end_before_any_output(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        roofline.main([*arguments, "--json"])
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and not out
    assert err.count("\n") == 1 and arguments[1] in err


def test_overrides_that_make_no_sense_are_one_line(tmp_path, capsys):
    path = tmp_path / "plan.json"
    path.write_text('{"layers": {"0": {"ff1": ["x"]}}}')
    with pytest.raises(SystemExit) as ended:
        roofline.main(["--precision-overrides", str(path)])
    assert ended.value.code == 2
    assert f"{path}: layers.0.ff1 is ['x']; formats: " in capsys.readouterr().err


def test_a_reader_that_leaves_ends_the_command_quietly():
    with subprocess.Popen(
        [sys.executable, "-m", "perf.footprint.roofline"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait(300) == 0 and "Traceback" not in errors
