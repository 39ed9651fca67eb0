# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A ttsim library in place of this simulator: what is refused, what a process gets, which tests are skipped."""

import subprocess
import sys

import pytest
import torch

from runtime_patches.simulated_n150 import __main__ as command
from runtime_patches.simulated_n150 import environment, library
from runtime_patches.simulated_n150.board.runtime_root import RuntimeRootError
from runtime_patches.simulated_n150.testing import simulators
from runtime_patches.simulated_n150.testing.worker import WorkerFailure

LIBRARY_OF_ANOTHER_CHIP = """
#include <stdint.h>
void libttsim_init(void) {}
uint32_t libttsim_pci_config_rd32(uint32_t device, uint32_t offset) { return %s; }
"""


@pytest.fixture
def stand_in(tmp_path):
    """Return what makes a library that answers with a chip's PCI identity."""

    def make(identity="0x401E1E52"):
        path = tmp_path / "libttsim_wh.so"
        source = tmp_path / "library.c"
        source.write_text(LIBRARY_OF_ANOTHER_CHIP % identity)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, source], check=True)
        return path

    return make


def test_files_that_are_no_library_are_refused(tmp_path, stand_in):
    text, other = tmp_path / "notes.so", tmp_path / "other.so"
    text.write_text("libttsim_init")
    other.write_bytes(b"\x7fELF and no symbol of it")
    for path, said in ((tmp_path / "none.so", "no such file"), (tmp_path, "no such file"), (text, "not a shared"),
                       (other, "without libttsim_init")):  # fmt: skip
        with pytest.raises(ValueError, match=said) as refused:
            library.check_library(path)
        assert str(path) in str(refused.value)
    assert library.check_library(stand_in()) == stand_in()


@pytest.mark.parametrize(("identity", "said"), [("0xB1401E52", "0xb1401e52, not Wormhole"), ("*(int*)0", "not start")])
def test_a_library_of_another_chip_is_refused(stand_in, identity, said):
    with pytest.raises(ValueError, match=said):
        library.check_chip(stand_in(identity))


def test_the_folder_of_a_library_holds_the_wheels_description_of_the_chip(tmp_path, stand_in):
    wheel, path = tmp_path / "ttnn", stand_in()
    (wheel / library.DESCRIPTOR).parent.mkdir(parents=True)
    (wheel / library.DESCRIPTOR).write_text("grid: 8x8")
    library.check_chip(path)
    link = library.prepared(path, wheel, tmp_path / "cache")
    assert link == library.prepared(path, wheel, tmp_path / "cache")
    assert link.resolve() == path and (link.parent / "soc_descriptor.yaml").read_text() == "grid: 8x8"
    (wheel / library.DESCRIPTOR).write_text("grid: 8x9")
    assert library.prepared(path, wheel, tmp_path / "cache").parent != link.parent


@pytest.mark.parametrize("dispatch", ["slow", "fast"])
def test_the_environment_names_the_library_and_nothing_of_this_simulator(stand_in, dispatch):
    try:
        own = environment.simulated_environment("2x1", dispatch=dispatch)
        found = environment.simulated_environment("2x1", dispatch=dispatch, library=stand_in())
    except RuntimeRootError as error:
        pytest.skip(str(error))
    assert found["TT_METAL_SIMULATOR"].endswith("libttsim.so") and not own["TT_METAL_SIMULATOR"].endswith(".so")
    dropped = {"WOLFPINE_PYTHON", "TT_METAL_MOCK_CLUSTER_DESC_PATH", environment.dispatch_modes.BURST_VARIABLE}
    assert set(own) - set(found) == dropped & set(own)
    assert {name: found[name] for name in found if name != "TT_METAL_SIMULATOR"}.items() <= own.items()


def test_a_mesh_has_no_library(stand_in, capsys):
    with pytest.raises(ValueError, match="one chip, not a mesh of 1x2"):
        environment.simulated_environment(mesh=(1, 2), library=stand_in())
    for several in ("--mesh", "--mock"):
        with pytest.raises(SystemExit):
            command.main(["run", several, "1x2", "--simulator", "libttsim_wh.so", "--", "true"])
        assert "--simulator is for one chip" in capsys.readouterr().err


def test_the_command_refuses_a_missing_library_before_it_starts_the_program(tmp_path, capsys):
    made = tmp_path / "made"
    program = [sys.executable, "-c", f"open({str(made)!r}, 'w')"]
    assert command.main(["run", "--simulator", str(tmp_path / "none.so"), "--", *program]) == 1
    assert "none.so: no such file" in capsys.readouterr().err and not made.exists()


def test_a_rule_that_does_not_exist_is_refused_before_anything_is_built(monkeypatch):
    monkeypatch.setenv("SIMULATED_N150_SRCB_BITS", "both")
    with pytest.raises(ValueError, match="own or srca, got 'both'"):
        environment.simulated_environment("1x1")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("UndefinedBehavior: tensix_unpacr: unpack_to_dst=0 in_data_format=0", "32-bit tiles to Dst"),
        ("UnsupportedFunctionality: tensix_sfploadmacro: explicitly out of scope", "with SFPLOADMACRO"),
    ],
)
def test_a_kernel_of_ttnn_that_the_library_refuses_skips_the_test(monkeypatch, said, why):
    def fail(self, *arguments):
        raise WorkerFailure(said)

    monkeypatch.setattr(simulators.DeviceWorker, "_call", fail)
    worker = object.__new__(simulators.LibraryWorker)
    with pytest.raises(pytest.skip.Exception, match=why):
        worker._call(("run",), "an op", 1.0)
    said = "our kernel hung"
    with pytest.raises(WorkerFailure, match="our kernel hung"):
        worker._call(("run",), "an op", 1.0)


def test_cycles_need_the_projects_own_simulator():
    assert simulators.why_not_on_library({"TT_SIM_COST_MODEL": "1"}) == "counts no cycles"
    assert simulators.why_not_on_library({"TT_METAL_LOGS_PATH": "x"}) is None


def test_results_are_compared_bit_for_bit():
    nan, other = torch.tensor([float("nan"), 0.0, 1.0]), torch.tensor([float("nan"), -0.0, 1.0])
    assert simulators.compare({"a": nan, "b": [1, "x"]}, {"b": [1, "x"], "a": nan}) == (5, 0)
    assert simulators.compare({"a": nan, "b": [1, "x"]}, {"b": [1, "y"], "a": other}) == (5, 2)
    assert simulators.compare([nan], [nan, nan]) == (2, 2)
    assert simulators.compare(nan, nan.double()) == (3, 3)


def test_both_simulators_are_asked_and_the_own_one_answers(monkeypatch):
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/tt_kernels/gate/test_gate.py::test_closed[1: 4/1] (call)")

    class Worker:
        def __init__(self, answer):
            self.answer = answer

        def run(self, function, *arguments):
            return self.answer(*arguments)

    def refuse(x):
        raise ValueError(f"refused {x}")

    comparison = simulators.Comparison()
    own = Worker(lambda x: torch.tensor([x, 2.0]))
    for judge in (own, Worker(lambda x: torch.tensor([x, 3.0])), Worker(lambda x: pytest.skip("ttsim"))):
        found = comparison.both(lambda: own, lambda judge=judge: judge).run(print, 1.0)
        assert found.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="refused 7"):
        comparison.both(lambda: Worker(refuse), lambda: Worker(refuse)).run(print, 7)
    (row,) = comparison.rows()
    assert row.pop("differing_tests") == ["tests/tt_kernels/gate/test_gate.py::test_closed[1: 4/1]"]
    assert row == {
        "tests_in": "tests/tt_kernels/gate/test_gate.py",
        "tests": 1,
        "calls": 4,
        "refused": 1,
        "values": 6,
        "differing": 1,
    }
