# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What measured steps of a pair say: cycles, the parts of appendix F, gains beside its formula, both levels of
speculation together, and the programs in time as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from models.llama31_8b.latency import token_latency
from perf.lib.chip import one_after_the_other
from perf.lib.data_file import Row
from perf.lib.launch_labels import ATTENTION, EXCHANGE, GATE
from perf.step.layer import NORM, replaced_by_all_reduces
from perf.step.shapes import EXACT

Span = Mapping[str, Any]
Step = Mapping[str, Any]


@dataclass(frozen=True)
class Parts:
    """Cycles that appendix F takes, as these steps had them.

    fixed: outside the layers. per_layer: a layer without its attention. exact: attention alone. sender, receiver:
    speculative attention of the chip that guesses, and until the other has the guess.
    """

    fixed: float
    per_layer: float
    exact: float
    sender: float
    receiver: float

    def formula(self, layers: int, rate: float) -> float:
        return token_latency(
            self.fixed, self.per_layer, sfd_s=self.sender, sfd_r=self.receiver, layers=layers, hit_rate=rate
        )


def cycles(step: Step) -> int:
    """Return the cycles from the first program's start to the last one's end, over all chips."""
    spans = [span for chip in step["chips"] for span in chip]
    return max(span["end"] for span in spans) - min(span["start"] for span in spans)


def cycles_alone(steps: Mapping[str, Step]) -> int:
    return cycles({"chips": [steps[EXACT]["chips"][0]]})


def layer_pitch(step: Step, layers: int) -> float | None:
    """Return the cycles from one layer's attention to the next one's, each on the chip that is there last, so that they
    are what a further layer adds; None for one layer."""
    if layers == 1:
        return None
    first, last = (max(_attention(chip, layer)["start"] for chip in step["chips"]) for layer in (0, layers - 1))
    return (last - first) / (layers - 1)


def _attention(chip: Iterable[Span], layer: int) -> Span:
    (found,) = [span for span in chip if span["name"] == ATTENTION and span["layer"] == layer]
    return found


def parts_of(steps: Mapping[str, Step], layers: int) -> Parts:
    """Return the parts of the exact step and all speculative ones. Raises ValueError without a speculative step."""
    exact = steps[EXACT]["chips"][0]
    attention = fmean(span["end"] - span["start"] for span in exact if span["name"] == ATTENTION)
    inside = [span for span in exact if span["layer"] is not None]
    in_layers = max(span["end"] for span in inside) - min(span["start"] for span in inside)
    ends = []
    for step in (step for name, step in steps.items() if name != EXACT):
        for layer in range(layers):
            found = [_attention(chip, layer) for chip in step["chips"]]
            begin = max(span["start"] for span in found)  # neither goes on before both are there
            ends.append(sorted(span["end"] - begin for span in found))
    if not ends:
        raise ValueError("no step with speculation to take the parts from")
    receiver, sender = (fmean(of) for of in zip(*ends, strict=True))
    return Parts(cycles_alone(steps) - in_layers, in_layers / layers - attention, attention, sender, receiver)


def rows(steps: Mapping[str, Step], shape: Mapping[str, Any], split: Step | None = None) -> list[Row]:
    """Return a row per hit rate.

    Args:
        steps: of `device.measure_pair`.
        shape: of the layers and the step, which every row has.
        split: the step with exact attention by tensor parallelism over the same two chips.

    Returns:
        Cycles of the pair, of one chip with exact attention and by appendix F; the share of the gain that appendix F
        promises which was seen, None where it promises none; `layer_pitch` of the step and of the exact one, and the
        gain that they are; the parts of appendix F; and with `split` its cycles, and what the pair gains over it.
    """
    layers = shape["layers"]
    parts, alone = parts_of(steps, layers), cycles_alone(steps)
    pitch_alone = layer_pitch({"chips": steps[EXACT]["chips"][:1]}, layers)
    found = []
    for step in (step for name, step in steps.items() if name != EXACT):
        rate = sum(step["hits"]) / layers
        took, formula = cycles(step), parts.formula(layers, rate)
        promised, pitch = alone - formula, layer_pitch(step, layers)
        row: Row = {"hit_rate": rate, "cycles": took, "exact": alone, "formula": round(formula)}
        row |= {"difference": took / formula - 1, "speedup": alone / took}
        row["share_of_gain"] = (alone - took) / promised if promised > 0 else None
        row["layer_pitch"] = None if pitch is None else round(pitch)
        row["layer_pitch_exact"] = None if pitch_alone is None else round(pitch_alone)
        row["layer_speedup"] = None if pitch is None or pitch_alone is None else pitch_alone / pitch
        row |= {f"part_{part}": round(value) for part, value in vars(parts).items()}
        if split is not None:
            row |= {"tensor_parallel": cycles(split), "over_it": cycles(split) / took}
        found.append(dict(shape) | row)
    return found


def over_formula(row: Row) -> float:
    """Return what a layer took over appendix F, of a row of `rows` in which all layers hit or none."""
    per_layer, sender, receiver = (row[f"part_{part}"] for part in ("per_layer", "sender", "receiver"))
    return row["layer_pitch"] - token_latency(0, per_layer, None, sender, receiver, 1, row["hit_rate"])


def whole_rows(
    parts: Mapping[str, Step], whole: Mapping[str, Step], shape: Mapping[str, Any], all_reduces: float
) -> list[Row]:
    """Return a row per step of a mesh that was executed whole, beside the sum of its parts that perf.projection takes.

    Args:
        parts: steps of a chip's part of the layers on a pair, without collectives; hits 1 or 0 are among them.
        whole: the same steps of two rows of such chips, the exact one of the first row alone.
        shape: of the parts.
        all_reduces: cycles of a layer's, executed apart, with the products in them.

    Returns:
        mesh, 1x2 with tensor parallelism alone; hit_rate; layer: cycles from one layer's attention to the next one's;
        layer_sum: by appendix F of attention and the rest of a layer, with all-reduces in place of what they replace
        and what the pair took over appendix F in the mean; step; step_sum: of the parts' executed step with these
        and the mesh's own embedding; what layer and step take over their sums; and the parts.
    """
    layers, pairs, own = shape["layers"], rows(parts, shape), parts_of(parts, shape["layers"])
    took = _took(parts[EXACT]["chips"][0])
    of_layers = [(name, each) for name, layer, each in took if layer is not None]
    gone = replaced_by_all_reduces([name for name, _ in of_layers])
    replaced = sum(each for (_, each), there in zip(of_layers, gone, strict=True) if there) / layers
    more, over = all_reduces - replaced, fmean(over_formula(row) for row in pairs if row["hit_rate"] in (0, 1))
    # The first norm stays a program of its own. A row of chips splits the embedding, and gathers it.
    norm = next(each for name, layer, each in took if (name, layer) == (NORM, 0))
    there, apart = (
        sum(each for name, layer, each in programs if layer is None and name in ("embedding", "all_gather"))
        for programs in (_took(whole[EXACT]["chips"][0]), took)
    )
    tp, pair = (replace(own, fixed=0, per_layer=own.per_layer + more + extra) for extra in (0, over))
    exact = token_latency(0, tp.per_layer, tp.exact, layers=1)
    sums: list[tuple[float | None, float, float]] = [(None, exact, cycles_alone(parts))]
    sums += [(row["hit_rate"], pair.formula(1, row["hit_rate"]), row["cycles"]) for row in pairs]
    found = []
    for rate, layer_sum, step_sum in sums:
        executed = whole[EXACT if rate is None else f"{rate:g}"]
        layer, step, chips = layer_pitch(executed, layers) or 0, cycles(executed), len(executed["chips"])
        step_sum += layers * more + norm + there - apart
        row: Row = {"mesh": f"1x{chips}" if rate is None else f"2x{chips // 2}", "hit_rate": rate}
        row |= {"layer": round(layer), "layer_sum": round(layer_sum), "layer_off": layer / layer_sum - 1}
        row |= {"step": step, "step_sum": round(step_sum), "step_off": step / step_sum - 1}
        row |= {f"part_{part}": round(value) for part, value in vars(own).items()}
        row |= {"part_over_formula": round(over), "part_replaced": round(replaced), "part_all_reduces": all_reduces}
        row |= {"part_embedding": round(apart), "embedding": round(there)}
        found.append(dict(shape) | row)
    return found


def _took(chip: Iterable[Span]) -> list[tuple[str, int | None, float]]:
    """Return name, layer and cycles of each program of a chip, from the end of those before it."""
    spans = list(chip)
    turns = one_after_the_other((span["start"], span["end"]) for span in spans)
    return [(span["name"], span["layer"], took) for span, (_, took) in zip(spans, turns, strict=True)]


def both_levels(
    tokens: Mapping[str, Step], trees: Mapping[str, Step], shape: Mapping[str, Any], nodes: int
) -> list[Row]:
    """Return what both levels of speculation gain together, a row per hit rate that was forced in both.

    A step over a tree yields as many tokens as its drafts are worth, whoever verifies it, so that equal acceptance
    cancels in what the pair adds to trees. The two gains multiply if a pair shortens a tree's step by the factor by
    which it shortens a token's; `share_of_product` is how much of that was seen.

    Args:
        tokens, trees: steps of `device.measure_pair` over a token and over a tree.

    Returns:
        Cycles of the four steps, and gains over one chip that decodes a token, those of trees per token that a step
        yields.
    """
    plain, alone = cycles_alone(tokens), cycles_alone(trees)
    found = []
    for name in tokens:
        if name == EXACT or name not in trees:
            continue
        pair, both = cycles(tokens[name]), cycles(trees[name])
        row = {"nodes": nodes, "hit_rate": float(name), "plain": plain, "pair": pair, "trees": alone, "both": both}
        row |= {"gain_of_pair": plain / pair, "gain_of_trees": plain / alone, "gain_of_both": plain / both}
        found.append(dict(shape) | row | {"share_of_product": alone * pair / (plain * both)})
    return found


def plot(steps: Mapping[str, Step], path: Path) -> None:
    """Draw each step as two bars of programs in time, like the paper's figure 6."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    colours = {ATTENTION: "#d1495b", EXCHANGE: "#edae49", GATE: "#8d96a3", "other programs": "#00798c"}
    heights = [len(step["chips"]) for step in steps.values()]
    figure = Figure(figsize=(11, 0.8 * sum(heights)))
    axes = figure.subplots(len(steps), 1, sharex=True, squeeze=False, height_ratios=heights)
    for axis, (name, step) in zip(axes[:, 0], steps.items(), strict=True):
        for chip, spans in enumerate(step["chips"]):
            faces = [colours.get(span["name"], colours["other programs"]) for span in spans]
            bars, place = one_after_the_other((span["start"], span["end"]) for span in spans), (chip - 0.4, 0.8)
            axis.broken_barh(bars, place, facecolors=faces, edgecolor="white", linewidth=0.2)
        axis.set_yticks(range(len(step["chips"])), [f"chip {chip}" for chip in range(len(step["chips"]))])
        axis.invert_yaxis()
        title = "exact attention on one chip alone" if name == EXACT else f"{float(name):.0%} hits"
        axis.set_title(title, fontsize=9, loc="left")
    axes[-1, 0].set_xlabel("cycles of the simulated chips")
    handles = [Patch(color=colour, label=label) for label, colour in colours.items()]
    figure.legend(handles=handles, loc="upper right", ncols=len(colours), fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
