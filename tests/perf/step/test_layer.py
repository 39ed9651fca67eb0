# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A tiny layer executed by both shardings: its sums, what it refuses, that it goes on, and its values, judged."""

from dataclasses import replace
from itertools import product

import pytest
from loguru import logger

from models.llama31_8b.config import preset
from models.llama31_8b.tiny import BANKED
from perf.lib.launch_labels import BANKED_PRODUCT, DECODE_PRODUCT
from perf.step import layer as bench
from perf.step import values as judge
from perf.step.__main__ import main
from perf.step.shapes import head_pieces, part_of

LLAMA = preset("llama-3.1-8b")
PRODUCTS = ("linear", "minimal_matmul", DECODE_PRODUCT, BANKED_PRODUCT)


def program(part: str, start: int, end: int, read: int = 0) -> dict:
    return {"part": part, "layer": None, "op": part, "shape": "", "cores": 1, "bytes": read, "start": start, "end": end}


# An embedding of 100, a layer of 20 + 180 whose second program's cores start early, a norm of 50 after a pause and a
# piece of the head of 90.
PROGRAMS = [
    program("embedding", 0, 100),
    program("layer", 100, 120),
    program("layer", 110, 300, 28800),
    program("head", 310, 360),
    program("head", 360, 450, 14400),
]


def test_programs_add_up_to_stages_and_stages_to_a_token():
    ops = bench.ops_of(PROGRAMS)
    assert [op["cycles"] for op in ops] == [100, 20, 180, 50, 90]
    assert ops[2]["of_roofline"] == pytest.approx(28800 / (180 * 288)) and ops[0]["of_roofline"] is None
    stages = {part: bench.sums_of([op for op in ops if op["part"] == part]) for part in ("embedding", "layer", "head")}
    assert stages["layer"] == {"cycles": 200, "bytes": 28800, "of_roofline": pytest.approx(0.5)}
    token = bench.token_of(stages, norm=50, layers=32, pieces=4)
    assert token["cycles"] == 100 + 32 * 200 + 50 + 4 * 90
    assert token["bytes"] == 32 * 28800 + 4 * 14400
    assert token["tokens_per_s"] == pytest.approx(1e9 / token["cycles"])
    group = {"gather": 7, "all_reduces": 10, "replaced": 60}
    half = bench.token_of(stages, norm=50, layers=32, pieces=2, group=group)
    assert half["cycles"] == 100 + 32 * (200 - 60 + 10) + 7 + 50 + 50 + 2 * 90


def test_all_reduces_replace_norms_adds_and_the_products_of_norms():
    layer = ["rms_norm", "decode_product", "cached_heads", "attention", "decode_product", "add"]
    layer += ["rms_norm", "decode_product", "gated_product", "decode_product", "add"]
    kept = [name for name, gone in zip(layer, bench.replaced_by_all_reduces(layer), strict=True) if not gone]
    assert kept == ["cached_heads", "attention", "decode_product", "gated_product", "decode_product"]


def test_collectives_are_those_of_the_paper_suite_and_the_op():
    found = bench.collectives_of(LLAMA, 2)
    assert found["gather"] > 10_000 and 3_000 < found["all_reduce"] < found["gather"] < found["all_reduces"]
    assert bench.collectives_of(LLAMA, 8)


def test_a_chips_part_keeps_the_hidden_size_and_the_head_has_equal_pieces():
    part = part_of(LLAMA, 4)
    assert (part.hidden_size, part.num_attention_heads, part.num_key_value_heads) == (4096, 8, 2)
    assert (part.intermediate_size, part.head_dim) == (3584, 128)
    assert head_pieces(LLAMA) == 12
    with pytest.raises(ValueError, match="a vocabulary of 128250 has no 12 equal pieces"):
        head_pieces(replace(LLAMA, vocab_size=128250))


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path, monkeypatch, capsys):
    asked = []

    def measured(config, sharding, context, weights, prefill):
        work = "prefill" if prefill else weights
        asked.append((config.num_attention_heads, config.vocab_size, sharding, context, work))
        values = dict.fromkeys(bench.ERRORS, 0.5)
        return {"programs": PROGRAMS, "values": {"layer": values, "logits": values} if weights == "random" else {}}

    monkeypatch.setattr(bench, "run", measured)
    blank = "--weights blank --stages"
    for more in ("--stages layer", "", "--contexts 1024 4096", f"{blank} layer", f"{blank} prefill --contexts 128"):
        main(["layer", "--csv", str(tmp_path / "steps.csv"), "--shardings", "sharded", *more.split()])
    layer, head = (32, 384, "sharded", 1024), (4, 10688, "sharded", 128)
    later = [(*layer[:3], 4096, "random"), (*layer, "blank"), (*layer[:3], 128, "prefill")]
    assert asked == [(*layer, "random"), (*head, "random"), *later]
    kept = bench.Rows(tmp_path / "steps.csv", LLAMA, 1)
    steps = kept.steps.rows
    stages = [(row["context"], row["stage"]) for row in steps]
    assert stages == [
        *(("1024", "layer"), ("1024", "embedding"), ("", "head"), ("1024", "token")),
        *(("4096", "layer"), ("4096", "embedding"), ("4096", "token")),
        *(("1024", "layer"), ("1024", "embedding"), ("1024", "token")),
        ("128", "prefill"),
    ]
    assert steps[-1]["cycles"] == "200", "of the layer's programs"
    assert [row["pcc_held"] for row in steps if row["stage"] == "layer"] == ["0.5", "0.5", ""]
    assert [row["cycles"] for row in steps if row["stage"] == "token"] == [str(100 + 32 * 200 + 50 + 12 * 90)] * 3
    assert len(kept.ops.rows) == 3 + 2 + 3 + 3 + 2
    assert "pcc_held 0.5" in capsys.readouterr().out


@pytest.mark.sim
@pytest.mark.parametrize("sharding", ["interleaved", pytest.param("sharded", marks=pytest.mark.slow)])
def test_a_tiny_layer_is_executed_timed_and_judged(sharding):
    """64 cores for the sharded step, which takes a whole chip; 8 are enough for the other."""
    config = replace(BANKED, num_hidden_layers=2, max_position_embeddings=128)
    grid = "8x8" if sharding == "sharded" else "4x2"
    found = bench.run(config, sharding, 100, grid=grid)
    ops = bench.ops_of(found["programs"])
    for what, values in found["values"].items():
        logger.info(bench.report({"sharding": sharding, "values": what}, ops, values))
        assert values["pcc_held"] >= 0.998 and values["error_held"] < values["error_given"]
    products = [op["shape"] for op in ops if op["op"] in PRODUCTS]
    assert products == ["384x256", "128x384", "384x896", "448x384", "384x384"]
    assert {op["part"] for op in ops} == {"embedding", "layer", "head"} and min(op["cycles"] for op in ops) > 0
    (attention,) = [op for op in ops if op["op"] == "attention"]
    assert attention["bytes"] == 2 * 128 // 32 * 2 * 1088
    prompt = bench.ops_of(bench.run(config, sharding, 96, "blank", grid, prefill=True)["programs"])
    logger.info(bench.report({"sharding": sharding, "prefill": 96}, prompt, {}))
    assert {op["part"] for op in prompt} == {"layer"} and min(op["cycles"] for op in prompt) > 0
    assert [op["shape"] for op in prompt if op["op"] in PRODUCTS] == ["384x256", "128x384", "384x896", "448x384"]


@pytest.mark.slow
@pytest.mark.sim
def test_blank_weights_take_as_many_cycles_as_random_ones():
    config = replace(BANKED, num_hidden_layers=2, max_position_embeddings=128)
    runs = [bench.run(config, "interleaved", 100, weights, "4x2") for weights in ("random", "blank")]
    assert runs[0]["values"] and not runs[1]["values"]
    ops, again = (bench.ops_of(run["programs"]) for run in runs)
    for op, other in zip(ops, again, strict=True):  # not equal: buffers lie elsewhere
        assert all(op[name] == other[name] for name in ("op", "shape", "cores", "bytes"))
        assert other["cycles"] == pytest.approx(op["cycles"], rel=0.1), op["op"]
    assert bench.sums_of(again)["cycles"] == pytest.approx(bench.sums_of(ops)["cycles"], rel=0.02)


def tiny_layer(mesh, config):
    from models.llama31_8b.tt.precision import precision_config
    from perf.step.layer_device import judge_layer

    return judge_layer(mesh, config, precision_config("performance", 3), "interleaved", 100, 20)


@pytest.mark.sim
@pytest.mark.timeout(1200)
def test_a_decode_step_and_a_prefill_of_a_tiny_layer_are_judged(sim_device):
    config = replace(BANKED, max_position_embeddings=128)
    found = sim_device("4x2").run(tiny_layer, config, timeout=1100)
    rows = judge.rows_of(found, "performance", "interleaved")
    assert [(row["pass"], row["of"]) for row in rows] == list(product(("decode", "prefill"), ("layer", "logits")))
    for row in rows:
        logger.info("{}", row)
        assert row["pcc_held"] >= 0.998 and row["error_held"] < row["error_given"]
