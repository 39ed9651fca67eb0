# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a run of the op is made of: the tensors, the cores and the peer of each member, and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tt_kernels.speculative_flash_decode.work_split import CoreAssignment


@dataclass(frozen=True)
class Tensors:
    """The device tensors of one member. guess, distance_sq and norm_sq are None without speculation, the
    priorities where there are none."""

    q: Any
    k: Any
    v: Any
    cur_pos: Any
    exact: Any
    guess: Any = None
    distance_sq: Any = None
    norm_sq: Any = None
    priority: Any = None
    gathered: Any = None

    def all(self) -> list[Any]:
        """Those there are, as ttnn.generic_op takes them: inputs, then outputs."""
        names = ("q", "k", "v", "cur_pos", "priority", "gathered", "guess", "distance_sq", "norm_sq", "exact")
        return [tensor for name in names if (tensor := getattr(self, name)) is not None]


@dataclass(frozen=True)
class PeerArgs:
    """What a member's exchange core needs of its peer. state: address of the session state, the same on both;
    exact: the peer's output tensor; timeout: two words of cycles; link: runtime arguments of its PeerLink."""

    defines: Sequence[tuple[str, str]]
    max_write: int
    state: int
    exact: Any
    timeout: Sequence[int]
    link: Sequence[int]


@dataclass(frozen=True)
class RowArgs:
    """What a chip's output core needs of its row. state: address of the session state, the same on all; index: place of
    the chip among `chips`; timeout: two words of cycles; links: runtime arguments of its row::Links."""

    defines: Sequence[tuple[str, str]]
    state: int
    index: int
    chips: int
    timeout: Sequence[int]
    links: Sequence[int]


@dataclass(frozen=True)
class Member:
    """One side of a pair, or the only one: its tensors and cores. index: member of the pair; member 0 sends
    when the priorities are equal. row: the chips it shares its users' heads with."""

    tensors: Tensors
    plan: CoreAssignment
    index: int = 0
    peer: PeerArgs | None = None
    row: RowArgs | None = None


@dataclass(frozen=True)
class Settings:
    """Numbers of a run: threshold, scale; and how it is built. guess_alone: without speculation, what is computed is
    the guess."""

    threshold: float
    scale: float
    speculate: bool
    math_fidelity: str
    guess_alone: bool = False
