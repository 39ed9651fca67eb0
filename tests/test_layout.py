# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Imports run one way, in no circle; tests mirror the sources and lean on no other test; docstrings are sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import layout

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def edges():
    return layout.imports(layout.modules(ROOT))


def test_no_import_runs_the_wrong_way(edges):
    assert len(edges) > 100, "the sources were not found"
    assert layout.wrong_arrows(edges) == []


def test_no_imports_in_a_circle(edges):
    assert layout.circles(edges) == []


def test_no_test_imports_another_or_edits_the_path():
    known = layout.modules(ROOT, ("tests",))
    assert len(known) > 50
    wrong = [
        f"{a} -> {b}"
        for a, targets in layout.imports(known).items()
        for b in targets
        if b.rpartition(".")[2].startswith("test_")
    ]
    edits = re.compile(r"^\s*sys\.path(\.\w+\(|\s*\+?=|\[.*\]\s*=)", re.M)
    wrong += [
        str(file.relative_to(ROOT))
        for name, file in known.items()
        if not name.startswith("tests.support.") and edits.search(file.read_text(encoding="utf-8"))
    ]
    assert wrong == []


WRONG = {
    "models/llama31_8b/tt/modules.py": (
        "def angles():\n    from ..reference.model import rope\n",
        "models.llama31_8b.tt.modules -> models.llama31_8b.reference.model.rope",
    ),
    "models/llama31_8b/demo/cli.py": (
        "import perf.footprint.roofline\n",
        "models.llama31_8b.demo.cli -> perf.footprint.roofline",
    ),
    "models/llama31_8b/generation/sampling.py": (
        "from models.llama31_8b.tt.modules import angles\n",
        "models.llama31_8b.generation.sampling -> models.llama31_8b.tt.modules",
    ),
    "tt_kernels/op.py": (
        "from models.llama31_8b.generation import sampling\n",
        "tt_kernels.op -> models.llama31_8b.generation.sampling",
    ),
    "runtime_patches/sgdc/gate.py": (
        "from runtime_patches.simulated_n150 import doctor\n",
        "runtime_patches.sgdc.gate -> runtime_patches.simulated_n150.doctor",
    ),
    "runtime_patches/simulated_n150/doctor.py": (
        "import tt_kernels.op\n",
        "runtime_patches.simulated_n150.doctor -> tt_kernels.op",
    ),
    "runtime_patches/root.py": ("import tt_kernels.op\n", "runtime_patches.root -> tt_kernels.op"),
    "models/llama31_8b/reference/model/rope.py": (
        "import tt_kernels.op\n",
        "models.llama31_8b.reference.model.rope -> tt_kernels.op",
    ),
}


@pytest.mark.parametrize("file", WRONG)
def test_a_wrong_import_is_found(tmp_path, file):
    for name in WRONG:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(WRONG[name][0] if name == file else "")
    (tmp_path / "perf/footprint").mkdir(parents=True)
    (tmp_path / "perf/footprint/roofline.py").write_text("")
    (found,) = layout.wrong_arrows(layout.imports(layout.modules(tmp_path)))
    assert found.startswith(WRONG[file][1] + ": ")


def test_a_circle_through_functions_is_found_and_one_of_types_is_none(tmp_path):
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf/a.py").write_text("def f():\n    from .b import g\n")
    (tmp_path / "perf/b.py").write_text("if TYPE_CHECKING:\n    from . import a\n")
    edges = layout.imports(layout.modules(tmp_path, ("perf",)))
    assert edges == {"perf.a": {"perf.b"}, "perf.b": set()} and layout.circles(edges) == []
    (tmp_path / "perf/b.py").write_text("from . import a\n")
    assert layout.circles(layout.imports(layout.modules(tmp_path, ("perf",)))) == [["perf.a", "perf.b"]]


def test_tests_mirror_the_sources(tmp_path):
    assert layout.unmirrored(ROOT) == []
    assert [topic for topic in layout.TOPICS if not (ROOT / "tests" / topic).is_dir()] == []
    for folder in ("tests/models/tt", "tests/models/lost", "tests/perf", "models/llama31_8b/tt"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "test_a.py").write_text("")
    assert layout.unmirrored(tmp_path) == ["models/lost", "perf"]


def test_no_docstring_begins_with_of(tmp_path):
    files = layout.modules(ROOT, (*layout.SOURCES, "tests")).values()
    assert len(files) > 400
    assert [f"{file.relative_to(ROOT)}:{found}" for file in files for found in layout.fragments(file)] == []
    wrong = tmp_path / "a.py"
    wrong.write_text('"""Of two things one."""\ndef f():\n    """As of f."""\nclass A:\n    """Offers."""\n')
    assert list(layout.fragments(wrong)) == ["1: Of two things", "2: As of f."]
