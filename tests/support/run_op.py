# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run device ops in a worker: upload inputs, call, download results; on a chip, a virtual pair or a mesh.

A test describes calls without importing ttnn, and gets tensors of torch back:

    q = In(torch.randn(1, 1, 4, 64))
    call = Call("tt_kernels.speculative_flash_decode.op:flash_decode", q, k, v, In([70], "int32"), chunk_size=32)
    (found,) = run_ops(sim_device("2x1"), [call])
    found["out"]

What is given to several calls (an In, a Make) is uploaded or made once. On a mesh of several chips each result is a
dict by the chip's coordinates.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch

LIMIT_S = 900.0


class In:
    """A tensor that calls are given.

    values: a torch tensor, or numbers. dtype, memory: ttnn's names ("DRAM", "L1", or a Make of a memory config); memory
    "HOST" leaves it there. layout: TILE or ROW_MAJOR; by default integers are row-major. split: dimensions that are
    split over the rows and the columns of a mesh. read: a name by which results hold it after each call. gone: it is
    deallocated before the call.
    """

    def __init__(
        self, values, dtype="bfloat16", *, layout=None, memory="DRAM", split=(None, None), read=None, gone=False
    ):
        self.values = torch.as_tensor(values)
        self.dtype, self.memory, self.split, self.read, self.gone = dtype, memory, split, read, gone
        self.layout = layout or ("ROW_MAJOR" if "int" in dtype else "TILE")


class Make:
    """``module:name(*arguments, **options)``, or what is no function itself, in the worker. what: may be a Make whose
    result is called. device: the device comes first."""

    def __init__(self, what: str | Make, *arguments, device: bool = False, **options):
        self.what, self.arguments, self.device, self.options = what, arguments, device, options


class Call(Make):
    """A call whose results are read.

    padded: outputs that are read with their padding rows. inside: a Make of a context manager. reset: states (pairs, TP
    groups) that it is given are reset before. links: calls (method, options) of Links just before the launch.
    """

    def __init__(self, what: str | Make, *arguments, padded=(), inside=None, reset=False, links=(), **options):
        super().__init__(what, *arguments, **options)
        self.padded, self.inside, self.reset, self.links = padded, inside, reset, links


def run_ops(worker, calls: Sequence[Call], timeout: float = LIMIT_S, **options) -> list[dict[str, Any]]:
    """Return the results of each call: its outputs by name ("out" for a lone tensor), what Ins with `read` hold,
    "errors" (of check() of each state, by class), "states" (what these tell) and "entries" of the program cache. After
    a call with links also the cycle of its "start", and the "deliveries" that were recorded.

    traced: capture the first and replay it with the inputs of each.
    """
    return worker.run(_run_ops, list(calls), timeout=timeout, **options)


def run_op(worker, what: str, *arguments, **options) -> dict[str, Any]:
    """Return the results of one call; see run_ops."""
    return run_ops(worker, [Call(what, *arguments, **options)])[0]


def refusals(worker, calls: dict[str, Call], timeout: float = LIMIT_S) -> dict[str, str]:
    """Return "type: message" of the error that each call ends with, "nothing" where it runs."""
    return worker.run(_refusals, calls, timeout=timeout)


def check_refused(worker, calls: dict[str, Call], *kinds: str) -> None:
    """Assert that each call ends with an error of one of these kinds, by default an op's, which says what it is named
    by."""
    starts = tuple(f"{kind}: " for kind in kinds or ("UnsupportedError", "ValueError"))
    for said, message in refusals(worker, calls).items():
        assert message.startswith(starts) and said in message, (said, message)


def words(values, dtype: str = "int32", **options) -> In:
    """Return integers as a row-major tensor."""
    return In(values, dtype, **options)


def blank(shape: Sequence[int], dtype: str, layout: str = "TILE", memory: str = "DRAM") -> Make:
    """Return a tensor of any contents, for calls that are built and not executed."""
    return Make(f"{__name__}:_blank", list(shape), dtype, layout, memory, device=True)


def shards(
    cores: int, columns: int, layout: str = "WIDTH_SHARDED", first: int = 0, *, rows: int = 32, buffer: str = "L1"
) -> Make:
    """Return the memory of [rows, columns] in L1 on each of so many cores, row by row from the `first` one on."""
    return Make(f"{__name__}:_shards", cores, [rows, columns], layout, first, buffer, device=True)


def banks(inputs: int, columns: int) -> Make:
    """Return the memory of a weight with so many columns in each of twelve banks."""
    return shards(12, columns, rows=inputs, buffer="DRAM")


def priorities(values: int | Sequence[int], read: str | None = "priority") -> In:
    """Return a chip's priorities, which calls update; results hold all 32 words."""
    from tt_kernels.common.priority import priority_row

    return In(priority_row(values), "uint32", read=read)


def gathered(*rows: Sequence[int]) -> In:
    """Return what an exchange leaves in `gathered`: the priorities of both ranks."""
    return In(gathered_words(rows), "uint32")


def gathered_words(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return int64 [1, 1, 2, MAX_USERS], zeros after each row."""
    from tt_kernels.common.priority import MAX_USERS

    values = torch.zeros(1, 1, 2, MAX_USERS, dtype=torch.int64)
    for rank, row in enumerate(rows):
        values[0, 0, rank, : len(row)] = torch.tensor(row)
    return values


def set_bits(values: torch.Tensor, place: tuple[int, ...], bits: int) -> None:
    """Write the bits of a bfloat16 number at a place of a contiguous tensor: torch would make one NaN of many."""
    values.view(torch.int16)[place] = bits - (bits >> 15 << 16)


# ------------------------------------------------------------------------------ in the worker


def nothing(*given) -> None:
    """Do nothing, so that what is given is read as it was uploaded."""


def gated(priority, what: str, *arguments, **options):
    """Call the op "module:name" in a region of the compute gate."""
    from tt_kernels.compute_gate.op import skip_compute

    module, _, name = what.partition(":")
    op = getattr(importlib.import_module(module), name)
    with skip_compute(priority):
        return op(*arguments, **options)


def to_torch(tensor, padded: bool = False) -> torch.Tensor:
    """Return a tensor of one chip; integers as int64, since torch cannot pickle unsigned words."""
    import ttnn

    found = tensor.cpu().to_torch_with_padded_shape() if padded else ttnn.to_torch(tensor)
    return found if found.is_floating_point() else found.to(torch.int64)


class World:
    """What calls were given, on the open device."""

    def __init__(self, device):
        self.device, self.made = device, {}
        shape = tuple(device.shape)
        self.places = [(row, column) for row in range(shape[0]) for column in range(shape[1])]

    @property
    def links(self):
        from runtime_patches.simulated_n150.links import Links

        return Links(os.getpid())

    def host(self, value: In):
        """Return an In as a ttnn tensor in host memory."""
        import ttnn

        mapper, values = None, value.values
        if len(self.places) > 1:
            mapper = ttnn.ShardTensor2dMesh(self.device, dims=value.split, mesh_shape=tuple(self.device.shape))
        if value.dtype == "uint32":
            values = (values.to(torch.int64) & 0xFFFFFFFF).to(torch.uint32)
        elif value.dtype == "int32":
            values = values.to(torch.int32)
        layout = getattr(ttnn, f"{value.layout}_LAYOUT")
        return ttnn.from_torch(values, dtype=getattr(ttnn, value.dtype), layout=layout, mesh_mapper=mapper)

    def put(self, value: In):
        import ttnn

        host = self.host(value)
        if value.memory == "HOST":
            return host
        # Converted by the host: chips would do it by programs that take the simulator longer than most tests.
        named = isinstance(value.memory, str)
        memory = getattr(ttnn, f"{value.memory}_MEMORY_CONFIG") if named else self.of(value.memory)
        tensor = ttnn.to_device(host, self.device, memory_config=memory)
        if value.gone:
            ttnn.deallocate(tensor)
        return tensor

    def of(self, value):
        """Return an argument as the op takes it."""
        if isinstance(value, Call):
            return self.call(value)
        if isinstance(value, (In, Make)):
            if id(value) not in self.made:
                self.made[id(value)] = self.put(value) if isinstance(value, In) else self.call(value)
            return self.made[id(value)]
        if type(value) in (list, tuple):
            return type(value)(map(self.of, value))
        return {name: self.of(part) for name, part in value.items()} if type(value) is dict else value

    def call(self, what: Make):
        if isinstance(what.what, Make):
            return self.of(what.what)(*map(self.of, what.arguments), **{k: self.of(v) for k, v in what.options.items()})
        module, _, name = what.what.partition(":")
        function = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        if not callable(function):
            return function
        first = [self.device] if what.device else []
        return function(*first, *map(self.of, what.arguments), **{key: self.of(v) for key, v in what.options.items()})

    def parts(self, value) -> Iterator[In | Make]:
        """Yield all In and Make below a value, the value included."""
        if isinstance(value, (In, Make)):
            yield value
        if isinstance(value, Make):
            value = (value.what, value.arguments, value.options)
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            for part in value:
                yield from self.parts(part)

    def states(self, call: Call) -> dict[str, Any]:
        """Return the states of a call by the names of their classes."""
        made = [self.of(part) for part in self.parts(call) if part is not call and isinstance(part, Make)]
        return {type(state).__name__: state for state in made if hasattr(state, "check") and hasattr(state, "reset")}

    def read(self, tensor, padded: bool = False):
        import ttnn

        if len(self.places) == 1:
            return to_torch(tensor, padded)
        parts = ttnn.get_device_tensors(tensor)
        return {place: to_torch(part, padded) for place, part in zip(self.places, parts, strict=True)}

    def named(self, outputs, padded) -> dict[str, Any]:
        """Return the outputs of a call by their names; those of the ranks of a virtual pair in a list."""
        if isinstance(outputs, list):
            return {"ranks": [self.named(each, padded) for each in outputs]}
        named = outputs._asdict() if hasattr(outputs, "_asdict") else {} if outputs is None else {"out": outputs}
        return {
            name: self.read(value, name in padded) if hasattr(value, "buffer_address") else value
            for name, value in named.items()
        }

    def results(self, call: Call, outputs) -> dict[str, Any]:
        found = self.named(outputs, call.padded)
        for part in self.parts(call):
            if isinstance(part, In) and part.read is not None:
                found[part.read] = self.read(self.of(part))
        states = self.states(call)
        found["errors"] = {name: error_of(state) for name, state in states.items()}
        found["states"] = {name: state.states() for name, state in states.items() if hasattr(state, "states")}
        found["entries"] = self.device.num_program_cache_entries()
        if call.links:
            found["start"], found["deliveries"] = self.start, self.links.recorded()
        return found

    def launch(self, call: Call):
        import ttnn

        for part in self.parts(call):
            if part is not call:
                self.of(part)  # uploaded before the clock is read
        if call.reset:
            for state in self.states(call).values():
                state.reset()
        if call.links:
            ttnn.synchronize_device(self.device)
            self.start = self.links.cycle()
            for method, options in call.links:
                getattr(self.links, method)(**options)
        with contextlib.nullcontext() if call.inside is None else self.call(call.inside):
            return self.call(call)

    def replay(self, calls: Sequence[Call]) -> list[dict[str, Any]]:
        """Capture the first call and replay it for each, its inputs overwritten with theirs."""
        import ttnn

        first = calls[0]
        self.launch(first)
        trace = ttnn.begin_trace_capture(self.device, cq_id=0)
        outputs = self.launch(first)
        ttnn.end_trace_capture(self.device, trace, cq_id=0)
        found, shared = [], {id(part) for part in self.parts(calls[-1])} if len(calls) > 1 else set()
        for call in calls:
            for mine, theirs in zip(self.parts(first), self.parts(call), strict=True):
                if isinstance(mine, In) and id(mine) not in shared:
                    ttnn.copy_host_to_device_tensor(self.host(theirs), self.of(mine))
            ttnn.execute_trace(self.device, trace, cq_id=0, blocking=True)
            found.append(self.results(first, outputs))
        ttnn.release_trace(self.device, trace)
        return found


def _blank(device, shape: list[int], dtype: str, layout: str, memory: str):
    import ttnn

    place = getattr(ttnn, f"{memory}_MEMORY_CONFIG")
    return ttnn.empty(shape, getattr(ttnn, dtype), getattr(ttnn, f"{layout}_LAYOUT"), device, place)


def _shards(device, cores: int, shard: list[int], layout: str, first: int, buffer: str):
    import ttnn

    from tt_kernels.common.cores import core_set

    width = device.compute_with_storage_grid_size().x if buffer == "L1" else cores  # banks are one row
    places = core_set(*((core % width, core // width) for core in range(first, first + cores)))
    spec = ttnn.ShardSpec(places, shard, ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(getattr(ttnn.TensorMemoryLayout, layout), getattr(ttnn.BufferType, buffer), spec)


def error_of(state) -> str | None:
    try:
        state.check()
    except RuntimeError as error:
        return str(error)
    return None


def _run_ops(device, calls: list[Call], traced: bool = False) -> list[dict[str, Any]]:
    world = World(device)
    if traced:
        return world.replay(calls)
    return [world.results(call, world.launch(call)) for call in calls]


def _refusals(device, calls: dict[str, Call]) -> dict[str, str]:
    found = {}
    for name, call in calls.items():
        try:
            World(device).launch(call)
            found[name] = "nothing"
        except Exception as error:  # whatever it is, the test compares it
            found[name] = f"{type(error).__name__}: {error}"
    return found
