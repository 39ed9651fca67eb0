# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The stand-in compiler in a folder of a test's own, with small runtime roots, called as the runtime calls it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from runtime_patches.simulated_n150.compiler import toolchain

SOURCE = "tt_metal/hw/firmware/src/kernel.cc"
FOLDERS = ("tt_metal/hw/inc", "tt_metal/hw/late")


class Compiler:
    """The driver and what it imports in `folder`, beside a package that roots link to.

    The package has a source, which includes shared.h and generated.h, and its headers in tt_metal/hw/late.
    """

    def __init__(self, folder: Path):
        self.folder, self.driver = folder, folder / "toolchain" / "compiler" / "driver.py"
        (folder / "toolchain" / "lib").mkdir(parents=True)
        toolchain.copy_driver(folder / "toolchain")
        shutil.copy(toolchain.HERE / "tensix.s", folder / "toolchain" / "lib" / "tensix.s")
        toolchain.assemble_empty_kernel(folder / "toolchain" / "lib")
        self.program = folder / "riscv-tt-elf-g++"
        self.program.write_text(toolchain.launcher(sys.executable, folder / "toolchain"))
        self.program.chmod(0o755)
        self.package, self.log = folder / "package", folder / "log"
        self.write("tt_metal/hw/inc/internal/risc_attribs.h", "#pragma once\n")
        self.write(SOURCE, '#include "shared.h"\n#include "generated.h"\nint answer() { return SHARED + OWN; }\n')
        self.write("tt_metal/hw/late/shared.h", "#pragma once\n#define SHARED 40\n")
        self.first = folder / "first.h"
        self.first.write_text("#pragma once\n#include <cstdint>\n")

    def write(self, path: str, text: str) -> None:
        """Put a file into the package."""
        (self.package / path).parent.mkdir(parents=True, exist_ok=True)
        (self.package / path).write_text(text)

    def root(self, name: str, overlays: dict[str, str] | None = None) -> Path:
        """Return a runtime root of the package with the files `overlays` replaced or added."""
        root, overlays = self.folder / "runtime_roots" / name, overlays or {}
        for file in self.package.rglob("*"):
            path = file.relative_to(self.package).as_posix()
            if file.is_file() and path not in overlays:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).symlink_to(file)
        for path, text in overlays.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        manifest = {"overlays": {path: f"digest of {text}" for path, text in overlays.items()}}
        (root / ".runtime_root.json").write_text(json.dumps(manifest | {"ttnn_dir": str(self.package)}))
        return root

    def unit(self, name: str, generated: str) -> Path:
        """Return the folder of a unit of the kernel `name`, for which the runtime generated generated.h."""
        folder = self.folder / "jit" / name / "trisc0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / "generated.h").write_text(generated)
        return folder

    def arguments(self, root: Path, unit: Path, *options: str, core: str = "tt-wh-tensix") -> list[str]:
        """Return the command line of a compilation in the folder `unit`."""
        include = [f"-I{root / folder}" for folder in FOLDERS]
        return [
            "-O3", "-std=c++17", "-flto=1", "-g", "-MMD", f"-mcpu={core}", "-I.", "-I..", *include,
            "-include", str(self.first), *options, "-c", "-o", str(unit / "kernel.o"), str(root / SOURCE),
            "-MF", str(unit / "kernel.d"),
        ]  # fmt: skip

    def start(self, arguments: list[str], unit: Path) -> subprocess.Popen:
        return subprocess.Popen(
            [str(self.program), *arguments], cwd=unit, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ) | {"LLAMA_ALSPEC_COMPILE_LOG": str(self.log)},
        )  # fmt: skip

    def call(self, arguments: list[str], unit: Path) -> str:
        """Return where the result of one call, which must succeed, came from: the last word but one of the log."""
        process = self.start(arguments, unit)
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        return self.log.read_text().splitlines()[-1].split()[1]

    def compile(self, root: Path, name: str, generated: str, *options: str, core: str = "tt-wh-tensix"):
        """Compile a unit; return (``"hit"``, ``"plain"`` or ``"empty"``, bytes of the object)."""
        unit = self.unit(name, generated)
        outcome = self.call(self.arguments(root, unit, *options, core=core), unit)
        return outcome, (unit / "kernel.o").read_bytes()

    def entries(self) -> list[Path]:
        """Return the files of the cache of objects."""
        folder = self.folder / "toolchain" / "objects"
        return [f for f in folder.rglob("*") if f.is_file() and f.parent.name != "roots"]
