# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Trees, inputs and bodies of the tree attention tests; bodies run in a worker with a device.

All tests of the op share one simulated chip, and with it the compiled kernels, and use parts of its grid.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

CHIP = "4x2"  # as the flash decode tests'


@dataclass(frozen=True)
class Case:
    """A shape of the op. One compiled program serves all prefixes and trees of a case."""

    heads: int = 4
    kv_heads: int = 1
    head_dim: int = 64
    max_tokens: int = 128
    nodes: int = 8
    users: int = 1
    cache: str = "bfloat16"
    grid: tuple[int, int] = (2, 1)
    query_tiles: int | None = None
    workers: int | None = 1
    key_chunk: int | None = 64
    fidelity: str = "HiFi3"

    def random(self, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k, v with rare outliers."""
        generator = torch.Generator().manual_seed(seed)
        shapes = [
            (1, self.heads, self.users * self.nodes, self.head_dim),
            *2 * [(self.users, self.kv_heads, self.max_tokens, self.head_dim)],
        ]
        found = []
        for shape in shapes:
            values = torch.randn(shape, generator=generator)
            outliers = torch.rand(shape, generator=generator) < 0.002
            found.append(torch.where(outliers, 5 * values, values).bfloat16())
        return found[0], found[1], found[2]


def chain(nodes: int) -> list[int]:
    return list(range(-1, nodes - 1))


def star(nodes: int) -> list[int]:
    return [-1] + (nodes - 1) * [0]


def binary(nodes: int) -> list[int]:
    return [-1] + [(node - 1) // 2 for node in range(1, nodes)]


def random_tree(nodes: int, seed: int, roots: float = 0.1) -> list[int]:
    """Parents in any valid order; a node is one more root with probability `roots`."""
    draw = random.Random(seed)
    return [-1 if node == 0 or draw.random() < roots else draw.randrange(node) for node in range(nodes)]


def padded(parents: Sequence[int], nodes: int) -> list[int]:
    """With further nodes that see only themselves, as of a narrower tree of a batch."""
    return [*parents, *(nodes - len(parents)) * [-1]]


def intervals_of(parents: Sequence[int]) -> list[list[int]]:
    """[enter times, leave times] of a recursive walk, children in order."""
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    enter, leave = [0] * len(parents), [0] * len(parents)
    clock = 0

    def walk(node: int) -> None:
        nonlocal clock
        enter[node] = clock
        clock += 1
        for child in children[node]:
            walk(child)
        leave[node] = clock - 1

    for node, parent in enumerate(parents):
        if parent < 0:
            walk(node)
    return [enter, leave]


def upload(device, values: torch.Tensor, dtype: str = "bfloat16", l1: bool = False):
    import ttnn

    memory = ttnn.L1_MEMORY_CONFIG if l1 else ttnn.DRAM_MEMORY_CONFIG
    return ttnn.from_torch(
        values, dtype=getattr(ttnn, dtype), layout=ttnn.TILE_LAYOUT, device=device, memory_config=memory
    )


def upload_words(device, values):
    import ttnn

    values = torch.as_tensor(values, dtype=torch.int32)
    return ttnn.from_torch(values, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)


def config_of(case: Case):
    from tt_kernels.tree_attention.op import ProgramConfig

    return ProgramConfig(
        grid=case.grid,
        workers_per_head=case.workers,
        query_tiles=case.query_tiles,
        key_chunk=case.key_chunk,
        math_fidelity=case.fidelity,
    )


def tree_body(device, case: Case, q, k, v, calls, l1: bool = False):
    """The rows of each of `calls`, dicts of prefix and parents of each user, padding rows of the last tiles included;
    and the caches as the device holds them."""
    import ttnn

    from tt_kernels.tree_attention.op import tree_attention

    tensors = [upload(device, q, l1=l1), upload(device, k, case.cache), upload(device, v, case.cache)]
    results = []
    for call in calls:
        intervals = [intervals_of(parents) for parents in call["parents"]]
        found = tree_attention(
            *tensors,
            upload_words(device, call["prefix"]),
            upload_words(device, intervals),
            scale=call.get("scale"),
            program_config=config_of(case),
        )
        assert tuple(found.shape) == tuple(q.shape)
        results.append(found.cpu().to_torch_with_padded_shape())
    return results, [ttnn.to_torch(tensor) for tensor in tensors[1:]]


def decode_body(device, case: Case, q, k, v, positions: list[int]):
    """flash_decode's results: q [1, users, heads, head_dim], a position a user; in key chunks of `case`."""
    import ttnn

    from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode

    tensors = [upload(device, q), upload(device, k, case.cache), upload(device, v, case.cache)]
    found = flash_decode(
        *tensors,
        upload_words(device, positions),
        chunk_size=case.key_chunk,
        program_config=ProgramConfig(grid=case.grid, workers_per_head=1, math_fidelity=case.fidelity),
    )
    return ttnn.to_torch(found)


def forget_programs_body(device) -> None:
    device.clear_program_cache()


def count_programs_body(device) -> int:
    return device.num_program_cache_entries()


def trace_body(device, case: Case, q, k, v, calls):
    """The result of each of `calls` from replays of one captured trace, whose prefix and intervals are rewritten."""
    import ttnn

    from tt_kernels.tree_attention.op import tree_attention

    tensors = [upload(device, q), upload(device, k, case.cache), upload(device, v, case.cache)]

    def words(call):
        intervals = [intervals_of(parents) for parents in call["parents"]]
        return [
            ttnn.from_torch(torch.tensor(part, dtype=torch.int32), dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT)
            for part in (call["prefix"], intervals)
        ]

    inputs = [part.to(device) for part in words(calls[0])]

    def run():
        return tree_attention(*tensors, *inputs, program_config=config_of(case))

    run()
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    found = run()
    ttnn.end_trace_capture(device, trace, cq_id=0)
    results = []
    for call in calls:
        for host, target in zip(words(call), inputs, strict=True):
            ttnn.copy_host_to_device_tensor(host, target)
        ttnn.execute_trace(device, trace, cq_id=0, blocking=True)
        results.append(ttnn.to_torch(found))
    ttnn.release_trace(device, trace)
    return results


def refused_body(device, build: str):
    """The message of the error that a call of REFUSED ends with, or None."""
    try:
        REFUSED[build](device)
    except ValueError as error:
        return type(error).__name__, str(error)
    return None


def _call(device, case: Case | None = None, config: dict | None = None, replace: dict | None = None, **options):
    """A call on its own, with what `replace` names in the place of what would be right."""
    from tt_kernels.tree_attention.op import ProgramConfig, tree_attention

    case = case or Case()
    names = ("q", "k", "v", "prefix", "intervals")
    parts = [upload(device, part) for part in case.random()]
    parts.append(upload_words(device, case.users * [5]))
    parts.append(upload_words(device, case.users * [intervals_of(chain(case.nodes))]))
    inputs = dict(zip(names, parts, strict=True)) | (replace or {})
    options = {"program_config": ProgramConfig(**({"grid": case.grid} | (config or {})))} | options
    tree_attention(*inputs.values(), **options)


def _host_query(device):
    import ttnn

    host = ttnn.from_torch(Case().random()[0], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    _call(device, replace={"q": host})


def _deallocated(device):
    import ttnn

    prefix = upload_words(device, [5])
    ttnn.deallocate(prefix)
    _call(device, replace={"prefix": prefix})


REFUSED = {
    "host query": _host_query,
    "deallocated": _deallocated,
    "torch intervals": lambda device: _call(device, replace={"intervals": torch.zeros(1, 2, 8)}),
    "tiled intervals": lambda device: _call(device, replace={"intervals": upload(device, torch.zeros(1, 2, 8))}),
    "rows": lambda device: _call(device, replace={"intervals": upload_words(device, torch.zeros(1, 2, 7))}),
    "config in words": lambda device: _call(device, program_config="HiFi4"),
    "three workers": lambda device: _call(device, config={"workers_per_head": 3}),
    "grid": lambda device: _call(device, config={"grid": (9, 1)}),
    "fidelity": lambda device: _call(device, config={"math_fidelity": "LoFi"}),
    "scale": lambda device: _call(device, scale=0),
    "too many keys at once": lambda device: _call(device, Case(2, 1, 128, 4096, 8), config={"key_chunk": 4096}),
}


def speculative_body(device, case: Case, q, k, v, calls, guess):
    """Guess, exact result, distance_sq and norm_sq and priorities of each of `calls`, dicts of prefix and parents of
    each user and a threshold; and the caches as the device holds them."""
    import ttnn

    from tt_kernels.common.priority import HOLDS_GUESS, MAX_USERS, priority_row
    from tt_kernels.tree_attention.speculative import speculative_tree_attention

    tensors = [upload(device, q), upload(device, k, case.cache), upload(device, v, case.cache)]
    results = []
    for call in calls:
        intervals = [intervals_of(parents) for parents in call["parents"]]
        held = priority_row([HOLDS_GUESS] * MAX_USERS)
        priority = ttnn.from_torch(held, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)
        found = speculative_tree_attention(
            *tensors,
            upload_words(device, call["prefix"]),
            upload_words(device, intervals),
            chunk_size=32,
            guess_range=guess,
            threshold=call["threshold"],
            priority=priority,
            program_config=config_of(case),
        )
        results.append(
            {
                "exact": found.exact.cpu().to_torch_with_padded_shape(),
                "guess": found.guess.cpu().to_torch_with_padded_shape(),
                "distance_sq": ttnn.to_torch(found.distance_sq).flatten(),
                "norm_sq": ttnn.to_torch(found.norm_sq).flatten(),
                "priority": ttnn.to_torch(priority).flatten().tolist(),
            }
        )
    return results, [ttnn.to_torch(tensor) for tensor in tensors[1:]]


def speculative_decode_body(device, case: Case, q, k, v, positions, guess, threshold):
    """Results of speculative_flash_decode as those of speculative_body: q [1, users, heads, head_dim]."""
    import ttnn

    from tt_kernels.common.priority import HOLDS_GUESS, MAX_USERS, priority_row
    from tt_kernels.speculative_flash_decode.op import ProgramConfig, speculative_flash_decode

    tensors = [upload(device, q), upload(device, k, case.cache), upload(device, v, case.cache)]
    held = priority_row([HOLDS_GUESS] * MAX_USERS)
    priority = ttnn.from_torch(held, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)
    found = speculative_flash_decode(
        *tensors,
        upload_words(device, positions),
        chunk_size=case.key_chunk,
        guess_range=guess,
        threshold=threshold,
        priority=priority,
        program_config=ProgramConfig(
            grid=case.grid, workers_per_head=1, key_chunk=case.key_chunk, math_fidelity=case.fidelity
        ),
    )
    return {
        "exact": ttnn.to_torch(found.exact),
        "guess": ttnn.to_torch(found.guess),
        "distance_sq": ttnn.to_torch(found.distance_sq).flatten(),
        "norm_sq": ttnn.to_torch(found.norm_sq).flatten(),
        "priority": ttnn.to_torch(priority).flatten().tolist(),
    }
