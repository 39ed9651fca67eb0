# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The runtime root: links, overlays, keys, refusals, concurrency, and that the package stays as it was.

Most tests use a small package made here; one uses the installed ttnn.
"""

import ast
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime_patches.board import runtime_root
from runtime_patches.board.runtime_root import RuntimeRootError, build_runtime_root, merge_overlays, overlay_digests

STUB = "tt_metal/hw/firmware/brisck.cc"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A site-packages folder with a ttnn 0.81.1 of a few files; the path of its ttnn folder."""
    ttnn = tmp_path / "site" / "ttnn"
    for name, text in {
        "__init__.py": "raise ImportError('must not be imported')\n",
        STUB: "original stub\n",
        "tt_metal/hw/firmware/ncrisck.cc": "the other stub\n",
        "tt_metal/core_descriptors/chip.yaml": "grid: 8x8\n",
        "runtime/hw/lib/noc.o": "object\n",
    }.items():
        (ttnn / name).parent.mkdir(parents=True, exist_ok=True)
        (ttnn / name).write_text(text)
    info = tmp_path / "site" / "ttnn-0.81.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ttnn\nVersion: 0.81.1\n")
    return ttnn


def state_of(folder: Path) -> dict[str, str]:
    """{path: kind and content hash, or size and time for what is too large to read} of everything below."""
    state = {}
    # Thousands of files: os.walk takes a fraction of rglob's time.
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in (*folders, *files):
            path = os.path.join(where, name)
            stat = os.lstat(path)
            content = str(stat.st_size)
            if stat.st_size < 1 << 20 and os.path.isfile(path):
                with open(path, "rb") as file:
                    content = hashlib.sha256(file.read()).hexdigest()
            state[os.path.relpath(path, folder)] = f"{stat.st_mode:o} {stat.st_mtime_ns} {content}"
    return state


def build(package, overlays, tmp_path, **named):
    return build_runtime_root(overlays, ttnn_dir=package, cache_dir=tmp_path / "cache", **named)


def test_replaces_and_adds_and_links_the_rest(package, tmp_path):
    tool = tmp_path / "g++"
    tool.write_text("#!/bin/sh\necho compiled\n")
    tool.chmod(0o700)
    root = build(package, {STUB: b"patched stub\n", "runtime/sfpi/compiler/bin/g++": tool}, tmp_path)
    assert (root / STUB).read_text() == "patched stub\n"
    assert subprocess.check_output([root / "runtime/sfpi/compiler/bin/g++"], text=True) == "compiled\n"
    sibling = root / "tt_metal/hw/firmware/ncrisck.cc"
    assert sibling.is_symlink() and sibling.resolve() == package / "tt_metal/hw/firmware/ncrisck.cc"
    assert (root / "tt_metal/core_descriptors").is_symlink(), "a folder without overlays is one link"
    assert (root / "runtime/hw/lib/noc.o").read_text() == "object\n"
    # What is added through the root must not reach the package: no folder above an overlay is a link.
    (root / "tt_metal/hw/firmware/new.cc").write_text("new")
    assert not (package / "tt_metal/hw/firmware/new.cc").exists()


def test_folder_overlay_is_taken_whole(package, tmp_path):
    headers = tmp_path / "include"
    (headers / "deep").mkdir(parents=True)
    (headers / "sfpi.h").write_text("1")
    (headers / "deep" / "lltt.h").write_text("2")
    root = build(package, {"runtime/sfpi/include": headers}, tmp_path)
    assert (root / "runtime/sfpi/include/deep/lltt.h").read_text() == "2"
    assert set(overlay_digests({"runtime/sfpi/include": headers})) == {
        "runtime/sfpi/include/sfpi.h",
        "runtime/sfpi/include/deep/lltt.h",
    }


def test_key_follows_content_not_names(package, tmp_path):
    source = tmp_path / "stub.cc"
    source.write_bytes(b"one")
    first = build(package, {STUB: source}, tmp_path)
    assert build(package, {STUB: b"one"}, tmp_path) == first
    source.write_bytes(b"two")
    second = build(package, {STUB: source}, tmp_path)
    assert second != first
    assert (first / STUB).read_bytes() == b"one", "a root in use does not change with its source"
    assert (second / STUB).read_bytes() == b"two"
    source.chmod(0o755)
    assert build(package, {STUB: source}, tmp_path) not in (first, second), "an executable is another content"
    assert build(package, {"tt_metal/other.cc": b"one"}, tmp_path) not in (first, second)


def test_two_installations_do_not_share_a_root(package, tmp_path):
    first = build(package, {STUB: b"p"}, tmp_path)
    moved = tmp_path / "elsewhere"
    package.parent.rename(moved)
    second = build(moved / "ttnn", {STUB: b"p"}, tmp_path)
    assert first != second
    assert (second / "tt_metal/hw/firmware/ncrisck.cc").read_text() == "the other stub\n"


def test_a_cache_that_cannot_be_written_is_named(package, tmp_path):
    (tmp_path / "cache").touch()
    with pytest.raises(RuntimeRootError, match=f"{tmp_path}/cache.*LLAMA_ALSPEC_CACHE"):
        build(package, {STUB: b"p"}, tmp_path)


def test_another_version_is_refused_before_anything_is_written(package, tmp_path):
    info = package.parent / "ttnn-0.81.1.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ttnn\nVersion: 0.99.0\n")
    info.rename(package.parent / "ttnn-0.99.0.dist-info")
    with pytest.raises(RuntimeRootError, match=r"made for ttnn 0\.81\.1.*0\.99\.0.*pip install ttnn==0\.81\.1"):
        build(package, {STUB: b"p"}, tmp_path)
    shutil.rmtree(package.parent / "ttnn-0.99.0.dist-info")
    with pytest.raises(RuntimeRootError, match="version is not known"):
        build(package, {}, tmp_path)
    assert not (tmp_path / "cache").exists()


INSIDE = "inside the runtime root"


@pytest.mark.parametrize(
    "overlays, message",
    [
        *(({path: b""}, INSIDE) for path in ("/etc/passwd", "../outside", "x/../../x", "", ".", ".runtime_root.json")),
        ({"tt_metal/hw": b""}, "ttnn has a folder"),
        ({f"{STUB}/below": b""}, "which is a file in ttnn"),
        ({"new": b"", "new/file": b""}, "is below it"),
        ({STUB: Path("missing")}, "does not exist"),
    ],
)
def test_overlays_that_are_refused(package, tmp_path, overlays, message):
    with pytest.raises(RuntimeRootError, match=message):
        build(package, overlays, tmp_path)


def test_cache_inside_the_package_is_refused(package):
    before = state_of(package)
    with pytest.raises(RuntimeRootError, match="inside the ttnn package"):
        build_runtime_root({STUB: b"p"}, ttnn_dir=package, cache_dir=package / "cache")
    assert state_of(package) == before


def test_merge_composes_and_names_conflicts(tmp_path):
    same = tmp_path / "same"
    same.write_bytes(b"shared")
    merged = merge_overlays(toolchain={"a/b": b"1", "c": b"shared"}, sgdc={"a/d": b"2", "c": same})
    assert set(merged) == {"a/b", "a/d", "c"}
    with pytest.raises(RuntimeRootError, match="a/b is replaced by toolchain and by sgdc"):
        merge_overlays(toolchain={"a/b": b"1"}, sgdc={"a/b": b"2"})
    with pytest.raises(RuntimeRootError, match=r"is below it \(toolchain and sgdc\)"):
        merge_overlays(toolchain={"a": b"1"}, sgdc={"a/b": b"2"})


CONCURRENT = """
import json, sys, time
from pathlib import Path
from runtime_patches.board.runtime_root import build_runtime_root
package, cache, start = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
overlays = {f"tt_metal/hw/firmware/file{i}.cc": bytes([i]) * 4096 for i in range(200)}
time.sleep(max(0.0, start - time.time()))
root = build_runtime_root(overlays, ttnn_dir=package, cache_dir=cache)
# Whoever is told the name finds the root whole, at that very moment.
print(json.dumps([str(root), all((root / p).read_bytes() == c for p, c in overlays.items())]))
"""


def test_concurrent_builds_give_one_whole_root(package, tmp_path):
    start = time.time() + 1.5
    command = [sys.executable, "-c", CONCURRENT, str(package), str(tmp_path / "cache"), str(start)]
    repository = Path(runtime_root.__file__).resolve().parents[2]
    environment = dict(os.environ, PYTHONPATH=str(repository))

    def one(_):
        return json.loads(subprocess.check_output(command, env=environment, text=True, stderr=subprocess.DEVNULL))

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(one, range(6)))
    assert len({root for root, _ in answers}) == 1
    assert all(whole for _, whole in answers)
    homes = list((tmp_path / "cache" / "runtime_roots").iterdir())
    assert len(homes) == 1, f"drafts were left: {homes}"


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages", "checkout/ttnn"])
def test_the_root_is_the_one_ttnn_chooses(tmp_path, monkeypatch, folder):
    """Compared with the statements of the installed ttnn, run as those of a package in `folder`."""
    if not _ttnn_installed():
        pytest.skip("ttnn is not installed")
    package = tmp_path / folder / "ttnn"
    package.mkdir(parents=True)
    statements = [
        node
        for node in ast.parse((runtime_root.find_ttnn_dir() / "__init__.py").read_text()).body
        if (isinstance(node, ast.FunctionDef) and node.name == "_is_editable")
        or (isinstance(node, ast.If) and "TT_METAL_RUNTIME_ROOT" in ast.unparse(node.test))
    ]
    assert len(statements) == 2
    (package / "__init__.py").write_text("\n".join(ast.unparse(node) for node in statements))
    monkeypatch.delitem(sys.modules, "ttnn", raising=False)
    monkeypatch.syspath_prepend(package.parent)
    chosen = []
    names = {"__package__": "ttnn", "__file__": str(package / "__init__.py"), "SetRootDir": chosen.append}
    names |= {"os": os, "pathlib": pathlib, "importlib": importlib}
    monkeypatch.delenv("TT_METAL_RUNTIME_ROOT", raising=False)
    monkeypatch.setenv("TT_METAL_HOME", "/elsewhere")
    exec(compile((package / "__init__.py").read_text(), "ttnn", "exec"), names)
    assert chosen == [str(runtime_root.ttnn_root())]
    assert runtime_root.ttnn_root() == (tmp_path / "checkout" if folder == "checkout/ttnn" else package)


def test_installed_package_is_untouched(tmp_path):
    if not _ttnn_installed():
        pytest.skip("ttnn is not installed")
    package = runtime_root.find_ttnn_dir()
    stub = "tt_metal/hw/firmware/src/tt-1xx/brisck.cc"
    before = state_of(package)
    root = build_runtime_root({stub: b"// replaced\n", "runtime/sfpi/new.h": b""}, cache_dir=tmp_path)
    assert (root / stub).read_bytes() == b"// replaced\n"
    assert state_of(package) == before


def _ttnn_installed() -> bool:
    try:
        return runtime_root.ttnn_version() in runtime_root.SUPPORTED_VERSIONS
    except RuntimeRootError:
        return False
