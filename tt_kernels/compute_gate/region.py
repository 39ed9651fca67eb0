# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The gated region on the host: ops between chips that would hang a pair are refused while it is active.

In a gated region one chip of a pair may skip every kernel. A stock op that waits for that chip would never end. So the
first region of a process puts a check before ttnn's ops, which from then on raises in regions, by name and before
anything is launched, for cross-chip ops however they were imported. Ops along an axis whose chips all share one gate (a
TP group) are safe and can be permitted.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# The ops of ttnn that send to or wait for another chip, by the last part of their names.
_CROSS_CHIP = re.compile(
    r"all_gather|all_reduce|reduce_scatter|all_broadcast|all_to_all|point_to_point|reduce_to_root"
    r"|rms_allgather|(^|_)send_(async|direct)|(^|_)recv_(async|direct)|neighbor_pad|slice_reshard"
    r"|selective_reduce_combine|(^|_)ring_|halo_scatter|fused_rms_minimal|dit_fused_distributed"
    r"|moe_compute|moe_gpt|socket_service"
    r"|llama_rs_|compressor_state_exchange|attn_res_gather_softmax|qkv_causal_conv1d_silu|select_final_carry"
    r"|^(broadcast|combine|dispatch)(_fabric2d)?$"
)
# Names that hold such a part but are work for one chip alone, or for the host.
_LOCAL = re.compile(r"(pre|post)_all_?gather$|_create_\w*buffers?$|^prepare_")


class GatedRegionError(RuntimeError):
    """The call is not possible inside, or outside, a gated region."""


@dataclass(frozen=True)
class Region:
    """An active region, and the axis along which cross-chip ops stay permitted, or None."""

    shared_gate_axis: int | None


_active: Region | None = None


def active_region() -> Region | None:
    """Return the region this process is in, or None."""
    return _active


def is_cross_chip(name: str) -> bool:
    """Return whether the ttnn op with that fully qualified name exchanges data with another chip."""
    stem = name.rpartition(".")[2]
    return bool(_CROSS_CHIP.search(stem)) and not _LOCAL.search(stem)


def refuse_in_region(name: str, cluster_axis: int | None = None) -> None:
    """Raise GatedRegionError if a region is active in which the cross-chip op `name` could hang."""
    if _active is None:
        return
    if cluster_axis is not None and cluster_axis == _active.shared_gate_axis:
        return
    permitted = "none is" if _active.shared_gate_axis is None else f"only cluster_axis={_active.shared_gate_axis} is"
    raise GatedRegionError(
        f"{name} (cluster_axis={cluster_axis}) is a cross-chip op: inside skip_compute it would wait for a "
        "chip that skips it, and hang the pair. Call it outside the region; of the mesh's axes "
        f"{permitted} permitted here"
    )


def require_no_region(name: str) -> None:
    """Raise GatedRegionError if a region is active, whose gate `name` would change under its ops."""
    if _active is not None:
        raise GatedRegionError(f"{name} inside skip_compute: it would change the gate of the region's other ops")


@contextlib.contextmanager
def gated_region(shared_gate_axis: int | None = None) -> Iterator[None]:
    """Refuse cross-chip ops inside, except along `shared_gate_axis`. Regions do not nest: GatedRegionError."""
    global _active
    if _active is not None:  # leaving the inner region would open the outer one's gate
        raise GatedRegionError("skip_compute is active already; regions do not nest")
    _check_ops_in_regions()
    _active = Region(shared_gate_axis)
    try:
        yield
    finally:
        _active = None


def _check_ops_in_regions() -> None:
    """Put the check before ttnn's ops, unless it is there."""
    from ttnn import decorators

    for kind in (decorators.FastOperation, decorators.Operation):
        if not getattr(kind.__call__, "checks_regions", False):
            kind.__call__ = _checked(kind.__call__)


def _checked(original: Any) -> Any:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _active is not None and is_cross_chip(self.python_fully_qualified_name):
            refuse_in_region(self.python_fully_qualified_name, kwargs.get("cluster_axis"))
        return original(self, *args, **kwargs)

    call.checks_regions = True  # type: ignore[attr-defined]
    return call
