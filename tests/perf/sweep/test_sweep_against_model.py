# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A measured decode step beside the decode model: the model itself agrees, made-up measurements are judged."""

from __future__ import annotations

import pytest

from perf.projection.decode import Step, predict
from perf.sweep import modelled
from perf.sweep.__main__ import main
from perf.sweep.configurations import Configuration, from_lines, suites
from perf.sweep.judge import against_model, kind_of, sums
from perf.sweep.table import KERNEL_NS, MID, PASS, ROLE, Block
from perf.sweep.timers import Label, op_code
from tests.support.perf_judgement import impossible, out_of_range

STEP = Configuration.make("decode", mesh="1x2", plan="sharded")


def measured(scale=lambda row: 1.0):
    rows = [row | {KERNEL_NS: float(str(row[KERNEL_NS])) * scale(row)} for row in modelled.rows(STEP)]
    return Block.make(STEP.name, "n150", PASS, rows=rows)


def test_the_model_agrees_with_itself():
    kinds = against_model(measured())
    assert all(kind.ratio == pytest.approx(1) for kind in kinds)
    assert impossible(kinds) == out_of_range(kinds) == []
    layer = sum(kind.measured for kind in kinds if kind.group == MID)
    assert layer == pytest.approx(sum(one.ns for one in predict(Step(STEP.mesh, STEP["context"])).layers[1]))


def test_what_is_judged():
    slow = against_model(measured(lambda row: 2.5 if "Matmul" in row["OP CODE"] else 1.0))
    assert len(out_of_range(slow)) == 3 and all("matmul: 2.50" in line for line in out_of_range(slow))
    fast = against_model(measured(lambda row: 0.4 if "Matmul" in row["OP CODE"] else 1.0))
    assert len(impossible(fast)) == 3 and len(out_of_range(fast)) == 3
    assert out_of_range(against_model(measured(lambda row: 2.5 if "Embed" in row["OP CODE"] else 1.0))) == []


def test_both_namings_are_of_the_same_kinds():
    """tt-metal's op codes of what the model calls by the paper's names."""
    pairs = {
        "linear": "Matmul",
        "rms_norm": "LayerNorm",
        "add": "Binary",
        "scaled_dot_product_attention_decode": "ScaledDotProductAttentionDecode",
        "rotary_embedding_llama": "RotaryEmbeddingLlama",
        "paged_update_cache": "PagedUpdateCache",
        "nlp_create_qkv_heads_decode": "NLPCreateHeadsDecode",
    }
    for name, paper in pairs.items():
        kinds = {kind_of({ROLE: "", "OP CODE": code}) for code in (op_code(Label(1, name, None, None), ""), paper)}
        assert len(kinds) == 1 and kinds != {"everything else"}, (name, kinds)
    assert kind_of({ROLE: "attention", "OP CODE": "Anything"}) == "attention"
    assert ("decoder-mid", "everything else") not in sums(measured())


def test_configurations_come_back_from_their_names():
    for suite in suites().values():
        assert from_lines("\n".join(configuration.name for configuration in suite)) == suite


def test_the_command(tmp_path, capsys):
    csv = str(tmp_path / "a.csv")
    main(["--suite", "decode", "--source", "model", "--csv", csv, "--only", "plan=sharded", "context=1024"])
    capsys.readouterr()
    assert main(["--csv", csv, "--against-model"]) == 0
    assert capsys.readouterr().out.count("model beside the decode model") == 4
    with pytest.raises(ValueError, match="no decode step that passed"):
        against_model(Block(Configuration.make("gate").name, "sim", PASS))
