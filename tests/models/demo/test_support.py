# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The one table of what each backend supports: help, errors and docs say the same."""

from pathlib import Path

import pytest

from models.llama31_8b.demo.cli import BACKENDS, SUPPORTS, parse
from models.llama31_8b.demo.options import ATTENTIONS, DemoOptions, UserError, flag_of
from models.llama31_8b.demo.support_table import table

USING = Path(__file__).resolve().parents[3] / "docs" / "using.md"


def test_the_docs_show_the_table():
    assert table(SUPPORTS) in USING.read_text(encoding="utf-8"), (
        "docs/using.md is out of date: paste the output of python -m models.llama31_8b.demo.support_table"
    )


def test_every_backend_decides_every_policy_and_names_real_options():
    names = set(DemoOptions.__dataclass_fields__)
    for support in SUPPORTS:
        assert set(support.attention) == set(ATTENTIONS) and set(support.refused) <= names


@pytest.mark.parametrize("device", BACKENDS)
def test_what_is_refused_is_refused_with_its_reason(device):
    support = BACKENDS[device].SUPPORT
    for name, why in support.attention.items():
        options = support.resolved(DemoOptions(attention=name, static_layers="0" if name == "static" else None))
        if why is None:
            support.check(options)
        else:
            with pytest.raises(UserError, match=f"--attention {name} does not go with --device {device}: {why}"):
                support.check(options)
    for name, why in support.refused.items():
        options = support.resolved(DemoOptions(given=frozenset({name})))
        with pytest.raises(UserError) as refused:
            support.check(options)
        assert str(refused.value) == f"{flag_of(name)} does not go with --device {device}: {why}"


def test_help_says_it(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    shown = capsys.readouterr().out
    for support in SUPPORTS:
        assert support.summary() in shown
    assert "llama-alspec hits FILE" in shown and "llama-alspec cache" in shown
