# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Workers of a sweep that a test kills: the third configuration never ends."""

from __future__ import annotations

import json
import os
import sys

from perf.sweep.configurations import product
from perf.sweep.table import KERNEL_NS, PASS

CONFIGURATIONS = product("matmul", k=[64, 128, 256, 512])


def third_hangs(configuration, answer):
    if configuration == CONFIGURATIONS[2]:
        return [sys.executable, "-c", "import time; time.sleep(600)"], os.environ
    rows = [{"OP CODE": "MatmulDeviceOperation", "DEVICE ID": 0, KERNEL_NS: 1000.0}] * 2
    told = json.dumps({"status": PASS, "reason": "", "rows": rows})
    return [sys.executable, "-c", f"open({str(answer)!r}, 'w').write({told!r})"], os.environ
