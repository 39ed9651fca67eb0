# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Precompiled headers of kernel units: used where they change nothing, and never elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from runtime_patches.simulated_n150.compiler import driver, toolchain
from runtime_patches.simulated_n150.compiler.cache import kernel_headers, texts
from tests.runtime_patches.simulated_n150.compiler.cache.compiler_calls import SOURCE, WANTED, Compiler

pytestmark = pytest.mark.sim
CORE = "-DCOMPILE_FOR_TRISC=1"
UNPACKING = "-DCOMPILE_FOR_TRISC=0"
# Of units of kernels, besides what SUPPORT_INCLUDES names.
INCLUDES = (
    "runtime/sfpi/include",
    "tt_metal/hostdevcommon/api",
    "tt_metal/tt-llk/common",
    "tt_metal/tt-llk/tools/include",
    "tt_metal/hw/ckernels/wormhole_b0/metal/llk_api",
)
MACROS = (
    "KERNEL_BUILD",
    "TENSIX_FIRMWARE",
    "ARCH_WORMHOLE",
    "PROCESSOR_INDEX=0",
    "PROGRAMMABLE_CORE_TYPE=0",
    "LOCAL_MEM_EN=0",
    "NOC_INDEX=0",
    "NOC_MODE=0",
)
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


def make(compiler, root, core=CORE):
    """Compile units until their header is precompiled."""
    for n in range(WANTED):
        assert not compiler.precompiled()
        compiler.compile(root, "making", f"#define OWN {100 + n}\n", core, "-DKERNEL_BUILD")
    (made,) = compiler.precompiled()
    return made


def test_units_enough_make_it_and_objects_stay_equal(compiler):
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
    compiler.write("tt_metal/hw/inc/ckernel.h", f"#pragma once\nconstexpr int later(int n) {{ return n; }}\n{HEADER}")
    compiler.write("tt_metal/hw/inc/ckernel_globals.h", "#pragma once\nconstexpr int early(int n) { return n; }\n")
    compiler.write(
        SOURCE,
        '#include "ckernel_globals.h"\n#include "generated.h"\n#include "ckernel.h"\n'
        "int answer() { return SHARED + OWN + asked; }\n",
    )
    without = plain(compiler, root, own, CORE, *options)
    make(compiler, root)
    assert compiler.compile(root, "kernel", own, CORE, "-DKERNEL_BUILD", *options) == ("plain", without)
    assert compiler.compile(root, "other", "#define OWN 5\n", CORE, "-DKERNEL_BUILD")[0] == "precompiled"


def test_every_macro_that_a_source_defines_is_found():
    none = b"//#define no\n#defined no\nx #define no\n#define\n"
    text = b"#define A\n # undef\tB_1 2\n" + none + b"\t#\tdefine F(n) n\n#define G (1)"
    found = texts.defined_macros(text)
    assert sorted(found) == [(b"A", False), (b"B_1", False), (b"F", True), (b"G", False)]


def test_roots_share_it_where_they_read_the_same(compiler):
    """Another replaced header is no reason to make it again, unless it could be found in the place of one it holds."""
    root, own, build = compiler.root("one"), "#define OWN 2\n", (CORE, "-DKERNEL_BUILD")
    made = make(compiler, root)
    elsewhere = compiler.root("two", {"tt_metal/hw/inc/unrelated.h": ""})
    assert compiler.compile(elsewhere, "a", own, *build)[0] == "precompiled"
    assert compiler.precompiled() == [made]
    hiding = compiler.root("three", {"tt_metal/hw/inc/early/ckernel.h": ""})
    assert compiler.compile(hiding, "b", own, *build, "-DNAMED")[0] == "plain"


def test_a_unit_that_its_own_source_disturbs_is_compiled_once(compiler, tmp_path):
    """Told from the kernel's source, which the runtime includes by an absolute path, before GCC starts."""
    starts, counted = tmp_path / "starts", tmp_path / "counted"
    starts.touch()
    counted.write_text(f'#!/bin/sh\necho >> {starts}\nexec {driver.COMPILER} "$@"\n')
    counted.chmod(0o755)
    compiler.driver.write_text(compiler.driver.read_text().replace(driver.COMPILER, str(counted)))
    root = compiler.root("one")
    make(compiler, root)
    kernel = tmp_path / "kernel.cpp"
    kernel.write_text("#define LATE\n")
    own = f'#define OWN 2\n#include "{kernel}"\n'
    (compiler.unit("kernel", own).parent / "kernel_includes.hpp").write_text(f'#include "{kernel}"\n')
    before = len(starts.read_text())
    assert compiler.compile(root, "kernel", own, CORE, "-DKERNEL_BUILD")[0] == "plain"
    assert len(starts.read_text()) - before == 1


@pytest.mark.parametrize(
    ("include", "outcome"),
    [
        ("", "plain"),
        ("#ifdef ABSENT\n{}#endif\n", "plain"),
        ("{}", "precompiled"),
        ("#if OWN\n#endif\n{}", "precompiled"),
    ],
    ids=["absent", "conditional", "included", "after a condition"],
)
def test_a_function_lands_in_units_that_include_it_only(compiler, include, outcome):
    """A function that is neither static nor inline is in the object of whatever reads it."""
    compiler.headers_of(UNPACKING, HEADER)
    compiler.write("tt_metal/hw/inc/llk_unpack_common.h", "#pragma once\nint emitted(int n) { return n; }\n")
    compiler.write("tt_metal/hw/inc/ckernel_globals.h", "#pragma once\nconstexpr int early(int n) { return n; }\n")
    compiler.write(
        SOURCE,
        '#include "ckernel_globals.h"\n#include "generated.h"\n#include "ckernel.h"\n'
        "int answer() { return SHARED + OWN + asked; }\n",
    )
    own = "#define OWN 2\n" + include.format('#include "llk_unpack_common.h"\n')
    root = compiler.root("one")
    without = plain(compiler, root, own, UNPACKING)
    make(compiler, root, UNPACKING)
    assert compiler.compile(root, "kernel", own, UNPACKING, "-DKERNEL_BUILD") == (outcome, without)
    assert (b"emitted" in without) == (outcome == "precompiled")


@pytest.mark.parametrize("core", kernel_headers.HEADERS)
def test_the_headers_of_a_core_leave_nothing_in_a_unit_by_being_there(core, tmp_path):
    """But what its own main program has too, which reads those of CORE, and what EMITTING names."""
    from runtime_patches.simulated_n150.environment import simulated_environment

    root = Path(simulated_environment("1x1")["TT_METAL_RUNTIME_ROOT"])
    emitting = kernel_headers.EMITTING.get(core, ())
    thread = {"0": ["-DUCK_CHLKC_UNPACK"], "1": ["-DUCK_CHLKC_MATH"], "2": ["-DUCK_CHLKC_PACK"]}.get(core[-1], [])

    def defined(headers):
        unit = tmp_path / "unit.cc"
        unit.write_text("#include <cstdint>\n" + "".join(f"#include <{name}>\n" for name in headers))
        command = [
            root / "runtime/sfpi/compiler/bin/riscv-tt-elf-g++",
            f"-mcpu={'tt-wh-tensix' if thread else 'tt-wh'}",
            "-O2",
            "-fno-lto",
            *(f"-I{root / name}" for name in (*toolchain.SUPPORT_INCLUDES, *INCLUDES)),
            core,
            *thread,
            *(f"-D{macro}" for macro in MACROS),
            "-S",
            "-o",
            "-",
            unit,
        ]
        made = subprocess.run(command, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        return set(re.findall(r"^([A-Za-z_]\w*):", made.stdout, re.MULTILINE))

    assert defined(kernel_headers.HEADERS[core]) == defined([*kernel_headers.CORE, *emitting])
    assert not emitting or defined(emitting) - defined(kernel_headers.CORE)


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
    compiler.headers_of(CORE, '#ifndef OWN\n#error "comes too early"\n#endif\n#define SHARED 1\nconst int asked = 1;')
    root = compiler.root("one")
    for n in range(WANTED + 1):
        assert compiler.compile(root, "kernel", f"#define OWN {n}\n", CORE, "-DKERNEL_BUILD")[0] == "plain"
    assert not compiler.precompiled()
