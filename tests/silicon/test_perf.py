# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Speed of Llama 3.1 8B on N150: device times by the sweep beside the decode model, tokens a second beside the
published ones. `pytest --device n150 tests/silicon/test_perf.py`; the second needs $HF_MODEL.

What judges them is tested without a board in tests/perf/sweep/test_sweep_against_model.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from loguru import logger

from models.llama31_8b.config import preset
from models.llama31_8b.tt.dram_budget import budget
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.precision import precision_config
from perf.projection.published import published_tokens_per_s
from perf.sweep.judge import against_model, report
from perf.sweep.table import NOT_RUN, read
from runtime_patches.board.environment import visible_boards
from tests.silicon.silicon_programs import decode_speed, text
from tests.support.perf_judgement import impossible, out_of_range

pytestmark = [pytest.mark.silicon, pytest.mark.timeout(3600)]
MESHES = ["1x1", "1x2", "1x4", "1x8"]


def needs(mesh: str) -> None:
    chips, present = MeshShape.parse(mesh).chips, len(visible_boards())
    if present < chips:
        pytest.skip(f"needs {chips} N150 connected by ethernet; the driver shows {present}")


@pytest.mark.parametrize("mesh", MESHES)
def test_ops_of_a_decode_step_against_the_model(device_workers, tmp_path, mesh):
    needs(mesh)
    device_workers.stop()  # the sweep's process holds the boards
    csv = tmp_path / "sweep.csv"
    command = [sys.executable, "-m", "perf.sweep", "--suite", "decode", "--source", "n150", "--csv", str(csv)]
    command += ["--only", f"mesh={mesh}", "plan=interleaved", "context=1024", "users=1", "--timeout", "3000"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, capture_output=True, text=True)
    (block,) = read(csv)
    if block.status == NOT_RUN and "NoProfiler" in block.reason:
        pytest.skip(f"no device times here: {block.signpost['REASON']}")
    assert done.returncode == 0, done.stdout + done.stderr + block.reason
    logger.info("\n{}", report(block))
    kinds = against_model(block)
    assert impossible(kinds) == [], "faster than DRAM can be read"
    assert out_of_range(kinds) == []


@pytest.mark.parametrize("precision", ["performance", "accuracy"])
@pytest.mark.parametrize("mesh", ["1x1", "1x2", "1x8"])
def test_tokens_a_second_against_the_published(request, mesh, precision):
    needs(mesh)
    source = os.environ.get("HF_MODEL")
    if not source:
        pytest.skip("needs a Llama 3.1 8B checkpoint: set HF_MODEL to its folder")
    plan, config = MeshShape.parse(mesh), preset("llama-3.1-8b")
    trace = {"trace_region_size": 64 * 1024**2}
    worker = (
        request.getfixturevalue("sim_device")(options=trace)
        if plan.chips == 1
        else request.getfixturevalue("board_mesh")(plan.shape, **trace)
    )
    told = worker.run(decode_speed, source, precision, text(512, source), 200, timeout=3500)
    known = published_tokens_per_s(plan.chips, precision, 1024)
    bound = budget(config, plan, precision_config(precision, config.num_hidden_layers), 1024).tokens_per_s()
    logger.info(
        "{} {}: {:.1f} tokens/s/user; published {:.1f} ({:.0%} of it); bound {:.1f}",
        mesh,
        precision,
        told["tokens_per_s"],
        known,
        told["tokens_per_s"] / known,
        bound,
    )
    # What is above the bound was not decoded; how near the published it must come is for those who have run it.
    assert 0 < told["tokens_per_s"] < bound and told["replays"] == 198 and told["eager_text"]
