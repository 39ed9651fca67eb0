# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tell which of the wheel's compute functions compile: `python -m runtime_patches.simulated_n150.compiler.survey`.

For every `ALWI void <name>(...)` in the wheel's api/compute headers, a math-core unit with one call of it is compiled
with the stand-in compiler; functions of a header share a unit, and are compiled apart when that fails. The outcome is
printed as a Markdown table with the exact cause of each failure.
"""

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runtime_patches.simulated_n150.board.command_line import OneLineParser, run_command

PROG = "python -m runtime_patches.simulated_n150.compiler.survey"
# Template arguments for functions whose parameters have no default.
TEMPLATE_VALUES = {
    "DataFormat": "DataFormat::Int32",
    "bool": "false",
    "PoolType": "PoolType::SUM",
    "ReduceDim": "ReduceDim::REDUCE_ROW",
    "RoundingMode": "RoundingMode::None",
    "BroadcastType": "BroadcastType::ROW",
    "InstrModLoadStore": "InstrModLoadStore::DEFAULT",
}
# Instances that matter and that no default names.
INSTANCES = {
    "typecast_tile": [
        (a, b)
        for a, b in (
            ("Float16_b", "Float32"), ("Float32", "Float16_b"), ("Float16_b", "Int32"),
            ("Int32", "Float16_b"),
            ("Float32", "Int32"), ("Int32", "Float32"), ("Float16_b", "UInt32"), ("UInt32", "Float16_b"),
            ("Float16_b", "UInt16"), ("UInt16", "Float16_b"), ("Float32", "UInt32"), ("UInt32", "Float32"),
            ("UInt16", "UInt32"), ("Int32", "UInt16"), ("UInt32", "UInt16"), ("Float16_b", "Bfp8_b"),
        )
    ],
}  # fmt: skip
INSTANCES["typecast_tile_init"] = INSTANCES["typecast_tile"]
IMMEDIATE = "impossible constraint in 'asm'"
# Functions that refuse the value above.
FLOAT_ONLY = {"addcdiv_tile", "addcmul_tile", "lerp_tile", "mac_tile", "snake_beta_tile"}

_FUNCTION = re.compile(
    r"(?:template\s*<(?P<template>[^{};]*?)>\s*)?(?:__attribute__\(\(\w+\)\)\s*)?"
    r"ALWI\s+void\s+(?P<name>\w+)\s*"
    r"\((?P<parameters>[^)]*)\)\s*\{",
    re.DOTALL,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

DESCRIPTORS = """#pragma once
#include "llk_defs.h"
constexpr ckernel::MathFidelity MATH_FIDELITY = ckernel::MathFidelity::HiFi4;
constexpr bool APPROX = false;
#define TWO(value) value, value
#define EIGHT(value) TWO(value), TWO(value), TWO(value), TWO(value)
#define PER_BUFFER(type, name, value) \\
    constexpr type name[32] = {EIGHT(value), EIGHT(value), EIGHT(value), EIGHT(value)};
PER_BUFFER(uint8_t, unpack_src_format, 5)
PER_BUFFER(uint8_t, unpack_dst_format, 5)
PER_BUFFER(uint8_t, unpack_tile_num_faces, 4)
PER_BUFFER(uint8_t, unpack_partial_face, 0)
PER_BUFFER(uint8_t, unpack_tile_face_r_dim, 16)
PER_BUFFER(uint8_t, unpack_narrow_tile, 0)
PER_BUFFER(uint8_t, unpack_tile_r_dim, 32)
PER_BUFFER(uint8_t, unpack_tile_c_dim, 32)
PER_BUFFER(uint16_t, unpack_tile_size, 2048)
PER_BUFFER(uint8_t, unpack_num_faces_r_dim, 2)
PER_BUFFER(uint8_t, unpack_num_faces_c_dim, 2)
constexpr bool DST_ACCUM_MODE = WITH_FP32_DESTINATION;
#define DST_SYNC_MODE DstSync::SyncHalf
"""
INCLUDES = (
    "", "ttnn", "ttnn/cpp", "tt_metal/hw/inc", "tt_metal/tt-llk/common", "tt_metal/tt-llk/tools/include",
    "tt_metal/hostdevcommon/api", "tt_metal/api", "runtime/sfpi/include",
    "tt_metal/hw/ckernels/wormhole_b0/metal/common", "tt_metal/hw/ckernels/wormhole_b0/metal/llk_io",
    "tt_metal/hw/inc/internal/tt-1xx", "tt_metal/hw/inc/internal/tt-1xx/wormhole",
    "tt_metal/hw/inc/internal/tt-1xx/wormhole/wormhole_b0_defines",
    "tt_metal/hw/inc/internal/tt-1xx/wormhole/noc",
    "tt_metal/tt-llk/tt_llk_wormhole_b0/common/inc", "tt_metal/tt-llk/tt_llk_wormhole_b0/llk_lib",
    "tt_metal/hw/ckernels/wormhole_b0/metal/llk_api",
    "tt_metal/hw/ckernels/wormhole_b0/metal/llk_api/llk_sfpu",
    "tt_metal/hw/firmware/src/tt-1xx",
)  # fmt: skip
DEFINES = (
    "IS_NOT_POW2_NUM_DRAM_BANKS=1", "LOG_BASE_2_OF_NUM_L1_BANKS=0", "NUM_DRAM_BANKS=12", "NUM_L1_BANKS=1",
    "PCIE_NOC_X=0", "PCIE_NOC_Y=3", "TENSIX_FIRMWARE", "LOCAL_MEM_EN=0", "ROUTING_FW_ENABLED",
    "DISABLE_SFPLOADMACRO", "PROCESSOR_INDEX=3", "UCK_CHLKC_MATH", "COMPILE_FOR_TRISC=1",
    "PROGRAMMABLE_CORE_TYPE=0", "ARCH_WORMHOLE", "DISPATCH_MESSAGE_ADDR=4290183304", "KERNEL_BUILD",
    "KERNEL_COMPILE_TIME_ARGS=0", 'FULL_KERNEL_NAME="survey"',
)  # fmt: skip


def _split(text):
    """Split `text` at its top-level commas."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += character in "<({"
        depth -= character in ">)}"
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [p.strip() for p in [*parts, current] if p.strip()]


def _calls(name, template, parameters):
    """Return C++ calls of one function, or the reason why no call can be written."""
    arguments = []
    for index, parameter in enumerate(_split(parameters)):
        if "=" in parameter:
            break
        kind = " ".join(parameter.replace("const ", "").replace("[[maybe_unused]]", "").split()[:-1])
        if kind in ("uint32_t", "std::uint32_t", "uint", "int", "int32_t", "uint16_t", "std::int32_t"):
            arguments.append(f"argument[{index}]")
        elif kind == "bool":
            arguments.append("false")
        elif kind == "float":
            arguments.append("1.5f")
        else:
            return f"parameter of type {kind}"
    chosen = []
    for parameter in _split(template or ""):
        if "=" in parameter:
            break
        kind = parameter.split()[0]
        value = "0" if kind in ("uint32_t", "std::uint32_t", "int", "uint", "size_t") else TEMPLATE_VALUES.get(kind)
        if value is None:
            return f"template parameter {parameter}"
        chosen.append("DataFormat::Float16_b" if name in FLOAT_ONLY and kind == "DataFormat" else value)
    lists = [chosen]
    if name in INSTANCES:
        lists = [[f"static_cast<uint32_t>(DataFormat::{v})" for v in pair] for pair in INSTANCES[name]]
        if "DataFormat" in (template or ""):
            lists = [[f"DataFormat::{v}" for v in pair] for pair in INSTANCES[name]]
    return [f"{name}{'<' + ', '.join(c) + '>' if c else ''}({', '.join(arguments)});" for c in lists]


def functions(header):
    """Return (name, calls or reason) for every function of a header that a math core may call."""
    found = {}
    for match in _FUNCTION.finditer(_COMMENT.sub("", header.read_text())):
        name = match["name"]
        if name.endswith("_pack") or name in found:
            continue
        found[name] = _calls(name, match["template"], match["parameters"])
    return list(found.items())


class Survey:
    """Compile probes against one runtime root."""

    def __init__(self, root, scratch, fp32):
        self.root, self.scratch = Path(root), Path(scratch)
        (self.scratch / "chlkc_descriptors.h").write_text(DESCRIPTORS)
        for name in ("named_ct_arg_map_generated.h",):
            (self.scratch / name).write_text("#pragma once\n")
        compiler = self.root / "runtime/sfpi/compiler/bin/riscv-tt-elf-g++"
        self.command = [
            str(compiler), "-O3", "-mcpu=tt-wh-tensix", "-ffast-math", "-fno-finite-math-only",
            "-fsigned-zeros",
            "-fno-associative-math", "-fno-exceptions", "-fno-rtti", "-fno-use-cxa-atexit",
            f"-DWITH_FP32_DESTINATION={'true' if fp32 else 'false'}", f"-I{self.scratch}",
            *(f"-I{self.root / name}" for name in INCLUDES), *(f"-D{name}" for name in DEFINES), "-c",
        ]  # fmt: skip

    def compile(self, name, include, calls):
        """Compile calls in one unit; return None if they compile, else the first error."""
        bodies = "".join(f"__attribute__((noinline)) void probe_{i}() {{ {call} }}\n" for i, call in enumerate(calls))
        unit = self.scratch / f"{name}.cc"
        unit.write_text(
            '#define TRISC_MATH\n#include "internal/debug/fw_debug.h"\n#include "ckernel.h"\n'
            '#include "ckernel_gpr_map.h"\n#include "llk_param_structs.h"\nusing namespace ckernel;\n'
            '#include "chlkc_descriptors.h"\n#include "api/compute/common.h"\n'
            f'#include "{include}"\nextern volatile uint32_t argument[16];\n{bodies}'
        )
        done = subprocess.run(
            [*self.command, "-o", str(unit.with_suffix(".o")), str(unit)],
            capture_output=True, text=True, timeout=300, cwd=self.scratch,
        )  # fmt: skip
        if done.returncode == 0:
            return None
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        cause = errors[0] if errors else done.stderr[-200:]
        return re.sub(r"\(assembly kept in .*\)", "", re.sub(r"\S*/", "", cause.split("rror: ", 1)[-1])).strip()


def run(root, names=(), fp32=False, jobs=2):
    """Yield (header, function, cause); cause is "" for a function that compiles."""
    folder = Path(root) / "tt_metal/hw/inc/api/compute"
    headers = sorted([*folder.glob("eltwise_unary/*.h"), *folder.glob("*.h")])
    headers = [h for h in headers if not names or h.stem in names]

    def one(survey, header):
        include = "api/compute/" + header.relative_to(folder).as_posix()
        outcome, possible = [], []
        for name, calls in functions(header):
            if isinstance(calls, str):
                outcome.append((header.stem, name, f"not tried: {calls}"))
            else:
                possible.append((name, calls))
        everything = [call for _, calls in possible for call in calls]
        unit = f"{header.parent.name}_{header.stem}"
        if not everything:
            return outcome
        if survey.compile(unit, include, everything) is None:
            return outcome + [(header.stem, name, "") for name, _ in possible]
        for name, calls in possible:
            causes = {survey.compile(f"{unit}_{name}", include, [call]) for call in calls} - {None}
            if causes == {IMMEDIATE}:
                # An argument that becomes part of an instruction word.
                literal = [re.sub(r"argument\[\d+\]", "1", call) for call in calls]
                causes = {survey.compile(f"{unit}_{name}", include, [call]) for call in literal} - {None}
            outcome.append((header.stem, name, "; ".join(sorted(causes))))
        return outcome

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        survey = Survey(root, scratch, fp32)
        for outcome in pool.map(lambda header: one(survey, header), headers):
            yield from outcome


def main(argv: list[str] | None = None) -> int:
    parser = OneLineParser(prog=PROG, description=__doc__.splitlines()[0])
    parser.add_argument("--root", required=True, help="simulated runtime root (see runtime_root.py)")
    parser.add_argument("--fp32", action="store_true", help="32-bit destination registers")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", help="headers, without .h; all of api/compute if none")
    options = parser.parse_args(argv)
    good = bad = 0
    print("| header | function | outcome |\n|---|---|---|")
    for header, name, cause in run(options.root, options.names, options.fp32, options.jobs):
        print(f"| {header} | {name} | {cause or 'compiles'} |", flush=True)
        good, bad = good + (not cause), bad + bool(cause)
    print(f"\n{good} compile, {bad} do not", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(PROG, main))
