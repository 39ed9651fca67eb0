# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The four-bit codes of the data formats.

Rule: tt-isa-documentation, WormholeB0/TensixTile/TensixCoprocessor/Packers/FormatConversion.md, table of
encodings: 0 FP32, 1 FP16, 2 BFP8a, 3 BFP4a, 4 TF32, 5 BF16, 6 BFP8, 7 BFP4, 8 INT32, 9 INT16, 10 FP8, 11
BFP2a, 14 INT8, 15 BFP2. BFP8, BFP4 and BFP2 share an 8-bit exponent (tt-metal calls them Bfp8_b, Bfp4_b and
Bfp2_b); those with an "a" share a 5-bit one.

The simulator had the two families exchanged (BFP8 = 2, BFP8_b = 6, and so on), so that a register holding
bfloat8_b counted as one of half precision; INT16 and FP8 had no name, and packing INT16 failed for it.
"""

from __future__ import annotations

import sys
from enum import IntEnum

from runtime_patches.simulated_n150.simulator.patch import Patch

_BLOCK_FLOATS = frozenset((2, 3, 6, 7, 11, 15))


class DataFormat(IntEnum):
    """Format codes. Names that end in _b are the installed code's for what the documentation ends in a."""

    FP32 = 0
    FP16 = 1
    BFP8a = 2
    BFP8_b = 2
    BFP4a = 3
    BFP4_b = 3
    TF32 = 4
    BF16 = 5
    FP16_b = 5
    BFP8 = 6
    BFP4 = 7
    INT32 = 8
    INT16 = 9
    UINT16 = 9
    FP8 = 10
    BFP2a = 11
    BFP2_b = 11
    INT8 = 14
    BFP2 = 15
    UINT32 = 24
    UINT8 = 30

    def isBFPFormat(self):  # the simulator's name
        return self.value in _BLOCK_FLOATS

    @property
    def bits(self) -> int:
        return _BITS[self]


_BITS = {
    DataFormat.FP32: 32,
    DataFormat.TF32: 32,
    DataFormat.INT32: 32,
    DataFormat.UINT32: 32,
    DataFormat.FP16: 16,
    DataFormat.BF16: 16,
    DataFormat.INT16: 16,
    DataFormat.BFP8: 8,
    DataFormat.BFP8a: 8,
    DataFormat.FP8: 8,
    DataFormat.INT8: 8,
    DataFormat.UINT8: 8,
    DataFormat.BFP4: 4,
    DataFormat.BFP4a: 4,
    DataFormat.BFP2: 2,
    DataFormat.BFP2a: 2,
}


def _apply() -> None:
    import framework.pe.tensix.backend  # noqa: F401 (imports every module that holds the format names)
    from framework.pe.tensix.backends import backend_base

    names = {"DataFormat": DataFormat, "DATA_FORMAT_TO_BITS": _BITS}
    names["DATA_FORMAT_TO_NAME"] = {format_: format_.name for format_ in DataFormat}
    originals = {name: getattr(backend_base, name) for name in names}
    for module in list(sys.modules.values()):
        if not getattr(module, "__name__", "").startswith("framework."):
            continue
        for name, replacement in names.items():
            if getattr(module, name, None) is originals[name]:
                setattr(module, name, replacement)


PATCH = Patch(
    name="data format codes",
    rule="codes 6, 7 and 15 are the block floats with an 8-bit exponent, 2, 3 and 11 those with a 5-bit one",
    source="tt-isa-documentation, Packers/FormatConversion.md, table of encodings",
    targets={
        "framework.pe.tensix.backends.backend_base.DataFormat": "34faf2dd15cee2b0",
        "framework.pe.tensix.backends.matrix": "4a61d363f9ab63dd",
    },
    apply=_apply,
)
