# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Reports hold nothing private, and say what was found."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.llama31_8b.check.findings import COULD_NOT_RUN, FAIL, PASS, Check, Finding
from models.llama31_8b.check.report import make, markdown, private_names, redact
from models.llama31_8b.check.stages import KILLED, STAGES, advice

WORD = st.text(string.ascii_letters + string.digits + "-_", min_size=2, max_size=12)
# What a report says in any case cannot be a private name, or it would be taken out of it.
NAME = WORD.filter(lambda word: word.lower() not in "<name> <path> <address> <number> <mail> opened failed on at by")
AROUND = st.sampled_from(["", " ", "failed: ", "(", "'", "at ", "opened by "])


@given(NAME, AROUND, AROUND)
def test_host_and_user_names_are_taken_out(name, before, after):
    text = redact(f"{before}{name}{after} {name.upper()}", [name])
    assert name.lower() not in text.lower().replace("<name>", "").replace("opened by", "").replace("failed:", "")


@given(st.lists(WORD.map(lambda word: f"q{word}q"), min_size=2, max_size=5), AROUND)
def test_paths_keep_their_last_part_alone(parts, before):
    text = redact(f"{before}/{'/'.join(parts)}/driver.cpp: no such file", [])
    assert "driver.cpp: no such file" in text
    assert not [part for part in parts if part in text]
    assert parts[0] not in redact(f"~/{parts[0]}/x and ./{parts[0]}/x", [])


@given(st.text("0123456789abcdefABCDEF", min_size=12, max_size=20), st.sampled_from(["", "0x"]))
def test_serial_numbers_are_taken_out(serial, prefix):
    assert serial not in redact(f"board {prefix}{serial}, bus 0", [])


@given(st.one_of(st.ip_addresses().map(str), st.just("00:1b:44:11:3a:b7")))
def test_addresses_are_taken_out(address):
    text = redact(f"from {address} by a.b@x.org", [])
    assert text == "from <address> by <mail>" or address == "::", "two colons are no name of a machine"


def test_a_quoted_path_with_blanks_keeps_its_last_part_alone():
    assert redact("no file '/srv/jane doe/my models/config.json' here", []) == "no file '<path>/config.json' here"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("cannot open /data/My Projects/secret plan/x.py: no", "cannot open <path>/x.py: no"),
        ("read /srv/a/b.txt and /srv/c/d.txt", "read <path>/b.txt and <path>/d.txt"),
        ("HOME=/data/people/jane", "HOME=<path>"),
        ("/mnt/homes/jane: permission denied", "<path>: permission denied"),
        ("peer:fe80::1: refused", "peer:<address>: refused"),
        ("[2001:db8::1]:8080, fe80::1%eth0, 2001:db8::", "[<address>]:8080, <address>%eth0, <address>"),
        ("at 10.1.2.3:8000 and 2001:db8::1:", "at <address>:8000 and <address>:"),
    ],
)
def test_folders_that_may_be_homes_paths_with_blanks_and_addresses_with_ports_are_taken_out(text, left):
    assert redact(text, []) == left


def test_the_domain_of_the_host_is_private(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "box7.lab.example.org")
    monkeypatch.setattr("socket.getfqdn", lambda: "localhost")
    monkeypatch.setenv("HOME", "/data/people/jane")
    said = "jane on BOX7, nfs1.lab.example.org:/data/people/jane"
    assert redact(said, private_names()) == "<name> on <name>, nfs1.<name>:<name>"


@pytest.mark.parametrize(
    "text",
    ["no /dev/tenstorrent/0", "ttnn 0.81.1", "PCC 0.999913, 12 of 256 differ", "1/sqrt(d)", "std::add", "at 12:30:45"],
)
def test_what_a_maintainer_needs_stays(text):
    assert redact(text, ["nobody"]) == text


def test_keys_and_lists_are_redacted_too():
    assert redact({"joe": ["joe", 1, None, {"a": "joe!"}]}, ["joe"]) == {
        "<name>": ["<name>", 1, None, {"a": "<name>!"}]
    }


def test_no_way_around_a_stage_is_advised_where_its_process_was_killed():
    gate = next(stage for stage in STAGES if stage.name == "gate")
    assert advice(gate, "its process ended with signal SIGKILL: it said nothing (while running)") == (KILLED,)
    assert gate.advice[0] in advice(gate, "its process ended with signal SIGSEGV")


def test_a_report_says_what_was_found():
    findings = [
        Finding("open", PASS, 2.5, checks=(Check("cores", "8x8", "8x8", True),)),
        Finding("gate", COULD_NOT_RUN, 0.1, "no compiler", ("install it",)),
        Finding("link", FAIL, 0.1, "x\n" * 5000),
    ]
    report = make(findings, "n150", "quick", "")
    text = markdown(report)
    assert report["exit_code"] == 2 and max(map(len, text.split("\n"))) < 400
    assert "| open | pass | 2.5 | cores: 8x8 |" in text and "**gate**, could not run: no compiler\n- install it" in text
    assert "(no description was given)" in text
