# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What `riscv-tt-elf-g++` does in a simulated runtime: rewrites the command line for Debian's GCC 12.

The runtime starts this once for every kernel unit, thousands of times in a cold test suite, so it runs under
`python -I -S` and imports nothing but `os` and `sys`. It stands in the toolchain folder as

    <toolchain>/compiler/driver.py      this file, with vector.py and what that imports
    <toolchain>/include/                sfpi.h, lltt.h
    <toolchain>/lib/tensix.s            assembler macros read before every TRISC unit

Three kinds of call exist. A unit of a data-movement core (or of any firmware core but the TRISCs) is compiled
for rv32im with LTO. A TRISC unit, which may hold Tensix instructions, is compiled for rv32imf with the
soft-float ABI and without LTO: its float registers stand for the vector unit's LREGs (see sfpi/registers.h).
A link gains picolibc and libgcc; the support objects it names are LTO bytecode of a newer GCC in the wheel,
and rebuilt in the root.
"""

import os
import sys

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
COMPILER = "/usr/bin/riscv64-unknown-elf-g++"
ASSEMBLER = "/usr/bin/riscv64-unknown-elf-as"
CXX_ROOT = "/usr/include/newlib/c++"
PICOLIBC = "/usr/lib/picolibc/riscv64-unknown-elf"
VERSION = "riscv-tt-elf-g++ (llama-alspec stand-in over Debian GCC) 12.2.0"

INTEGER_CORE = ["-march=rv32im", "-mabi=ilp32"]
# The F extension lends its registers to vector values (sfpi_layer/registers.h); no float code is left in the
# end.
TENSIX_CORE = ["-march=rv32imf", "-mabi=ilp32", "-D__riscv_xtttensixwh=1"]

COMMON = [
    # Class-type template arguments, constinit and consteval, which the SFPI compiler offers in C++17.
    "-std=gnu++20",
    "-w",
    "-fno-exceptions",
    # A jump table needs relocations that the kernel loader refuses ("unexpected dynamic relocations").
    "-fno-jump-tables",
    "-fno-tree-switch-conversion",
    "-ftls-model=local-exec",
    "-nostdinc++",
]


def drop(argument):
    """True for options that only the SFPI compiler knows, and for those that are set anew here."""
    return (
        argument.startswith(("-ftt-", "-mtt-", "-Werror", "-Wno-error", "-std=", "-mcpu=", "-flto", "-W"))
        and not argument.startswith("-Wl,")
    ) or argument in ("-g", "-Wall")


def system_includes():
    """Options for the C++ headers of the ARM bare-metal libstdc++ (header-only) and picolibc's C headers."""
    newest = f"{CXX_ROOT}/{max(os.listdir(CXX_ROOT))}"
    return ["-isystem", newest, "-isystem", f"{newest}/arm-none-eabi", "-isystem", f"{PICOLIBC}/include"]


def is_tensix(arguments):
    return "-mcpu=tt-wh-tensix" in arguments


def compile_command(arguments):
    """Command for one call that compiles, but for the vector instructions of a TRISC unit."""
    kept = [a for a in arguments if not drop(a)]
    command = [COMPILER] + COMMON
    if is_tensix(arguments):
        command += TENSIX_CORE
        # -O3 overflows the kernel buffer in large kernels, -Os stops the inlining that immediates need.
        kept = ["-O2" if a in ("-O3", "-Os") else a for a in kept]
    else:
        command += INTEGER_CORE + ["-flto=1", "-flto-partition=one"]
    return command + kept + system_includes()


def compile_tensix(arguments):
    """Compiles a TRISC unit to assembly, translates its vector instructions and assembles it."""
    import subprocess

    sys.path.insert(0, f"{HERE}/compiler")
    import vector

    output = arguments[arguments.index("-o") + 1]
    command = compile_command(arguments)
    command[command.index("-c")] = "-S"
    assembly = f"{output}.s"
    command[command.index("-o") + 1] = assembly
    # The rule in the dependency file is for the object, whose name GCC does not see.
    command += ["-MT", output] * any(a in ("-MMD", "-MD") for a in arguments)
    done = subprocess.run(command, stderr=subprocess.PIPE)
    if done.returncode and b"impossible constraint" in done.stderr:
        # An instruction word computed in a loop that only -O3 unrolls.
        done = subprocess.run(["-O3" if a == "-O2" else a for a in command], stderr=subprocess.PIPE)
    if done.stderr:
        sys.stderr.buffer.write(done.stderr)
    if done.returncode:
        return done.returncode
    try:
        with open(assembly, encoding="utf-8", errors="surrogateescape") as file:
            text = vector.translate(file.read())
    except vector.VectorError as error:
        source = next((a for a in arguments if a.endswith((".cc", ".cpp", ".c"))), "?")
        print(f"{source}: error: {error} (assembly kept in {assembly})", file=sys.stderr)
        return 1
    with open(assembly, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    done = subprocess.run([ASSEMBLER, *INTEGER_CORE, f"{HERE}/lib/tensix.s", assembly, "-o", output])
    if not done.returncode:
        os.unlink(assembly)
    return done.returncode


def link_command(arguments):
    """Command for a link. The support objects it names are the rebuilt ones of the runtime root."""
    tensix = is_tensix(arguments)
    linked = ["-O2" if tensix and a in ("-O3", "-Os") else a for a in arguments if not drop(a)]
    lto = [] if tensix else ["-flto=1", "-flto-partition=one"]
    libraries = [
        "-nodefaultlibs",
        "-Wl,--start-group",
        f"{PICOLIBC}/lib/rv32im/ilp32/libc.a",
        "-lgcc",
        "-Wl,--end-group",
    ]
    # A TRISC unit may name f registers, but nothing of it is float code: everything links as rv32im.
    return [COMPILER, "-w", "-fno-exceptions", "-fno-jump-tables", "-fno-tree-switch-conversion"] + (
        INTEGER_CORE + lto + linked + libraries
    )


def main(arguments):
    if "--version" in arguments:
        print(VERSION)
        return 0
    if not os.access(COMPILER, os.X_OK):
        print(
            f"{VERSION}: {COMPILER} is missing; install it with: apt-get install gcc-riscv64-unknown-elf",
            file=sys.stderr,
        )
        return 1
    compiles = any(a in ("-c", "-E", "-S", "-fsyntax-only", "c++-header") for a in arguments)
    if "-c" in arguments and is_tensix(arguments) and "-o" in arguments:
        return compile_tensix(arguments)
    command = compile_command(arguments) if compiles else link_command(arguments)
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
