# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run what is plain C++ in our kernels on this machine, case by case."""

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_header(folder: Path, header: str, reads: int, body: str, cases: Iterable[Sequence[int]]) -> list[list[int]]:
    """Return the numbers that `body` prints for each case, one line each.

    folder: for the program. header: below the root. body: statements that find the first `reads` numbers of a case,
    unsigned 64-bit, in in[], and may scan more. Skips where there is no C++ compiler.
    """
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler for this machine")
    source, program = folder / "program.cpp", folder / "program"
    source.write_text(
        f"""
        #include <cstdint>
        #include <cstdio>
        #include "{header}"
        using Number = unsigned long long;
        int main() {{
            Number in[{reads}];
            while (true) {{
                for (Number& number : in) if (std::scanf("%llu", &number) != 1) return 0;
                {body}
                std::printf("\\n");
            }}
        }}
        """
    )
    includes = [f"-I{ROOT}", f"-I{(ROOT / header).parent}"]
    subprocess.run(["g++", "-std=c++20", "-O1", "-Wall", *includes, str(source), "-o", str(program)], check=True)
    given = "\n".join(" ".join(map(str, case)) for case in cases)
    printed = subprocess.run([program], input=given, capture_output=True, text=True, check=True).stdout
    return [[int(number) for number in line.split()] for line in printed.splitlines()]
