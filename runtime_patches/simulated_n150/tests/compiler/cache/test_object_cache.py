# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The cache of compiled units: what is found again, across runtime roots, and what must never be."""

from __future__ import annotations

import pytest

from runtime_patches.simulated_n150.tests.compiler.cache.compiler_calls import Compiler

pytestmark = pytest.mark.sim
OWN = "#define OWN 2\n"


@pytest.fixture
def compiler(tmp_path):
    return Compiler(tmp_path)


def test_another_root_finds_the_object_and_its_dependencies_name_that_root(compiler):
    one = compiler.root("one")
    other = compiler.root("other", {"tt_metal/core_descriptors/chip.yaml": "grid"})
    outcome, built = compiler.compile(one, "a", OWN, "-DNUM_L1_BANKS=1")
    assert outcome == "plain" and b"answer" in built
    assert compiler.compile(other, "b", OWN, "-DNUM_L1_BANKS=64") == ("hit", built)
    depends = (compiler.unit("b", OWN) / "kernel.d").read_text()
    assert f"{other}/tt_metal/hw/late/shared.h" in depends and str(one) not in depends
    assert depends.startswith(f"{compiler.unit('b', OWN)}/kernel.o:")


def test_a_changed_header_or_option_is_compiled(compiler):
    root = compiler.root("one")
    _, first = compiler.compile(root, "a", OWN)
    outcome, generated = compiler.compile(root, "a", "#define OWN 3\n")
    assert outcome == "plain" and generated != first
    compiler.write("tt_metal/hw/late/shared.h", "#pragma once\n#define SHARED 50\n")
    outcome, package = compiler.compile(root, "a", OWN)
    assert outcome == "plain" and package not in (first, generated)
    outcome, overlay = compiler.compile(
        compiler.root("two", {"tt_metal/hw/late/shared.h": "#define SHARED 60\n"}), "a", OWN
    )
    assert outcome == "plain" and overlay not in (first, generated, package)
    outcome, option = compiler.compile(root, "a", "", "-DOWN=2")
    assert outcome == "plain" and option == package
    assert compiler.compile(root, "a", "", "-DOWN=9")[0] == "plain"
    assert compiler.compile(root, "a", OWN, "-O1")[0] == "plain"
    assert compiler.compile(root, "a", OWN) == ("hit", package)


def test_a_kernels_own_header_counts_by_its_content(compiler, tmp_path):
    own, root = tmp_path / "own.h", compiler.root("one")
    include = f'#include "{own}"\n'
    own.write_text("#define OWN 1\n")
    _, first = compiler.compile(root, "a", include)
    own.write_text("#define OWN 2\n")
    outcome, second = compiler.compile(root, "a", include)
    assert outcome == "plain" and second != first
    own.write_text("#define OWN 1\n")
    assert compiler.compile(root, "a", include) == ("hit", first)
    own.unlink()
    unit = compiler.unit("a", include)
    failed = compiler.start(compiler.arguments(root, unit), unit)
    assert "own.h" in failed.communicate()[1] and failed.returncode


def test_a_macro_of_the_chip_counts_where_it_is_used(compiler):
    root, own = compiler.root("one"), "#define OWN NUM_L1_BANKS\n"
    _, one = compiler.compile(root, "a", own, "-DNUM_L1_BANKS=1")
    outcome, two = compiler.compile(root, "a", own, "-DNUM_L1_BANKS=2")
    assert outcome == "plain" and two != one
    assert compiler.compile(root, "b", own, "-DNUM_L1_BANKS=1", "-DPCIE_NOC_X=3") == ("hit", one)
    # As a chip has it that is part of a fabric.
    fabric = ("-DROUTING_MODE=137", "-DFABRIC_1D_PKT_HDR_EXTENSION_WORDS=0")
    assert compiler.compile(root, "b", own, "-DNUM_L1_BANKS=1", *fabric) == ("hit", one)
    absent = "#ifdef NUM_L1_BANKS\n#define OWN 1\n#else\n#define OWN 2\n#endif\n"
    assert compiler.compile(root, "c", absent)[1] != compiler.compile(root, "c", absent, "-DNUM_L1_BANKS=1")[1]


def test_the_length_of_an_array_counts_where_machine_code_names_it(compiler):
    """The tables of banks are such arrays, which all units see declared."""
    root, declared = compiler.root("one"), "// NUM_L1_BANKS long\nextern int table[2][NUM_L1_BANKS];\n"
    unused = declared + "#define OWN 2\n"
    _, built = compiler.compile(root, "a", unused, "-DNUM_L1_BANKS=1")
    assert compiler.compile(root, "a", unused, "-DNUM_L1_BANKS=2") == ("hit", built)
    used = declared + "#define OWN table[1][0]\n"
    _, one = compiler.compile(root, "b", used, "-DNUM_L1_BANKS=1")
    outcome, two = compiler.compile(root, "b", used, "-DNUM_L1_BANKS=2")
    assert outcome == "plain" and two != one
    otherwise = unused + "constexpr int banks = NUM_L1_BANKS;\n"
    compiler.compile(root, "c", otherwise, "-DNUM_L1_BANKS=1")
    assert compiler.compile(root, "c", otherwise, "-DNUM_L1_BANKS=2")[0] == "plain"
    # A data-movement core's unit is bytecode, which may name what its machine code does not, and the other way round.
    compiler.compile(root, "d", unused, "-DNUM_L1_BANKS=1", core="tt-wh")
    assert compiler.compile(root, "d", unused, "-DNUM_L1_BANKS=2", core="tt-wh")[0] == "plain"


def test_a_new_file_that_would_be_found_first_is_seen(compiler):
    _, first = compiler.compile(compiler.root("one"), "a", OWN)
    hiding = compiler.root("two", {"tt_metal/hw/inc/shared.h": "#define SHARED 1\n"})
    outcome, second = compiler.compile(hiding, "a", OWN)
    assert outcome == "plain" and second != first
    assert compiler.compile(compiler.root("three", {"tt_metal/hw/inc/other.h": ""}), "a", OWN) == (
        "hit",
        first,
    )


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 4000])
def test_a_damaged_entry_is_built_again(compiler, damage):
    root = compiler.root("one")
    _, built = compiler.compile(root, "a", OWN)
    for entry in compiler.entries():
        kept = entry.read_bytes()
        entry.write_bytes(damage or kept[:-1] + bytes([kept[-1] ^ 1]))
        assert compiler.compile(root, "a", OWN) == ("plain", built), entry
        assert compiler.compile(root, "a", OWN) == ("hit", built), entry


def test_writers_at_once_leave_a_whole_entry(compiler):
    root = compiler.root("one")
    units = [compiler.unit(f"k{n}", OWN) for n in range(4)]
    processes = [compiler.start(compiler.arguments(root, unit), unit) for unit in units]
    assert [process.wait() for process in processes] == [0] * 4
    objects = {(unit / "kernel.o").read_bytes() for unit in units}
    assert len(objects) == 1 and compiler.compile(root, "last", OWN) == ("hit", *objects)
    assert not [e for e in compiler.entries() if "." in e.name], "no draft is left"


def test_what_tells_the_time_is_not_kept(compiler):
    root, own = compiler.root("one"), "#define OWN __TIME__[0]\n"
    assert [compiler.compile(root, "a", own)[0] for _ in range(2)] == ["plain", "plain"]


def test_a_link_is_known_by_the_content_of_what_it_names(compiler, tmp_path):
    root = compiler.root("one", {"tt_metal/kernel.ld": "SECTIONS { .text : { *(.text*) } }\n"})
    outcomes = []
    for name, own in (("a", OWN), ("b", OWN), ("c", "#define OWN 3\n")):
        compiler.compile(root, name, own)
        unit = compiler.unit(name, own)
        arguments = [
            "-O3",
            "-mcpu=tt-wh-tensix",
            "-nostartfiles",
            f"-T{root}/tt_metal/kernel.ld",
            "-Wl,-e,_Z6answerv",
            str(unit / "kernel.o"),
            "-o",
            str(unit / "kernel.elf"),
        ]
        elf = unit / "kernel.elf"
        outcomes.append((compiler.call(arguments, unit), elf.read_bytes(), elf.stat().st_mode & 0o111))
    assert [outcome for outcome, _, _ in outcomes] == ["plain", "hit", "plain"]
    assert outcomes[0][1:] == outcomes[1][1:] and outcomes[0][1] != outcomes[2][1] and outcomes[0][2]


def test_the_runtimes_own_precompiled_header_is_made_once(compiler):
    """It has no root: its text and its options are all there is to it."""
    made = []
    for n, (name, option) in enumerate((("a", "-O3"), ("b", "-O3"), ("c", "-O2"))):
        unit = compiler.unit(name, OWN)
        (unit / "pch.h").write_text("#pragma once\n#include <cstdint>\n")
        arguments = [
            "-x",
            "c++-header",
            option,
            "-mcpu=tt-wh",
            str(unit / "pch.h"),
            "-o",
            str(unit / f"{n}.gch"),
        ]
        made.append((compiler.call(arguments, unit), (unit / f"{n}.gch").read_bytes()))
    assert [outcome for outcome, _ in made] == ["plain", "hit", "plain"] and made[0][1] == made[1][1]


def test_without_a_cache_that_can_be_written_it_compiles_and_says_so(compiler):
    root, unit = compiler.root("one"), compiler.unit("a", OWN)
    (compiler.folder / "toolchain" / "objects").write_text("in the way")
    process = compiler.start(compiler.arguments(root, unit), unit)
    errors = process.communicate()[1]
    assert process.returncode == 0 and (unit / "kernel.o").is_file()
    assert "warning: compiled without the cache of objects: " in errors and "objects/roots" in errors
