# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Layer-parallel strategies of fuzzy drafting (EasySpec algorithm 2, appendix B).

A strategy is a list of groups of consecutive layers. The attentions of a group all read the hidden state that
enters its first layer, so on several devices they run at once; its MLPs stay sequential.
`ReferenceLlama.forward` takes a strategy as `layer_groups`. A reference in torch runs the layers of a group
one after the other: it shows what fuzzy drafting does to acceptance, not what it saves in time.
"""

from __future__ import annotations

from collections.abc import Sequence


def layer_groups(num_layers: int, size: int) -> list[list[int]]:
    """Return the strategy of table 6 for `size` layers in parallel, carried over to any number of layers.

    Layer 0 and the last layer stay alone. Of the groups between them the first has at most three layers, the
    others `size`, and the last what is left: the rule of the table's rows for 32 and 28 layers. size 1 is
    sequential execution. Raises ValueError for sizes that are not in 1 .. num_layers - 2.
    """
    inner = num_layers - 2
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= max(1, inner):
        raise ValueError(
            f"layer-parallel size must be an integer from 1 to {max(1, inner)} for a model of {num_layers} "
            f"layers, got {size!r}"
        )
    if size == 1:
        return [[layer] for layer in range(num_layers)]
    starts = [0, 1, *range(1 + min(3, size), num_layers - 1, size), num_layers - 1]
    return [list(range(a, b)) for a, b in zip(starts, [*starts[1:], num_layers])]


def check_groups(num_layers: int, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return a custom strategy as lists. Raises ValueError unless it names every layer once, in order."""
    listed = [list(group) for group in groups]
    if not all(listed) or [layer for group in listed for layer in group] != list(range(num_layers)):
        raise ValueError(
            f"a layer-parallel strategy must list layers 0 to {num_layers - 1} once, in order, in groups "
            f"that are not empty; got {listed}"
        )
    return listed


def resolve(num_layers: int, fuzzy: int | Sequence[Sequence[int]] | None) -> list[list[int]] | None:
    """Return None (sequential) for None or size 1, table 6 for a size, and a list as it is, checked."""
    if fuzzy is None:
        return None
    groups = layer_groups(num_layers, fuzzy) if isinstance(fuzzy, int) else check_groups(num_layers, fuzzy)
    return None if all(len(group) == 1 for group in groups) else groups
