# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Do what `riscv-tt-elf-g++` does in a simulated runtime: rewrite the command line for Debian's GCC 12 and run it.

The runtime starts this once for every kernel unit, thousands of times in a cold test suite, so it runs under `python -I
-S` and imports only what the call at hand needs, and nothing that is slow to start. It is part of the toolchain folder:

    <toolchain>/compiler/               a package: this file, cache and sfpu
    <toolchain>/include/                sfpi.h, lltt.h
    <toolchain>/lib/tensix.s            assembler macros read before every TRISC unit
    <toolchain>/lib/empty_kernel.o      what stands for a stock kernel that nothing executes
    <toolchain>/objects/                units and kernels of all roots (cache/objects.py)

There are three kinds of call. A unit of a data-movement core (or of any firmware core but the TRISCs) is compiled for
rv32im with LTO. A TRISC unit, which may hold Tensix instructions, is compiled for rv32imf with the soft-float ABI and
without LTO: its float registers stand for the vector unit's LREGs (see sfpi/registers.h). A link gains picolibc and
libgcc; the support objects it names are LTO bytecode of a newer GCC in the wheel, and rebuilt in the root.
"""

import os
import sys

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
COMPILER = "/usr/bin/riscv64-unknown-elf-g++"
ASSEMBLER = "/usr/bin/riscv64-unknown-elf-as"
LINKER = "/usr/bin/riscv64-unknown-elf-ld"
GCC_LIBRARIES = "/usr/lib/gcc/riscv64-unknown-elf"
CXX_ROOT = "/usr/include/newlib/c++"
PICOLIBC = "/usr/lib/picolibc/riscv64-unknown-elf"
LIBGCC = "rv32im/ilp32/libgcc.a"  # in a folder of GCC_LIBRARIES
LIBC = f"{PICOLIBC}/lib/rv32im/ilp32/libc.a"
# Names a file that gets a line for every unit and link: a hit of the cache, plain, or empty.
LOG = "LLAMA_ALSPEC_COMPILE_LOG"
# Set to "1" where nothing is going to be executed: kernels that come with ttnn are not compiled.
EMPTY_STOCK_KERNELS = "LLAMA_ALSPEC_EMPTY_STOCK_KERNELS"
VERSION = "riscv-tt-elf-g++ (llama-alspec stand-in over Debian GCC) 12.2.0"

INTEGER_CORE = ["-march=rv32im", "-mabi=ilp32"]
# The F extension lends its registers to vector values (sfpi_layer/registers.h); no float code is left in the
# end.
TENSIX_CORE = ["-march=rv32imf", "-mabi=ilp32", "-D__riscv_xtttensixwh=1"]

# In the assembly of a unit that needs translation: a vector instruction, or what GCC does with float registers. Two
# of three TRISC units have none, and the translator takes as long to start as the assembler to run.
VECTOR_MARKS = ("sfpu ", "\tf")

# Headers of the standard library besides those that the runtime precompiles: its compile_time_args.h, in every kernel's
# unit, includes this one, which takes a tenth to a fifth of a TRISC unit's time.
PRECOMPILED = ["-include", "string_view"]

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
    """Return whether an option is one that only the SFPI compiler knows, or one that is set anew here."""
    return (
        argument.startswith(("-ftt-", "-mtt-", "-Werror", "-Wno-error", "-std=", "-mcpu=", "-flto", "-W"))
        and not argument.startswith("-Wl,")
    ) or argument in ("-g", "-Wall")


def newest(folder):
    """Return the folder of the newest version in a folder of versions, such as 12.2.0."""
    versions = os.listdir(folder)
    return f"{folder}/{max(versions, key=lambda name: [int(n) for n in name.split('.') if n.isdigit()])}"


def system_includes():
    """Return options for the C++ headers of the ARM bare-metal libstdc++ (header-only) and picolibc's C headers."""
    cxx = newest(CXX_ROOT)
    return ["-isystem", cxx, "-isystem", f"{cxx}/arm-none-eabi", "-isystem", f"{PICOLIBC}/include"]


def is_tensix(arguments):
    return "-mcpu=tt-wh-tensix" in arguments


def compile_command(arguments):
    """Return the command for one call that compiles, but for the vector instructions of a TRISC unit."""
    kept = [a for a in arguments if not drop(a)]
    command = [COMPILER] + COMMON
    if is_tensix(arguments):
        command += TENSIX_CORE
        # -O3 overflows the kernel buffer in large kernels, -Os stops the inlining that immediates need.
        kept = ["-O2" if a in ("-O3", "-Os") else a for a in kept]
    else:
        command += INTEGER_CORE + ["-flto=1", "-flto-partition=one"]
    return command + kept + system_includes()


def run(command, errors=2):
    """Run a command; return its exit status. What it says goes to the file descriptor `errors`."""
    redirected = [(os.POSIX_SPAWN_DUP2, errors, 2)] if errors != 2 else []
    process = os.posix_spawn(command[0], command, os.environ, file_actions=redirected)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def run_quietly(command, log):
    """Run a command; return (exit status, what it said). `log` is a file that may be used for that."""
    errors = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        status = run(command, errors)
        os.lseek(errors, 0, os.SEEK_SET)
        return status, os.read(errors, 1 << 24)
    finally:
        os.close(errors)
        os.unlink(log)


def compile_source(command):
    """Run a compile command; return the exit status."""
    log = f"{command[command.index('-o') + 1]}.{os.getpid()}.log"
    status, said = run_quietly(command, log)
    if status and b"impossible constraint" in said:
        # An instruction word computed in a loop that only -O3 unrolls.
        status, said = run_quietly(["-O3" if a == "-O2" else a for a in command], log)
    sys.stderr.buffer.write(said)
    sys.stderr.flush()
    return status


def compile_tensix(arguments):
    """Compile a TRISC unit to assembly, translate its vector instructions and assemble it; return the exit status."""
    output = arguments[arguments.index("-o") + 1]
    command = compile_command(arguments)
    command[command.index("-c")] = "-S"
    assembly = f"{output}.s"
    command[command.index("-o") + 1] = assembly
    # The rule in the dependency file is for the object, whose name GCC does not see.
    command += ["-MT", output] * any(a in ("-MMD", "-MD") for a in arguments)
    status = compile_source(command)
    if status:
        return status
    with open(assembly, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    if any(mark in text for mark in VECTOR_MARKS):
        from .sfpu import vector

        try:
            text = vector.translate(text)
        except vector.VectorError as error:
            source = next((a for a in arguments if a.endswith((".cc", ".cpp", ".c"))), "?")
            print(f"{source}: error: {error} (assembly kept in {assembly})", file=sys.stderr)
            return 1
        with open(assembly, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    status = run([ASSEMBLER, *INTEGER_CORE, f"{HERE}/lib/tensix.s", assembly, "-o", output])
    if not status:
        os.unlink(assembly)
    return status


def base():
    """Return what every result depends on besides its command line: the compiler and its libraries."""
    from .cache import store

    parts = [COMPILER, ASSEMBLER, LINKER, LIBC, CXX_ROOT, *system_includes()[1::2]]
    return [f"{part}={store.stamp(part)}" for part in parts] + [
        f"{name}={os.environ[name]}" for name in store.GCC_VARIABLES if name in os.environ
    ]


def link_command(arguments):
    """Return the command for a link. The support objects it names are the rebuilt ones of the runtime root."""
    if is_tensix(arguments):
        return machine_code_link(arguments)
    linked = [a for a in arguments if not drop(a)]
    libraries = ["-nodefaultlibs", "-Wl,--start-group", LIBC, "-lgcc", "-Wl,--end-group"]
    return [COMPILER, "-w", "-fno-exceptions", "-fno-jump-tables", "-fno-tree-switch-conversion"] + (
        INTEGER_CORE + ["-flto=1", "-flto-partition=one"] + linked + libraries
    )


def machine_code_link(arguments):
    """Return the linker's own command, for a link with nothing left to compile: g++ starts its link-time optimiser even
    then, for the bytecode in the support objects, which takes ten times as long as the link.

    A TRISC unit may name f registers, but none of it is float code: everything links as rv32im.
    """
    command, passed = [LINKER, "-melf32lriscv"], False
    for argument in arguments:
        if passed or argument == "-o" or argument.startswith(("-T", "-L")) or not argument.startswith("-"):
            command.append(argument)
        elif argument.startswith("-Wl,"):
            command += argument[len("-Wl,") :].split(",")
        passed = argument == "-o"
    libgcc = f"{newest(GCC_LIBRARIES)}/{LIBGCC}"
    return [*command, "--start-group", LIBC, libgcc, "--end-group"]


def is_stock(root):
    """Return whether the kernel in whose unit's folder this is called comes with ttnn: all its sources are in the root.

    False for firmware and for a kernel given as text.
    """
    from .cache import store

    sources = store.kernel_sources("..")
    return bool(sources) and all(source.startswith(f"{root.path}/") for source in sources)


def make_empty(arguments):
    """Let an empty kernel (empty_kernel.s) stand for a stock kernel, or link one; return the exit status.

    On a mock mesh programs are validated, allocated and compiled for, and that is all. Compiling ttnn's own kernels
    there says nothing about this project, nor about boards, whose compiler is another, and takes most of the time.
    """
    from .cache import store

    record(arguments, "empty")
    if "-c" not in arguments:
        return run(machine_code_link(arguments))
    kernel, output = f"{HERE}/lib/empty_kernel.o", arguments[arguments.index("-o") + 1]
    store.write_whole(output, store.read(kernel))
    store.write_whole(arguments[arguments.index("-MF") + 1], f"{output}: {kernel}\n".encode())
    return 0


def record(arguments, how):
    """Add a line to the file that LOG names: what kind of call this was, and where its result came from."""
    if path := os.environ.get(LOG):
        kind = "compile" if "-c" in arguments else "header" if "c++-header" in arguments else "link"
        with open(path, "a") as log:
            log.write(f"{kind} {how} {arguments[arguments.index('-o') + 1]}\n")


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
    if "-E" in arguments or "-S" in arguments or "-o" not in arguments:
        return run(compile_command(arguments))
    from .cache import store

    compiles, header = "-c" in arguments, "c++-header" in arguments
    found = False
    try:
        root = store.find_root(arguments, f"{HERE}/objects/roots")
        # Outside a runtime root, and without a dependency file, nothing tells what a result depends on.
        if (root is None and not header) or (compiles and "-MF" not in arguments):
            return produce(arguments)
        if root is not None and os.environ.get(EMPTY_STOCK_KERNELS) and is_stock(root):
            return make_empty(arguments)
        from .cache import objects

        unit = objects.Unit(arguments, root, f"{HERE}/objects", base())
        found = unit.fetch()
    except OSError as error:  # a full disk, or a cache that is not ours to write: said, and done without it
        print(f"warning: compiled without the cache of objects: {error}", file=sys.stderr)
        return produce(arguments)
    if found:
        status = 0
    else:
        status = produce(arguments)
        if not status:
            try:
                unit.keep()
            except OSError as error:
                print(f"warning: not kept in the cache of objects: {error}", file=sys.stderr)
    record(arguments, "hit" if found else "plain")
    return status


def produce(arguments):
    """Compile or link; return the exit status."""
    if "c++-header" in arguments:
        return run(compile_command(arguments) + PRECOMPILED)
    if "-c" not in arguments:
        return run(link_command(arguments))
    if is_tensix(arguments):
        return compile_tensix(arguments)
    return compile_source(compile_command(arguments))
