# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The stand-in compiler: command lines, rewritten sources, building it, and what its survey reports."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime_patches.simulated_n150.compiler import driver, sources, survey, toolchain

JIT_OPTIONS = [
    "-O3", "-std=c++17", "-ftt-nttp", "-ftt-no-dyninit", "-flto=1", "-flto-partition=one", "-ffast-math",
    "-g", "-MMD", "-Wall", "-Werror", "-Wno-error=parentheses",
]  # fmt: skip


@pytest.fixture
def headers(monkeypatch, tmp_path):
    """A folder of C++ headers of two versions, in place of the system's."""
    for version in ("12.2.1", "11.3.0"):
        (tmp_path / version).mkdir()
    monkeypatch.setattr(driver, "CXX_ROOT", str(tmp_path))
    return tmp_path


def test_data_movement_units_keep_link_time_optimization(headers):
    command = driver.compile_command([*JIT_OPTIONS, "-mcpu=tt-wh", "-DX=1", "-c", "-o", "a.o", "a.cc"])
    assert command[0] == driver.COMPILER and "-flto=1" in command and "-march=rv32im" in command
    assert "-O3" in command and "-DX=1" in command and "-MMD" in command
    unknown = [a for a in command if a.startswith(("-ftt", "-mcpu", "-Werror", "-std=c++17")) or a == "-g"]
    assert not unknown
    assert f"{headers}/12.2.1" in command


def test_tensix_units_are_compiled_for_vector_registers_without_it(headers):
    arguments = [*JIT_OPTIONS, "-mcpu=tt-wh-tensix", "-c", "-o", "a.o", "a.cc"]
    command = driver.compile_command(arguments)
    assert "-march=rv32imf" in command and "-mabi=ilp32" in command and "-D__riscv_xtttensixwh=1" in command
    assert "-O2" in command and "-O3" not in command and not any(a.startswith("-flto") for a in command)


LINK = ["-O3", "-g", "-std=c++17", "-nostartfiles", "-Wl,--emit-relocs", "-Wl,-z,max-page-size=16", "-Tk.ld"]
LINKED = ["a.o", "lib/substitutes.o", "-o", "a.elf"]


def test_links_add_the_c_library_and_keep_linker_options():
    command = driver.link_command([*LINK, "-mcpu=tt-wh", *LINKED])
    assert command[0] == driver.COMPILER and "-flto=1" in command and "-nodefaultlibs" in command
    assert {"-Wl,--emit-relocs", "-Tk.ld", "lib/substitutes.o", driver.LIBC, "-lgcc"} < set(command)


def test_links_of_machine_code_are_the_linkers_own(monkeypatch, tmp_path):
    for version in ("12.2.0", "9.3.0"):
        (tmp_path / version).mkdir()
    monkeypatch.setattr(driver, "GCC_LIBRARIES", str(tmp_path))
    assert driver.link_command([*LINK, "-mcpu=tt-wh-tensix", *LINKED]) == [
        driver.LINKER, "-melf32lriscv", "--emit-relocs", "-z", "max-page-size=16", "-Tk.ld", *LINKED,
        "--start-group", driver.LIBC, f"{tmp_path}/12.2.0/rv32im/ilp32/libgcc.a", "--end-group",
    ]  # fmt: skip


def test_a_missing_compiler_is_named_with_the_line_that_installs_it(monkeypatch, capsys):
    monkeypatch.setattr(driver, "COMPILER", "/nowhere/riscv64-unknown-elf-g++")
    assert driver.main(["-c", "a.cc", "-o", "a.o"]) == 1
    assert "apt-get install gcc-riscv64-unknown-elf" in capsys.readouterr().err
    assert driver.main(["--version"]) == 0


def test_sources_are_rewritten_line_by_line():
    text = (
        "template <class T> void f() {\n"
        "    if constexpr (sizeof(T) == 4) {\n"
        "    } else {\n"
        '        static_assert(false, "only \\"words\\"");\n'
        "    }\n"
        "#pragma GCC unroll N\n"
        "#pragma GCC unroll(window)\n"
        "#pragma GCC unroll 8  // rows\n"
        "    for (;;) {}\n"
        "}\n"
    )
    new = sources.rewrite(text)
    assert new.count("\n") == text.count("\n")
    assert 'static_assert(sizeof(never) == 0, "only \\"words\\"");' in new.splitlines()[3]
    assert "unroll N" not in new and "unroll(window)" not in new and "#pragma GCC unroll 8  // rows" in new


@pytest.mark.parametrize("folder", ["plain", "of two 'words'", "long" * 40])
def test_the_launcher_starts_the_driver_and_keeps_its_bytecode(tmp_path, folder):
    """Through a link, with whatever path the interpreter has; a script's own bytecode would not be kept."""
    made, interpreter = tmp_path / "of $HOME", tmp_path / folder / "python"
    toolchain.copy_driver(made)
    interpreter.parent.mkdir()
    interpreter.symlink_to(sys.executable)
    program, link = tmp_path / "program", tmp_path / "link"
    program.write_text(toolchain.launcher(str(interpreter), made))
    program.chmod(0o755)
    link.symlink_to(program)
    said = subprocess.run([link, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"{driver.VERSION}\n"
    assert list(made.glob("compiler/__pycache__/driver.*.pyc"))


def test_ctrl_c_ends_the_compiler_without_a_traceback(tmp_path):
    (tmp_path / "compiler").mkdir()
    waits = "import sys, time\ndef main(arguments):\n    print('begun', flush=True)\n    time.sleep(60)\n"
    (tmp_path / "compiler" / "driver.py").write_text(waits)
    program = tmp_path / "program"
    program.write_text(toolchain.launcher(sys.executable, tmp_path))
    with subprocess.Popen(["/bin/sh", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=50) == ("", "")
    assert process.returncode == -signal.SIGINT


def test_missing_packages_stop_the_build_with_the_line_that_installs_them(monkeypatch, tmp_path):
    absent = {"gcc-riscv64-unknown-elf": "/nowhere/gcc", "picolibc-riscv64-unknown-elf": "/nowhere/libc.a"}
    monkeypatch.setattr(toolchain, "PACKAGES", absent)
    assert toolchain.missing_packages() == list(absent)
    with pytest.raises(toolchain.ToolchainError, match=f"apt-get install {' '.join(absent)}"):
        toolchain.build_toolchain(tmp_path, tmp_path, sys.executable)
    assert not list(tmp_path.iterdir())


@pytest.mark.sim
def test_it_is_built_once_under_concurrent_use_and_overlays_files_only(tmp_path):
    ttnn = Path(importlib.util.find_spec("ttnn").submodule_search_locations[0])
    with pytest.raises(toolchain.ToolchainError, match="not an installed ttnn package"):
        toolchain.build_toolchain(tmp_path, tmp_path, sys.executable)
    with ThreadPoolExecutor(2) as pool:
        built = set(pool.map(lambda _: toolchain.build_toolchain(tmp_path, ttnn, sys.executable), range(2)))
    (folder,) = built
    assert list((tmp_path / "toolchain").iterdir()) == [folder]
    overlay = toolchain.overlay_files(folder)
    assert all(path.is_file() for path in overlay.values())
    for name in (
        "runtime/sfpi/include/sfpi.h",
        "runtime/sfpi/include/lltt.h",
        "runtime/hw/lib/wormhole/noc.o",
    ):
        assert name in overlay
    assert all((ttnn / name).exists() for name in overlay if not name.startswith("runtime/sfpi"))


def test_the_survey_finds_functions_and_says_what_it_cannot_call(tmp_path):
    header = tmp_path / "thing.h"
    header.write_text(
        "// ALWI void commented_tile(uint32_t idst) {}\n"
        "template <bool fast = true, DataFormat format>\nALWI void thing_tile(uint32_t idst, float scale) {\n}\n"
        "template <DataFormat format>\nALWI void other_tile(uint32_t idst, uint32_t extra = 3) {\n}\n"
        "ALWI void thing_tile_pack(uint32_t idst) {\n}\n"
        "ALWI void odd_tile(Widget& widget) {\n}\n"
    )
    found = dict(survey.functions(header))
    assert found["thing_tile"] == ["thing_tile(argument[0], 1.5f);"]
    assert found["other_tile"] == ["other_tile<DataFormat::Int32>(argument[0]);"]
    assert found["odd_tile"] == "parameter of type Widget&"
    assert set(found) == {"thing_tile", "other_tile", "odd_tile"}


@pytest.mark.sim
def test_the_survey_compiles_and_reports_the_cause_of_a_failure():
    from runtime_patches.simulated_n150.environment import simulated_environment

    root = simulated_environment("1x1")["TT_METAL_RUNTIME_ROOT"]
    outcome = {name: cause for _, name, cause in survey.run(root, ["recip", "selu"], jobs=1)}
    assert outcome["recip_tile"] == "" and outcome["recip_tile_init"] == ""
    assert "calculate_selu" in outcome["selu_tile"] and "scalar float is computed at run time" in outcome["selu_tile"]
