# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The plot of the speculation benchmark: tokens a target step by prompt kind, and the wall-clock ratio."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  the backend is chosen first: no display is needed


def save_speculation_plot(report: dict, path: Path) -> Path:
    """Two panels from `perf.cpu.bench_speculation`'s report, as a PNG file. Returns its path."""
    rows, kinds = report["drafters"], list(report["prompt_tokens"])
    figure, (steps, clock) = plt.subplots(
        1, 2, figsize=(13, 0.45 * len(rows) + 2.2), width_ratios=[3, 1], sharey=True, layout="constrained"
    )
    places = range(len(rows))
    for index, kind in enumerate(kinds):
        values = [row["by_prompt"][kind]["tokens_per_target_step"] for row in rows]
        offset = 0.8 * ((index + 0.5) / len(kinds) - 0.5)
        steps.barh([place + offset for place in places], values, height=0.8 / len(kinds), label=kind)
    steps.axvline(1.0, color="black", linewidth=0.8)
    steps.set_yticks(list(places), [row["drafter"] for row in rows])
    steps.invert_yaxis()
    steps.set_xlabel("tokens a target step (plain decoding: 1)")
    steps.legend(title="prompt", fontsize="small")
    clock.barh(list(places), [row["wall_clock_ratio_to_plain"] for row in rows], color="grey")
    clock.axvline(1.0, color="black", linewidth=0.8)
    clock.set_xlabel("speed on this machine (plain: 1)")
    figure.suptitle(f"{report['model']}, greedy, {report['tokens']} tokens a prompt")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
