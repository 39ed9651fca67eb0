# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Prompts and bounds that tests of the TT-NN model share. No ttnn here: tests import it at collection."""

import torch

# Joining heads takes a core for each of the two query heads of the tiny model.
GRID = "2x1"
MIN_PCC = 0.99
# Reference logits closer than this may swap places in bfloat16.
NEAR_TIE = 0.1
# Masses are whole 65536ths of the largest: 32 of them, each off by half of one, move a border by less than this.
BAND = 2.5e-4


def prompt(length: int, seed: int) -> list[int]:
    """Random ids of the tiny model's vocabulary of 96."""
    return torch.randint(0, 96, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def repeating(seed: int) -> list[int]:
    """24 of its tokens out of 6 random ones, in which there is something to look up."""
    generator = torch.Generator().manual_seed(seed)
    alphabet = torch.randint(0, 96, (6,), generator=generator)
    return alphabet[torch.randint(0, 6, (24,), generator=generator)].tolist()


def margin(masses: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """How far each number is from the nearest border between two tokens: masses [n, vocab], numbers [n] -> [n]."""
    return (masses.double().cumsum(-1) - numbers[:, None]).abs().amin(-1)
