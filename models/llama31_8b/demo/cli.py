# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The demo: show text for a prompt as it comes, or chat, and report how often attention-level speculation hit.

`llama-alspec --help`; exit codes: 0 done, 2 a request that cannot be met (one line says why), 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loguru import logger

from runtime_patches.board.command_line import log_to_stderr, run_command

from ..config import ContextLengthError, ModelLoadError
from .options import AUTO, PROG, DemoOptions, UserError, parse, with_attention


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo with these arguments (default: the command line's); return the exit code."""
    log_to_stderr()
    refusals = (UserError, ModelLoadError, ContextLengthError)
    return run_command(PROG, lambda: _run(parse(argv)), refusals)


def _run(options: DemoOptions) -> int:
    """Choose the backend, check what it refuses, and run it; each backend is read only when it runs."""
    if options.device == AUTO:
        from .backends.n150 import choose_device

        device, why = choose_device()
        options = replace(options, device=device)
        logger.info("--device {}: {}", device, why)
    texts, request = None, None
    if options.device == "sim":
        from .backends import sim

        options = sim.with_defaults(options)
    elif options.device == "n150" and options.mesh == AUTO:
        from .backends.n150 import with_mesh

        texts = options.prompt_texts()
        options, request = with_mesh(options, texts)
    options = with_attention(options)
    options.check_device()
    if options.device == "sim":
        return sim.run(options)
    if request is None:
        texts = options.prompt_texts()
    if options.device == "cpu":
        from .backends import cpu

        return cpu.run(options, texts)
    from .backends import n150

    return n150.run(options, texts, request)
