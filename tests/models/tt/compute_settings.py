# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What compute kernels were built with, as the runtime's kernel cache tells it, those of ttnn included."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FIDELITIES = {0: "LoFi", 2: "HiFi2", 3: "HiFi3", 4: "HiFi4"}
FLOAT32_FORMAT = 0
OURS = "tt_kernels"
_FIDELITY = re.compile(r"MATH_FIDELITY = static_cast<ckernel::MathFidelity>\((\d)\)")
_FLOAT32 = re.compile(r"bool DST_ACCUM_MODE = (true|false)")
_FORMATS = re.compile(r"unpack_dst_format\[32\] = \{([^}]*)\}")
_SOURCE = re.compile(r'#include "(/[^"]+\.cpp)"')
_LOCAL = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# Functions of a compute kernel that multiply in the matrix unit. What adds, copies, transposes and sorts there does not
# depend on the fidelity, and the vector unit has none.
_PRODUCTS = re.compile(
    r"\b(matmul_\w+|mm_\w+|mul_tiles\w*|mul_bcast\w*|reduce_\w+|reduce<|binary_dest_reuse_tiles|EltwiseBinaryType|"
    r"ELWMUL|BINARY_OP)\b"
)


@dataclass(frozen=True)
class ComputeSettings:
    """kernel: the name of its source file. float32: whether the destination registers accumulate in float32.
    products: whether it multiplies in the matrix unit, by its source; true of all of ours. reuses: whether it takes an
    operand from the destination registers while it unpacks float32 numbers into them."""

    kernel: str
    fidelity: str
    float32: bool
    products: bool = True
    reuses: bool = False


def settings_in(cache: Path) -> set[ComputeSettings]:
    """Read the settings of all compute kernels in a cache, a folder that TT_METAL_CACHE named. Errors: ValueError for a
    kernel whose files lack one of these."""
    found = set()
    for descriptors in cache.rglob("chlkc_descriptors.h"):
        folder = descriptors.parent
        if not (folder / "trisc1").is_dir():
            continue  # a data movement kernel
        text, source = descriptors.read_text(), _source(folder)
        calls = _calls(source, (folder / "defines_generated.h").read_text())
        fidelity, float32, formats = (part.search(text) for part in (_FIDELITY, _FLOAT32, _FORMATS))
        if fidelity is None or float32 is None or formats is None:
            raise ValueError(f"{descriptors} names no math fidelity, accumulation or formats")
        into_registers = FLOAT32_FORMAT in map(int, formats[1].split(","))
        found.add(
            ComputeSettings(
                folder.parent.name,
                FIDELITIES[int(fidelity[1])],
                float32[1] == "true",
                bool(calls) or OURS in source.parts,
                into_registers and "binary_dest_reuse_tiles" in calls,
            )
        )
    return found


def _source(folder: Path) -> Path:
    named = _SOURCE.search((folder / "chlkc_math.cpp").read_text())
    if named is None:
        raise ValueError(f"{folder} names no source")
    return Path(named[1])


def _calls(source: Path, macros: str) -> set[str]:
    """Names of _PRODUCTS in a kernel's source, the headers beside it and the macros it was built with."""
    texts = [source.read_text(), macros]
    texts += [path.read_text() for name in _LOCAL.findall(texts[0]) if (path := source.parent / name).is_file()]
    return {name for text in texts for name in _PRODUCTS.findall(text)}
