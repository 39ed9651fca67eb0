# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Packers and unpackers by instruction: block floats, and the formats the installed units know, bit for bit."""

import pytest

FORMATS = {"BFP8": (6, 8), "BFP4": (7, 4), "BFP2": (15, 2)}
BLOCK_FLOAT_CHECK = """
import numpy as np
from runtime_patches.simulated_n150.simulator.registry import all_patches
from runtime_patches.simulated_n150.simulator.patch import apply_all
apply_all(all_patches())
from runtime_patches.simulated_n150.tests.simulator import tensix_programs as t
from runtime_patches.simulated_n150.tests.simulator.vector_programs import word

code, bits = {code}, {bits}
values = np.random.default_rng(1).standard_normal(256).astype(np.float32)
values[:16] = 0
values[16] = -0.0
patterns = t.bfloat16_patterns(values)
values = (patterns << 16).astype(np.uint32).view(np.float32).astype(np.float64)
backend = t.make_backend()
backend.dst.dstBits[:16] = t.to_dst(patterns).reshape(16, 16)
t.configure_packer(backend, code, 5, False)
t.pack(backend)
memory = backend.addressable_memory
exponents = np.frombuffer(memory.read(0x1000, 16), dtype=np.uint8)
groups = values.reshape(16, 16)
largest = np.abs(groups).max(1)
expected = np.where(largest == 0, 0, np.floor(np.log2(np.where(largest == 0, 1, largest))) + 127)
assert list(exponents) == list(expected), (exponents, expected)
assert memory.read(0x1010 + 256 * bits // 8, 16) == bytes(16)

# Back through unpacker 0 into SrcA, as a tile of one face whose header stands before the exponents.
t.configure(
    backend,
    THCON_SEC0_REG3_Base_address=(0x1000 >> 4) - 1,
    THCON_SEC0_REG2_Out_data_format=code,
    THCON_SEC0_REG2_Unpack_limit_address=0x1FFFF,
    UNP0_ADDR_BASE_REG_1_Base=64,
)
descriptor = t.Constants.get_addr32("THCON_SEC0_REG0_TileDescriptor")
backend.config_unit.config[0][descriptor] = code | 1 << 4 | 256 << 16
backend.config_unit.config[0][descriptor + 1] = 1 | 1 << 16
backend.getADC(0).Unpacker[0].Channel[1].X = 255
unpacker = backend.unpacker_units[0]
unpacker.next_instruction.append((word("UNPACR", SetDatValid=1), 0))
unpacker.clock_tick(2)
got = t.from_source(backend.srcA[0].data[:16]).astype(np.float64)
steps = 2.0 ** (exponents.astype(np.float64)[:, None] - 127 - 6)
whole = np.minimum(np.floor(np.abs(groups) / steps + 0.5), 127)
cut = 2 ** (8 - bits)
wanted = np.sign(groups) * np.floor(whole / cut) * cut * steps
assert np.array_equal(got, wanted), np.abs(got - wanted).max()
print("same")
"""
EQUALITY_CHECK = """
import numpy as np
from runtime_patches.simulated_n150.tests.simulator import tensix_programs as t
{patch}
results = []
rng = np.random.default_rng(5)
for out, in_, wide in ((5, 5, False), (0, 0, True), (5, 0, True), (1, 1, False), (0, 5, False), (5, 5, True),
(8, 8, True)):
    for masked in (False, True):
        backend = t.make_backend()
        bits = rng.integers(0, 1 << 16, (64, 16))
        bits[0, :4] = (0, 0x8000, 0x00FF, 0x7FFF)
        backend.dst.dstBits[:64] = bits
        t.configure_packer(backend, out, in_, wide)
        if masked:
            t.configure(backend, PCK_EDGE_OFFSET_SEC0_mask=0x00F1, PCK_EDGE_OFFSET_SEC1_mask=0xFFFF)
            t.configure(backend, TILE_ROW_SET_MAPPING_0_row_set_mapping_3=1)
        t.pack(backend, last=0)
        t.pack(backend, last=1)
        results.append(backend.addressable_memory.memory.tobytes())
import hashlib
print(hashlib.sha256(b"".join(results)).hexdigest())
"""


@pytest.mark.parametrize("name", FORMATS)
def test_block_floats_are_packed_and_unpacked_by_the_rules(fresh_interpreter, name):
    code, bits = FORMATS[name]
    assert fresh_interpreter(BLOCK_FLOAT_CHECK.format(code=code, bits=bits)).strip().endswith("same")


def test_other_formats_pack_as_before(fresh_interpreter):
    """bfloat16, FP32, FP16 and INT32, with and without edge masks, two PACRs to one datastream."""
    patch = (
        "from runtime_patches.simulated_n150.simulator.registry import all_patches\n"
        "from runtime_patches.simulated_n150.simulator.patch import apply_all\n"
        "apply_all(all_patches())"
    )
    plain = fresh_interpreter(EQUALITY_CHECK.format(patch=""))
    assert plain.strip() and plain == fresh_interpreter(EQUALITY_CHECK.format(patch=patch))


def test_zero_write_relu_and_accumulation(fresh_interpreter):
    fresh_interpreter(
        """
import numpy as np
from runtime_patches.simulated_n150.simulator.registry import all_patches
from runtime_patches.simulated_n150.simulator.patch import apply_all
apply_all(all_patches())
from runtime_patches.simulated_n150.tests.simulator import tensix_programs as t

values = np.random.default_rng(2).standard_normal(256).astype(np.float32)
patterns = t.bfloat16_patterns(values)
values = (patterns << 16).astype(np.uint32).view(np.float32)

def packed(zero=0, times=1, **fields):
    backend = t.make_backend()
    backend.dst.dstBits[:16] = t.to_dst(patterns).reshape(16, 16)
    t.configure_packer(backend, 5, 5, False)
    t.configure(backend, **fields)
    backend.addressable_memory.write(0x1000, b"\\x80\\x3f" * 256)
    for _ in range(times):
        t.pack(backend, zero=zero)
    raw = np.frombuffer(backend.addressable_memory.read(0x1000, 512), dtype=np.uint16)
    return (raw.astype(np.uint32) << 16).view(np.float32)

assert np.array_equal(packed(), values)
assert not packed(zero=1).any()
assert np.array_equal(packed(STACC_RELU_ApplyRelu=1), np.maximum(values, 0))
clipped = packed(STACC_RELU_ApplyRelu=3, STACC_RELU_ReluThreshold=0x3F00)
assert np.array_equal(clipped, np.clip(values, 0, 0.5))
kept = np.where(values > 0.5, values, 0)
assert np.array_equal(packed(STACC_RELU_ApplyRelu=2, STACC_RELU_ReluThreshold=0x3F00), kept)
total = packed(THCON_SEC0_REG1_Pack_L1_Acc=1)
assert np.abs(total - (values + 1)).max() <= np.abs(values + 1).max() * 2.0**-8
assert np.abs(packed(times=3, THCON_SEC0_REG1_Pack_L1_Acc=1) - (3 * values + 1)).max() < 0.06
"""
    )


def test_a_kept_bank_advances_its_row_only_where_configured(fresh_interpreter):
    fresh_interpreter(
        """
from runtime_patches.simulated_n150.simulator.behaviour.unpacker import BlockFloatUnpacker
from runtime_patches.simulated_n150.tests.simulator import tensix_programs as t
backend = t.make_backend()
unpacker = BlockFloatUnpacker(backend, 1)
for advances, expected in ((False, 0), (True, 16)):
    unpacker.srcRow[0] = 0
    unpacker._advances_row = advances
    unpacker.flip_src_banks(False, 0, None)
    assert unpacker.srcRow[0] == expected
"""
    )


def test_setadczw_sets_z_and_w():
    from framework.pe.tensix.backend import ADCThread

    from runtime_patches.simulated_n150.simulator.behaviour.address_counters import set_zw

    counter = ADCThread.ADCUnit()
    for channel in counter.Channel:
        channel.Z = channel.W = channel.Z_Cr = channel.W_Cr = 9
    set_zw(counter, 0b1011, (1, 2, 3, 4))
    first, second = counter.Channel
    assert (first.Z, first.Z_Cr, first.W, first.W_Cr) == (1, 1, 2, 2)
    assert (second.Z, second.Z_Cr, second.W, second.W_Cr) == (9, 9, 4, 4)


def test_inline_write_masks():
    from runtime_patches.simulated_n150.simulator.behaviour.noc import enabled_run

    assert enabled_run(0x000F) == (0, 4)
    assert enabled_run(0xF0) == (4, 4)
    assert enabled_run(0x000F << 16) == (0, 4)
    assert enabled_run(0x3000) == (12, 2)
    for mask in (0, 0x0505):
        with pytest.raises(ValueError, match="inline NoC write"):
            enabled_run(mask)


def test_format_codes_follow_the_documentation():
    from runtime_patches.simulated_n150.simulator.behaviour.data_format import DataFormat

    table = [
        ["BFP4a", "BFP8a", "FP16", "FP32"],
        ["BFP4", "BFP8", "BF16", "TF32"],
        ["BFP2a", "FP8", "INT16", "INT32"],
    ]
    for row, names in enumerate(table):
        for column, name in enumerate(names):
            assert DataFormat[name] == 4 * row + 3 - column
    assert (DataFormat.BFP2, DataFormat.INT8) == (15, 14)
