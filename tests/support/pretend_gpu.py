# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Pretend a GPU: tensors say they are on "cuda" and compute on the CPU, and mixing them with the host's
raises as on a real one. It shows, without a GPU, what code forgets to move; kernels and speed it cannot show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

GPU = torch.device("cuda", 0)
# What waited for the device since the list was last cleared.
WAITS: list[str] = []
# Operations that wait, since the size of what they give depends on values.
SIZED = {
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten._local_scalar_dense.default,
}
# Writes between the host and the device, which a real one allows.
COPIES = {torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default}
# What waits for the device and reads a value.
_T = torch.Tensor
READS = {
    _T.__int__,
    _T.__float__,
    _T.__bool__,
    _T.__index__,
    _T.__len__,
    _T.__format__,
    _T.item,
    _T.tolist,
    _T.numpy,
}


class OnGpu(torch.Tensor):
    """A tensor that says it is on the GPU; `host` has its values."""

    host: torch.Tensor

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> OnGpu:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            host.size(),
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=GPU,
        )
        made.host = host
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnGpu({self.host})"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _run(function, args, kwargs):
    flat = tree_flatten((args, kwargs))[0]
    on_gpu = any(isinstance(value, OnGpu) for value in flat)
    on_host = [value for value in flat if isinstance(value, torch.Tensor) and not isinstance(value, OnGpu)]
    if on_gpu and function not in COPIES and any(value.ndim for value in on_host):
        shapes = [list(value.shape) for value in on_host]
        raise RuntimeError(f"{function}: tensors of the host {shapes} beside tensors of the GPU")
    if on_gpu and function in SIZED:
        WAITS.append(str(function))
    device = kwargs.get("device")
    if device is not None:
        on_gpu = torch.device(device).type == "cuda"
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if function is torch.ops.aten.copy_.default:
        on_gpu = isinstance(args[0], OnGpu)
    bare_args, bare_kwargs = tree_map_only(OnGpu, lambda tensor: tensor.host, (args, kwargs))
    found = function(*bare_args, **bare_kwargs)
    if function._schema.is_mutable and isinstance(found, torch.Tensor):  # an operation in place returns its tensor
        for value in flat:
            if isinstance(value, OnGpu) and value.host is found:
                return value
    return tree_map_only(torch.Tensor, OnGpu, found) if on_gpu else found


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _moved(tensor: torch.Tensor, device: torch.device | None, dtype: torch.dtype | None) -> torch.Tensor:
    host = tensor.host if isinstance(tensor, OnGpu) else tensor
    on_gpu = isinstance(tensor, OnGpu) if device is None else device.type == "cuda"
    if isinstance(tensor, OnGpu) and not on_gpu:
        WAITS.append("a copy to the host")
    found = host if dtype is None else host.to(dtype)
    if found is host and on_gpu == isinstance(tensor, OnGpu):
        return tensor
    return OnGpu(found) if on_gpu else found


class _Functions(TorchFunctionMode):
    """Answers what asks the card before it is dispatched: copies, reads, and attention's choice of a kernel."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in (_T.to, _T.cpu, _T.cuda):
            if function is not _T.to:
                return _moved(args[0], torch.device("cpu" if function is _T.cpu else "cuda"), None)
            device, dtype, *_ = torch._C._nn._parse_to(*args[1:], **kwargs)
            return _moved(args[0], device, dtype)
        if function in (torch.tensor, torch.as_tensor):
            device = kwargs.pop("device", None)
            if isinstance(args[0], OnGpu):
                return _moved(args[0], device and torch.device(device), kwargs.get("dtype"))
            return _moved(function(*args, **kwargs), device and torch.device(device), None)
        if function in READS and isinstance(args[0], OnGpu):
            if function is not _T.__len__:
                WAITS.append(function.__name__)
            return function(args[0].host, *args[1:], **kwargs)
        if function is torch.nn.functional.scaled_dot_product_attention:
            tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
            kinds = {isinstance(value, OnGpu) for value in tensors}
            if len(kinds) > 1:
                raise RuntimeError("attention over tensors of the host and of the GPU")
            if kinds == {True}:
                bare_args, bare_kwargs = tree_map_only(OnGpu, lambda tensor: tensor.host, (args, kwargs))
                found = function(*bare_args, **bare_kwargs)
                return OnGpu(found.transpose(1, 2).contiguous().transpose(1, 2))  # as flash kernels lay it out
        return function(*args, **kwargs)


@contextmanager
def pretended_gpu() -> Iterator[torch.device]:
    """Make torch.device("cuda") work, for factories, `.to` and operations."""
    torch._C._ensureCUDADeviceGuardSet()  # without a driver: guards do nothing, as for torch's own fake tensors
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "_lazy_init", lambda: None)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(torch.cuda, "synchronize", lambda device=None: None)
        # Wrapped tensors know no inference mode, in which plain ones could not be sliced again.
        patch.setattr(torch.inference_mode, "__enter__", lambda self: None)
        patch.setattr(torch.inference_mode, "__exit__", lambda self, *_: None)
        with torch.no_grad(), _Dispatch(), _Functions():
            yield torch.device("cuda")
