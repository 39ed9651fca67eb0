# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the bench of speculative steps makes of measured programs, on steps written by hand."""

import argparse
import json

import pytest
import torch

from models.llama31_8b.config import BUDGET
from models.llama31_8b.reference.alspec.budget import tiles_by_budget
from perf.lib.launch_labels import ATTENTION, EXCHANGE
from perf.step import pair
from perf.step.__main__ import main
from perf.step.figures import both_levels, cycles, layer_pitch, parts_of, rows, whole_rows
from perf.step.shapes import EXACT, hit_pattern, known_weights
from runtime_patches.profiling.timeline import ProgramSpan, spans_of

LAYERS = {count: {"layers": count, "context": 512} for count in (1, 2)}


def chip(*spans: tuple) -> list[dict]:
    """Return programs of (name, start, end), those of one layer with its number."""
    return [
        {"name": name, "layer": layer[0] if layer else None, "number": start, "start": start, "end": end, "cores": 1}
        for name, start, end, *layer in spans
    ]


def steps() -> dict:
    """One layer: 100 cycles before it, then 40 of its own, attention of 300, 260 of its own; 50 after it. As a hit
    the guess arrives after 80, and the exchange of 10 stands before and after the layer."""
    first, last = ("embedding", 0, 100), ("head", 500, 550)
    exact = chip(first, ("norm", 100, 140, 0), (ATTENTION, 140, 440, 0), ("mlp", 440, 700, 0), ("head", 700, 750))
    before = (first, (EXCHANGE, 100, 110, 0), ("norm", 110, 150, 0))
    sender = chip(*before, (ATTENTION, 150, 460, 0), (EXCHANGE, 460, 500), last)
    receiver = chip(*before, (ATTENTION, 150, 230, 0), ("mlp", 230, 490, 0), (EXCHANGE, 490, 500), last)
    return {"exact": {"chips": [exact, exact]}, "1": {"chips": [sender, receiver], "hits": [1]}}


def test_the_gain_is_measured_against_one_row_and_appendix_f_of_the_same_steps():
    parts = parts_of(steps(), 1)
    assert (parts.fixed, parts.per_layer, parts.exact) == (150, 300, 300)
    assert (parts.sender, parts.receiver) == (310, 80)
    assert parts.formula(1, 1.0) == 150 + 80 + max(310 - 80, 300) == 530
    split = {"chips": [chip(("all", 0, 660)), chip(("all", 10, 600))]}
    (row,) = rows(steps(), LAYERS[1], split)
    assert (row["cycles"], row["exact"], row["formula"]) == (550, 750, 530)
    assert row["difference"] == pytest.approx(550 / 530 - 1) and row["speedup"] == pytest.approx(750 / 550)
    assert row["share_of_gain"] == pytest.approx((750 - 550) / (750 - 530))
    assert (row["tensor_parallel"], row["over_it"]) == (660, 1.2) and cycles(steps()["exact"]) == 750
    with pytest.raises(ValueError, match="no step with speculation"):
        parts_of({"exact": steps()["exact"]}, 1)
    slow = steps()
    for part in sum(slow["1"]["chips"], []):
        part["end"] += 1000 * (part["name"] == ATTENTION)
    (row,) = rows(slow, LAYERS[1])
    assert row["share_of_gain"] is None, "where appendix F promises no gain"


def test_a_further_layer_adds_what_lies_between_two_attentions_that_begin_last():
    assert layer_pitch(steps()["1"], 1) is None
    sender = chip((ATTENTION, 150, 460, 0), (ATTENTION, 520, 600, 1), ("head", 900, 950))
    receiver = chip((ATTENTION, 160, 230, 0), ("mlp", 230, 490, 0), (ATTENTION, 510, 820, 1))
    step = {"chips": [sender, receiver], "hits": [1, 1]}
    exact = chip((ATTENTION, 140, 440, 0), (ATTENTION, 740, 1040, 1))
    assert layer_pitch(step, 2) == 520 - 160
    (row,) = rows({"exact": {"chips": [exact, exact]}, "1": step}, LAYERS[2])
    assert (row["layer_pitch"], row["layer_pitch_exact"]) == (360, 600)


def layers_of(attention: dict[int, int], rest: int, before: str = "rms_norm", gather: int = 0) -> list[dict]:
    """Return two layers of a norm of 10 cycles and `rest` after attention, of which an add of 20, by when it begins."""
    spans: list[tuple] = [("all_gather", 0, gather)] if gather else []
    for layer, (start, end) in enumerate(attention.items()):
        spans += [(before, start - 10, start, layer), (ATTENTION, start, end, layer)]
        spans += [("add", end, end + 20, layer), ("mlp", end + 20, end + rest, layer)]
    return chip(*spans, ("head", end + rest, end + rest + 5))


def test_a_whole_mesh_stands_beside_the_sum_of_its_parts():
    """A layer without attention takes 110, of which two all-reduces of 40 replace 30. The pair takes 4 and 6 over
    appendix F. The mesh takes 10 more with tensor parallelism, and with speculation 20."""
    exact = layers_of({10: 60, 170: 220}, 100)
    parts = {EXACT: {"chips": [exact, exact]}}
    for name, begun in (("1", 15 + 110 + 4), ("0", 60 + 110 + 6)):
        guess, verified = (layers_of({10: 10 + took, 10 + begun: 10 + begun + took}, 100) for took in (15, 60))
        parts[name] = {"chips": [verified, guess], "hits": [int(name)] * 2}
    whole = {EXACT: {"chips": [layers_of({15: 65, 235: 285}, 150, "all_reduce", 5)] * 2}}
    for name, begun in (("1", 15 + 160 + 5 + 20), ("0", 60 + 160 + 5 + 20)):
        whole[name] = {"chips": [layers_of({15: 75, 15 + begun: 75 + begun}, 150, "all_reduce")] * 4}
    tp, hit, miss = whole_rows(parts, whole, LAYERS[2], 80)
    assert (tp["mesh"], tp["hit_rate"], tp["part_replaced"], tp["part_over_formula"]) == ("1x2", None, 30, 5)
    assert (tp["layer"], tp["layer_sum"], tp["layer_off"]) == (220, 50 + 110 + 50, pytest.approx(10 / 210))
    assert (hit["mesh"], hit["layer"], hit["layer_sum"]) == ("2x2", 200, 15 + 160 + 5)
    assert (miss["layer"], miss["layer_sum"], miss["layer_off"]) == (245, 225, pytest.approx(20 / 225))
    # The parts' step with two layers' all-reduces in place of norms and adds, but for the first norm, and a gather.
    assert tp["step_sum"] == cycles({"chips": [exact]}) + 2 * (80 - 30) + 10 + 5
    assert miss["step_off"] == pytest.approx(miss["step"] / (cycles(parts["0"]) + 115) - 1)


def test_hits_are_spread_and_counted_as_appendix_f_does():
    assert hit_pattern(4, 0.5) == [False, True, False, True]
    assert hit_pattern(3, 0.5) == [False, False, True]
    assert hit_pattern(2, 0.0) == [False] * 2 and hit_pattern(2, 1.0) == [True] * 2


@pytest.mark.parametrize("chosen", [1, 7, 8, 35, 80])
def test_made_up_weights_choose_so_many_tiles(chosen):
    weights = torch.tensor([known_weights(range(1, 124), chosen, 128)])
    taken = tiles_by_budget(weights, BUDGET, 1, torch.tensor(124))[0]
    assert int(taken.sum()) == chosen and weights.sum().item() == pytest.approx(1)
    gaps = taken.nonzero().flatten().diff()
    assert chosen == 1 or gaps.max() - gaps.min() <= 1, "spread evenly"
    with pytest.raises(ValueError, match="122 of 123 tiles are too many"):
        known_weights(range(1, 124), 122, 128)


def test_words_of_cores_become_spans_of_programs():
    """Two chips of two cores; the arming program 9 is first everywhere, program 5 runs twice, 7 on one core."""
    arming = [9, 90, 95, 0]
    core = [arming, [5, 100, 110, 0], [5, 130, 140, 0], [0, 0, 0, 0]]
    other = [arming, [5, 104, 120, 0], [5, 131, 139, 0], [7, 150, 160, 0]]
    late = [arming, [5, 2**31 + 5 - 2**32, 2**31 + 9 - 2**32, 0]]  # as int32, in which words are read
    first, second = spans_of([[core, other], [late, [arming]]])
    assert first == [ProgramSpan(5, 0, 20, 2), ProgramSpan(5, 30, 40, 2), ProgramSpan(7, 50, 60, 1)]
    assert second == [ProgramSpan(5, 2**31 + 5 - 100, 2**31 + 9 - 100, 1)]


def test_a_chips_part_of_a_model_goes_on_where_the_last_run_stopped(tmp_path, capsys):
    """All steps are kept, so that nothing is measured."""
    kept, written = tmp_path / "steps.json", tmp_path / "rows.json"
    arguments = ["--model", "llama-3.1-8b", "--tp", "4", "--layers", "1", "--context", "4096", "--chunk-size", "128"]
    arguments += ["--hits", "1", "--steps", str(kept)]
    parser = argparse.ArgumentParser()
    pair.add_options(parser)
    shape = pair.shape_asked(parser.parse_args(arguments))
    assert (shape["hidden"], shape["intermediate"], shape["heads"], shape["kv_heads"]) == (4096, 3584, 8, 2)
    assert (shape["precision"], shape["sharding"], shape["workers"]) == ("performance", "sharded", None)
    kept.write_text(json.dumps({"of": shape, "steps": steps()}))
    assert main(["pair", *arguments, "--write", str(written)]) == 0
    (row,) = json.loads(written.read_text())["rows"]
    assert (row["speedup"], row["workers"]) == (750 / 550, None) and "formula" in capsys.readouterr().out
    assert main(["pair", *arguments, "--context", "8192"]) == 2
    assert "asked for are" in capsys.readouterr().err


def test_a_token_and_a_tree_are_measured_with_the_same_guess(tmp_path, monkeypatch):
    asked, written = [], tmp_path / "rows.json"
    monkeypatch.setattr(pair, "run", lambda shape, *_, **__: asked.append(shape) or steps())
    arguments = ["--layers", "1", "--predictor", "budget", "--chosen", "7", "--hits", "1", "--tree", "16"]
    assert main(["pair", *arguments, "--write", str(written)]) == 0
    token, tree = asked
    assert (token["predictor"], token["chosen"]) == ("budget", 7) and tree == token | {"nodes": 16}
    (row,) = json.loads(written.read_text())["rows"]
    assert (row["predictor"], row["chosen"], row["nodes"], row["share_of_product"]) == ("budget", 7, 16, 1)


def test_gains_multiply_where_a_pair_shortens_both_steps_alike():
    """The pair halves a token's step, and takes a tree's of 120 to 80: two thirds of the product."""

    def step(took: int) -> dict:
        return {"chips": [[{"start": 100, "end": 100 + took}], [{"start": 50, "end": 100 + took}]]}

    tokens = {"exact": step(100), "0": step(150), "1": step(0)}
    (row,) = both_levels(tokens, {"exact": step(120), "1": step(30)}, LAYERS[1], 16)
    assert (row["plain"], row["pair"], row["trees"], row["both"]) == (100, 50, 120, 80)
    assert row["gain_of_pair"] == 2 and row["gain_of_trees"] == pytest.approx(100 / 120)
    assert row["gain_of_both"] == 1.25 and row["share_of_product"] == pytest.approx(0.75)
    assert row["hit_rate"] == 1 and row["nodes"] == 16 and row["context"] == 512


def test_a_picture_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(pair, "run", lambda *_, **__: steps())
    picture = tmp_path / "picture.svg"
    assert main(["pair", "--layers", "1", "--plot", str(picture)]) == 0
    assert "exact attention on one chip alone" in picture.read_text()
