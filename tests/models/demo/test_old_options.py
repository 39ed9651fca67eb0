# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Options of earlier releases: renamed ones work and say so, those that are gone are refused by name."""

from __future__ import annotations

import pytest

from models.llama31_8b.demo import cli
from models.llama31_8b.demo.old_options import REMOVED, RENAMED
from models.llama31_8b.demo.options import UserError


@pytest.mark.parametrize("name", REMOVED)
@pytest.mark.parametrize("form", ["{} 64", "{}=64"])
def test_an_option_that_is_gone(name, form):
    with pytest.raises(UserError, match=f"{name} is gone since 0.2.0: ."):
        cli.parse(["--prompt", "x", *form.format(name).split()])


def test_a_renamed_option_works_and_says_so(capsys):
    cli.log_to_stderr()
    assert RENAMED["--no-chat-template"] == "--raw"
    assert cli.parse(["--prompt", "x", "--no-chat-template"]).chat_template is False
    assert "--no-chat-template is --raw since 0.2.0; the old name works in this release" in capsys.readouterr().err


def test_help_shows_neither(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.parse(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and "--raw" in shown
    assert not [name for name in (*REMOVED, *RENAMED) if f"{name} " in shown]
