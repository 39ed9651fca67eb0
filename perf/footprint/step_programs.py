# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of a decode step as they are launched: what each reads of DRAM, on how many cores, and what it only
moves. Runs in a process on a mock mesh, where nothing executes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import ttnn

from models.llama31_8b.tt import attention_policies, layouts, modules
from models.llama31_8b.tt.mesh import TILE
from models.llama31_8b.tt.model import TtLlama
from models.llama31_8b.tt.modules import dtype_name
from models.llama31_8b.tt.precision import TILE_BYTES
from models.llama31_8b.tt.sharding import FLASH_DECODE
from perf.lib.launch_labels import (
    ALL_REDUCE,
    CACHED_HEADS,
    DECODE_PRODUCT,
    GATED_PRODUCT,
    around,
    each_call,
    in_layers,
)
from tt_kernels.all_reduce.op import AllReduce

from .graph import calls_of
from .mesh_build import build_model

# Ops that leave numbers as they are: what they write is only moved.
MOVES = {"interleaved_to_sharded", "sharded_to_interleaved", "to_memory_config", "to_layout"}
MOVES |= {"transpose", "concat", "slice", "copy"}
# Ops on the cache that touch a tile of positions of each head, not all of it.
UPDATES = {"paged_update_cache", "paged_fused_update_cache", CACHED_HEADS}
GENERIC = "generic_op"  # what launches programs of ours, named here by the function that calls it
_VIEWS = {"unsqueeze_to_4D", "deallocate", "reshape"}


@dataclass
class Launch:
    """One op of a step on a chip, in bytes.

    Attributes:
        op: its name.
        layer: None outside the layers.
        dram: read of DRAM; padding: of that, columns past the weight's own.
        moved: written by an op that changes nothing but the place.
        cores: that have buffers in its programs.
        programs: its device operations.
    """

    op: str
    layer: int | None
    dram: int = 0
    padding: int = 0
    moved: int = 0
    cores: int = 0
    programs: list[str] = field(default_factory=list)


def launches(mesh: ttnn.MeshDevice, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the launches of a step at the last position, as dictionaries.

    asked: decode_sharding, precision, users, context, and layers of the model that is built.
    """
    users, context = asked["users"], asked["context"]
    sharding = asked["decode_sharding"]
    model = build_model(mesh, asked["precision"], users, context, asked["layers"], decode_sharding=sharding)
    inputs = model.step_inputs([0] * users, [context - 1] * users)
    model.decode(inputs, gather_logits=False)  # as it is: ttnn refuses what does not fit
    return [asdict(launch) for launch in record(model, lambda: model.decode(inputs, gather_logits=False))]


def record(model: TtLlama, step: Callable[[], object]) -> list[Launch]:
    """Return the launches of `step`, without dispatch; `model` tells their layers. Calls without a program are left
    out."""
    found: list[tuple[str, Launch]] = []  # by the name of the ttnn op
    ttnn.graph.begin_graph_capture(ttnn.graph.RunMode.NO_DISPATCH)
    try:
        with _noted(model, found):
            step()
    finally:
        graph = ttnn.graph.end_graph_capture()
    calls = iter(calls_of(graph))
    for name, launch in found:
        call = next((call for call in calls if call[0] == name), None)
        if call is None:
            raise RuntimeError(f"the captured graph lacks {name} of {launch.op}")
        _, launch.programs, launch.cores = call
    return [launch for _, launch in found if launch.programs]


@contextlib.contextmanager
def _noted(model: TtLlama, found: list[tuple[str, Launch]]) -> Iterator[None]:
    """Note every op that is called from Python, with the layer that calls. Raises RuntimeError for a program of ours
    other than those named here: what it reads is not known."""
    now: dict[str, Any] = {"layer": None, "inside": False, "ours": None}

    def note(name: str, run: Callable[[], Any], given: list[Any], _: str | None) -> Any:
        if now["inside"]:
            return run()
        op = name
        if name == GENERIC:
            if now["ours"] is None:
                known = ", ".join((FLASH_DECODE, ALL_REDUCE, DECODE_PRODUCT, GATED_PRODUCT, CACHED_HEADS))
                raise RuntimeError(f"{GENERIC} in a decode step: only {known} are known")
            op, given = now["ours"], given[0][:-1]  # the last is the result, the all-reduce's first in L1
        now["inside"] = True
        try:
            read = [_read(op, tensor) for tensor in given if _in_dram(tensor)]
            out = run()
        finally:
            now["inside"] = False
        if name not in _VIEWS:
            dram, padding = (sum(part) for part in zip(*read, strict=True)) if read else (0, 0)
            if name == "embedding":  # rows that are looked up, of a table
                dram, padding = _bytes(out), 0
            found.append((name, Launch(op, now["layer"], dram, padding, _bytes(out) if name in MOVES else 0)))
        return out

    def named(owner: Any, call: str, name: str) -> contextlib.AbstractContextManager[None]:
        return around(owner, call, lambda: now.update(ours=name), lambda: now.update(ours=None))

    with contextlib.ExitStack() as stack:
        for context in (
            each_call(note),
            in_layers(model, now),
            named(attention_policies, FLASH_DECODE, FLASH_DECODE),
            named(AllReduce, "__call__", ALL_REDUCE),
            named(modules, DECODE_PRODUCT, DECODE_PRODUCT),
            named(modules, GATED_PRODUCT, GATED_PRODUCT),
            named(layouts, CACHED_HEADS, CACHED_HEADS),
        ):
            stack.enter_context(context)
        yield


def _in_dram(value: Any) -> bool:
    return isinstance(value, ttnn.Tensor) and value.memory_config().buffer_type == ttnn.BufferType.DRAM


def _read(op: str, tensor: ttnn.Tensor) -> tuple[int, int]:
    """Return the bytes of a tensor in DRAM that an op reads, and how many of them are padding of its banks."""
    if op in UPDATES:
        users, heads, _, head_dim = tensor.shape if len(tensor.shape) == 4 else (0, 0, 0, 0)
        return users * heads * head_dim // TILE * TILE_BYTES.get(dtype_name(tensor), 0), 0
    own, shard = _bytes(tensor), tensor.memory_config().shard_spec
    if shard is None:
        return own, 0
    rows, columns = shard.shape
    banks = -(-tensor.padded_shape[3] // columns)
    read = rows * columns * banks // TILE**2 * TILE_BYTES[dtype_name(tensor)]
    return read, read - own


def _bytes(tensor: ttnn.Tensor) -> int:
    """Return the bytes of a chip's part, padding of tiles included."""
    numbers, dtype = math.prod(tensor.padded_shape), dtype_name(tensor)
    if dtype in TILE_BYTES and tensor.layout == ttnn.TILE_LAYOUT:
        return numbers // TILE**2 * TILE_BYTES[dtype]
    return numbers * tensor.element_size()
