# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Build the folder that takes the place of the SFPI compiler in a simulated runtime root.

    <toolchain>/compiler/bin/riscv-tt-elf-g++   starts compiler/driver.py
    <toolchain>/include/                        sfpi.h, lltt.h and what they include
    <toolchain>/lib/*.o                         the runtime's support objects, rebuilt from source
    <toolchain>/lib/tensix.s                    assembler macros
    <toolchain>/lib/empty_kernel.o              stands for stock kernels that nothing executes
    <toolchain>/sources/                        the wheel's device sources that GCC 12 needs rewritten

It is keyed by everything it is made from, so a stale one is never used and an old one can be deleted at any time.
"""

import hashlib
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from runtime_patches.simulated_n150.compiler import driver, sources

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parent / "sfpi"

# The driver and what it imports: a package of the toolchain, whose imports are relative.
DRIVER_MODULES = (
    "__init__.py",
    "driver.py",
    *(f"cache/{name}.py" for name in ("__init__", "macros", "objects", "store")),
    *(f"sfpu/{name}.py" for name in ("__init__", "allocator", "instructions", "lane_flags", "literals", "passes")),
    *(f"sfpu/{name}.py" for name in ("vector", "webs")),
)

# Debian package -> a file it must have put on this machine.
PACKAGES = {
    "gcc-riscv64-unknown-elf": driver.COMPILER,
    "picolibc-riscv64-unknown-elf": driver.LIBC,
    "libstdc++-arm-none-eabi-dev": driver.CXX_ROOT,
}

# Support object -> its source in the wheel.
SUPPORT_SOURCES = {
    "substitutes": "tt_metal/hw/toolchain/substitutes.cpp",
    "tmu-crt0": "tt_metal/hw/toolchain/tmu-crt0.S",
    "wh-iram-start": "tt_metal/hw/toolchain/wh-iram-start.S",
    "wh-iram-trampoline": "tt_metal/hw/toolchain/wh-iram-trampoline.S",
    "noc": "tt_metal/hw/firmware/src/tt-1xx/wormhole/noc.c",
    "tdma_xmov": "tt_metal/hw/firmware/src/tt-1xx/tdma_xmov.c",
}
SUPPORT_INCLUDES = (
    ".",
    "tt_metal",
    "tt_metal/api",
    "tt_metal/api/tt-metalium",
    "tt_metal/hw/inc",
    "tt_metal/hw/inc/debug",
    "tt_metal/hw/firmware/src/tt-1xx",
    "tt_metal/hw/inc/internal/tt-1xx",
    "tt_metal/hw/inc/internal/tt-1xx/wormhole",
    "tt_metal/hw/inc/internal/tt-1xx/wormhole/wormhole_b0_defines",
    "tt_metal/hw/inc/internal/tt-1xx/wormhole/noc",
    "tt_metal/hw/ckernels/wormhole_b0/metal/common",
    "tt_metal/hw/ckernels/wormhole_b0/metal/llk_io",
    "tt_metal/tt-llk/tt_llk_wormhole_b0/common/inc",
    "tt_metal/tt-llk/tt_llk_wormhole_b0/llk_lib",
)
SUPPORT_FLAGS = (
    "-mcpu=tt-wh",
    "-Os",
    "-ffast-math",
    "-fno-use-cxa-atexit",
    "-fno-tree-loop-distribute-patterns",
    "-DTENSIX_FIRMWARE",
    "-DARCH_WORMHOLE",
    # Bytecode for the LTO links of the data-movement cores, machine code for the links of the TRISCs.
    "-ffat-lto-objects",
)


class ToolchainError(RuntimeError):
    """The stand-in compiler cannot be built on this machine; the message says what to do."""


def missing_packages() -> list[str]:
    """Return the names of the Debian packages that the simulated toolchain needs and this machine lacks."""
    return [name for name, proof in PACKAGES.items() if not os.path.exists(proof)]


def _key(ttnn_dir: Path, python: str) -> str:
    digest = hashlib.sha256()
    made_from = [HERE / name for name in (*DRIVER_MODULES, "tensix.s", "empty_kernel.s", "sources.py", "toolchain.py")]
    for path in (*made_from, *sorted(HEADERS.rglob("*.h"))):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    compiler = subprocess.run([driver.COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    for part in (compiler.splitlines()[0], importlib.metadata.version("ttnn"), str(ttnn_dir), python):
        digest.update(part.encode())
    return digest.hexdigest()[:16]


def _build_support_objects(folder: Path, ttnn_dir: Path, python: str) -> None:
    # As the launcher starts it: this leaves the bytecode of the driver and of what every call imports.
    compiler = [python, "-I", "-S", "-c", _start(folder)]
    includes = [f"-I{ttnn_dir / name}" for name in SUPPORT_INCLUDES]
    for name, source in SUPPORT_SOURCES.items():
        command = [*compiler, *SUPPORT_FLAGS, *includes, "-c", "-o", str(folder / "lib" / f"{name}.o")]
        done = subprocess.run([*command, str(ttnn_dir / source)], capture_output=True, text=True)
        if done.returncode:
            raise ToolchainError(f"support object {name}.o could not be built from {source}:\n{done.stderr}")


def assemble_empty_kernel(folder: Path) -> None:
    """Make empty_kernel.o in `folder`."""
    empty = [str(HERE / "empty_kernel.s"), "-o", str(folder / "empty_kernel.o")]
    subprocess.run([driver.ASSEMBLER, *driver.INTEGER_CORE, *empty], check=True)


def _start(folder: Path) -> str:
    """Return Python that runs the driver of the toolchain in `folder` as a module: a script's bytecode is not kept.

    Ctrl-C ends it without a word. `signal` would take as long to import as all else.
    """
    silent = "import _signal, sys; _signal.signal(_signal.SIGINT, _signal.SIG_DFL)"
    path = f"sys.path.insert(0, {str(folder)!r})"
    return f"{silent}; {path}; from compiler import driver; sys.exit(driver.main(sys.argv[1:]))"


def copy_driver(folder: Path) -> None:
    """Put the driver's modules into the toolchain in `folder`, as the package `compiler`."""
    for module in DRIVER_MODULES:
        copied = folder / "compiler" / module
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / module, copied)


def launcher(python: str, folder: Path) -> str:
    """Return the program that stands for the compiler of the toolchain in `folder`.

    It names the driver by an absolute path, since it is itself reached through links.
    """
    return f'#!/bin/sh\nexec {shlex.join([python, "-I", "-S", "-c", _start(folder)])} "$@"\n'


def _fill(folder: Path, target: Path, ttnn_dir: Path, python: str) -> None:
    for name in ("compiler/bin", "lib", "include", "sources"):
        (folder / name).mkdir(parents=True)
    copy_driver(folder)
    shutil.copy(HERE / "tensix.s", folder / "lib" / "tensix.s")
    assemble_empty_kernel(folder / "lib")
    for header in HEADERS.rglob("*.h"):
        copied = folder / "include" / header.relative_to(HEADERS)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(header, copied)
    program = folder / "compiler" / "bin" / "riscv-tt-elf-g++"
    program.write_text(launcher(python, target))
    program.chmod(0o755)
    for name, text in sources.rewritten_sources(ttnn_dir).items():
        target = folder / "sources" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", errors="surrogateescape")
    _build_support_objects(folder, ttnn_dir, python)


def build_toolchain(cache_dir: Path, ttnn_dir: Path, python: str) -> Path:
    """Return the folder of the stand-in toolchain for the ttnn package at `ttnn_dir`; build it on first use.

    Safe under concurrent use: it is built under a temporary name and renamed; who comes second uses the first's.

    cache_dir: the project's cache folder; the toolchain goes to `<cache_dir>/toolchain/<key>`. ttnn_dir: the installed
    ttnn package (the folder that holds tt_metal/). python: interpreter that runs the driver. Errors: ToolchainError
    when Debian packages are missing, or a support object does not compile.
    """
    missing = missing_packages()
    if missing:
        raise ToolchainError(
            f"the simulated toolchain needs Debian packages that are not installed: {', '.join(missing)}; "
            f"install them with: apt-get install {' '.join(missing)}"
        )
    ttnn_dir = Path(ttnn_dir).resolve()
    if not (ttnn_dir / "tt_metal" / "hw" / "toolchain").is_dir():
        raise ToolchainError(f"{ttnn_dir} holds no tt_metal/hw/toolchain: not an installed ttnn package")
    # A virtual environment's interpreter is a link, which takes longer to start and leads to nothing the driver needs.
    python = os.path.realpath(python)
    target = Path(cache_dir).resolve() / "toolchain" / _key(ttnn_dir, python)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        building.chmod(0o755)
        _fill(building, target, ttnn_dir, python)
        try:
            building.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


def overlay_files(toolchain_dir: Path) -> dict[str, Path]:
    """Return {path relative to the runtime root: the file of the toolchain that belongs there}."""
    toolchain_dir = Path(toolchain_dir)
    files = {"runtime/sfpi/compiler/bin/riscv-tt-elf-g++": toolchain_dir / "compiler" / "bin" / "riscv-tt-elf-g++"}
    for name in SUPPORT_SOURCES:
        files[f"runtime/hw/lib/wormhole/{name}.o"] = toolchain_dir / "lib" / f"{name}.o"
    for header in sorted((toolchain_dir / "include").rglob("*.h")):
        files[f"runtime/sfpi/include/{header.relative_to(toolchain_dir / 'include').as_posix()}"] = header
    for source in sorted((toolchain_dir / "sources").rglob("*")):
        if source.is_file():
            files[source.relative_to(toolchain_dir / "sources").as_posix()] = source
    return files
