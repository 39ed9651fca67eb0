# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--plan simple|fast`, the former name of `--decode-sharding interleaved|sharded`, for one more release."""

from __future__ import annotations

import argparse
import sys

RENAMED = {"simple": "interleaved", "fast": "sharded"}


class PlanOption(argparse.Action):
    """Store the values of --plan as --decode-sharding's, and say so on standard error. A value that was never one of
    --plan's is stored as it is, for whoever checks the option."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        given = [values] if isinstance(values, str) else list(values)
        new = [RENAMED.get(value, value) for value in given]
        print(
            f"{option_string} {' '.join(given)} is now --decode-sharding {' '.join(new)}; the old name and values go "
            "away after this release",
            file=sys.stderr,
        )
        setattr(namespace, self.dest, new[0] if isinstance(values, str) else new)


def add_plan_option(parser: argparse.ArgumentParser | argparse._ArgumentGroup, **options) -> None:
    """Add the former option, not shown by --help. options: as for `add_argument`, such as nargs."""
    parser.add_argument(
        "--plan",
        dest="decode_sharding",
        action=PlanOption,
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
        **options,
    )
