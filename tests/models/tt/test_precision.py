# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Precision plans: presets, overrides from JSON files, and their errors."""

import json

import pytest

from models.llama31_8b.tt.precision import PrecisionError, bytes_of, precision_config


def write(tmp_path, data) -> str:
    path = tmp_path / "plan.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def test_performance_keeps_four_bits_out_of_the_last_layer():
    plan = precision_config("performance", 32)
    assert {plan.of_layer(i).ff1 for i in range(31)} == {plan.of_layer(i).ff3 for i in range(31)} == {"bfloat4_b"}
    assert plan.of_layer(31).ff1 == plan.of_layer(31).ff3 == plan.of_layer(0).ff2 == "bfloat8_b"
    assert plan.kv_cache == plan.lm_head == "bfloat8_b"
    assert plan.weight_formats(32) == {"bfloat4_b", "bfloat8_b"} and plan.weight_formats(0) == {"bfloat8_b"}


def test_accuracy_is_bfloat8_throughout():
    plan = precision_config("accuracy", 32)
    assert set(vars(plan.of_layer(7)).values()) == {"bfloat8_b"}


def test_overrides_change_what_they_name_and_nothing_else(tmp_path):
    data = {"layer": {"ff2": "bfloat4_b"}, "layers": {"3": {"qkv": "bfloat16"}}, "kv_cache": "bfloat16"}
    plain, plan = precision_config("performance", 32), precision_config("performance", 32, write(tmp_path, data))
    assert plan.of_layer(3).qkv == "bfloat16" and plan.of_layer(4).qkv == "bfloat8_b"
    assert {plan.of_layer(i).ff2 for i in range(32)} == {"bfloat4_b"}
    assert plan.of_layer(31).ff1 == "bfloat8_b" and plan.of_layer(3).ff1 == "bfloat4_b"
    assert plan.kv_cache == "bfloat16" and plan.lm_head == plain.lm_head


@pytest.mark.parametrize(
    "data, words",
    [
        ("{", "not valid JSON"),
        ([], "must hold an object"),
        ({"layres": {}}, "unknown entry 'layres'"),
        ({"layers": {"32": {}}}, "names '32'; the model has layers 0 to 31"),
        ({"layers": {"-1": {}}}, "names '-1'"),
        ({"layers": {"1": {"ff4": "bfloat16"}}}, "no matrix 'ff4'"),
        ({"layers": {"1": {"ff1": "bfp4"}}}, "layers.1.ff1 is 'bfp4'"),
        ({"lm_head": 8}, "lm_head is 8"),
        ({"layer": "bfloat16"}, "layer must be an object"),
        ({"layers": {"0": {"ff1": ["x"]}}}, r"layers.0.ff1 is \['x'\]; formats: bfloat16"),
        ({"lm_head": {}}, r"lm_head is \{\}; formats: bfloat16"),
        ({"layers": {"1": {}, "01": {}}}, "names '01'; .* without leading zeros"),
        ({"layers": {"\u0661": {}}}, "layers names"),
        ({"layers": {"9" * 5000: {}}}, "names '99999999999999999999'"),
        ('{"layers": {"1": {"ff1": "bfloat16"}, "1": {}}}', "names '1' twice"),
    ],
)
def test_malformed_overrides_are_refused(tmp_path, data, words):
    path = write(tmp_path, data)
    with pytest.raises(PrecisionError, match=words) as refused:
        precision_config("accuracy", 32, path)
    assert path in str(refused.value)


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000], ids=["a long number", "deep nesting"])
def test_json_beyond_pythons_limits_is_refused(tmp_path, text):
    with pytest.raises(PrecisionError, match="plan.json is not valid JSON"):
        precision_config("accuracy", 32, write(tmp_path, text))


def test_files_that_cannot_be_read_are_named(tmp_path):
    folder, binary, absent = tmp_path / "folder", tmp_path / "binary.json", tmp_path / "absent.json"
    folder.mkdir()
    binary.write_bytes(b"\xff\xfe{}")
    for path, why in ((folder, "Is a directory"), (binary, "not UTF-8 text"), (absent, "No such file")):
        with pytest.raises(PrecisionError, match=why) as refused:
            precision_config("accuracy", 32, path)
        assert str(path) in str(refused.value)


def test_an_unknown_precision_is_refused():
    with pytest.raises(PrecisionError, match="'fast'; precisions: performance, accuracy, bfloat16"):
        precision_config("fast", 32)


def test_bytes_are_those_of_whole_tiles():
    assert [bytes_of(1024, t) for t in ("bfloat16", "bfloat8_b", "bfloat4_b")] == [2048, 1088, 576]
    assert bytes_of(1025, "bfloat8_b") == 2 * 1088
