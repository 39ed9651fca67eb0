# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m models.llama31_8b.demo`, and the command `llama-alspec`: the demo, `hits`, `plan`, `serve`."""

import difflib
import importlib
import os
import sys

# By first argument; any option is the demo's.
COMMANDS = {"hits": "hits", "plan": "plan", "serve": ".serving.cli"}


def main() -> int:
    """Return the exit code; Ctrl-C while modules are read ends a command as it later does."""
    # Torch's threads wait for each other after every product. By default they spin, which starves them where another
    # process has one of the cores: 0.5 tokens/s in place of 32.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    named = sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None
    if named is not None and named not in COMMANDS:
        meant = "".join(f"; did you mean {one}?" for one in difflib.get_close_matches(named, COMMANDS, 1))
        print(f"llama-alspec: error: no command {named!r}{meant} Commands: {', '.join(COMMANDS)}; "
              "a prompt needs --prompt", file=sys.stderr)  # fmt: skip
        return 2
    try:
        command = importlib.import_module(f".{COMMANDS[named] if named else 'cli'}", __package__).main
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return command(sys.argv[2:] if named else sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
