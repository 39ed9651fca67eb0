# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A measured decode step beside the decode model: the model itself agrees, made-up measurements are judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perf.projection.decode import Step, predict
from perf.sweep import cli, modelled
from perf.sweep.configurations import Configuration, suites
from perf.sweep.judge import against_model, configuration_of, kind_of, sums
from perf.sweep.table import KERNEL_NS, MID, PASS, ROLE, Outcome, as_block
from perf.sweep.timers import CODES
from tests.support.perf_judgement import impossible, out_of_range

STEP = Configuration.make("decode", mesh="1x2", plan="sharded")


def measured(scale=lambda row: 1.0, configuration=STEP):
    block = as_block(Outcome(configuration.name, "n150", PASS, "", modelled.rows(configuration)))
    rows = tuple(row | {KERNEL_NS: str(float(row[KERNEL_NS]) * scale(row))} for row in block.rows)
    return replace(block, rows=rows)


def test_the_model_agrees_with_itself():
    kinds = against_model(measured())
    assert all(kind.ratio == pytest.approx(1) for kind in kinds)
    assert impossible(kinds) == out_of_range(kinds) == []
    layer = sum(kind.measured for kind in kinds if kind.group == MID)
    assert layer == pytest.approx(sum(one.ns for one in predict(configuration_step()).layers[1]))


def configuration_step():
    return Step(STEP.mesh, STEP["context"])


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
        kinds = {kind_of({ROLE: "", "OP CODE": code}) for code in (CODES[name], paper)}
        assert len(kinds) == 1 and kinds != {"everything else"}, (name, kinds)
    assert kind_of({ROLE: "attention", "OP CODE": "Anything"}) == "attention"
    assert ("decoder-mid", "everything else") not in sums(measured())


def test_configurations_come_back_from_their_names():
    for suite in suites().values():
        for configuration in suite:
            outcome = Outcome(configuration.name, "sim", PASS)
            assert configuration_of(as_block(outcome)) == configuration


def test_the_command(tmp_path, capsys):
    csv = tmp_path / "a.csv"
    cli.main(["--suite", "decode", "--source", "model", "--csv", str(csv), "--only", "plan=sharded", "context=1024"])
    capsys.readouterr()
    assert cli.main(["--csv", str(csv), "--against-model"]) == 0
    assert capsys.readouterr().out.count("model beside the decode model") == 4
    with pytest.raises(SystemExit):
        cli.main(["--csv", str(csv), "--against-model", "--suite", "decode"])
    assert "it does not go with a sweep" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no decode step that passed"):
        against_model(as_block(Outcome(Configuration.make("gate").name, "sim", PASS)))
