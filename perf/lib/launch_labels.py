# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which ttnn call launched a program: names for what a timeline or a profiler knows by number.

The runtime numbers programs in the order of launches. While labels are taken, every ttnn operation notes the number
that its first program will have, its name, its tensors, and which part and layer of the model called it.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from models.llama31_8b.tt.model import TtLlama

# How the parts of a layer are named whose programs are generic ops to ttnn.
ATTENTION, EXCHANGE, GATE = "attention", "exchange", "gate"
DECODE_PRODUCT, BANKED_PRODUCT = "decode_product", "banked_product"
# What a layer does in a decode step besides attending, and in a prefill.
PARTS = ("project_qkv", "after_attention", "prefill")


@dataclass(frozen=True)
class Tensor:
    """What a profiler tells of a tensor. shape and padded: of four dimensions; memory: as DRAM_INTERLEAVED."""

    shape: tuple[int, ...]
    padded: tuple[int, ...]
    dtype: str
    layout: str
    memory: str

    @classmethod
    def of(cls, tensor: Any) -> Tensor:
        memory, layout = tensor.memory_config(), tensor.layout.name.removesuffix("_LAYOUT")
        where = f"{memory.buffer_type.name}_{memory.memory_layout.name}"
        own, padded = (tuple([1, 1, 1, 1, *map(int, shape)][-4:]) for shape in (tensor.shape, tensor.padded_shape))
        return cls(own, padded, tensor.dtype.name, layout, where)


@dataclass(frozen=True)
class Label:
    """A call. number: of its first program. layer, part: of the model, None outside; name: ttnn's own."""

    number: int
    name: str
    layer: int | None
    part: str | None
    tensors: tuple[Tensor, ...] = ()
    fidelity: str | None = None
    output: Tensor | None = None


class Labels:
    """The calls of what ran inside `taken` or `of_model`, in their order."""

    def __init__(self) -> None:
        self.labels: list[Label] = []

    def of(self, number: int) -> Label | None:
        """Return the call that launched program `number`; None for one before all calls."""
        at = bisect.bisect_right([label.number for label in self.labels], number)
        return self.labels[at - 1] if at else None

    @contextlib.contextmanager
    def taken(self, now: Mapping[str, Any] = MappingProxyType({"layer": None, "part": None})) -> Iterator[None]:
        """Note every ttnn operation. now: layer and part at the moment, changed by the caller."""
        import ttnn
        from ttnn import decorators

        def noting(original):
            def call(op, *args, **kwargs):
                number, place = ttnn._ttnn.get_device_operation_id(), len(self.labels)
                name, config = op.python_fully_qualified_name.rpartition(".")[2], kwargs.get("compute_kernel_config")
                known = tuple(Tensor.of(tensor) for tensor in _tensors([*args, *kwargs.values()]))
                fidelity = None if config is None else config.math_fidelity.name
                self.labels.append(Label(number, name, now["layer"], now["part"], known[:3], fidelity))
                result = original(op, *args, **kwargs)
                first = next(_tensors(result), None)
                if first is not None:
                    self.labels[place] = replace(self.labels[place], output=Tensor.of(first))
                return result

            return call

        with contextlib.ExitStack() as stack:
            for kind in (decorators.FastOperation, decorators.Operation):
                stack.enter_context(mock.patch.object(kind, "__call__", noting(kind.__call__)))
            yield

    @contextlib.contextmanager
    def of_model(self, model: TtLlama) -> Iterator[None]:
        """`taken`, with the layer, and the part where an op of ours runs, by the names above."""
        from models.llama31_8b.tt import layer as layer_module
        from models.llama31_8b.tt import layouts, modules
        from models.llama31_8b.tt.alspec import PairAlspec
        from tt_kernels.all_reduce.op import AllReduce
        from tt_kernels.compute_gate import op as gate

        now, attention = {"layer": None, "part": None}, model.attention
        parts = [(type(attention), "__call__", ATTENTION), (AllReduce, "__call__", "all_reduce")]
        parts += [(modules, op, op) for op in (DECODE_PRODUCT, BANKED_PRODUCT, "gated_product")]
        parts += [(layouts, "cached_heads", "cached_heads"), (layer_module, "prefill_attention", "prefill_attention")]
        if isinstance(attention, PairAlspec):
            parts += [(attention, "exchange", EXCHANGE), (gate, "_launch", GATE)]
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.taken(now))
            for index, layer in enumerate(model.layers):
                for owner, name in [(layer.attention, "attend"), *((layer, part) for part in PARTS)]:
                    stack.enter_context(_within(owner, name, now, "layer", index))
            for owner, name, part in parts:
                stack.enter_context(_within(owner, name, now, "part", part))
            yield


def _tensors(value: Any) -> Iterator[Any]:
    """Return the device tensors among nested arguments, in order."""
    import ttnn

    if isinstance(value, ttnn.Tensor):
        if value.storage_type() == ttnn.StorageType.DEVICE and value.is_allocated():
            yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _within(owner, name: str, now: dict, key: str, value) -> contextlib.AbstractContextManager:
    """Return a context in which now[key] is `value` while `owner.name` runs."""
    original = getattr(owner, name)

    def call(*args, **kwargs):
        outer, now[key] = now[key], value
        try:
            return original(*args, **kwargs)
        finally:
            now[key] = outer

    return mock.patch.object(owner, name, call)
