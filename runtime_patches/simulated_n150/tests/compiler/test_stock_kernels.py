# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Empty kernels in the place of ttnn's own, where nothing is executed, and never in the place of another."""

from __future__ import annotations

import subprocess

import pytest

from runtime_patches.simulated_n150.compiler import driver
from runtime_patches.simulated_n150.tests.compiler.cache.compiler_calls import Compiler

pytestmark = pytest.mark.sim
OWN = "#define OWN 2\n"
STOCK = "ttnn/cpp/kernels/reader.cpp"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    monkeypatch.setenv(driver.EMPTY_STOCK_KERNELS, "1")
    made = Compiler(tmp_path)
    made.write(STOCK, "void kernel_main() {}\n")
    return made


def including(compiler, name: str, *sources) -> None:
    """What the runtime writes beside a unit of the kernel `name` with these sources."""
    text = "void kernel_main();\n" + "".join(f'#include "{source}"\n' for source in sources)
    (compiler.unit(name, OWN).parent / "kernel_includes.hpp").write_text(text)


@pytest.mark.parametrize("core", ["tt-wh-tensix", "tt-wh"])
def test_a_stock_kernel_is_empty_and_links(compiler, core):
    root = compiler.root("one")
    including(compiler, "a", root / STOCK)
    outcome, built = compiler.compile(root, "a", OWN, core=core)
    unit = compiler.unit("a", OWN)
    assert outcome == "empty" and b"kernel_launch" in built and b"answer" not in built
    assert (unit / "kernel.d").read_text().startswith(f"{unit / 'kernel.o'}: ")
    script, linked = root / "kernel.ld", unit / "kernel.elf"
    script.write_text("ENTRY(_start)\nSECTIONS { .text 0x1000 : { *(.start) } }\n")
    arguments = [
        "-O3",
        f"-mcpu={core}",
        "-nostartfiles",
        "-Wl,-z,max-page-size=16",
        "-Wl,--emit-relocs",
        f"-T{script}",
        str(unit / "kernel.o"),
        "-o",
        str(linked),
    ]
    assert compiler.call(arguments, unit) == "empty"
    header = subprocess.run(["readelf", "-h", linked], capture_output=True, text=True, check=True).stdout
    assert "0x1000" in header and "RISC-V" in header


def test_a_kernel_from_elsewhere_is_compiled(compiler, tmp_path):
    root, own = compiler.root("one"), tmp_path / "own.cpp"
    own.write_text("void kernel_main() {}\n")
    including(compiler, "ours", own)
    including(compiler, "mixed", root / STOCK, own)
    including(compiler, "neighbour", f"{root}_of_another/{STOCK}")
    including(compiler, "of a math core", root / STOCK)
    (compiler.unit("of a math core", OWN).parent / "chlkc_math.cpp").write_text(f'#include "{own}"')
    for name in ("ours", "mixed", "neighbour", "of a math core", "text alone"):
        outcome, built = compiler.compile(root, name, f"{OWN}// {name}\n")
        assert outcome == "plain" and b"answer" in built, name


def test_an_error_in_a_kernel_from_elsewhere_is_found(compiler, tmp_path):
    root = compiler.root("one")
    including(compiler, "ours", tmp_path / "own.cpp")
    unit = compiler.unit("ours", "#error wrong\n")
    process = compiler.start(compiler.arguments(root, unit), unit)
    assert "wrong" in process.communicate()[1] and process.returncode != 0


def test_without_being_asked_all_are_compiled(compiler, monkeypatch):
    monkeypatch.delenv(driver.EMPTY_STOCK_KERNELS)
    root = compiler.root("one")
    including(compiler, "a", root / STOCK)
    assert compiler.compile(root, "a", OWN)[0] == "plain"
