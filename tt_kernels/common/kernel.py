# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A kernel and its arguments by name; `kernels/arguments.hpp` is the other side.

The host gives each argument a name and a value; this module puts the values in order and tells the kernel, in named
compile-time arguments, where each one is. Neither side writes an index.

Some ops must run whatever the compute gate says: the gate writer, the exchange, the speculative attention. Their
kernels opt out by one define in their KernelDescriptors. Without it, a chip that skips could never start again, or its
peer would wait for it; so each of these ops checks its own program before the launch (`require_ungated`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime_patches.sgdc import UNGATED_DEFINE
from tt_kernels.common.cores import Core, core_set
from tt_kernels.common.lazy_ttnn import ttnn

# Kernels include each other's headers by their path in this repository.
INCLUDE_PATH = Path(__file__).parents[2]

Values = Mapping[str, int | Sequence[int]]


def float_bits(value: float) -> int:
    """Return the word of `value` as a float32, which is how kernels take it."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


def pack(values: Values) -> tuple[list[int], dict[str, int]]:
    """Return the words of `values` in order, and the index of each name's first word. A value may be a list."""
    words: list[int] = []
    indices: dict[str, int] = {}
    for name, value in values.items():
        indices[name] = len(words)
        words += [value] if isinstance(value, int) else list(value)
    return words, indices


def pack_cores(per_core: Mapping[Core, Values]) -> tuple[dict[Core, list[int]], dict[str, int]]:
    """Return the words of every core, and the indices of the names, which all cores share.

    Errors: ValueError when two cores have different names, or the same names at different places.
    """
    packed = {core: pack(values) for core, values in per_core.items()}
    first: dict[str, int] | None = None
    for core, (_, indices) in packed.items():
        if first is not None and list(indices.items()) != list(first.items()):
            raise ValueError(f"core {core} has its arguments at {indices}, another core at {first}")
        first = indices
    return {core: words for core, (words, _) in packed.items()}, first or {}


def kernel_descriptor(
    source: Path,
    config: Any,
    *,
    cores: ttnn.CoreRangeSet | None = None,
    constants: Mapping[str, int] | None = None,
    accessors: Mapping[str, Any] | None = None,
    common: Values | None = None,
    per_core: Mapping[Core, Values] | None = None,
    defines: Sequence[tuple[str, str]] = (),
) -> Any:
    """Return a ttnn.KernelDescriptor whose kernel reads everything by name, with the macros of kernels/arguments.hpp.

    config: a configuration of ttnn, or Reader, Writer or DataMovement for the default of that kind.
    cores: a ttnn.CoreRangeSet, by default those of `per_core`. constants: compile-time constants. accessors: the
        tensors the kernel reads or writes. common, per_core: runtime arguments of all cores, and of each core.
    """
    words, indices = pack_cores(per_core or {})
    common_words, common_indices = pack(common or {})
    tensors = (accessors or {}).items()
    accessor_words, accessor_indices = pack(
        {name: list(ttnn.TensorAccessorArgs(tensor).get_compile_time_args()) for name, tensor in tensors}
    )
    named = dict(constants or {})
    for prefix, found in (("arg", indices), ("common", common_indices), ("accessor", accessor_indices)):
        named |= {f"{prefix}_{name}": index for name, index in found.items()}
    arguments = ttnn.RuntimeArgs()
    for (x, y), values in words.items():
        arguments[x][y] = values
    return ttnn.KernelDescriptor(
        kernel_source=str(source),
        core_ranges=core_set(*words) if cores is None else cores,
        compile_time_args=accessor_words,
        named_compile_time_args=list(named.items()),
        common_runtime_args=common_words,
        runtime_args=arguments if words else [],
        defines=list(defines),
        config=getattr(ttnn, f"{config}ConfigDescriptor")() if isinstance(config, str) else config,
        compiler_include_paths=[str(INCLUDE_PATH)],
    )


def semaphores_on(cores: ttnn.CoreRangeSet, *values: int) -> list[Any]:
    """Return the ttnn.SemaphoreDescriptors of a program, numbered from 0 on, with their initial values."""
    return [ttnn.SemaphoreDescriptor(id=n, core_ranges=cores, initial_value=value) for n, value in enumerate(values)]


def program_of(
    kernels: Sequence[Any], buffers: Sequence[Any] = (), semaphores: Sequence[Any] = (), ungated: str | None = None
) -> Any:
    """Return a ttnn.ProgramDescriptor. ungated: the op whose kernels run whatever the gate says (`require_ungated`)."""
    program = ttnn.ProgramDescriptor(kernels=list(kernels), semaphores=list(semaphores), cbs=list(buffers))
    return program if ungated is None else require_ungated(program, ungated)


def require_ungated(program: ttnn.ProgramDescriptor, op: str) -> Any:
    """Return `program` (a ttnn.ProgramDescriptor) if each of its kernels carries the define.

    Errors: RuntimeError that names the op and the kernels without it.
    """
    gated = [kernel.kernel_source for kernel in program.kernels if UNGATED_DEFINE not in list(kernel.defines)]
    if gated:
        raise RuntimeError(f"{op}: kernels without {UNGATED_DEFINE[0]}, which the compute gate would skip: {gated}")
    return program
