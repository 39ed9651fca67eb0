# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Options and skips of this project; the simulator's plugin for pytest has the fixtures of devices."""

import sys
from collections.abc import Iterator
from functools import cache

import pytest
from loguru import logger

from perf.lib.data_file import save
from runtime_patches import sgdc
from runtime_patches.board import doctor
from runtime_patches.board.environment import process_environment, silicon_environment
from runtime_patches.simulated_n150.testing.fixtures import PROJECT, Overlays, Project

# Modules of checks beside the tests say what was not equal, as the tests do.
pytest.register_assert_rewrite(
    "tests.models.demo",
    "tests.tt_kernels",
    "tests.silicon",
    "tests.models.tt",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("llama-alspec")
    group.addoption(
        "--device",
        choices=("sim", "n150"),
        default="sim",
        help="where tests marked sim run: on the simulated N150 (default) or on the board of this machine",
    )
    group.addoption(
        "--runtime",
        choices=("patched", "stock"),
        default="patched",
        help="whether devices run on a runtime with the SGDC patch, its gate open (default), or on the stock one;"
        " tests of the gate itself always take the patched one",
    )


@pytest.hookimpl(tryfirst=True)  # before the plugin looks for it
def pytest_configure(config: pytest.Config) -> None:
    board = None
    if config.getoption("--device") == "n150":
        if reason := _why_no_board():
            raise pytest.UsageError(f"--device n150: {reason}")
        board = _board_process
    overlays = cache(sgdc.overlays) if config.getoption("--runtime") == "patched" else dict
    config.stash[PROJECT] = Project(overlays, board, "tests.support.gate:open_gate", save)


def _board_process(overlays: Overlays) -> dict[str, str]:
    return process_environment(silicon_environment(overlays))


def pytest_collection_finish() -> None:
    """Refuse tests that import ttnn when they are collected: it reads its environment then, and takes seconds."""
    if "ttnn" in sys.modules:
        raise pytest.UsageError("a module of tests imports ttnn when it is collected")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("silicon"):
        if reason := _why_no_board():
            pytest.skip(f"silicon not ready: {reason}")
        if item.config.getoption("--device") != "n150":
            pytest.skip("runs on a board only: give --device n150")


@pytest.fixture(autouse=True)
def _plain_surroundings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test print to a plain terminal of 80 columns and know none of the user's choices, whoever runs it."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    for variable in ("FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS"):
        monkeypatch.delenv(variable, raising=False)
    if not request.node.get_closest_marker("silicon"):  # these take their model from the user
        monkeypatch.delenv("HF_MODEL", raising=False)
        monkeypatch.delenv("MESH_DEVICE", raising=False)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The messages of loguru from INFO on, as they come."""
    said: list[str] = []
    sink = logger.add(lambda message: said.append(message.rstrip("\n")), level="INFO", format="{message}")
    yield said
    logger.remove(sink)


@cache
def _why_no_board() -> str | None:
    return doctor.why_not()
