# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Options that make no sense end a benchmark's command with status 2 and one line, before it measures or writes."""

import importlib

import pytest

from perf.lib.data_file import FOLDER
from perf.ops import __main__ as ops
from perf.step import layer, pair, values

JUDGED = "--simulator none.so --errors-into rows.json"
REFUSED = {
    "footprint": {
        "bytes --mesh 3x3": "3x3",
        "bytes --users 33": "users must be 1 to 32, got 33",
        "bytes --context 131073": "context must be 1 to 131072, got 131073",
    },
    "ops": {
        "flash_decode --points short": "default, chosen, weights, long, got 'short'",
        "flash_decode --points long context=64": "--points long",
        "flash_decode contexts=64": "cannot read 'contexts=64'",
        "flash_decode context=x": "context must be a whole number, got 'x'",
        "sampling grid=8": "grid",
        "tree_attention shape=bush": "one of balanced, skewed, chain, got bush",
        "tree_attention context=200": "a multiple of 128",
        "long_context context=256": "above 256 and up to 131072, got 256",
        "long_context --simulator none.so": "--simulator and --errors-into need each other",
        f"sgdc {JUDGED}": "--simulator gives errors and no cycles; sgdc has none",
        f"long_context {JUDGED} --steps kept.json": "--steps changes nothing beside --errors-into",
        f"long_context {JUDGED}": "none.so: no such file",
    },
    "projection": {
        "layouts --plot plot.jpeg2": "jpeg2",
        "layouts --plot absent/plot.png": "the folder absent does not exist",
        f"hits {FOLDER / 'quality/quick/perplexity.csv'}": "no row of",
    },
    "step": {
        "layer --contexts 131072": "llama-3.1-8b with 131072 positions, interleaved needs 16951869440 bytes per chip",
        "layer --tp 3": "no mesh 1x3",
        "layer --stages prefill": "--stages prefill is for its cycles alone: it needs --weights blank",
        "pair --hits 1.5": "hit rates 0 to 1",
        "pair --chunk-size 48": "multiple of 32",
        "pair --workers 7": "must be 1 to 6, the cores of the grid 4x2 less two of the pair's own; got 7",
        "pair --tensor-parallel": "an even number of --kv-heads for two chips, got 1",
        "pair --predictor budget": "need each other; got --predictor budget --chosen 0",
        "pair --predictor budget --chosen 13": "1 to 12 tiles between both ends, not 13",
        "pair --model llama-3.1-8b --context 131072": "sharded needs 17041784832 bytes per chip",
        "pair --model llama-3.1-8b --tensor-parallel": "--tensor-parallel compares small layers",
        "pair --model llama-3.1-8b --kv-heads 2": "--kv-heads 2 is of small layers, not of --model",
        "pair --tp 4": "--tp 4 needs --model",
        "pair --rows-of 2 --hits 0.5": "--rows-of needs --model, two --layers or more and --hits 1 or 0",
        "pair --model llama-3.1-8b --rows-of 2 --hits 1 0": "a multiple of --rows-of, got 1 and 2",
        "pair --intermediate 100": "intermediate_size = 100, which is not a multiple of 32 x 1",
        "values --simulator none.so": "none.so: no such file",
    },
    "sweep": {
        "": "give --suite or --suite-file",
        "--suite ops": "a sweep needs --csv FILE and --source",
        "--suite ops --timeout 0": "--timeout must be above 0",
        "--suite-file /nowhere": "/nowhere",
        "--csv /a.csv": "cannot read /a.csv",
        "--csv /a.csv --source sim": "--csv alone shows a sweep",
    },
    "studies.quality": {
        "--thresholds -1": "must be a number >= 0 or inf, got '-1'",
        "--contexts 0": "whole number of at least 1, got '0'",
        "--chunk-sizes 48": "48 is not a multiple of",
        "--quick --text x": "--text does not go with it",
        "--predictors taste": "'taste' is no parameter of a predictor",
        "--predictors ends budget --tail-alignment 1": "no other --tail-alignment",
        "--torch-device cuda:7": "'cuda:7' is not here",
    },
}


@pytest.mark.parametrize(("module", "line"), [(module, line) for module, lines in REFUSED.items() for line in lines])
def test_refused_options(module, line, tmp_path, capsys, monkeypatch):
    for measuring, name in ((ops, "measure_apart"), (layer, "run"), (pair, "run"), (values, "run")):
        monkeypatch.setattr(measuring, name, lambda *_, **__: pytest.fail("measured"))
    monkeypatch.chdir(tmp_path)
    main = importlib.import_module(f"perf.{module}.__main__").main
    try:
        status = main(line.split())
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr()
    assert status == 2 and REFUSED[module][line] in said.err and said.err.count("\n") == 1 and not said.out
    assert not list(tmp_path.iterdir())
