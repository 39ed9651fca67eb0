# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Imports run one way and in no circle; tests mirror the sources and lean on no other test."""

import re
from pathlib import Path

import pytest

from tests.support import layout

ROOT = Path(__file__).resolve().parent.parent
BOARDS = "models.llama31_8b.demo.backends.n150"
MOST_MODULES_ON_BOARDS = 91


@pytest.fixture(scope="module")
def edges():
    return layout.imports(layout.modules(ROOT))


def test_imports_run_one_way_and_in_no_circle(edges):
    assert len(edges) > 100, "the sources were not found"
    assert layout.wrong_arrows(edges) == []
    assert layout.circle(edges) == []


def test_a_run_on_boards_loads_few_modules_and_none_of_the_simulator(edges):
    loaded = layout.loaded(edges, BOARDS)
    assert BOARDS in loaded and "tt_kernels.compute_gate.op" in loaded
    assert [name for name in loaded if name.startswith(layout.SIMULATOR)] == []
    assert len(loaded) <= MOST_MODULES_ON_BOARDS


def test_no_test_imports_another_or_edits_the_path():
    known = layout.modules(ROOT, ("tests", "runtime_patches/simulated_n150/tests"))
    assert len(known) > 50
    wrong = [(a, b) for a, targets in layout.imports(known).items() for b in targets if ".test_" in b]
    edits = re.compile(r"^\s*sys\.path(\.\w+\(|\s*\+?=|\[.*\]\s*=)", re.M)
    wrong += [(name, "sys.path") for name, file in known.items() if edits.search(file.read_text(encoding="utf-8"))]
    assert wrong == []


# Modules, and the text by which each imports what it must not.
WRONG = [
    ("models.llama31_8b.tt.modules", "def f():\n    from ..reference.model import step\n"),
    ("models.llama31_8b.demo.cli", "import perf.footprint.graph\n"),
    ("models.llama31_8b.generation.sampling", "from models.llama31_8b.tt.modules import angles\n"),
    ("models.llama31_8b.reference.model.step", "import tt_kernels.op\n"),
    ("tt_kernels.op", "from models.llama31_8b.generation import sampling\n"),
    ("runtime_patches.sgdc.gate", "from runtime_patches.simulated_n150 import doctor\n"),
    ("runtime_patches.simulated_n150.doctor", "from runtime_patches import sgdc\nimport runtime_patches.sgdc.gate\n"),
    ("perf.footprint.graph", ""),
]


@pytest.mark.parametrize(("module", "text"), WRONG[:-1])
def test_a_wrong_import_is_found(tmp_path, module, text):
    for name, _ in WRONG:
        file = tmp_path / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text if name == module else "")
    (found,) = layout.wrong_arrows(layout.imports(layout.modules(tmp_path)))
    assert found.startswith(f"{module} -> ")


def test_a_circle_through_functions_is_found_and_one_of_types_is_none(tmp_path):
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf/a.py").write_text("def f():\n    from .b import g\n")
    (tmp_path / "perf/b.py").write_text("if TYPE_CHECKING:\n    from . import a\n")
    edges = layout.imports(layout.modules(tmp_path, ("perf",)))
    assert edges == {"perf.a": {"perf.b"}, "perf.b": set()} and layout.circle(edges) == []
    assert layout.loaded(edges, "perf.a") == {"perf.a", "perf.b"}
    (tmp_path / "perf/b.py").write_text("from . import a\n")
    assert set(layout.circle(layout.imports(layout.modules(tmp_path, ("perf",))))) == {"perf.a", "perf.b"}


def test_tests_mirror_the_sources(tmp_path):
    assert layout.unmirrored(ROOT) == []
    for folder in ("tests/models/tt", "tests/models/lost", "tests/perf", "models/llama31_8b/tt"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "test_a.py").write_text("")
    assert layout.unmirrored(tmp_path) == ["models/lost", "perf"]
