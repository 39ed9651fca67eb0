# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the body of a stage is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from .expectations import Expectations, compare, pack
from .findings import Check, CouldNotRun


@dataclass
class Context:
    """kind: "sim" or "n150". device: an open ttnn mesh of the stage's chips, None for a stage without. recorded:
    outputs of this run by name, packed. recording: whether outputs are kept, not compared."""

    kind: str
    device: Any = None
    expectations: Expectations | None = None
    recording: bool = False
    recorded: dict[str, list] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        return self.kind == "sim"

    def check_output(self, name: str, values: torch.Tensor, *, exact: bool) -> Check:
        """Compare an output with the recorded one (`compare`; on simulated chips always bit for bit), or record it.
        Errors: CouldNotRun if nothing comparable was recorded."""
        self.recorded[name] = pack(values)
        if self.recording:
            return Check(name, f"{values.numel()} values recorded")
        if self.expectations is None:
            raise CouldNotRun(
                "no outputs of the simulator were recorded; `llama-alspec check --device sim --record` does it"
            )
        return compare(
            name, values, self.expectations.of(name, simulated=self.simulated), exact=exact or self.simulated
        )
