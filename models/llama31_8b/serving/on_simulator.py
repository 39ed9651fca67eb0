# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Become vLLM's server on simulated chips, whose compiler makes larger kernels than a board's: the plugin is told to
leave them room.

    python -m models.llama31_8b.serving.on_simulator ADDITIONAL_CONFIG OPTIONS...
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from ..simulated import KERNEL_BYTES
from ..tt.mesh import tensors_l1_bytes

SERVER = ("-m", "vllm.entrypoints.openai.api_server")


def main(argv: Sequence[str]) -> None:
    """Replace this process by the server. argv: vLLM's --additional-config, then its other options."""
    config = json.loads(argv[0])
    config["tt"]["worker_l1_size"] = tensors_l1_bytes(KERNEL_BYTES)
    line = [sys.executable, *SERVER, "--additional-config", json.dumps(config), *argv[1:]]
    os.execv(sys.executable, line)


if __name__ == "__main__":
    main(sys.argv[1:])
