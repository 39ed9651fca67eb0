# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Random instructions for the matrix unit, executed by the installed unit and by the patched one from equal states."""

from __future__ import annotations

import warnings

import numpy as np
from framework.pe.tensix.backend import RWC
from framework.pe.tensix.backends.matrix import MatrixUnit
from framework.pe.tensix.registers import SrcRegister
from framework.pe.tensix.util import TensixConfigurationConstants as Constants

from runtime_patches.simulated_n150.simulator.speed.matrix.counters import Counters
from runtime_patches.simulated_n150.simulator.speed.matrix.unit import MatrixUnit as PatchedUnit
from runtime_patches.simulated_n150.tests.simulator.tensix_programs import configure, make_backend
from runtime_patches.simulated_n150.tests.simulator.vector_programs import word

THREAD = 1
COUNTERS = ("Dst", "Dst_Cr", "SrcA", "SrcA_Cr", "SrcB", "SrcB_Cr", "FidelityPhase", "ExtraAddrModBit")
FIELDS = (
    "ALU_FORMAT_SPEC_REG0_SrcA",
    "ALU_FORMAT_SPEC_REG1_SrcB",
    "ALU_ACC_CTRL_Zero_Flag_disabled_src",
    "ALU_ACC_CTRL_Fp32_enabled",
    "DEST_REGW_BASE_Base",
)
INT8, FP16A, DIAGNOSTICS = "int8", "fp16a", "diagnostics"


def exponents(rng, shape):
    """Zero, the ends of the range, any, and mostly such that products and sums meet."""
    kind = rng.random(shape)
    usual = rng.integers(115, 140, shape)
    ends = rng.choice([1, 2, 3, 60, 64, 190, 253, 254, 255], shape)
    return np.where(
        kind < 0.15, 0, np.where(kind < 0.3, ends, np.where(kind < 0.4, rng.integers(0, 256, shape), usual))
    )


def source_datums(rng):
    """64 rows as SrcA or SrcB hold them: zeros of both signs, denormals, infinities, NaN, ordinary ones, any bits."""
    shape = (64, 16)
    fraction = np.where(rng.random(shape) < 0.3, rng.choice([0, 1, 7, 8, 0x3FF], shape), rng.integers(0, 1024, shape))
    datums = rng.integers(0, 2, shape) << 18 | fraction << 8 | exponents(rng, shape)
    kind = rng.random()
    if kind < 0.1:
        datums = rng.integers(0, 1 << 32, shape)
    elif kind < 0.3:  # sums as large as they can be
        datums = np.full(shape, 0x3FF << 8 | rng.integers(120, 130)) ^ (rng.random(shape) < 0.01) << 18
    return datums.astype(np.uint32)


def dst_words(rng):
    shape = (1024, 16)
    fraction = np.where(rng.random(shape) < 0.3, rng.choice([0, 1, 0x7F], shape), rng.integers(0, 128, shape))
    high = rng.integers(0, 2, shape) << 15 | fraction << 8 | exponents(rng, shape)
    # Lower halves of 32-bit words are somewhere among them.
    words = np.where(rng.random((1024, 1)) < 0.5, high, rng.integers(0, 1 << 16, shape))
    return words.astype(np.uint32)


class Pair:
    """Two backends in one state, the first with the installed matrix unit and counters."""

    def __init__(self, rng, formats, wide, unusual=None):
        self.backends = make_backend(), make_backend()
        for backend, unit, counters in zip(self.backends, (MatrixUnit, PatchedUnit), (RWC, Counters), strict=True):
            backend.matrix_unit = unit(backend)
            backend.rwc = [counters(backend) for _ in range(3)]
        self.rng, self.formats, self.wide, self.unusual = rng, formats, wide, unusual
        sources, dst = [source_datums(rng) for _ in range(4)], dst_words(rng)
        valid = rng.random(1024) < rng.choice([0.0, 0.7, 1.0])
        banks = [int(rng.integers(0, 2)) for _ in range(4)]
        owners = [SrcRegister.SrcClient(int(rng.random() < 0.1)) for _ in range(4)]
        counts = [int(n) for n in rng.integers(0, 64, 7)] + [int(rng.random() < 0.3)]
        for backend in self.backends:
            backend.dst.dstBits[:], backend.dst.dstRowValid[:] = dst, valid
            backend.diags_settings.fpu_calculations = unusual == DIAGNOSTICS
            registers = backend.srcA + backend.srcB
            for register, content, owner in zip(registers, sources, owners, strict=True):
                register.data[:], register.allowedClient = content, owner
            unit = backend.matrix_unit
            unit.srcABank, unit.srcBBank = banks[:2]
            backend.unpacker_units[0].srcBank, backend.unpacker_units[1].srcBank = banks[2:]
            for name, count in zip(COUNTERS, counts, strict=True):
                setattr(backend.rwc[THREAD], name, count)
        self.configure()

    def change_one_field(self) -> None:
        """Change one of the configuration's fields that instructions read."""
        rng = self.rng
        if rng.random() < 0.3:
            place, value = ((6, int(rng.integers(0, 4))), (1, int(rng.integers(0, 1024))))[rng.integers(0, 2)]
            for backend in self.backends:
                backend.config_unit.threadConfig[THREAD][place] = value
            return
        key = str(rng.choice(FIELDS))
        for backend in self.backends:
            unit = backend.config_unit
            mask, shift = Constants.get_mask(key), Constants.get_shamt(key)
            words, place = unit.config[unit.threadConfig[THREAD][0]], Constants.get_addr32(key)
            value = (words[place] & mask) >> shift
            other = int(self.formats[value % len(self.formats)]) if "SPEC" in key else value ^ 1
            words[place] = words[place] & ~mask | other << shift & mask

    def configure(self) -> None:
        """Another random configuration."""
        rng, formats = self.rng, self.formats
        state = int(rng.random() < 0.3)
        words = [int(n) for n in rng.integers(0, 1 << 16, 57)]
        words[0], words[1] = state, int(rng.choice([0, 256, 512, rng.integers(0, 1024)]))
        words[2] = int(rng.random() < 0.3)  # the upper four address modes
        words[5] = int(rng.choice([0, 0, 0, 1, 2, 3]))  # a bank is not handed back
        words[6] = int(rng.integers(0, 4))  # the fidelity phases start there
        words[56] = int(self.unusual == FP16A)
        overrides = rng.random(2) < 0.2
        fields = dict(
            ALU_FORMAT_SPEC_REG0_SrcA=int(rng.choice(formats)),
            ALU_FORMAT_SPEC_REG1_SrcB=int(rng.choice(formats)),
            ALU_FORMAT_SPEC_REG_SrcA_val=int(rng.choice(formats)),
            ALU_FORMAT_SPEC_REG_SrcB_val=int(rng.choice(formats)),
            ALU_FORMAT_SPEC_REG_SrcA_override=int(overrides[0]),
            ALU_FORMAT_SPEC_REG_SrcB_override=int(overrides[1]),
            ALU_ACC_CTRL_Fp32_enabled=int(self.wide),
            ALU_ACC_CTRL_INT8_math_enabled=int(self.unusual == INT8),
            ALU_ACC_CTRL_Zero_Flag_disabled_src=int(rng.integers(0, 2)),
            DEST_REGW_BASE_Base=int(rng.choice([0, 0, 512, rng.integers(0, 1024)])),
        )
        blocked = int(rng.random() < 0.05) << 9
        for backend in self.backends:
            unit = backend.config_unit
            configure(backend, **fields)
            unit.config[state][:], unit.config[1 - state][:] = unit.config[0], [0] * len(unit.config[0])
            unit.threadConfig[THREAD][:] = words
            backend.vector_unit.laneConfig = [blocked] * 32

    def run(self, instruction: int) -> tuple[list, list]:
        """What each unit raised or warned of, and its state afterwards."""
        return tuple(self._run(backend, instruction) for backend in self.backends)

    def _run(self, backend, instruction):
        raised = None
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            backend.matrix_unit.next_instruction.append((instruction, THREAD))
            try:
                backend.matrix_unit.clock_tick(1)
            except Exception as error:
                raised = type(error), str(error)
        return [raised, [each.category for each in warned[:1]]], self.state(backend)

    def state(self, backend) -> list:
        unit, counters = backend.matrix_unit, backend.rwc[THREAD]
        registers = backend.srcA + backend.srcB
        return [
            backend.dst.dstBits.copy(),
            backend.dst.dstRowValid.copy(),
            *(each.data.copy() for each in registers),
            [each.allowedClient for each in registers],
            unit.srcABank,
            unit.srcBBank,
            [getattr(counters, name) for name in COUNTERS],
        ]


def same(first: list, second: list) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def random_instruction(rng, name: str) -> int:
    def below(end):
        return int(rng.integers(0, end))

    cleared = below(4) if rng.random() < 0.3 else 0
    dst = below(64) if rng.random() < 0.8 else below(1024)
    if name in ("MVMUL", "DOTPV", "GAPOOL"):
        broadcast = below(2) if name == "MVMUL" else 0
        return word(name, dst=dst, addr_mode=below(4), instr_mod19=broadcast, clear_dvalid=cleared)
    if name in ("ELWMUL", "ELWADD", "ELWSUB"):
        return word(
            name,
            dst=dst,
            addr_mode=below(4),
            instr_mod19=below(4),
            dest_accum_en=below(2),
            clear_dvalid=cleared,
        )
    if name == "GMPOOL":
        mode, index = int(rng.random() < 0.95), int(rng.random() < 0.05)
        return word(name, dst=dst, addr_mode=below(4), instr_mod19=mode, max_pool_index_en=index, clear_dvalid=cleared)
    if name == "ZEROACC":
        return word(name, dst=below(80), AddrMode=below(16), clear_mode=below(8))
    if name == "ZEROSRC":
        negative = int(rng.random() < 0.1)
        return word(name, src_mask=below(4), bank_mask=below(2), write_mode=below(2), zero_val=negative)
    if name in ("MOVA2D", "MOVB2D", "MOVD2B"):
        low = int(rng.random() < 0.1)
        return word(name, dst=dst, instr_mod=below(8), addr_mode=below(4), src=below(64), dest_32b_lo=low)
    return word(name)
