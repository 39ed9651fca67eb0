# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Block floats against a scalar model written from the documentation's text, and pack against unpack."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_patches.simulated_n150.simulator.behaviour import block_float

BITS = (8, 4, 2)


def value_of(datum: int, exponent: int, bits: int) -> float:
    """FloatBitPatterns.md, tables: sign, magnitude / 2**(bits - 2) * 2**(exponent - 127); -0 means minus
    infinity.
    """
    sign, magnitude = datum >> (bits - 1), datum & ((1 << (bits - 1)) - 1)
    if magnitude == 0:
        return -np.inf if sign else 0.0
    return (-1.0 if sign else 1.0) * magnitude / 2 ** (bits - 2) * 2.0 ** (exponent - 127)


def as_float(bfloat16: int) -> float:
    return float(np.array([bfloat16 << 16], dtype=np.uint32).view(np.float32)[0])


@pytest.mark.parametrize("bits", BITS)
def test_every_datum_unpacks_to_its_value(bits):
    datums = np.arange(1 << bits)
    for exponent in (10, 100, 127, 128, 200, 254):
        at_top = datums << (8 - bits)
        got = block_float.to_bfloat16(at_top, np.full(len(datums), exponent))
        assert [as_float(int(pattern)) for pattern in got] == [value_of(int(d), exponent, bits) for d in datums]


@pytest.mark.parametrize("bits", BITS)
def test_bytes_hold_datums_lowest_bits_first(bits):
    raw = np.array([0b11100100, 0b00011011], dtype=np.uint8)
    datums = block_float.split_bytes(raw, bits)
    whole = int.from_bytes(raw.tobytes(), "little")
    expected = [whole >> shift & ((1 << bits) - 1) for shift in range(0, 16, bits)]
    assert list(datums >> (8 - bits)) == expected
    assert block_float.join_bytes(datums, bits).tobytes() == raw.tobytes()


def scalar_pack(values: list[float]) -> tuple[list[int], int]:
    """FormatConversion.md, "To BFP8": one shared exponent, magnitudes to nearest, ties away from zero."""
    patterns = np.array(values, dtype=np.float32).view(np.uint32) >> 16
    shared = max(int(p) >> 7 & 0xFF for p in patterns)
    step = 2.0 ** (shared - 127 - 6)
    datums = []
    for pattern in patterns:
        value = as_float(int(pattern)) if int(pattern) >> 7 & 0xFF else 0.0
        magnitude = min(int(np.floor(abs(value) / step + 0.5)), 127)
        datums.append(0 if magnitude == 0 else (int(value < 0) << 7) | magnitude)
    return datums, shared


sixteen = st.lists(
    st.one_of(
        st.floats(-4, 4, width=32, allow_subnormal=False),
        st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1.984375, -1.9921875, 0.0078125, 0.01171875]),
    ),
    min_size=16,
    max_size=16,
)


@given(sixteen)
@settings(max_examples=300, deadline=None)
def test_packing_matches_the_scalar_model(values):
    patterns = (np.array(values, dtype=np.float32).view(np.uint32) >> 16).astype(np.int64)
    datums, shared = block_float.share_exponent(patterns >> 15, patterns >> 7 & 0xFF, patterns & 0x7F)
    expected, expected_shared = scalar_pack([as_float(int(p)) for p in patterns])
    assert list(datums) == expected
    assert list(shared) == [expected_shared]


@given(sixteen)
@settings(max_examples=100, deadline=None)
def test_narrow_formats_truncate_and_leave_no_negative_zero(values):
    patterns = (np.array(values, dtype=np.float32).view(np.uint32) >> 16).astype(np.int64)
    datums, _shared = block_float.share_exponent(patterns >> 15, patterns >> 7 & 0xFF, patterns & 0x7F)
    for bits in (4, 2):
        cut = block_float.truncate(datums, bits)
        for whole, kept in zip(datums, cut, strict=True):
            magnitude = (whole & 0x7F) >> (8 - bits) << (8 - bits)
            assert kept == (0 if magnitude == 0 else (whole & 0x80) | magnitude)


def test_unpacking_what_was_packed_gives_it_back():
    rng = np.random.default_rng(3)
    values = rng.integers(0x3F00, 0x4100, 256).astype(np.int64)
    once, exponents = block_float.share_exponent(values >> 15, values >> 7 & 0xFF, values & 0x7F)
    first = block_float.to_bfloat16(once, np.repeat(exponents, 16))
    twice, exponents = block_float.share_exponent(first >> 15, first >> 7 & 0xFF, first & 0x7F)
    assert np.array_equal(once, twice)
    assert np.array_equal(block_float.to_bfloat16(twice, np.repeat(exponents, 16)), first)


def test_half_precision_family_refuses_what_is_undefined():
    with pytest.raises(ValueError, match="undefined"):
        block_float.to_half(np.array([0x40]), np.array([64]))
    one = block_float.to_half(np.array([0x40, 0x80]), np.array([15, 15]))
    assert list(one) == [0x3C00, 0xFC00]
