# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the layout of the tree forbids: imports, folders of tests, docstrings. Reads sources; imports nothing.

Imports inside functions count; those under `if TYPE_CHECKING:` do not, since they never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = ("models", "tt_kernels", "runtime_patches", "perf", "examples")
TT, REFERENCE, DEMO, CHECK = (f"models.llama31_8b.{room}" for room in ("tt", "reference", "demo", "check"))
HUGGINGFACE = "models.llama31_8b.huggingface"
SERVING = "models.llama31_8b.serving"
SIMULATOR = "runtime_patches.simulated_n150"
# What runs on boards.
BOARD_OWNERS = ("models", "tt_kernels", *(f"runtime_patches.{part}" for part in ("board", "sgdc", "profiling")))


def modules(root: Path, folders: tuple[str, ...] = SOURCES) -> dict[str, Path]:
    """Dotted name -> file of every module in these folders of `root`."""
    found = {}
    for folder in folders:
        for file in sorted((root / folder).rglob("*.py")):
            name = ".".join(file.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = file
    return found


def imports(known: dict[str, Path]) -> dict[str, set[str]]:
    """For each module those of `known` it imports."""
    return {name: set(_imported(name, file, known)) - {name} for name, file in known.items()}


def _imported(name: str, file: Path, known: dict[str, Path]) -> Iterator[str]:
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in _running(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            below = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name if name in known else base for name in below]
        else:
            continue
        yield from (target for target in targets if target in known)


# What holds statements: nothing else can hold an import, and expressions are most of a tree.
_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements but those below `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, _BLOCKS):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                yield other
                yield from _running(other)
            continue
        yield node
        yield from _running(node)


def _inside(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


def forbidden(a: str, b: str) -> str | None:
    """Why module `a` must not import module `b`; None when it may."""
    if _inside(b, CHECK) and not any(_inside(a, room) for room in (CHECK, DEMO, "perf")):
        return "only the command and reports know the self-test"
    if _inside(a, CHECK) and _inside(b, DEMO):
        return "the self-test compares with recorded outputs and the reference, and runs no demo"
    if _inside(a, TT) and _inside(b, REFERENCE):
        return "the product does not import its oracle"
    if _inside(a, "models") and _inside(b, "perf"):
        return "the model knows no benchmark"
    if _inside(a, "tt_kernels") and not _inside(b, "tt_kernels") and not _inside(b, "runtime_patches"):
        return "device ops know no model, no demo and no benchmark"
    if _inside(a, "runtime_patches") and not _inside(b, "runtime_patches"):
        return "runtime patches import nothing else of the project"
    if _inside(b, SIMULATOR) and any(_inside(a, room) for room in BOARD_OWNERS):
        return "what a board owner runs starts the simulator as a process, by its command"
    if _inside(a, REFERENCE) and (_inside(b, DEMO) or _inside(b, TT) or not _inside(b, "models")):
        return "the reference is torch and the neutral modules of its model"
    if _inside(a, "models") and _inside(b, HUGGINGFACE) and not _inside(a, HUGGINGFACE):
        return "nothing of the model needs transformers' attention functions"
    if _inside(a, HUGGINGFACE) and (_inside(b, DEMO) or _inside(b, TT)):
        return "the attention function of transformers is the reference's rule, and torch"
    if _inside(a, "models") and _inside(b, SERVING) and not (_inside(a, SERVING) or _inside(a, DEMO)):
        return "only the command knows the server's adapter"
    if _inside(a, SERVING) and (_inside(b, REFERENCE) or _inside(b, DEMO)):
        return "the server's adapter is the product's"
    rooms = (TT, REFERENCE, DEMO, CHECK, HUGGINGFACE, SERVING)
    neutral = _inside(a, "models") and not any(_inside(a, room) for room in rooms)
    # `weights.load_model` makes the reference's model: the one place where a neutral module names a backend.
    allowed = a == "models.llama31_8b.checkpoint.load" and _inside(b, REFERENCE)
    if neutral and any(_inside(b, room) for room in (TT, REFERENCE, DEMO)) and not allowed:
        return "neutral modules know no backend"
    if not _inside(a, "examples") and _inside(b, "examples"):
        return "examples are read, not imported"
    return None


def wrong_arrows(edges: dict[str, set[str]]) -> list[str]:
    """One line for each import that runs against the layout."""
    return [
        f"{a} -> {b}: {why}"
        for a, targets in sorted(edges.items())
        for b in sorted(targets)
        if (why := forbidden(a, b)) is not None
    ]


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that import each other in a circle (strongly connected components of two and more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(edges[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            circle = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return found


# Folders of tests that are about no one folder of sources.
TOPICS = {
    "silicon": "whole runs on boards",
    "support": "what tests of several folders share",
    "runtime_patches/simulated_n150/mesh": "several simulated chips at once",
    "runtime_patches/simulated_n150/op_coverage": "stock ttnn ops on a simulated chip",
}


def unmirrored(root: Path) -> list[str]:
    """Return the folders with tests, below `root`/tests, whose sources are nowhere."""
    folders = {file.parent.relative_to(root / "tests") for file in (root / "tests").rglob("test_*.py")}
    return sorted(
        str(folder) for folder in folders if str(folder) not in TOPICS and not (root / _sources_of(folder)).is_dir()
    )


def _sources_of(tests: Path) -> Path:
    return Path("models", "llama31_8b", *tests.parts[1:]) if tests.parts[:1] == ("models",) else tests


def fragments(file: Path) -> Iterator[str]:
    """Yield "line: first words" of each docstring that begins with "Of" or "As of": it says no sentence."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            said = (ast.get_docstring(node) or "").split(maxsplit=3)
            if said[:1] == ["Of"] or said[:2] == ["As", "of"]:
                yield f"{getattr(node, 'lineno', 1)}: {' '.join(said[:3])}"
