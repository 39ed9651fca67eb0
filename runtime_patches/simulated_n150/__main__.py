# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m runtime_patches.simulated_n150 doctor`` and ``... run [--grid WxH] [--mesh RxC] -- command``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from runtime_patches.simulated_n150 import doctor, environment
from runtime_patches.simulated_n150.board.command_line import OneLineParser, run_command
from runtime_patches.simulated_n150.dispatch import DISPATCHES

SUITE_CACHE_GB = 3


def main(argv: list[str] | None = None) -> int:
    parser = OneLineParser(prog="python -m runtime_patches.simulated_n150", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("doctor", help="say what is found, what is missing, and the line that fixes it")
    check.add_argument("--json", action="store_true", help="print the findings as JSON")
    check.add_argument("--install", action="store_true", help="install missing Debian packages if this user may")
    library_help = "a ttsim library (libttsim_wh.so) in place of the project's simulator: one chip, faster, no cycles"
    check.add_argument("--simulator", metavar="PATH", help=library_help)
    run = commands.add_parser("run", help="run a ttnn program on the simulated chip or on a mock mesh")
    where = run.add_mutually_exclusive_group()
    run.add_argument("--grid", metavar="WxH", help="compute cores of a chip, columns x rows (default 1x1)")
    where.add_argument(
        "--mesh",
        metavar="RxC",
        help="several simulated chips joined by Ethernet: 1x2, 2x1, 2x2, 1x4, 2x4, 1x8",
    )
    where.add_argument("--mock", metavar="RxC", help="a mesh of N150 that compiles but does not execute: 1x2, 2x4, ...")
    run.add_argument(
        "--stock-kernels",
        choices=environment.STOCK_KERNELS,
        help="on a mock mesh: empty kernels in place of ttnn's own, which is faster (default), or ttnn's own, compiled",
    )
    run.add_argument(
        "--dispatch",
        choices=DISPATCHES,
        default="slow",
        help="slow: the host launches each program (default); fast: command queues on the chip, and traces",
    )
    run.add_argument(
        "--patch",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module whose overlays() gives files to replace in the runtime, {path: bytes or Path}; may be repeated",
    )
    run.add_argument("--simulator", metavar="PATH", help=library_help)
    run.add_argument("--timeout", type=float, metavar="S", help="end the program after S seconds")
    run.add_argument("program", nargs=argparse.REMAINDER, help="-- and the command line of the program")
    options = parser.parse_args(argv)
    if options.command == "doctor":
        return _doctor(options)
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        run.error("name the program to run, after --")
    if options.mock and options.dispatch != "slow":
        run.error(f"--dispatch {options.dispatch} is for the simulated chip; a mock mesh executes nothing")
    if options.mock and options.grid:
        run.error("a mock mesh has whole chips: --grid is for simulated ones")
    if options.simulator and (options.mesh or options.mock):
        run.error("--simulator is for one chip: a ttsim library opens no fabric between two, and executes no mock mesh")
    if options.stock_kernels and not options.mock:
        run.error("--stock-kernels is for a mock mesh: what a simulated chip executes is always compiled")
    if options.timeout is not None and options.timeout <= 0:
        run.error(f"--timeout is a number of seconds above 0, not {options.timeout:g}")
    return _run(options, program)


def _doctor(options: argparse.Namespace) -> int:
    if options.install:
        doctor.install_packages()
    found = doctor.findings(options.simulator)
    modes = (doctor.LIBRARY,) if options.simulator else doctor.MODES
    ready = not any(doctor.why_not(mode, found) for mode in modes)
    disk = doctor.disk()
    if options.json:
        print(json.dumps(doctor.as_json(found) | {"disk": disk}, indent=1))
    else:
        print(doctor.as_table(found))
        cache, free = (f"{disk[name] / 1e9:.1f} GB" for name in ("cache", "free"))
        print(f"disk: the cache takes {cache}, {free} are free; the whole test suite fills it with {SUITE_CACHE_GB} GB")
    return 0 if ready else 1


def _overlays_of(module: str) -> Mapping[str, Path | bytes]:
    """Return the overlays of a module that --patch names. Raises ValueError when it has none."""
    try:
        return importlib.import_module(module).overlays()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--patch {module}: {error}") from error


def _run(options: argparse.Namespace, program: list[str]) -> int:
    # A program that is missing, or a part of the chip, is reported before anything is built.
    mode = doctor.MOCK_MESH if options.mock else doctor.LIBRARY if options.simulator else doctor.SIMULATOR
    if reason := doctor.why_not(mode, doctor.findings(options.simulator)):
        print(f"cannot run: {reason}", file=sys.stderr)
        return 1
    from runtime_patches.simulated_n150.board.runtime_root import RuntimeRootError, merge_overlays
    from runtime_patches.simulated_n150.clusters import parse_shape
    from runtime_patches.simulated_n150.library import check_library

    try:
        overlays = merge_overlays(**{name: _overlays_of(name) for name in options.patch})
        if options.mock:
            if options.stock_kernels and (sfpi := environment.real_sfpi()):
                raise ValueError(
                    f"--stock-kernels is for the stand-in compiler; the SFPI in {sfpi} compiles all kernels"
                )
            stock = options.stock_kernels or environment.STOCK_KERNELS[0]
            variables = environment.mock_environment(parse_shape(options.mock), overlays, stock_kernels=stock)
        else:
            mesh = parse_shape(options.mesh) if options.mesh else None
            variables = environment.simulated_environment(
                options.grid or "1x1",
                overlays,
                mesh=mesh,
                dispatch=options.dispatch,
                library=check_library(options.simulator) if options.simulator else None,
            )
    except (ValueError, RuntimeRootError) as error:
        print(f"cannot run: {error}", file=sys.stderr)
        return 1
    try:
        process = subprocess.Popen(
            program,
            env=environment.process_environment(variables),
            start_new_session=options.timeout is not None,
        )
    except OSError as error:
        print(f"cannot run {shlex.join(program)}: {error.strerror}", file=sys.stderr)
        return 127
    try:
        code = process.wait(options.timeout)
    except subprocess.TimeoutExpired:
        print(f"{shlex.join(program)} did not end within {options.timeout:g} s: stopped", file=sys.stderr)
        os.killpg(process.pid, signal.SIGKILL)  # the simulator runs in the program's session
        process.wait()
        return 124
    except KeyboardInterrupt:
        process.wait()
        return 130
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(run_command("python -m runtime_patches.simulated_n150", main))
