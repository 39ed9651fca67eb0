# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A bench runs on a simulated chip or a mock mesh in a process of its own: ttnn reads its environment when it is
imported, and a bench may need several.

The module starts itself again with what is asked, and ends with `sys.exit(answered(_work) or main())`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perf.lib.data_file import ROOT

_WORKER = "--worker"


def measure_apart(
    module: str, asked: Mapping[str, Any], environment: Mapping[str, str], timeout_s: float | None = None
) -> Any:
    """Return what `_work(**asked)` of `module` returns in a process with this environment, by way of JSON. Standard
    output, which ttnn writes to, is dropped. Raises SystemExit naming the module and how the process ended."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", module, _WORKER, str(answer), json.dumps(dict(asked))]
        try:
            done = subprocess.run(
                command, env=dict(environment), cwd=ROOT, stdout=subprocess.DEVNULL, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise SystemExit(f"the process of {module} took longer than {timeout_s:g} s") from error
        if done.returncode or not answer.exists():
            raise SystemExit(f"the process of {module} ended with status {done.returncode}")
        return json.loads(answer.read_text())


def answered(work: Callable[..., Any]) -> bool:
    """Return whether this process was started by `measure_apart`; `work` has then run, and its answer is written."""
    if sys.argv[1:2] != [_WORKER]:
        return False
    Path(sys.argv[2]).write_text(json.dumps(work(**json.loads(sys.argv[3]))))
    return True
