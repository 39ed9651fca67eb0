# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny models, a machine with boards for the demo, and a terminal that a chat reads."""

import io
import sys

import pytest

from tests.support.gguf_files import edit_json, untied, write_hf_folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> str:
    """The folder of a tiny model with a chat template."""
    path = tmp_path_factory.mktemp("tiny")
    write_hf_folder(path)
    return str(path)


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> str:
    """The folder of a tiny model whose texts never end by themselves, so that every run has its full length."""
    path = tmp_path_factory.mktemp("endless")
    write_hf_folder(path, untied(eos_token_ids=()))
    edit_json(path / "tokenizer_config.json", eos_token=None)
    return str(path)


@pytest.fixture
def boards(monkeypatch, tmp_path):
    """Pretend that this machine has two N150 and all they need; opening them would fail. A machines.Boards."""
    from models.llama31_8b.tt import mesh
    from models.llama31_8b.tt.mesh import MeshShape
    from runtime_patches.board import doctor
    from runtime_patches.board import environment as driver
    from tests.support.machines import Boards, set_ttnn_version

    found = Boards(tmp_path)
    monkeypatch.setattr(doctor, "why_not", lambda mode, found=None: None)
    monkeypatch.setattr(driver, "BOARDS", found.devices)
    monkeypatch.setattr(mesh, "SYSFS", found.sysfs)
    monkeypatch.setattr(MeshShape, "open", lambda *_, **__: pytest.fail("a board was opened"))
    monkeypatch.delenv("TT_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "cache"))
    set_ttnn_version(monkeypatch, "1")
    for number in range(2):
        found.set(number, "n150")
    return found


@pytest.fixture
def terminal(monkeypatch):
    """Standard input as a terminal on which these lines are typed."""

    def type_lines(*lines):
        stdin = io.StringIO("".join(f"{line}\n" for line in lines))
        stdin.isatty = lambda: True
        monkeypatch.setattr(sys, "stdin", stdin)

    return type_lines
