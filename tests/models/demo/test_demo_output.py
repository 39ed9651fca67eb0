# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Standard streams that are closed, full or not in UTF-8, and how torch's threads wait: commands of their own."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.gguf_files import write_hf_folder


def demo(*arguments, given: bytes = b"", redirection: str = "", **environment: str) -> subprocess.CompletedProcess:
    """Run the command by a shell, which closes streams. given: on standard input."""
    shell = ["bash", "-c", f'exec "$@" {redirection}', "bash"]
    command, variables = [sys.executable, "-m", "models.llama31_8b.demo", *arguments], {**os.environ, **environment}
    return subprocess.run([*shell, *command], input=given, capture_output=True, timeout=300, env=variables)


def test_a_closed_standard_output_is_refused():
    done = demo("--prompt", "x", redirection=">&-")
    assert done.returncode == 2 and done.stderr.endswith(b"error: standard output is closed\n"), done.stderr


def test_a_closed_standard_error_changes_no_exit_code():
    done = demo("--prompt", "x", "--threshold", "-1", redirection="2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_prompts_of_other_bytes_than_utf8(locale):
    given = demo("--prompt", b"\xff", LC_ALL=locale)
    said = b"llama-alspec: error: the prompt is not UTF-8 text: byte 0xff after 0 characters\n"
    assert (given.returncode, given.stderr) == (2, said)
    piped = demo("--device", "cpu", given=b"a\xff", LC_ALL=locale)
    assert piped.returncode == 2 and piped.stderr.startswith(b"llama-alspec: error: standard input is not UTF-8 text")
    assert piped.stderr.count(b"\n") == 1


# Python reads the command line and pipes as ASCII in the C locale, unless it is told otherwise.
IN_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_text_in_utf8_is_that_in_every_locale(folder):
    asked = ["--device", "cpu", "--model", folder, "--max-new-tokens", "1", "--json"]
    piped = demo(*asked, given="é".encode(), PYTHONIOENCODING="ascii")
    given = demo(*asked, "--prompt", "é", **IN_ASCII)
    assert (piped.returncode, given.returncode) == (0, 0), piped.stderr + given.stderr
    assert json.loads(piped.stdout)["token_ids"] == json.loads(given.stdout)["token_ids"]


def test_threads_of_torch_wait_without_spinning(tmp_path, monkeypatch):
    """The OpenMP library itself reports it when torch is loaded, which reading weights does."""
    write_hf_folder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    done = demo("--device", "cpu", "--prompt", "x", "--model", str(tmp_path), OMP_DISPLAY_ENV="true")
    assert b"OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr, done.stderr
