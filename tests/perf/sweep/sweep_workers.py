# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Workers of a sweep that a test kills: the third configuration never ends, and notes its process id in the file that
HUNG_WORKER names."""

from __future__ import annotations

import json
import os
import sys

from perf.sweep.configurations import product
from perf.sweep.table import KERNEL_NS, PASS

CONFIGURATIONS = product("matmul", k=[64, 128, 256, 512])


def third_hangs(configuration, answer):
    if configuration == CONFIGURATIONS[2]:
        note = f"open({os.environ['HUNG_WORKER']!r}, 'w').write(str(os.getpid()))"
        return [sys.executable, "-c", f"import os, time; {note}; time.sleep(600)"], os.environ
    rows = [{"OP CODE": "MatmulDeviceOperation", "DEVICE ID": 0, KERNEL_NS: 1000.0}] * 2
    told = json.dumps({"status": PASS, "reason": "", "rows": rows})
    return [sys.executable, "-c", f"open({str(answer)!r}, 'w').write({told!r})"], os.environ
