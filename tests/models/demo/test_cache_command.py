# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`llama-alspec cache`: sizes, pruning by the time of last use, clearing, and what it never touches."""

from __future__ import annotations

import os
import time

import pytest

from models.llama31_8b.demo import cache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache with an old and a new entry of one kind, a log, a link out of it, and files of somebody else."""
    home = tmp_path / "cache"
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(home))
    for name, days in (("gguf/old/deep/weights", 40), ("gguf/new/weights", 1), ("logs/ttnn.log", 3), ("mine/note", 90)):
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * 500_000)
        os.utime(file, (time.time() - days * cache.DAY,) * 2)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "kernel.cpp").write_text("void kernel_main() {}")
    (home / "runtime_roots" / "root").mkdir(parents=True)
    (home / "runtime_roots" / "root" / "ttnn").symlink_to(tmp_path / "package")
    return home


def run(capsys, *arguments: str) -> list[str]:
    assert cache.main(list(arguments)) == 0
    return capsys.readouterr().out.splitlines()


def test_a_list_with_sizes_and_last_uses(folder, capsys):
    first, gguf, roots, logs, total = run(capsys)
    assert first == f"cache: {folder}"
    assert gguf.split()[:7] == ["1.0", "MB", "2", "used", "1", "days", "ago"] and "gguf: models converted" in gguf
    assert "runtime_roots" in roots and "used 3 days ago  logs" in logs and total.split() == ["1.5", "MB", "in", "all"]


def test_entries_not_used_for_so_many_days_are_removed(folder, capsys):
    assert run(capsys, "--prune", "30")[-1].split() == ["0.5", "MB", "removed"]
    assert not (folder / "gguf" / "old").exists() and (folder / "gguf" / "new" / "weights").exists()
    assert run(capsys, "--prune", "2")[-1].split() == ["0.5", "MB", "removed"]
    assert not (folder / "logs" / "ttnn.log").exists() and (folder / "mine" / "note").exists()


def test_a_file_that_was_read_lately_keeps_its_entry(folder, capsys):
    file = folder / "gguf" / "old" / "deep" / "weights"
    os.utime(file, (time.time(), file.stat().st_mtime))
    run(capsys, "--prune", "30")
    assert file.exists()


def test_all_is_removed_but_what_is_not_the_projects(folder, tmp_path, capsys):
    assert run(capsys, "--clear")[-1].split() == ["1.5", "MB", "removed"]
    assert [file.name for file in folder.rglob("*") if file.is_file()] == ["note"]
    assert (tmp_path / "package" / "kernel.cpp").exists(), "a link was followed"
    assert run(capsys)[-1].split() == ["0.0", "MB", "in", "all"]


@pytest.mark.parametrize("arguments", [("--prune", "0"), ("--prune", "soon"), ("--prune", "nan"), ("--all",)])
def test_what_makes_no_sense_is_one_line(folder, capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        cache.main(list(arguments))
    shown = capsys.readouterr()
    assert ended.value.code == 2 and shown.err.count("\n") == 1 and arguments[-1] in shown.err and not shown.out
    assert (folder / "gguf" / "old").exists()


def test_a_cache_that_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "none"))
    assert run(capsys, "--clear")[-1].split() == ["0.0", "MB", "removed"]
    assert not (tmp_path / "none").exists()
