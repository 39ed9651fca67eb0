# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`llama-alspec serve` on simulated chips, asked by the openai client. Needs a clone of vllm-tt-plugin, named by
LLAMA_ALSPEC_VLLM_PLUGIN, and two gigabytes of packages on the first run."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from models.llama31_8b.serving.environment import check_plugin, interpreter
from runtime_patches.board.runtime_root import project_cache_dir

PLUGIN = os.environ.get("LLAMA_ALSPEC_VLLM_PLUGIN")
CLIENT = Path(__file__).with_name("openai_session.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PLUGIN is None, reason="LLAMA_ALSPEC_VLLM_PLUGIN names no clone of vllm-tt-plugin"),
]
START_S = 1200


@contextmanager
def server(log: Path, *options: str) -> Iterator[str]:
    """Start `llama-alspec serve`; yield its URL once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line = [sys.executable, "-m", "models.llama31_8b.demo", "serve", "--plugin", str(PLUGIN), "--device", "sim"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*line, "--port", str(port), *options], stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_S
        while True:
            assert process.poll() is None, f"the server ended: {log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"no answer in {START_S} s: {log.read_text()[-3000:]}"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except (urllib.error.URLError, OSError):
                time.sleep(2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def asked(url: str, *how: str) -> dict:
    python = interpreter(project_cache_dir() / "serving", check_plugin(Path(PLUGIN)))
    return json.loads(subprocess.check_output([str(python), str(CLIENT), url, *how], text=True, timeout=3000))


def decoded(log: Path) -> int:
    """Return the decode steps that a server has logged: one that prefills every token has the warm-ups' alone."""
    return int(re.findall(r"steps so far: (\d+) decoded", log.read_text())[-1])


@pytest.mark.timeout(5000)
def test_the_openai_client_gets_each_request_the_text_it_has_alone(tmp_path):
    with server(tmp_path / "server.log") as url:
        found = asked(url)
    assert found["together"] == found["alone"]
    assert found["streamed"] == found["after"] == found["alone"][0]
    assert found["pieces"] > 1 and found["cancelled after"] == 3
    assert found["drawn"][0] == found["drawn"][1] != found["drawn"][2]
    five, six = found["drawn on chip"]
    assert found["drawn together"] == [five, found["alone"][0], six] and five != six
    assert "512" in found["too long"]
    assert isinstance(found["chat"], str)
    assert decoded(tmp_path / "server.log") > 50


@pytest.mark.timeout(5000)
def test_speculation_on_a_pair_gives_the_same_greedy_text(tmp_path):
    texts = []
    for name, options in (
        ("exact", ()),
        ("alspec", ("--attention", "alspec", "--threshold", "0", "--chunk-size", "32")),
    ):
        with server(tmp_path / f"{name}.log", "--mesh", "2x1", "--users", "2", *options) as url:
            texts.append(asked(url, "brief")["alone"])
        assert decoded(tmp_path / f"{name}.log") >= 5
    assert texts[0] == texts[1] and len(set(texts[0][0])) > 1
    counted = re.search(r"guesses accepted so far: 0 of (\d+)", (tmp_path / "alspec.log").read_text())
    assert counted is not None and int(counted[1]) > 0, "at threshold 0 guesses are verified, and none accepted"
