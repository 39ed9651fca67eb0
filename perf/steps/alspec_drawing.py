# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of measured steps in time: a Chrome / Perfetto trace, and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perf.steps.alspec_programs import ATTENTION, EXACT, EXCHANGE, GATE
from perf.steps.alspec_table import Span, Step, length, title


def chrome_trace(steps: Mapping[str, Step]) -> dict[str, Any]:
    """Return all steps as a Chrome / Perfetto trace: a process per step, a track per chip; one microsecond is one
    cycle."""
    events: list[dict[str, Any]] = []
    for process, (name, step) in enumerate(steps.items()):
        shown = {"name": title(name, step)}
        events.append({"ph": "M", "pid": process, "name": "process_name", "args": shown})
        for chip, spans in enumerate(step["chips"]):
            track = {"pid": process, "tid": chip}
            events.append({"ph": "M", **track, "name": "thread_name", "args": {"name": f"chip {chip}"}})
            for span in spans:
                what = {"layer": span["layer"], "program": span["number"], "cores": span["cores"]}
                timing = {"ts": span["start"], "dur": length(span)}
                events.append({"ph": "X", **track, "name": span["name"], **timing, "args": what})
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def one_after_the_other(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Return (start, length) of each program of a chip, from the end of those before it: a program's first cores begin
    to wait for their work while others are still at the one before."""
    found, end = [], 0
    for span in spans:
        start = min(max(span["start"], end), span["end"])
        found.append((start, span["end"] - start))
        end = max(end, span["end"])
    return found


def plot(steps: Mapping[str, Step], path: Path) -> None:
    """Draw each step as two bars of programs in time, like the paper's figure 6."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    colours = {ATTENTION: "#d1495b", EXCHANGE: "#edae49", GATE: "#8d96a3"}
    other = "#00798c"
    heights = [len(step["chips"]) for step in steps.values()]
    figure, axes = pyplot.subplots(
        len(steps), 1, sharex=True, figsize=(11, 0.8 * sum(heights)), squeeze=False, height_ratios=heights
    )
    for axis, (name, step) in zip(axes[:, 0], steps.items(), strict=True):
        for chip, spans in enumerate(step["chips"]):
            axis.broken_barh(
                one_after_the_other(spans),
                (chip - 0.4, 0.8),
                facecolors=[colours.get(span["name"], other) for span in spans],
                edgecolor="white",
                linewidth=0.2,
            )
        axis.set_yticks(range(len(step["chips"])), [f"chip {chip}" for chip in range(len(step["chips"]))])
        axis.invert_yaxis()
        alone = " on one chip alone" if name == EXACT else ""
        axis.set_title(title(name, step) + alone, fontsize=9, loc="left")
    axes[-1, 0].set_xlabel("cycles of the simulated chips")
    labels = {**colours, "other programs": other}
    figure.legend(
        handles=[Patch(color=colour, label=label) for label, colour in labels.items()],
        loc="upper right",
        ncols=len(labels),
        fontsize=8,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
