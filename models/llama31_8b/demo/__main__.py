# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m models.llama31_8b.demo`, and the command `llama-alspec`."""

import sys


def main() -> int:
    """The demo's exit code; Ctrl-C while its modules are read ends it as Ctrl-C later does."""
    try:
        from .cli import main as demo
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return demo()


if __name__ == "__main__":
    raise SystemExit(main())
