# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Precompiled headers of kernel units: used where they change nothing, and never elsewhere."""

from __future__ import annotations

import pytest

from runtime_patches.simulated_n150.compiler import kernel_headers
from tests.simulated_n150.sfpi.compiler_calls import SOURCE, Compiler

pytestmark = pytest.mark.sim
CORE = "-DCOMPILE_FOR_TRISC=0"
HEADER = "#ifdef LATE\n#define SHARED 7\n#else\n#define SHARED 40\n#endif\nconstexpr int asked = early(1);"
BEFORE = "int early(int);\n"


@pytest.fixture
def compiler(tmp_path):
    made = Compiler(tmp_path)
    made.headers_of(CORE, f"constexpr int early(int n) {{ return n; }}\n{HEADER}")
    made.write(
        SOURCE,
        '#include "generated.h"\n#include "ckernel.h"\nint answer() { return SHARED + OWN + asked; }\n',
    )
    return made


def plain(compiler, root, own, *options):
    """The object of the unit without any precompiled header."""
    outcome, built = compiler.compile(root, "plain", own, *options)
    assert outcome == "plain" and not compiler.precompiled()
    return built


def make(compiler, root):
    """Compile units until their header is precompiled."""
    for n in range(kernel_headers.WANTED):
        assert not compiler.precompiled()
        compiler.compile(root, "making", f"#define OWN {100 + n}\n", CORE, "-DKERNEL_BUILD")
    (made,) = compiler.precompiled()
    return made


def test_the_third_unit_makes_it_and_objects_stay_equal(compiler):
    root, own = compiler.root("one"), "#define OWN 2\n"
    # Firmware takes none; but for that macro, which nothing asks for, it is the same unit.
    without = plain(compiler, root, own, CORE)
    made = make(compiler, root)
    build = (CORE, "-DKERNEL_BUILD")
    assert compiler.compile(root, "kernel", own, *build, "-DNAMED=3") == ("precompiled", without)
    depends = (compiler.unit("kernel", own) / "kernel.d").read_text()
    assert f"{root}/tt_metal/hw/inc/ckernel.h" in depends and "../generated.h" in depends
    # Another root has it too, and its dependencies name its own files.
    other = compiler.root("two", {"tt_metal/core_descriptors/chip.yaml": "grid"})
    assert compiler.compile(other, "kernel", own, *build, "-DNAMED=4") == ("precompiled", without)
    depends = (compiler.unit("kernel", own) / "kernel.d").read_text()
    assert f"{other}/tt_metal/hw/inc/ckernel.h" in depends and f"{root}/" not in depends
    assert compiler.precompiled() == [made]


@pytest.mark.parametrize(
    ("own", "options"),
    [
        ("#define OWN 2\n#define LATE\n", ()),
        ("#define OWN 2\n", ("-DLATE",)),
        ("#define OWN 2\n#  define early(n) 5\n", ()),
    ],
    ids=["a generated header", "the command line", "a macro with arguments"],
)
def test_a_macro_that_a_header_would_have_seen_is_obeyed(compiler, own, options):
    """Each would change the object if the precompiled header, made without it, were taken."""
    root = compiler.root("one")
    compiler.write(
        "tt_metal/hw/inc/ckernel.h", f"#pragma once\nconstexpr int later(int n) {{ return n; }}\n{HEADER}"
    )
    compiler.write(
        "tt_metal/hw/inc/ckernel_globals.h", "#pragma once\nconstexpr int early(int n) { return n; }\n"
    )
    compiler.write(
        SOURCE,
        '#include "ckernel_globals.h"\n#include "generated.h"\n#include "ckernel.h"\n'
        "int answer() { return SHARED + OWN + asked; }\n",
    )
    without = plain(compiler, root, own, CORE, *options)
    make(compiler, root)
    assert compiler.compile(root, "kernel", own, CORE, "-DKERNEL_BUILD", *options) == ("plain", without)
    assert compiler.compile(root, "other", "#define OWN 5\n", CORE, "-DKERNEL_BUILD")[0] == "precompiled"


@pytest.mark.parametrize("where", ["in the package", "in a root"])
def test_a_changed_header_is_precompiled_anew(compiler, where):
    """Of a file of the package by its stamp, at once; of a replaced one by the root, for which units are counted."""
    root, own = compiler.root("one"), "#define OWN 2\n"
    make(compiler, root)
    text = f"#pragma once\nconstexpr int early(int) {{ return 90; }}\n{HEADER}"
    _, before = compiler.compile(root, "kernel", own, CORE, "-DKERNEL_BUILD")
    if where == "in the package":
        compiler.write("tt_metal/hw/inc/ckernel.h", text)
        expected = "precompiled"
    else:
        root, expected = compiler.root("two", {"tt_metal/hw/inc/ckernel.h": text}), "plain"
    outcome, after = compiler.compile(root, "kernel", own, CORE, "-DKERNEL_BUILD")
    assert outcome == expected and after != before


def test_headers_gcc_refuses_leave_units_as_they_were(compiler):
    compiler.headers_of(
        CORE, '#ifndef OWN\n#error "comes too early"\n#endif\n#define SHARED 1\nconst int asked = 1;'
    )
    root = compiler.root("one")
    for n in range(kernel_headers.WANTED + 1):
        assert compiler.compile(root, "kernel", f"#define OWN {n}\n", CORE, "-DKERNEL_BUILD")[0] == "plain"
    assert not compiler.precompiled()
