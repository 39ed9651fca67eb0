# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the simulator's bit-accurate arithmetic gave for each op, and the versions that it holds for.

`llama-alspec check --device sim --record` writes them.
"""

from __future__ import annotations

import base64
import json
import zlib
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import torch

from .findings import Check, CouldNotRun

FILE = Path(__file__).parent / "expected.json"
PACKAGES = ("ttnn", "wolfpine")


def versions() -> dict[str, str]:
    """Return the versions that expectations depend on; of packages that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class Expectations(NamedTuple):
    """versions: of the packages that gave them. outputs: by name, float32 or int64 tensors, flat."""

    versions: dict[str, str]
    outputs: dict[str, list]

    @classmethod
    def read(cls) -> Expectations | None:
        """Return those of FILE, None if there are none."""
        if not FILE.is_file():
            return None
        said = json.loads(FILE.read_text(encoding="utf-8"))
        return cls(said["versions"], said["outputs"])

    def of(self, name: str, *, simulated: bool) -> torch.Tensor:
        """Return an output. simulated: whether it is compared with one of the simulator, whose version then counts too.
        Errors: CouldNotRun if it was not recorded, or with other versions."""
        installed = versions()
        for package in PACKAGES if simulated else PACKAGES[:1]:
            recorded, found = self.versions.get(package), installed.get(package)
            if recorded != found:
                raise CouldNotRun(
                    f"outputs were recorded with {package} {recorded}, installed is {found}: they are not compared; "
                    "`llama-alspec check --device sim --record` records them anew"
                )
        if name not in self.outputs:
            raise CouldNotRun(f"no output {name!r} was recorded; `llama-alspec check --device sim --record` does it")
        return unpack(self.outputs[name])


def pack(values: torch.Tensor) -> list:
    """Return a tensor as JSON: its dtype, then its bytes."""
    kind = torch.int64 if not values.is_floating_point() else torch.float32
    data = values.to(kind).contiguous().numpy().tobytes()
    return [str(kind).removeprefix("torch."), base64.b64encode(zlib.compress(data, 9)).decode()]


def unpack(packed: list) -> torch.Tensor:
    """Return the flat tensor that `pack` was given."""
    kind, data = packed
    return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(data))), dtype=getattr(torch, kind)).clone()


def write(outputs: dict[str, list]) -> list[str]:
    """Write outputs with the versions at hand, in place of those before; return the names of what changed."""
    before = Expectations.read()
    known = {} if before is None else before.outputs
    said = {"command": "llama-alspec check --device sim --record", "versions": versions(), "outputs": outputs}
    FILE.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return sorted(name for name in known.keys() | outputs.keys() if known.get(name) != outputs.get(name))


MIN_PCC, MAX_RELATIVE = 0.9999, 0.02


def compare(name: str, measured: torch.Tensor, expected: torch.Tensor, *, exact: bool) -> Check:
    """Compare with a recorded output. exact: bit for bit, as for integers and moved data; else by PCC (of two and more
    values) and the largest error relative to the largest value, since the packer and the vector unit of a board may
    round another way than the simulator's."""
    measured = measured.reshape(-1)
    if measured.shape != expected.shape:
        return Check(name, f"{measured.numel()} values", f"{expected.numel()} values", False)
    if not measured.is_floating_point():
        differ = int((measured.long() != expected).sum())
        return Check(name, f"{differ} of {expected.numel()} differ", "none differs", differ == 0)
    measured = measured.float()
    differ = int((measured != expected).sum())
    pcc = correlation(measured, expected)
    error = float((measured - expected).abs().max())
    relative = error / max(float(expected.abs().max()), 1e-30)
    shown = f"PCC {pcc:.6f}, largest error {error:.3g} ({relative:.2%}), {differ} of {expected.numel()} values differ"
    if exact:
        return Check(name, shown, "equal", differ == 0)
    ok = relative <= MAX_RELATIVE and (pcc >= MIN_PCC or expected.numel() == 1)
    return Check(name, shown, f"PCC of {MIN_PCC} or more, errors of {MAX_RELATIVE:.0%} or less", ok)


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return Pearson's correlation: 1 for equal tensors, 0 if one is constant or not finite."""
    if torch.equal(a, b):
        return 1.0
    if a.numel() < 2:
        return 0.0
    value = torch.corrcoef(torch.stack([a.double().flatten(), b.double().flatten()]))[0, 1]
    return float(torch.nan_to_num(value, nan=0.0))
