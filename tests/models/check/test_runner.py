# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Faults put into stages: each gives the right status, stage and advice, and the others go on. What stages with a model
expect is decided: no near ties, hits and misses on both ranks, links of every pair."""

import json
import os

import pytest
import torch

from models.llama31_8b.check import cli, on_chips, runner, with_model
from models.llama31_8b.check.findings import (
    COULD_NOT_RUN,
    FAIL,
    MAX_ERROR,
    PASS,
    SKIPPED,
    Context,
    Finding,
    exit_code,
    failed_checks,
    near,
)
from models.llama31_8b.check.on_chips import driver_checks, neighbours
from models.llama31_8b.check.report import ROOT
from models.llama31_8b.check.runner import run_stages
from models.llama31_8b.check.stages import LEVELS, SIM_PATIENCE, STAGES, Stage, advice
from models.llama31_8b.check.with_model import filled_cache
from models.llama31_8b.reference.alspec import policies
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from models.llama31_8b.tiny import TINY
from runtime_patches.board import environment
from runtime_patches.simulated_n150 import clusters

FAULTY = "tests.models.check.faulty_bodies"
WAY = "what goes on working"


def stage(body: str, name: str = "gate", **settings) -> Stage:
    return Stage(name, f"{FAULTY}:{body}", (WAY,), **{"chips": 0, **settings})


def run(*stages: Stage, level: str = "full") -> list[Finding]:
    return list(run_stages(stages, "sim", level))


OUTCOMES = {
    "wrong_value": (FAIL, "product: expected 4, measured 5"),
    "dies": (FAIL, "its process ended with signal SIGSEGV: the last words of a runtime (while running the stage)"),
    "raises": (FAIL, "RuntimeError: Failed to allocate hugepage on /home/someone/x (while running the stage)"),
    "lacks": (COULD_NOT_RUN, "no compiler"),
    "is_not_there": (FAIL, "AttributeError: "),
    "passes": (PASS, ""),
}


def test_a_fault_has_its_status_and_the_others_go_on():
    for (body, (status, why)), found in zip(
        OUTCOMES.items(), run(*(stage(body, body) for body in OUTCOMES)), strict=True
    ):
        assert found.status == status and found.why.startswith(why), found
        assert (WAY in found.advice) == (status != PASS)
        assert any("hugepages are missing" in text for text in found.advice) == (body == "raises")


def test_a_hung_stage_is_ended_with_what_it_started():
    (found,) = run(stage("hangs", limit_s=10 / SIM_PATIENCE))
    assert found.status == FAIL and "did not end within 10 s (while running the stage)" in found.why
    assert any("a hang" in text for text in found.advice)
    lines = (open(f"/proc/{pid}/cmdline").read() for pid in os.listdir("/proc") if pid.isdecimal() and _alive(pid))
    assert not [line for line in lines if f"{FAULTY}:hangs" in line]


def _alive(pid: str) -> bool:
    return os.path.exists(f"/proc/{pid}/cmdline")


def test_stages_whose_needs_failed_or_whose_level_is_higher_are_skipped():
    stages = (stage("lacks", "a"), stage("passes", "b", needs=("a",)), stage("passes", "c", level="soak"))
    found = run(*stages, stage("passes", "d", chips=4))
    assert [one.status for one in found] == [COULD_NOT_RUN, SKIPPED, SKIPPED, SKIPPED]
    assert [one.why for one in found[1:]] == ["needs a", "of level soak", "needs 4 chips, found 2"]


NO_WOLFPINE = ["sh", "-c", "echo cannot run: no wolfpine; exit 1"]


def test_a_part_of_the_simulator_that_is_missing_is_no_fault_of_the_stage(monkeypatch):
    monkeypatch.setattr(runner.simulated, "command", lambda *_, **_named: NO_WOLFPINE)
    (found,) = run(stage("passes", chips=1))
    assert (found.status, found.why) == (COULD_NOT_RUN, "no wolfpine")


def test_a_library_simulates_one_chip_without_float32_tiles(capsys):
    stages = (stage("passes", "a", chips=2), stage("passes", "b", chips=1, float32=True), stage("passes", "c"))
    found = list(run_stages(stages, "sim", "quick", "libttsim_wh.so"))
    assert [one.why for one in found] == ["needs 2 chips, found 1", "ttsim refuses ttnn's unpacks of float32 tiles", ""]
    for options, said in (
        (["--simulator", "none.so"], "--simulator is for --device sim, got --device n150"),
        (["--device", "sim", "--simulator", "none.so"], "--simulator none.so: no such file"),
    ):
        with pytest.raises(SystemExit, match="2"):
            cli.main(options)
        error = capsys.readouterr().err
        assert said in error and len(error.splitlines()) == 1


def test_exit_codes():
    codes = {(PASS, SKIPPED): 0, (PASS, COULD_NOT_RUN): 1, (COULD_NOT_RUN, FAIL, PASS): 2, (): 0}
    assert {key: exit_code([Finding("a", status) for status in key]) for key in codes} == codes


def test_the_stages_are_sound_and_the_document_lists_them():
    """Names are unique, needs come before, and every failure has advice."""
    names = [one.name for one in STAGES]
    assert len(set(names)) == len(names)
    for index, one in enumerate(STAGES):
        assert set(one.needs) <= set(names[:index]) and one.level in LEVELS and one.limit_s > 0 and one.advice
    text = (ROOT / "docs/first_day.md").read_text(encoding="utf-8")
    table = "\n".join(f"| {one.name} | {one.level} | {one.chips or '-'} | {one.limit_s} |" for one in STAGES)
    assert f"\n{table}\n\n" in text


def test_a_missing_driver_file_is_named(tmp_path):
    driver, pages, iommu = tmp_path / "version", tmp_path / "nr", tmp_path / "iommu"
    why = failed_checks(driver_checks(driver, pages, iommu))
    assert f"measured no {driver}" in why and "no hugepages, IOMMU off" in why
    assert any("hugepages are missing" in text for text in advice(STAGES[0], why))
    driver.write_text("2.3.0\n")
    pages.write_text("0\n")
    assert [check.ok for check in driver_checks(driver, pages, iommu)] == [True, False]
    (iommu / "dmar0").mkdir(parents=True)
    assert failed_checks(driver_checks(driver, pages, iommu)) == ""
    found, after = run(stage("without_driver", "host"), stage("passes", "cards", needs=("host",)))
    assert (found.status, after.status) == (FAIL, SKIPPED) and "the driver is not loaded" in found.advice[0]


def test_a_run_writes_its_report(tmp_path, capsys, monkeypatch):
    arguments = ["--device", "sim", "--report", str(tmp_path / "r"), "--describe", "a first try"]
    assert cli.main(arguments, (stage("passes"), stage("raises", "open"))) == 2
    report = json.loads((tmp_path / "r/report.json").read_text())
    assert [one["status"] for one in report["stages"]] == [PASS, FAIL] and report["description"] == "a first try"
    text = (tmp_path / "r/report.md").read_text()
    assert "someone" not in text and "hugepages are missing" in text and report["run"] in text
    assert "nothing was uploaded" in capsys.readouterr().out
    assert (tmp_path / "r/report.json").stat().st_mode & 0o077 == 0
    (tmp_path / "file").touch()
    assert cli.main([*arguments[:3], str(tmp_path / "file"), "--describe", ""], (stage("passes"),)) == 1
    assert "### llama-alspec check" in capsys.readouterr().out, "a report that cannot be written is shown"

    def interrupted(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(cli, "run_stages", interrupted)
    assert cli.main(arguments) == 1 and "interrupted" in capsys.readouterr().out


def test_boards_that_are_not_there_could_not_be_judged(tmp_path, monkeypatch, capsys):
    """Without SFPI or ttnn the host stage says what is missing; nothing after it runs."""
    monkeypatch.setattr(environment, "BOARDS", tmp_path / "none")
    assert cli.main(["--report", str(tmp_path / "r"), "--describe", ""]) in (1, 2)
    found = json.loads((tmp_path / "r/report.json").read_text())["stages"]
    assert found[0]["status"] in (COULD_NOT_RUN, FAIL) and {one["status"] for one in found[1:]} == {SKIPPED}
    assert found[0]["stage"] == "host"


@pytest.mark.parametrize("broken, factor", [("HiFi4", 32), *(("HiFi3", f) for f in (2, 0.25, 32, float("nan")))])
def test_the_probe_finds_a_wrong_sum_and_hifi4s_is_noted_only(monkeypatch, broken, factor):
    """On a multiplier whose sums are right in float32, but for one in `broken` (tt-metal issue 38306)."""

    def product(context, left, right, fidelity):
        sums = (left.float() @ right.float()).double()
        if fidelity == broken:
            sums[17, 5] *= factor
        return sums

    monkeypatch.setattr(on_chips, "_product", product)
    right, noted = on_chips.hifi4_probe(Context("n150"))
    assert right.ok == (broken == "HiFi4") and noted.ok is None
    wrong = noted if broken == "HiFi4" else right
    assert wrong.measured.startswith("4 of 4096 wrong, the worst by ")


FAULTS = {
    "stock op": ("wrong_ones", "ones + ones: expected [2.0], measured [3.0]"),
    "link": ("cut_link", "gave up"),
    "collectives": ("wrong_sum", "sum: expected at most "),
    "pair": ("every_guess_accepted", "decisions by step, layer and rank: expected "),
    "token trees": ("nothing_moved", "text: expected "),
}
QUICK = [one.name for one in STAGES if one.level == "quick"]
SOME = ("tree attention", "pair", "token trees")  # of the higher levels


def of_name(name: str) -> Stage:
    return next(one for one in STAGES if one.name == name)._replace(needs=())


def run_on_chips(one: Stage, library) -> Finding:
    (found,) = run_stages([one], "sim", "soak", library and str(library))
    if library is not None and found.status == SKIPPED:
        pytest.skip(f"ttsim: {found.why.removeprefix('ttsim ')}")
    return found


@pytest.mark.sim
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name",
    [
        *SOME,
        *(pytest.param(one.name, marks=pytest.mark.slow) for one in STAGES if one.name not in (*QUICK, *SOME)),
    ],
)
def test_a_stage_passes_on_simulated_chips(monkeypatch, name, library):
    monkeypatch.setattr(runner, "SIM_CHIPS", 8)
    found = run_on_chips(of_name(name), library)
    assert found.status == PASS, found
    assert any(check.ok for check in found.checks) and all(check.ok is not False for check in found.checks)


@pytest.mark.sim
@pytest.mark.timeout(3600)
def test_a_layer_passes_on_simulated_chips(library):
    found = run_on_chips(of_name("layer")._replace(body=f"{FAULTY}:tiny_layer"), library)
    assert found.status == PASS and [check.ok for check in found.checks] == [True] * 3, found


@pytest.mark.sim
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name", [name if name in ("stock op", "link") else pytest.param(name, marks=pytest.mark.slow) for name in FAULTS]
)
def test_a_fault_on_chips_fails_with_the_way_around_it(name, library):
    body, why = FAULTS[name]
    found = run_on_chips(of_name(name)._replace(body=f"{FAULTY}:{body}"), library)
    assert found.status == FAIL and why in found.why and set(of_name(name).advice) <= set(found.advice), found


@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_quick_passes_on_simulated_chips(library):
    found = list(run_stages(STAGES, "sim", "quick", library and str(library)))
    assert {one.stage: one.status for one in found if one.status not in (PASS, SKIPPED)} == {}
    on_library = [one.name for one in STAGES if one.name in QUICK and one.chips < 2 and not one.float32]
    assert [one.stage for one in found if one.status == PASS] == (QUICK if library is None else on_library)


MIN_MARGIN, MIN_GAP = 0.05, 0.1  # bfloat16 moves ratios by 1 % and logits by 0.06


@pytest.fixture(scope="module")
def reference() -> ReferenceLlama:
    return ReferenceLlama.random(TINY)


def gap(logits: torch.Tensor) -> float:
    best = logits.topk(2).values
    return float(best[0] - best[1])


def test_the_pair_has_hits_and_misses_that_are_no_near_ties(reference, monkeypatch):
    """Both ranks send, and each of them has its guess rejected, of the ends, and accepted, with chosen tiles."""
    ratios, accept = [], policies.accept_guess

    def kept(guess, exact, threshold):
        ratios.append(float((guess - exact).norm() / exact.norm()))
        return accept(guess, exact, threshold)

    monkeypatch.setattr(policies, "accept_guess", kept)
    policy = policies.ALSpecAttention(with_model.THRESHOLD, GuessRange.by_budget(with_model.CHUNK_SIZE))
    cache = filled_cache(reference, with_model.CACHED, with_model.CAPACITY)
    tokens, logits = with_model.steps_of_reference(reference, cache, policy)
    assert [ratio < with_model.THRESHOLD for ratio in ratios] == [False, False, True, False, True, True]
    assert min(abs(ratio / with_model.THRESHOLD - 1) for ratio in ratios) > MIN_MARGIN
    assert min(map(gap, logits)) > MIN_GAP and len(set(tokens)) == with_model.STEPS + 1


def test_the_text_of_the_trees_is_no_near_tie_and_their_drafts_are_right_for_so_many_tokens(reference):
    cache = filled_cache(reference, with_model.TREE_CACHED, with_model.TREE_CAPACITY)
    count = sum(with_model.RIGHT) + len(with_model.RIGHT)
    text = with_model.greedy_text(reference, cache, count)
    again = filled_cache(reference, with_model.TREE_CACHED, with_model.TREE_CAPACITY)
    logits = reference.forward(torch.tensor([text[:-1]]), again, logits="all")[0]
    assert min(map(gap, logits)) > MIN_GAP and logits.argmax(-1).tolist() == text[1:]
    assert len(set(text)) > count // 2, "a text that repeats itself would hide wrong positions"
    drafts = [with_model.drafted([7, 8, 9], right) for right in range(3)]
    assert [tokens[2:] for tokens in drafts] == [[9, 10], [8, 10], [8, 9]]
    assert all(tokens[0] == 7 and tokens[1] not in (8, tokens[2]) for tokens in drafts)


def test_another_decision_fails():
    """Layer 0 hits, so rank 1 sends in layer 1 and misses."""
    priorities = [[[0], [1]], [[1], [2]]]  # by rank and layer, of one user
    assert with_model.check_decisions([priorities], [[True, False]]).ok
    assert with_model.check_decisions([priorities], [[True, True]]).ok is False
    assert with_model.check_decisions([priorities[::-1]], [[True, False]]).ok is False


def test_one_wrong_value_fails():
    expected = torch.linspace(-1, 1, 384)
    assert near("logits", expected + 0.01, expected).ok
    wrong = expected.clone()
    for value in (wrong[100] + 2 * MAX_ERROR, torch.tensor(float("nan"))):
        wrong[100] = value
        assert near("logits", wrong, expected).ok is False
    assert near("one", torch.tensor([3.01]), torch.tensor([3.0])).ok
    assert not near("none", torch.zeros(64), expected[:64]).ok


def test_every_pair_of_neighbours_is_a_link():
    assert list(neighbours(2, 1)) == [((0, 0), (1, 0))]
    assert list(neighbours(1, 4)) == [((0, n), (0, n + 1)) for n in range(3)]
    for shape in ((2, 2), (2, 4), (1, 8)):
        chips = [row * shape[1] + column for pair in neighbours(*shape) for row, column in pair]
        joined = {tuple(sorted(pair)) for pair in zip(chips[::2], chips[1::2], strict=True)}
        assert joined == {tuple(sorted((a, b))) for (a, _), (b, _) in clusters.links(shape)}
