# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The table of mutations fits the sources; a run tells what becomes of one (`python -m tests.mutations` runs all)."""

from pathlib import Path

import pytest

from tests.mutations.__main__ import CAUGHT, DOES_NOT_APPLY, MUTATIONS, ROOT, Mutation, applies, outcome


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation_applies_and_names_tests_that_exist(mutation):
    """Whoever moves the line or renames the test changes tests/mutations/table.txt."""
    assert applies(mutation), f"{mutation.text!r} is not once in {mutation.file}"
    assert mutation.replacement != mutation.text and mutation.tests
    for test in mutation.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), test
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), test


@pytest.mark.parametrize(
    ("text", "replacement", "test", "ending", "timeout_s"),
    [
        ("return 1", "return 2", "assert one() == 1", CAUGHT, 60),
        ("return 1", "return 1.0", "assert one() == 1", "not caught", 60),
        ("return 3", "return 2", "assert one() == 1", DOES_NOT_APPLY, 60),
        ("return 1", "return 2", "pytest.skip('no board')", "skipped: 1 skipped", 60),
        ("return 1", "return 2", "while True: pass", "out of time after 1 s", 1),
    ],
)
def test_what_becomes_of_a_mutation(tmp_path: Path, text, replacement, test, ending, timeout_s):
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "one.py").write_text("def one():\n    return 1\n")
    (copy / "test_one.py").write_text(f"import pytest\nfrom one import one\n\ndef test_one():\n    {test}\n")
    found = outcome(Mutation("m", "one.py", text, replacement, ("test_one.py",)), copy, timeout_s)
    assert found.startswith(ending)
    assert (copy / "one.py").read_text() == "def one():\n    return 1\n", "the next mutation starts from the sources"
