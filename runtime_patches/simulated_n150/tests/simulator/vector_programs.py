# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Small vector-unit programs for the tests: encodings, a backend to run them on, and random programs."""

from __future__ import annotations

import numpy as np
from framework.pe.tensix.backend import TensixBackend
from framework.pe.tensix.backends.vector import VectorUnit
from framework.pe.tensix.util import TensixCoprocessorDiagnostics, TensixInstructionDecoder

TensixInstructionDecoder.init()
SPECIAL = np.array(
    [
        0x00000000, 0x80000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F000000, 0x3FC00000,
        0x40000000, 0x40400000, 0x40800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7FFFFFFF,
        0xFFFFFFFF, 0x43800000, 0x47000000, 0x47800000, 0xC7800000, 0x3EFFFFFF, 0x33800000,
    ],
    dtype=np.uint32,
)  # fmt: skip


def opcode(name: str) -> int:
    return TensixInstructionDecoder.tensix_instructions[name]["op_binary"]


def word(name: str, **fields: int) -> int:
    """Encoded instruction; fields by the names of the simulator's instruction table."""
    encoded = opcode(name) << 24
    arguments = TensixInstructionDecoder.tensix_instructions[name]["arguments"]
    places = {argument["name"]: argument["start_bit"] for argument in arguments} if isinstance(arguments, list) else {}
    for field, value in fields.items():
        encoded |= value << places[field]
    return encoded


def make_unit(unit_class=VectorUnit):
    """A vector unit of the given class on a backend of its own; returns (unit, backend)."""
    backend = TensixBackend(TensixCoprocessorDiagnostics(), blackhole=False)
    unit = unit_class(backend)
    backend.vector_unit = unit
    backend.backend_units["SFPU"] = unit
    return unit, backend


def run(unit, *words: int, thread: int = 1) -> None:
    """Execute instructions, one a cycle."""
    for instruction in words:
        unit.next_instruction.append((instruction, thread))
        unit.clock_tick(next(_CYCLES))


_CYCLES = iter(range(1, 1 << 40))


def set_register(unit, index: int, values) -> None:
    register = unit.lregs[index]
    for lane in range(32):
        register.data[lane] = int(values[lane])


def get_register(unit, index: int) -> np.ndarray:
    return np.array([unit.lregs[index][lane] for lane in range(32)], dtype=np.uint32)


def random_values(rng: np.random.Generator) -> np.ndarray:
    """32 patterns: special ones, ordinary floats, small integers, any bits."""
    kind = rng.integers(0, 4, 32)
    ordinary = (rng.integers(115, 140, 32) << 23 | rng.integers(0, 1 << 23, 32)) | rng.integers(0, 2, 32) << 31
    choices = (
        SPECIAL[rng.integers(0, len(SPECIAL), 32)],
        ordinary,
        rng.integers(0, 70, 32),
        rng.integers(0, 2**32, 32),
    )
    return np.choose(kind, choices).astype(np.uint32)
