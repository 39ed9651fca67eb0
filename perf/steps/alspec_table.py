# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What steps that `alspec_step.measure` measured say: cycles, the parts of appendix F, gains beside its formula."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from models.llama31_8b.latency import token_latency
from perf.steps.alspec_programs import ATTENTION, EXACT, OWN, is_own

Span = Mapping[str, Any]
Step = Mapping[str, Any]


@dataclass(frozen=True)
class Parts:
    """Cycles that appendix F takes, as these steps had them. fixed: outside the layers. per_layer: a layer without
    its attention. exact: attention alone. sender, receiver: speculative attention of the chip that guesses, and
    until the other has the guess."""

    fixed: float
    per_layer: float
    exact: float
    sender: float
    receiver: float

    def formula(self, layers: int, rate: float) -> float:
        """Return the cycles of a step by appendix F."""
        return token_latency(
            self.fixed, self.per_layer, sfd_s=self.sender, sfd_r=self.receiver, layers=layers, hit_rate=rate
        )


def cycles(step: Step) -> int:
    """Return the cycles from the first program's start to the last one's end, over all chips."""
    spans = [span for chip in step["chips"] for span in chip]
    return max(span["end"] for span in spans) - min(span["start"] for span in spans)


def cycles_alone(steps: Mapping[str, Step]) -> int:
    """Return the cycles of one chip with exact attention."""
    return cycles({"chips": [steps[EXACT]["chips"][0]]})


def layer_pitch(step: Step, layers: int) -> float | None:
    """Return the cycles from one layer's attention to the next one's, each on the chip that is there last, so that they
    are what a further layer adds; None for one layer."""
    if layers == 1:
        return None
    first, last = (max(_attention(chip, layer)["start"] for chip in step["chips"]) for layer in (0, layers - 1))
    return (last - first) / (layers - 1)


def parts_of(steps: Mapping[str, Step], layers: int) -> Parts:
    """Return the parts of the exact step and all speculative ones. Errors: ValueError without a speculative step."""
    exact = steps[EXACT]["chips"][0]
    attention = fmean(length(span) for span in exact if span["name"] == ATTENTION)
    inside = [span for span in exact if span["layer"] is not None]
    in_layers = max(span["end"] for span in inside) - min(span["start"] for span in inside)
    senders, receivers = [], []
    for name, step in steps.items():
        for layer in range(layers if name != EXACT else 0):
            found = [_attention(chip, layer) for chip in step["chips"]]
            begin = max(span["start"] for span in found)  # neither goes on before both are there
            ends = sorted(span["end"] - begin for span in found)
            receivers.append(ends[0])
            senders.append(ends[1])
    if not senders:
        raise ValueError("no step with speculation to take the parts from")
    per_layer = in_layers / layers - attention
    return Parts(cycles_alone(steps) - in_layers, per_layer, attention, fmean(senders), fmean(receivers))


def _attention(chip: Iterable[Span], layer: int) -> Span:
    (found,) = [span for span in chip if span["name"] == ATTENTION and span["layer"] == layer]
    return found


def length(span: Span) -> int:
    return span["end"] - span["start"]


def rows(steps: Mapping[str, Step], layers: int) -> list[dict[str, Any]]:
    """Return a row per hit rate: cycles as it ran, of one chip with exact attention, by appendix F, the share of the
    gain that appendix F promises which was seen (None where it promises none), and `layer_pitch` of the step and of
    the exact one. Steps in which the layers decide are one row, of their means."""
    parts, alone = parts_of(steps, layers), cycles_alone(steps)
    pitch_alone = layer_pitch({"chips": steps[EXACT]["chips"][:1]}, layers)
    found = []
    alike: dict[str, list[Step]] = {}
    for name, step in steps.items():
        if name != EXACT:
            alike.setdefault(OWN if is_own(name) else name, []).append(step)
    for name, several in alike.items():
        rate = fmean(sum(step["hits"]) / layers for step in several)
        took = round(fmean(cycles(step) for step in several))
        formula = parts.formula(layers, rate)
        promised = alone - formula
        pitches = [pitch for step in several if (pitch := layer_pitch(step, layers)) is not None]
        found.append(
            {
                "own": name == OWN,
                "hit_rate": rate,
                "cycles": took,
                "exact": alone,
                "formula": round(formula),
                "difference": took / formula - 1,
                "speedup": alone / took,
                "share_of_gain": (alone - took) / promised if promised > 0 else None,
                "layer_pitch": round(fmean(pitches)) if pitches else None,
                "layer_pitch_exact": None if pitch_alone is None else round(pitch_alone),
            }
        )
    return found


def table_rows(
    steps: Mapping[str, Step], shape: Mapping[str, int], tensor_parallel: Step | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a data file: `rows` with the shape, the parts that appendix F was given, and the step by
    tensor parallelism where it was measured."""
    parts = {f"part_{name}": round(value) for name, value in asdict(parts_of(steps, shape["layers"])).items()}
    found = [dict(shape) | row | parts for row in rows(steps, shape["layers"])]
    if tensor_parallel is not None:
        split = cycles(tensor_parallel)
        found = [row | {"tensor_parallel": split, "over_it": split / row["cycles"]} for row in found]
    return found


def title(name: str, step: Step) -> str:
    """Return what a step is called where it is shown."""
    if name == EXACT:
        return "exact attention"
    if is_own(name):
        return f"own decisions at threshold {step['threshold']:g}, {sum(step['hits'])} of {len(step['hits'])} hit"
    return f"{float(name):.0%} hits"


def report(steps: Mapping[str, Step], shape: Mapping[str, int], tensor_parallel: Step | None = None) -> str:
    """Return the table as text, with what appendix F was given; tensor_parallel: the step split over the same chips."""
    layers = shape["layers"]
    parts = parts_of(steps, layers)
    lines = [
        f"{layers} layers, hidden {shape['hidden']}, MLP {shape['intermediate']}, {shape['context']} cached tokens, "
        f"chunks of {shape['chunk_size']}, workers {shape['workers'] or 'by shapes'}; cycles of the simulated pair, "
        "fast dispatch, from a trace",
        f"a layer without attention {parts.per_layer:.0f}, exact attention {parts.exact:.0f}, sender "
        f"{parts.sender:.0f}, receiver {parts.receiver:.0f}; outside the layers {parts.fixed:.0f}",
        f"{'hits':>9}{'step':>9}{'one chip, exact':>16}{'speedup':>9}{'appendix F':>12}{'off by':>8}"
        f"{'of its gain':>13}",
    ]
    for row in rows(steps, layers):
        gain = "-" if row["share_of_gain"] is None else f"{row['share_of_gain']:.0%}"
        lines.append(
            f"{'own ' if row['own'] else ''}{row['hit_rate']:.0%}".rjust(9)
            + f"{row['cycles']:>9}{row['exact']:>16}{row['speedup']:>8.3f}x"
            f"{row['formula']:>12}{row['difference']:>+8.1%}{gain:>13}"
        )
    lines += [title(name, step) for name, step in steps.items() if is_own(name)]
    if tensor_parallel is not None:
        alone, split = cycles_alone(steps), cycles(tensor_parallel)
        lines.append(f"tensor parallelism over the same two chips: {split} cycles, {alone / split:.3f}x one chip alone")
    return "\n".join(lines)
