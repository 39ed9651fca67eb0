# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m runtime_patches.sgdc apply|check|where [--root PATH]``.

apply   without --root: build a runtime root over the installed ttnn, unless it is there;
        with --root: patch that tt-metal source checkout in place, or complete what was interrupted.
        Prints the variable that names what was patched.
check   whether --root (default: the runtime in use) carries the patch; exit status 1 if not.
where   the runtime in use, and the patched root over the installed ttnn (built if it was not).

Exit status 2 when the command could not do its work.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from runtime_patches import sgdc
from runtime_patches.board.command_line import OneLineParser, run_command
from runtime_patches.board.runtime_root import RuntimeRootError


def main(argv: list[str] | None = None) -> int:
    parser = OneLineParser(
        prog="python -m runtime_patches.sgdc",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("command", choices=("apply", "check", "where"))
    parser.add_argument("--root", type=Path, help="a tt-metal source checkout or a runtime root")
    options = parser.parse_args(argv)
    try:
        return {"apply": _apply, "check": _check, "where": _where}[options.command](options.root)
    except (ValueError, RuntimeRootError, sgdc.StubMismatchError) as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {options.command} was not completed: {error}", file=sys.stderr)
    return 2


def _apply(root: Path | None) -> int:
    if root is None:
        root = sgdc.build_patched_root()
    else:
        written = sgdc.apply_to_checkout(root)
        print("\n".join(f"patched {root / path}" for path in written) or f"{root} is patched already")
    print(f"export TT_METAL_RUNTIME_ROOT={shlex.quote(str(root.absolute()))}")
    return 0


def _check(root: Path | None) -> int:
    root = sgdc.runtime_in_use() if root is None else root
    print(sgdc.describe(root))
    return 0 if sgdc.state(root) is sgdc.GateState.PATCHED else 1


def _where(root: Path | None) -> int:
    in_use = sgdc.runtime_in_use() if root is None else root
    print(f"in use   {sgdc.describe(in_use)}")
    print(f"patched  {sgdc.build_patched_root()}")
    return 0


if __name__ == "__main__":
    sys.exit(run_command("python -m runtime_patches.sgdc", main))
