# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Imports run one way and in no circle; tests mirror the sources and lean on no other test. Reads sources; imports
nothing. Imports inside functions count; those under `if TYPE_CHECKING:` do not, since they never run."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCES = ("models", "tt_kernels", "runtime_patches", "perf", "examples")
ROOMS = ("tt", "reference", "demo", "huggingface", "serving")
TT, REFERENCE, DEMO, HUGGINGFACE, SERVING = (f"models.llama31_8b.{room}" for room in ROOMS)
SIMULATOR = "runtime_patches.simulated_n150"
BOARD = tuple(f"runtime_patches.{part}" for part in ("board", "sgdc", "profiling"))
# Importers, what they must not import, the importers among them that may, and why.
API = "models.llama31_8b.api"
RULES: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str], ...] = (
    ((TT,), (REFERENCE,), (), "the product does not import its oracle"),
    (("models",), ("perf",), (), "the model knows no benchmark"),
    (("tt_kernels",), ("models", "perf"), (), "device ops know no model and no benchmark"),
    (("runtime_patches",), ("models", "tt_kernels", "perf"), (), "runtime patches import nothing else of ours"),
    (("models", "tt_kernels", *BOARD), (SIMULATOR,), (), "what runs on boards starts the simulator as a process"),
    ((SIMULATOR,), BOARD, (), "the simulator is a distribution of its own"),
    ((REFERENCE,), (DEMO, TT, "tt_kernels", "runtime_patches"), (), "the reference is torch and neutral modules"),
    (("models",), (HUGGINGFACE,), (HUGGINGFACE,), "nothing of the model needs transformers' attention functions"),
    ((HUGGINGFACE,), (DEMO, TT), (), "the attention function of transformers is the reference's rule, and torch"),
    (("models",), (SERVING,), (SERVING, DEMO), "only the command knows the server's adapter"),
    ((SERVING,), (REFERENCE, DEMO), (), "the server's adapter is the product's"),
    (
        ("models",),
        (TT, REFERENCE, DEMO),
        (TT, REFERENCE, DEMO, HUGGINGFACE, SERVING, API),
        "neutral modules know no backend",
    ),
    (("models", "tt_kernels", "runtime_patches"), (API,), (API,), "the public names are for users"),
    (("models", "tt_kernels", "runtime_patches", "perf"), ("examples",), (), "examples are read, not imported"),
)


def modules(root: Path, folders: tuple[str, ...] = SOURCES) -> dict[str, Path]:
    """Return {dotted name: file} of every module in these folders of `root`."""
    files = (file for folder in folders for file in sorted((root / folder).rglob("*.py")))
    return {".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def imports(known: dict[str, Path]) -> dict[str, set[str]]:
    """Return for each module those of `known` it imports."""
    return {name: set(_imported(name, file, known)) - {name} for name, file in known.items()}


def _imported(name: str, file: Path, known: dict[str, Path]) -> Iterator[str]:
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in _running(ast.parse(file.read_text(encoding="utf-8"))):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            below = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name if name in known else base for name in below]
        yield from (target for target in targets if target in known)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements but those below `if TYPE_CHECKING:`; expressions, most of a tree, hold no import."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                yield other
                yield from _running(other)
        elif isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield node
            yield from _running(node)


def _inside(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(room + ".") for room in rooms)


def wrong_arrows(edges: dict[str, set[str]]) -> list[str]:
    """Return one line for each import that runs against the layout."""
    return [
        f"{a} -> {b}: {why}"
        for a, targets in sorted(edges.items())
        for b in sorted(targets)
        for importers, imported, exempt, why in RULES
        if _inside(a, importers) and _inside(b, imported) and not _inside(a, exempt)
    ]


def circle(edges: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, the first one twice; [] when there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def loaded_from(edges: dict[str, set[str]], start: str) -> set[str]:
    """Return the modules that are loaded with `start` when every import on the way runs, packages with a module of
    their own included."""
    found, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name and name not in found:
            found.add(name)
            todo += [*edges.get(name, ()), name.rpartition(".")[0]]
    return found & edges.keys()


ROOT = Path(__file__).resolve().parent.parent
BOARDS = "models.llama31_8b.demo.backends.n150"
MOST_MODULES_ON_BOARDS = 91


@pytest.fixture(scope="module")
def edges():
    return imports(modules(ROOT))


def test_imports_run_one_way_and_in_no_circle(edges):
    assert len(edges) > 100, "the sources were not found"
    assert wrong_arrows(edges) == []
    assert circle(edges) == []


def test_a_run_on_boards_loads_few_modules_and_none_of_the_simulator(edges):
    loaded = loaded_from(edges, BOARDS)
    assert BOARDS in loaded and "tt_kernels.compute_gate.op" in loaded
    assert [name for name in loaded if name.startswith(SIMULATOR)] == []
    assert len(loaded) <= MOST_MODULES_ON_BOARDS


def test_no_test_imports_another_or_edits_the_path():
    known = modules(ROOT, ("tests", "runtime_patches/simulated_n150/tests"))
    assert len(known) > 50
    wrong = [(a, b) for a, targets in imports(known).items() for b in targets if ".test_" in b]
    edits = re.compile(r"^\s*sys\.path(\.\w+\(|\s*\+?=|\[.*\]\s*=)", re.M)
    wrong += [(name, "sys.path") for name, file in known.items() if edits.search(file.read_text(encoding="utf-8"))]
    assert wrong == []


def test_wrong_imports_and_circles_through_functions_are_found_and_those_of_types_are_not(tmp_path):
    assert len(wrong_arrows({"tt_kernels.op": {"models.api", "tt_kernels.common"}})) == 1
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf/a.py").write_text("def f():\n    from .b import g\n")
    (tmp_path / "perf/b.py").write_text("if TYPE_CHECKING:\n    from . import a\n")
    edges = imports(modules(tmp_path, ("perf",)))
    assert edges == {"perf.a": {"perf.b"}, "perf.b": set()} and circle(edges) == []
    assert loaded_from(edges, "perf.a") == {"perf.a", "perf.b"}
    (tmp_path / "perf/b.py").write_text("from . import a\n")
    assert set(circle(imports(modules(tmp_path, ("perf",))))) == {"perf.a", "perf.b"}


def test_tests_mirror_the_sources():
    folders = {file.parent.relative_to(ROOT / "tests") for file in (ROOT / "tests").rglob("test_*.py")}
    for folder in folders - {Path("silicon"), Path("support")}:
        models = folder.parts[:1] == ("models",)
        assert (ROOT / (Path("models", "llama31_8b", *folder.parts[1:]) if models else folder)).is_dir(), folder
