# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What boards run is shared with the tests of the simulated chip (tt), and tiny checkpoints with the reference's."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[1] / name) for name in ("tt", "reference")]
