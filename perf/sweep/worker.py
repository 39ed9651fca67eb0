# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Open the mesh of one configuration, run it and write what became of it. Started by runner.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from perf.sweep import tracy_csv
from perf.sweep.configurations import Configuration
from perf.sweep.table import FAILED, NOT_RUN, PASS

TRACY = "tracy"


def main(arguments: list[str]) -> int:
    """Run one configuration. argv: [answer file, source or TRACY, JSON of [family, options]]."""
    from models.llama31_8b.demo.backends.n150.backend import TRACE_REGION_BYTES
    from perf.sweep.launches import build
    from perf.sweep.timers import NoProfiler, measure, realtime_timer, simulated_timer
    from runtime_patches.simulated_n150.dispatch import opening_options, program_room

    answer, source = Path(arguments[0]), arguments[1]
    family, options = json.loads(arguments[2])
    configuration = Configuration.make(family, **options)
    if source == "sim":
        opening = program_room() | opening_options("fast")
    else:
        opening = {"trace_region_size": TRACE_REGION_BYTES}
    plan = configuration.mesh
    mesh = plan.open(**opening)
    try:
        launch = build(mesh, configuration)
        if source == TRACY:
            tracy_csv.run(launch)
            rows = []  # the parent reads them when Tracy has written its report
        else:
            timer = simulated_timer(mesh) if source == "sim" else realtime_timer(mesh)
            rows = measure(mesh, launch, timer, configuration)
        outcome = {"status": PASS, "reason": "", "rows": rows}
    except (ValueError, NoProfiler) as error:  # refused
        outcome = {"status": NOT_RUN, "reason": f"{type(error).__name__}: {error}", "rows": []}
    except Exception as error:
        outcome = {"status": FAILED, "reason": f"{type(error).__name__}: {error}", "rows": []}
    draft = answer.with_suffix(".draft")
    draft.write_text(json.dumps(outcome))
    draft.replace(answer)
    plan.close(mesh)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
