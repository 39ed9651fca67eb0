# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Apply the mutations of table.txt one by one to a copy of the sources, and run the tests that must find each.

    python -m tests.mutations                    all that are not known as caught for these very sources
    python -m tests.mutations --again NAME ...   those whose names contain one of the words, whatever is known

Each is found to be caught, not caught, skipped (its tests did not run here), broken (pytest itself failed) or out of
time; or it does not apply (its text is not once in its file). Exits 1 unless all are caught. What is caught is kept in
the cache folder by the contents of the mutated file and of the tests, so an interrupted run goes on where it was.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from runtime_patches.board.command_line import OneLineParser, run_command
from runtime_patches.board.runtime_root import project_cache_dir

ROOT = Path(__file__).resolve().parents[2]
CAUGHT, DOES_NOT_APPLY = "caught", "does not apply"
ENDINGS = {1: CAUGHT, 0: "not caught"}


class Mutation(NamedTuple):
    """name: for the command line. file: from the root of the repository. tests: ids for pytest; one of them must fail
    once `replacement` stands in the place of `text`."""

    name: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]


def read(table: Path) -> list[Mutation]:
    """Return the entries of a table: a line in brackets for each file, then a name, "- text", "+ replacement" and a
    "> test" for each test."""
    found: list[Mutation] = []
    file = ""
    for line in table.read_text(encoding="utf-8").splitlines():
        kind, value = line[:2], line[2:]
        if line.startswith("["):
            file = line.strip("[]")
        elif kind == "- ":
            found[-1] = found[-1]._replace(text=value)
        elif kind == "+ ":
            found[-1] = found[-1]._replace(replacement=value)
        elif kind == "> ":
            found[-1] = found[-1]._replace(tests=(*found[-1].tests, value))
        elif line and kind != "# ":
            found.append(Mutation(line, file, "", "", ()))
    return found


MUTATIONS = read(Path(__file__).with_name("table.txt"))


def applies(mutation: Mutation, root: Path = ROOT) -> bool:
    """Return whether the mutation's text occurs once in its file."""
    path = root / mutation.file
    return path.is_file() and path.read_text(encoding="utf-8").count(mutation.text) == 1


def copy_sources(to: Path) -> None:
    """Copy what git tracks or would track, with the changes of the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and ((ROOT / name).is_file() or (ROOT / name).is_symlink()):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)


def outcome(mutation: Mutation, copy: Path, timeout_s: float) -> str:
    """Run the tests of a mutation in `copy`, whose file is as before afterwards."""
    if not applies(mutation, copy):
        return DOES_NOT_APPLY
    path = copy / mutation.file
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(mutation.text, mutation.replacement), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    log = copy.with_suffix(".log")
    try:
        with log.open("w") as out:
            done = subprocess.run(
                command, cwd=copy, env=environment, stdout=out, stderr=subprocess.STDOUT, timeout=timeout_s, check=False
            )
    except subprocess.TimeoutExpired:
        return f"out of time after {timeout_s:g} s"
    finally:
        path.write_text(before, encoding="utf-8")
    summary = log.read_text(errors="replace").strip().rpartition("\n")[2]
    if done.returncode == 0 and " passed" not in summary:
        return f"skipped: {summary}"
    return ENDINGS.get(done.returncode, f"broken: pytest ended with {done.returncode}: {summary}")


def key_of(mutation: Mutation) -> str:
    """Return a digest of the mutation, of the file it changes and of the files of its tests."""
    digest = hashlib.sha256(repr(mutation).encode())
    for name in (mutation.file, *(test.partition("::")[0] for test in mutation.tests)):
        digest.update((ROOT / name).read_bytes() if (ROOT / name).is_file() else b"")
    return digest.hexdigest()


def main(arguments: list[str] | None = None) -> int:
    parser = OneLineParser(prog="python -m tests.mutations", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="words of the mutations' names; default: all")
    parser.add_argument("--again", action="store_true", help="also those that are known to be caught")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="seconds for each (%(default)g)")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1, help="how many at once (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    given = parser.parse_args(arguments)
    chosen = [m for m in MUTATIONS if not given.names or any(name in m.name for name in given.names)]
    if given.list or not chosen:
        print("\n".join(m.name for m in MUTATIONS))
        return 0 if given.list else 2

    known = project_cache_dir() / "mutations"
    known.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder, ThreadPoolExecutor(given.jobs) as pool:
        copies: Queue[Path] = Queue()
        for number in range(given.jobs):
            copies.put(Path(folder) / str(number))
            copy_sources(Path(folder) / str(number))

        def run(mutation: Mutation) -> str:
            key = known / key_of(mutation)
            if not given.again and key.is_file():
                found = CAUGHT
            else:
                copy = copies.get()
                try:
                    found = outcome(mutation, copy, given.timeout)
                finally:
                    copies.put(copy)
                if found == CAUGHT:
                    key.write_text(mutation.name)
            print(f"{found}: {mutation.name}", flush=True)
            return found

        endings = list(pool.map(run, chosen))
    print(f"{endings.count(CAUGHT)} of {len(endings)} mutations are caught")
    return 0 if all(ending == CAUGHT for ending in endings) else 1


if __name__ == "__main__":
    raise SystemExit(run_command("python -m tests.mutations", main))
