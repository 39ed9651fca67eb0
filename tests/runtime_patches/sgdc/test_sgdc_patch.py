# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The patch of SGDC (static graph, dynamic concurrency) as text: what it edits, what it refuses, and its
command line. Nothing is compiled for a device."""

import difflib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_patches import sgdc
from runtime_patches.board.runtime_root import find_ttnn_dir
from runtime_patches.sgdc import GATE_HEADER, MEMORY_MAP, STUBS, patched, stock_content
from runtime_patches.sgdc.__main__ import main

COMPILER = shutil.which("riscv64-unknown-elf-g++")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the parts of a tt-metal checkout that the patch reads."""
    root = tmp_path / "tt-metal"
    for path in (*(stub.path for stub in STUBS), MEMORY_MAP):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(find_ttnn_dir() / path, root / path)
    return root


@pytest.fixture
def source_build(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkout, with the ttnn in it the one that this process would import."""
    package = checkout / "ttnn" / "ttnn"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "ttnn", raising=False)
    monkeypatch.syspath_prepend(package.parent)
    assert find_ttnn_dir() == package
    return checkout


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "cache"))
    for name in ("TT_METAL_RUNTIME_ROOT", "TT_METAL_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_the_patch_replaces_the_worker_stubs_and_nothing_else():
    names = sorted(Path(path).name for path in sgdc.overlays())
    assert names == ["brisck.cc", "ncrisck.cc", "sgdc_gate.h", "trisck.cc"]


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: Path(stub.path).stem)
def test_edits_only_guard_the_kernel_call(stub):
    stock = (find_ttnn_dir() / stub.path).read_bytes()
    edited = patched(stub, stock)
    removed = [
        line[2:].strip()
        for line in difflib.ndiff(stock.decode().splitlines(), edited.decode().splitlines())
        if line.startswith("- ")
    ]
    calls = [line for line in removed if line in ("kernel_main();", "run_kernel();")]
    assert len(calls) == 1
    assert len(removed) == (2 if stub.path.endswith("trisck.cc") else 1)
    assert stock_content(stub, edited) == stock
    assert stock_content(stub, stock) is None


def test_other_stubs_are_refused_before_anything_is_written(checkout: Path):
    last = checkout / STUBS[-1].path
    last.write_bytes(last.read_bytes() + b"// changed\n")
    before = {stub.path: (checkout / stub.path).read_bytes() for stub in STUBS}
    with pytest.raises(sgdc.StubMismatchError, match=r"trisck\.cc has SHA-256 .* ttnn 0\.81\.1"):
        sgdc.apply_to_checkout(checkout)
    assert {stub.path: (checkout / stub.path).read_bytes() for stub in STUBS} == before
    assert not (checkout / GATE_HEADER).exists()
    assert sgdc.state(checkout) is sgdc.GateState.OTHER


def without_header(checkout: Path) -> str:
    (checkout / GATE_HEADER).unlink()
    return GATE_HEADER


def with_an_older_header(checkout: Path) -> str:
    header = checkout / GATE_HEADER
    header.write_bytes(header.read_bytes().replace(b"0x5347C105u", b"0x5347C104u"))
    return GATE_HEADER


def with_a_stock_stub(checkout: Path) -> str:
    path = STUBS[0].path
    shutil.copy(find_ttnn_dir() / path, checkout / path)
    (checkout / (path + ".sgdc-draft")).write_text("cut sho")
    return path


@pytest.mark.parametrize("interrupt", [without_header, with_an_older_header, with_a_stock_stub])
def test_an_interrupted_apply_is_told_apart_and_completed(interrupt, checkout: Path, capsys):
    sgdc.apply_to_checkout(checkout)
    lacking = interrupt(checkout)
    assert sgdc.state(checkout) is sgdc.GateState.PARTIAL
    assert main(["check", "--root", str(checkout)]) == 1
    assert "patched in part" in capsys.readouterr().out
    assert main(["apply", "--root", str(checkout)]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == [f"patched {checkout / lacking}"]
    assert sgdc.state(checkout) is sgdc.GateState.PATCHED
    assert {path: (checkout / path).read_bytes() for path in sgdc.overlays()} == sgdc.overlays()
    assert not list(checkout.rglob("*.sgdc-draft"))


def test_the_installed_package_and_roots_of_links_stay_untouched():
    with pytest.raises(ValueError, match="installed package"):
        sgdc.apply_to_checkout(find_ttnn_dir())
    with pytest.raises(ValueError, match="runtime root"):
        sgdc.apply_to_checkout(sgdc.build_patched_root())
    assert sgdc.state(find_ttnn_dir()) is sgdc.GateState.STOCK


def test_command_line(checkout: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    assert main(["check"]) == 1
    assert "not patched" in capsys.readouterr().out
    assert main(["apply"]) == 0
    name, _, root = capsys.readouterr().out.strip().partition("=")
    assert name == "export TT_METAL_RUNTIME_ROOT"
    assert main(["check", "--root", root]) == 0
    assert "ttnn 0.81.1, patched" in capsys.readouterr().out
    monkeypatch.setenv("TT_METAL_RUNTIME_ROOT", root)
    assert main(["where"]) == 0
    assert capsys.readouterr().out.count(root) == 2
    for told in (f"patched {checkout / STUBS[0].path}", f"{checkout} is patched already"):
        assert main(["apply", "--root", str(checkout)]) == 0
        *lines, use = capsys.readouterr().out.splitlines()
        assert told in lines and use == f"export TT_METAL_RUNTIME_ROOT={checkout}"
    assert main(["apply", "--root", str(checkout / "nowhere")]) == 2
    assert "no tree of tt-metal" in capsys.readouterr().err


def test_what_cannot_be_written_is_named(checkout: Path, tmp_path: Path, capsys, monkeypatch):
    obstacle = checkout / (GATE_HEADER + ".sgdc-draft")
    obstacle.mkdir(parents=True)
    assert main(["apply", "--root", str(checkout)]) == 2
    assert re.search(f"error: apply was not completed: .*Is a directory: .*{obstacle}", capsys.readouterr().err)
    assert sgdc.state(checkout) is sgdc.GateState.STOCK
    (tmp_path / "file").touch()
    monkeypatch.setenv("LLAMA_ALSPEC_CACHE", str(tmp_path / "file"))
    assert main(["apply"]) == 2
    assert re.search(
        r"error: no runtime root can be written .*Not a directory.*LLAMA_ALSPEC_CACHE",
        capsys.readouterr().err,
    )


def test_tt_metal_home_patches_nothing(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    sgdc.apply_to_checkout(checkout)
    monkeypatch.setenv("TT_METAL_HOME", str(checkout))
    assert sgdc.runtime_in_use() == find_ttnn_dir()
    with pytest.raises(sgdc.UnpatchedRuntimeError):
        sgdc.require_patched()
    monkeypatch.setenv("TT_METAL_RUNTIME_ROOT", str(checkout))
    assert sgdc.require_patched() == checkout


def test_an_empty_variable_is_the_working_directory(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    """The runtime takes it so too: it runs from there if it holds a tree, else ends."""
    monkeypatch.setenv("TT_METAL_RUNTIME_ROOT", "")
    monkeypatch.chdir(checkout)
    assert sgdc.runtime_in_use() == checkout


def test_a_source_build_is_served(source_build: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    command = f"python -m runtime_patches.sgdc apply --root {source_build}"
    assert main(["check"]) == 1
    assert f"{source_build}: source tree, not patched" in capsys.readouterr().out
    for argument in ("apply", "where"):
        assert main([argument]) == 2
        assert command in capsys.readouterr().err
    with pytest.raises(sgdc.UnpatchedRuntimeError, match=command):
        sgdc.require_patched()
    assert main(["apply", "--root", str(source_build)]) == 0
    export = f"export TT_METAL_RUNTIME_ROOT={source_build}\n"
    assert capsys.readouterr().out.endswith(export)
    assert sgdc.require_patched() == source_build
    for argument in ("check", "where", "apply"):
        assert main([argument]) == 0
        assert str(source_build) in (out := capsys.readouterr().out)
    assert out == export
    assert sgdc.overlays()[GATE_HEADER] == (source_build / GATE_HEADER).read_bytes()


def test_an_unpatched_runtime_is_refused_with_the_command_that_fixes_it(monkeypatch: pytest.MonkeyPatch):
    from tt_kernels.compute_gate.op import clear_compute_gate, skip_compute

    command = r"no compute gate .*python -m runtime_patches\.sgdc apply"
    # The runtime is looked at first, so neither call gets as far as the device or the tensor.
    with pytest.raises(sgdc.UnpatchedRuntimeError, match=command):
        clear_compute_gate(None)
    with pytest.raises(sgdc.UnpatchedRuntimeError, match=command), skip_compute(None, users=1):
        raise AssertionError("the region was entered")
    monkeypatch.setenv("TT_METAL_RUNTIME_ROOT", str(sgdc.build_patched_root()))
    sgdc.require_patched()


def test_nobody_but_two_debugging_tools_knows_the_region_of_the_gate():
    tree = find_ttnn_dir() / "tt_metal"
    other_architectures = ("quasar", "blackhole")
    users = {
        path.name
        for path in tree.rglob("*")
        if path.suffix in (".h", ".hpp", ".cc", ".cpp", ".c", ".ld", ".S")
        and path.is_file()
        and not any(part.endswith(name) for part in path.parts for name in other_architectures)
        and b"MEM_LLK_DEBUG" in path.read_bytes()
    }
    assert users == {"dev_mem_map.h", "trisck.cc", "checkpoint.h"}


@pytest.mark.skipif(COMPILER is None, reason="no RISC-V compiler")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, None),
        (("MEM_LLK_DEBUG_SIZE 1024", "MEM_LLK_DEBUG_SIZE 1020"), "aligned for the NoC"),
        (("MEM_LLK_DEBUG_SIZE 1024", "MEM_LLK_DEBUG_SIZE 0"), "zeros every kernel may read"),
        (("(MEM_ZEROS_BASE + MEM_ZEROS_SIZE)\n", "MEM_MAILBOX_BASE\n"), "is in the mailboxes"),
        (
            (
                "MEM_BRISC_FIRMWARE_BASE (MEM_LLK_DEBUG_BASE + MEM_LLK_DEBUG_SIZE)",
                "MEM_BRISC_FIRMWARE_BASE MEM_LLK_DEBUG_BASE",
            ),
            "BRISC firmware",
        ),
    ],
    ids=["stock", "alignment", "zeros", "mailboxes", "firmware"],
)
def test_the_header_asserts_the_place_against_the_memory_map(change, message, tmp_path: Path):
    text = (find_ttnn_dir() / MEMORY_MAP).read_text()
    if change is not None:
        assert text.count(change[0]) == 1
        text = text.replace(*change)
    (tmp_path / "dev_mem_map.h").write_text(text)
    (tmp_path / "sgdc_gate.h").write_bytes(sgdc.overlays()[GATE_HEADER])
    program = '#include "sgdc_gate.h"\nstatic_assert(SKIP_COMPUTE == 0x3a10);\n'
    program += "bool f() { return sgdc::skip_compute(); }\n"
    (tmp_path / "unit.cc").write_text(program)
    (tmp_path / "cstdint").write_text("#include <stdint.h>\n")  # the compiler alone has no C++ library
    flags = ["-std=gnu++20", "-fsyntax-only", "-march=rv32im", "-mabi=ilp32", "-DARCH_WORMHOLE", "-DKERNEL_BUILD"]
    flags += ["-ffreestanding", "-I", str(tmp_path)]

    def compiled(*more: str) -> subprocess.CompletedProcess:
        command = [COMPILER, *flags, *more, str(tmp_path / "unit.cc")]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    done = compiled()
    if message is None:
        assert done.returncode == 0, done.stderr
        for opt_out in ("SGDC_UNGATED", "DISPATCH_KERNEL"):
            assert "SKIP_COMPUTE" in compiled(f"-D{opt_out}").stderr, f"a kernel with {opt_out} is gated"
    else:
        assert done.returncode != 0
        assert message in done.stderr
