# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Draw the scaling plot after the ALSpec paper's figure 7: a panel per context, a line per strategy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from perf.projections.estimator.latency import Estimate, context_label
from perf.projections.estimator.tables import CHIP_COUNTS

COLUMNS = 5


def save_scaling_plot(estimates: Sequence[Estimate], path: Path) -> Path:
    """Draw tokens/s/user over chips into `path` (.png, .svg or .pdf) of a folder that exists; returns `path`.

    The x axis is logarithmic with a tick per chip count; all panels share the y axis. ValueError when
    `estimates` is empty, OSError when the file cannot be written.
    """
    if not estimates:
        raise ValueError("nothing to plot: no estimates were given")
    contexts = sorted({point.context for point in estimates})
    rates = sorted({point.hit_rate for point in estimates if point.hit_rate is not None})
    columns = min(COLUMNS, len(contexts))
    rows = -(-len(contexts) // columns)
    figure = Figure(figsize=(max(2.6 * columns + 0.6, 6.4), 3.0 * rows + 1.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    palette = colormaps["viridis"]
    colours = [to_hex(palette(0.85 - 0.75 * i / max(len(rates) - 1, 1))) for i in range(len(rates))]
    for panel, context in zip(panels.flat, contexts):
        of_context = [point for point in estimates if point.context == context]
        _line(
            panel,
            [p for p in of_context if p.mode == "tp"],
            "full TP",
            color="black",
            linestyle="--",
            marker="s",
        )
        for rate, colour in zip(rates, colours, strict=True):
            points = [p for p in of_context if p.hit_rate == rate]
            _line(panel, points, f"SP@{100 * rate:.4g}% + TP", color=colour, marker="o")
        panel.set_title(f"{context_label(context)} context", fontsize=10)
        _annotate_speedup(panel, of_context)
        panel.set_xscale("log", base=2)
        panel.set_xlim(0.83, 11)
        panel.set_xticks(CHIP_COUNTS, labels=[str(chips) for chips in CHIP_COUNTS])
        panel.minorticks_off()
        panel.set_xlabel("N150 chips")
        panel.grid(alpha=0.3, linewidth=0.6)
    for panel in panels.flat[len(contexts) :]:
        panel.set_visible(False)
    for row in panels:
        row[0].set_ylabel("tokens/s/user")
    panels[0][0].set_ylim(0, 1.1 * max(point.tokens_per_s_per_user for point in estimates))
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), frameon=False, fontsize=9)
    figure.suptitle("Llama 3.1 8B decode, batch 1: estimated scaling (device kernel time only)", fontsize=11)
    figure.savefig(path)
    return path


def _line(panel, points: Sequence[Estimate], label: str, **style) -> None:
    points = sorted(points, key=lambda point: point.chips)
    speeds = [point.tokens_per_s_per_user for point in points]
    panel.plot([point.chips for point in points], speeds, label=label, markersize=4, linewidth=1.5, **style)


def _annotate_speedup(panel, points: Sequence[Estimate]) -> None:
    """Write the speedup of the best SP+TP over full TP beside its point at the largest chip count."""
    chips = max(point.chips for point in points)
    at_edge = [point for point in points if point.chips == chips]
    tp = next((point for point in at_edge if point.mode == "tp"), None)
    best = min((p for p in at_edge if p.mode == "sp+tp"), key=lambda p: p.token_latency_ns, default=None)
    if tp is None or best is None:
        return
    text = f"{tp.token_latency_ns / best.token_latency_ns:.2f}x"
    spot = (chips, max(best.tokens_per_s_per_user, tp.tokens_per_s_per_user))
    panel.annotate(text, spot, xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8)
