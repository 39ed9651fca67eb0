# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Faults put into stages: each gives the right status, stage and advice, and the others go on."""

from __future__ import annotations

import json
import os

import pytest
import torch

from models.llama31_8b.check import cli, expectations
from models.llama31_8b.check.advice import FALLBACKS, advice
from models.llama31_8b.check.bodies.host import driver_checks
from models.llama31_8b.check.expectations import Expectations, compare, pack, unpack, versions
from models.llama31_8b.check.findings import (
    COULD_NOT_RUN,
    FAIL,
    PASS,
    SKIPPED,
    CouldNotRun,
    Finding,
    exit_code,
    failed_checks,
)
from models.llama31_8b.check.runner import ROOT, run_stages
from models.llama31_8b.check.stages import LEVELS, SIM_PATIENCE, STAGES, Stage, recorded_stages
from runtime_patches.board import boards

FAULTY = "tests.models.check.faulty_bodies"
KERNELS = "tests.models.check.faulty_kernels"


def stage(body: str, name: str = "gate", module: str = FAULTY, **settings) -> Stage:
    return Stage(name, f"{module}:{body}", **{"chips": 0, **settings})


def run(*stages: Stage, level: str = "full") -> list[Finding]:
    return list(run_stages(stages, "sim", level))


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ("passes", PASS, ""),
        ("wrong_value", FAIL, "op: expected equal, measured PCC 1.000000, largest error "),
        ("other_version", COULD_NOT_RUN, "outputs were recorded with ttnn 0.0.1, installed is "),
        ("dies", FAIL, "its process ended with signal SIGSEGV: the last words of a runtime (while running the stage)"),
        ("raises", FAIL, "RuntimeError: Failed to allocate hugepage on"),
        ("lacks", COULD_NOT_RUN, "no compiler"),
        ("is_not_there", FAIL, "AttributeError: "),
    ],
)
def test_a_fault_has_its_status_and_the_others_go_on(body, status, why):
    found, after = run(stage(body), stage("passes", "open"))
    assert (found.status, after.status) == (status, PASS) and found.why.startswith(why), found
    assert (FALLBACKS["gate"][0] in found.advice) == (status != PASS)


def test_a_hung_stage_is_ended_with_what_it_started():
    (found,) = run(stage("hangs", limit_s=8 / SIM_PATIENCE))
    assert found.status == FAIL and found.why == "took longer than 8 s (while running the stage)"
    assert any("a hang" in text for text in found.advice)
    lines = (open(f"/proc/{pid}/cmdline").read() for pid in os.listdir("/proc") if pid.isdecimal() and _alive(pid))
    assert not [line for line in lines if f"{FAULTY}:hangs" in line]


def _alive(pid: str) -> bool:
    return os.path.exists(f"/proc/{pid}/cmdline")


def test_stages_whose_needs_failed_or_whose_level_is_higher_are_skipped():
    stages = (stage("lacks", "a"), stage("passes", "b", needs=("a",)), stage("passes", "c", level="soak"))
    found = run(*stages, stage("passes", "d", chips=4))
    assert [one.status for one in found] == [COULD_NOT_RUN, SKIPPED, SKIPPED, SKIPPED]
    assert [one.why for one in found[1:]] == ["needs a", "of level soak", "needs 4 chips, there is 2"]


def test_exit_codes():
    codes = {(PASS, SKIPPED): 0, (PASS, COULD_NOT_RUN): 1, (COULD_NOT_RUN, FAIL, PASS): 2, (): 0}
    assert {key: exit_code([Finding("a", status) for status in key]) for key in codes} == codes


def test_the_stages_are_sound():
    """Names are unique, needs come before, every failure has advice, and bodies exist."""
    names = [one.name for one in STAGES]
    assert len(set(names)) == len(names) and set(FALLBACKS) == set(names)
    for index, one in enumerate(STAGES):
        assert set(one.needs) <= set(names[:index]) and one.level in LEVELS and one.limit_s > 0


def test_the_document_lists_the_stages():
    text = (ROOT / "docs/first_day.md").read_text(encoding="utf-8")
    table = "\n".join(f"| {one.name} | {one.level} | {one.chips or '-'} | {one.limit_s} |" for one in STAGES)
    assert f"\n{table}\n\n" in text


def test_a_missing_driver_file_is_named(tmp_path):
    driver, pages, iommu = tmp_path / "version", tmp_path / "nr", tmp_path / "iommu"
    why = failed_checks(driver_checks(driver, pages, iommu))
    assert f"measured no {driver}" in why and "no hugepages, IOMMU off" in why
    assert any("hugepages are missing" in text for text in advice("host", why))
    driver.write_text("2.3.0\n")
    pages.write_text("0\n")
    assert [check.ok for check in driver_checks(driver, pages, iommu)] == [True, False]
    (iommu / "dmar0").mkdir(parents=True)
    assert failed_checks(driver_checks(driver, pages, iommu)) == ""


def test_a_host_without_driver_fails_and_ends_the_rest():
    found, after = run(stage("without_driver", "host"), stage("passes", "cards", needs=("host",)))
    assert (found.status, after.status) == (FAIL, SKIPPED) and after.why == "needs host"
    assert found.why.startswith("driver: expected a version of tt-kmd, measured no /sys/module/tenstorrent_not_loaded/")
    assert "the driver is not loaded" in found.advice[0] and FALLBACKS["host"][0] in found.advice


def test_a_run_writes_its_report(tmp_path, capsys):
    arguments = ["--device", "sim", "--report", str(tmp_path / "r"), "--describe", "a first try"]
    assert cli.main(arguments, (stage("passes"), stage("raises", "open"))) == 2
    report = json.loads((tmp_path / "r/report.json").read_text())
    assert [one["status"] for one in report["stages"]] == [PASS, FAIL] and report["description"] == "a first try"
    text = (tmp_path / "r/report.md").read_text()
    assert "someone" not in text and "hugepages are missing" in text and report["run"] in text
    assert "nothing was uploaded" in capsys.readouterr().out


def test_a_report_that_cannot_be_written_is_shown(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    arguments = ["--device", "sim", "--report", str(tmp_path / "file"), "--describe", ""]
    assert cli.main(arguments, (stage("passes"),)) == 1
    out = capsys.readouterr().out
    assert "### llama-alspec check: check-" in out and "could not be written to" in out


def test_a_report_is_written_though_the_runner_itself_breaks(tmp_path, monkeypatch):
    def broken(*given, **named):
        raise ValueError("no such board")
        yield

    monkeypatch.setattr(cli, "run_stages", broken)
    assert cli.main(["--device", "sim", "--report", str(tmp_path / "r"), "--describe", ""]) == 1
    text = (tmp_path / "r/report.md").read_text()
    assert "| run | could not run | 0.0 | ValueError: no such board |" in text


@pytest.mark.timeout(300)
def test_a_machine_without_boards_gets_a_report_and_advice(tmp_path):
    """The whole self-test for boards, here: only the host can be looked at."""
    if boards.visible_boards():
        pytest.skip("this machine has boards")
    assert cli.main(["--level", "soak", "--report", str(tmp_path), "--describe", "no board"]) in (1, 2)
    first, *others = json.loads((tmp_path / "report.json").read_text())["stages"]
    assert first["stage"] == "host" and first["status"] in (COULD_NOT_RUN, FAIL)
    assert FALLBACKS["host"][0] in first["advice"]
    assert {one["status"] for one in others} == {SKIPPED} and len(others) == len(STAGES) - 1
    assert len((tmp_path / "report.md").read_text()) <= 6000


def test_other_versions_are_said_and_not_compared():
    values = torch.linspace(-1, 1, 8)
    recorded = Expectations(versions() | {"wolfpine": "0.0.1"}, {"op": pack(values)})
    with pytest.raises(CouldNotRun, match="recorded with wolfpine 0.0.1, installed is "):
        recorded.of("op", simulated=True)
    assert torch.equal(recorded.of("op", simulated=False), values), "a board has no simulator's version"
    with pytest.raises(CouldNotRun, match="recorded with ttnn 0.0.1"):
        Expectations({"ttnn": "0.0.1"}, {"op": pack(values)}).of("op", simulated=False)
    with pytest.raises(CouldNotRun, match="no output 'other'"):
        recorded.of("other", simulated=False)


def test_boards_may_round_another_way_but_not_more():
    expected = torch.linspace(-1, 1, 64)
    near = expected + 0.001 * torch.sin(torch.arange(64.0))
    assert compare("a", near, expected, exact=False).ok and not compare("a", near, expected, exact=True).ok
    wrong = expected.clone()
    wrong[7] += 0.03
    assert not compare("a", wrong, expected, exact=False).ok
    assert compare("a", torch.tensor([3.01]), torch.tensor([3.0]), exact=False).ok
    assert not compare("a", torch.tensor([3.1]), torch.tensor([3.0]), exact=False).ok
    assert not compare("a", torch.full((64,), torch.nan), expected, exact=False).ok


def test_recording_replaces_all_and_says_what_changed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(expectations, "FILE", tmp_path / "expected.json")
    expectations.write({"op": pack(torch.zeros(64)), "gone": pack(torch.zeros(1))})
    arguments = ["--device", "sim", "--record", "--report", str(tmp_path / "r"), "--describe", ""]
    needed, other = stage("passes", "open"), stage("raises", "stock op")
    wanted = stage("gives", needs=("open",), level="soak", recorded=True)
    assert cli.main(arguments, (needed, other, wanted)) == 0, "stages that nothing recorded needs do not run"
    assert "recorded: 1 outputs in expected.json; changed: gone, op" in capsys.readouterr().out
    said = Expectations.read()
    assert said.versions == versions() and list(said.outputs) == ["op"]
    assert torch.equal(unpack(said.outputs["op"]), torch.linspace(-1, 1, 64))
    assert cli.main(arguments, (needed, wanted._replace(body=f"{FAULTY}:raises"))) == 2
    assert Expectations.read() == said, "a run that failed records nothing"


def test_every_recorded_output_is_of_a_stage_with_outputs():
    names = [one.name for one in recorded_stages()]
    assert names[:4] == ["host", "cards", "open", "stock op"]
    assert set(names[4:]) == {"flash decode", "tree attention", "verification"}
    assert {name.split(",")[0] for name in Expectations.read().outputs} == {
        "flash decode", "tree attention", "greedy verification"
    }  # fmt: skip


@pytest.mark.sim
@pytest.mark.timeout(900)
def test_a_wrong_value_in_a_kernel_fails():
    """Only what the changed kernel computes differs."""
    (found,) = run(stage("wrong_norm", "flash decode", KERNELS, chips=1))
    assert found.status == FAIL and found.why.startswith("flash decode, norm_sq: expected equal, measured "), found
    assert FALLBACKS["flash decode"][0] in found.advice


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_endless_kernel_is_ended():
    (found,) = run(stage("endless_gate", "gate", KERNELS, chips=1, limit_s=60 / SIM_PATIENCE))
    assert found.status == FAIL and found.why == "took longer than 60 s (while running the stage)"
    assert FALLBACKS["gate"][0] in found.advice and any("OPERATION_TIMEOUT" in text for text in found.advice)


@pytest.mark.sim
@pytest.mark.timeout(900)
def test_a_wrong_sum_on_a_chip_fails():
    (found,) = run(stage("wrong_ones", "stock op", chips=1))
    assert found.status == FAIL and found.why == "ones + ones: expected [2.0], measured [3.0]"


@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_a_cut_link_fails():
    (found,) = run(stage("cut_link", "link", chips=2))
    assert found.status == FAIL and "gave up" in found.why and any("cable" in text for text in found.advice)


@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_quick_passes_on_simulated_chips():
    found = list(run_stages(STAGES, "sim", "quick"))
    assert {one.stage: one.status for one in found if one.status not in (PASS, SKIPPED)} == {}
    assert sum(one.status == PASS for one in found) >= 7
