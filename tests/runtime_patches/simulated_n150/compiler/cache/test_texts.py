# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What is remembered of the sources a unit read: the same as reading them again would tell."""

from __future__ import annotations

import pytest

from runtime_patches.simulated_n150.compiler.cache import store, texts
from tests.runtime_patches.simulated_n150.compiler.cache.compiler_calls import Compiler

pytestmark = pytest.mark.sim
OWN = "#define OWN 2\n"
SOURCE = "tt_metal/hw/late/shared.h"


def test_every_line_with_a_sought_word_is_told_once():
    text = b"int a[NUM_L1_BANKS + LOG_BASE_2_OF_NUM_L1_BANKS];\nint b;\n// PCIE_NOC_X PCIE_NOC_Y\nchar t[] = __TIME__;"
    told = texts.telling_lines(text).split(b"\n")
    assert sorted(told) == sorted(line for line in text.split(b"\n") if line != b"int b;")
    assert texts.telling_lines(b"int b;\n") == b""


@pytest.mark.parametrize("kind", ["package", "overlay"])
def test_facts_are_remembered_until_the_file_changes(tmp_path, kind):
    compiler, table = Compiler(tmp_path), str(tmp_path / "texts" / "known")
    compiler.write(SOURCE, "#define SHARED NUM_L1_BANKS\n")
    overlays = {SOURCE: "#define SHARED NUM_L1_BANKS\n"} if kind == "overlay" else None

    def facts(name, overlays):
        known = texts.Texts(store.Root(str(compiler.root(name, overlays)), str(tmp_path / "roots")), table)
        told = known.facts(f"%ROOT%/{SOURCE}")
        known.save()
        return told

    first = facts("one", overlays)
    assert first == (b"#define SHARED NUM_L1_BANKS", ((b"SHARED", False),), ())
    written = (tmp_path / "texts" / "known").stat().st_ino
    assert facts("two", overlays) == first
    assert (tmp_path / "texts" / "known").stat().st_ino == written, "nothing new was found"
    other = '#define OTHER(n) n\n#include "llk_pack_common.h"\n'
    if kind == "package":
        compiler.write(SOURCE, other)
    assert facts("three", overlays and {SOURCE: other}) == (b"", ((b"OTHER", True),), ("llk_pack_common.h",))
    assert facts("four", overlays) == (first if overlays else facts("five", None))


def test_a_unit_that_finds_all_remembered_is_kept_as_the_first_one(tmp_path):
    """Of a header whose facts are known, the macro of the chip counts, and so does what tells the time."""
    compiler = Compiler(tmp_path)
    compiler.write(SOURCE, "#pragma once\n#define SHARED NUM_L1_BANKS\n")
    root = compiler.root("one")
    _, one = compiler.compile(root, "a", OWN, "-DNUM_L1_BANKS=1")
    outcome, two = compiler.compile(root, "a", OWN, "-DNUM_L1_BANKS=2")
    assert outcome == "plain" and two != one
    assert compiler.compile(root, "b", "#define OWN 3\n", "-DNUM_L1_BANKS=1")[0] == "plain"
    assert compiler.compile(root, "b", "#define OWN 3\n", "-DNUM_L1_BANKS=2")[0] == "plain"
    assert compiler.compile(root, "b", "#define OWN 3\n", "-DNUM_L1_BANKS=2", "-DPCIE_NOC_X=1")[0] == "hit"
    compiler.write(SOURCE, "#pragma once\n#define SHARED __TIME__[0]\n")
    assert [compiler.compile(root, "a", OWN)[0] for _ in range(2)] == ["plain", "plain"]


def test_a_damaged_memory_of_texts_is_made_again(tmp_path):
    compiler = Compiler(tmp_path)
    root = compiler.root("one")
    _, built = compiler.compile(root, "a", OWN)
    known = tmp_path / "toolchain" / "texts" / "known"
    whole = known.read_bytes()
    known.write_bytes(whole[:-1])
    assert compiler.compile(root, "b", OWN + "// b\n") == ("plain", built)
    assert store.read_sealed(str(known)) is not None
