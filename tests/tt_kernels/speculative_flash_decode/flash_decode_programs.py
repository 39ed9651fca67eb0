# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of the speculative flash decode tests that run in a worker with a device, and the cases they run.

All tests of the op share one simulated chip, and with it the compiled kernels, and use parts of its grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

CHIP = "4x2"


@dataclass(frozen=True)
class Case:
    """A shape of the op. One compiled program serves all positions of a case. grid: the part of the chip it
    uses."""

    heads: int = 4
    kv_heads: int = 1
    head_dim: int = 64
    max_tokens: int = 256
    chunk_size: int = 64
    users: int = 1
    cache: str = "bfloat16"
    workers: int | None = None
    grid: tuple[int, int] = (2, 1)
    key_chunk: int | None = None
    fidelity: str = "HiFi3"

    def random(self, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k, v with rare outliers."""
        generator = torch.Generator().manual_seed(seed)
        shapes = [
            (1, self.users, self.heads, self.head_dim),
            *2 * [(self.users, self.kv_heads, self.max_tokens, self.head_dim)],
        ]
        found = []
        for shape in shapes:
            values = torch.randn(shape, generator=generator)
            outliers = torch.rand(shape, generator=generator) < 0.002
            found.append(torch.where(outliers, 5 * values, values).bfloat16())
        return tuple(found)


def upload(device, values: torch.Tensor, dtype: str = "bfloat16"):
    import ttnn

    return ttnn.from_torch(values, dtype=getattr(ttnn, dtype), layout=ttnn.TILE_LAYOUT, device=device)


def upload_words(device, values, dtype: str):
    import ttnn

    values = torch.as_tensor(values, dtype=torch.int32)
    return ttnn.from_torch(values, dtype=getattr(ttnn, dtype), layout=ttnn.ROW_MAJOR_LAYOUT, device=device)


def download(outputs) -> dict[str, torch.Tensor]:
    import ttnn

    found = {name: ttnn.to_torch(value) for name, value in outputs._asdict().items()}
    return found | {name: found[name].flatten() for name in ("distance_sq", "norm_sq")}


def read_priorities(tensor, users: int) -> list[int]:
    import ttnn

    return [int(value) for value in ttnn.to_torch(tensor).flatten()[:users]]


def program_config(case: Case):
    from tt_kernels.speculative_flash_decode.op import ProgramConfig

    return ProgramConfig(
        grid=case.grid, workers_per_head=case.workers, key_chunk=case.key_chunk, math_fidelity=case.fidelity
    )


def speculative_body(device, case: Case, q, k, v, runs):
    """One result for each of `runs`, dicts of positions, threshold and optionally priorities; and the caches
    as the device holds them."""
    import ttnn

    from tt_kernels.common.priority import priority_row
    from tt_kernels.speculative_flash_decode.op import speculative_flash_decode

    tensors = [upload(device, q), upload(device, k, case.cache), upload(device, v, case.cache)]
    results = []
    for run in runs:
        positions = upload_words(device, run["positions"], "int32")
        priority, rows = run.get("priority"), run.get("lists")
        row = None if priority is None else upload_words(device, priority_row(priority), "uint32")
        masses = upload_words(device, run["masses"], "uint32") if "masses" in run else None
        outputs = speculative_flash_decode(
            *tensors,
            positions,
            chunk_size=case.chunk_size,
            guess_range=run.get("guess_range"),
            tile_lists=None if rows is None else upload_words(device, rows, "uint32"),
            tile_masses=masses,
            threshold=run.get("threshold", 0.1),
            scale=run.get("scale"),
            priority=row,
            program_config=program_config(case),
        )
        found = download(outputs)
        found["priority"] = None if row is None else read_priorities(row, case.users)
        found["masses"] = None if masses is None else ttnn.to_torch(masses).long()
        results.append(found)
    return results, [ttnn.to_torch(tensor) for tensor in tensors[1:]]


def repeats_body(device, case: Case, q, k, v, positions: list[int], repeats: int):
    """The results of `repeats` calls with the same tensors, launched one after another."""
    import ttnn

    from tt_kernels.common.priority import HOLDS_EXACT, priority_row
    from tt_kernels.speculative_flash_decode.op import speculative_flash_decode

    tensors = [upload(device, part, case.cache) for part in (q, k, v)]
    at = upload_words(device, positions, "int32")
    config = program_config(case)
    rows = [upload_words(device, priority_row(HOLDS_EXACT), "uint32") for _ in range(repeats)]
    results = [
        speculative_flash_decode(*tensors, at, chunk_size=case.chunk_size, priority=row, program_config=config)
        for row in rows
    ]
    ttnn.synchronize_device(device)
    return [
        download(outputs) | {"priority": read_priorities(row, case.users)}
        for outputs, row in zip(results, rows, strict=True)
    ]


def exact_body(device, case: Case, q, k, v, runs):
    """Run the exact variant as speculative_body does, without thresholds and priorities."""
    from tt_kernels.speculative_flash_decode.op import flash_decode

    return _one_result_body(flash_decode, device, case, q, k, v, runs)


def guess_body(device, case: Case, q, k, v, runs):
    """Run the guess alone as exact_body does."""
    from tt_kernels.speculative_flash_decode.op import guess_flash_decode

    return _one_result_body(guess_flash_decode, device, case, q, k, v, runs)


def _one_result_body(op, device, case: Case, q, k, v, runs):
    import ttnn

    tensors = [upload(device, q), upload(device, k, case.cache), upload(device, v, case.cache)]
    results = []
    for run in runs:
        positions = upload_words(device, run["positions"], "int32")
        options = {"chunk_size": case.chunk_size, "program_config": program_config(case)}
        if "guess_range" in run:
            options["guess_range"] = run["guess_range"]
        if "lists" in run:
            options["tile_lists"] = upload_words(device, run["lists"], "uint32")
        if "memory" in run:
            options["memory_config"] = getattr(ttnn, f"{run['memory']}_MEMORY_CONFIG")
        result = op(*tensors, positions, **options)
        assert result.memory_config() == options.get("memory_config", ttnn.DRAM_MEMORY_CONFIG)
        results.append(ttnn.to_torch(result))
    return results, [ttnn.to_torch(tensor) for tensor in tensors[1:]]


def stock_body(device, q, k, v, position: int):
    """ttnn's own decode attention on one core."""
    import ttnn

    tensors = [upload(device, part) for part in (q, k, v)]
    out = ttnn.transformer.scaled_dot_product_attention_decode(
        *tensors,
        cur_pos_tensor=upload_words(device, [position], "int32"),
        program_config=ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=ttnn.CoreCoord(1, 1), q_chunk_size=32, k_chunk_size=32
        ),
    )
    return ttnn.to_torch(out)[:, :, : q.shape[2]]


def refused_body(device, build):
    """The message of the error that `build` of this module's calls ends with, or None."""
    from tt_kernels.compute_gate.region import GatedRegionError

    try:
        REFUSED[build](device)
    except (ValueError, GatedRegionError) as error:
        return type(error).__name__, str(error)
    return None


def _call(device, case: Case | None = None, q=None, priority=None, speculate=True, config=None, **options):
    """A call on its own, with `q` and the other `options` for what would be right."""
    from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode, speculative_flash_decode

    case = case or Case()
    own, k, v = (upload(device, part) for part in case.random())
    inputs = (own if q is None else q, k, v, upload_words(device, [5], "int32"))
    options = {"chunk_size": case.chunk_size, "program_config": ProgramConfig(**(config or {}))} | options
    if speculate:
        speculative_flash_decode(*inputs, priority=priority, **options)
    else:
        flash_decode(*inputs, **options)


def _host_query(device):
    import ttnn

    host = ttnn.from_torch(Case().random()[0], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    _call(device, q=host, speculate=False)


def _query_in_torch(device):
    _call(device, q=Case().random()[0])


def _deallocated_query(device):
    import ttnn

    q = upload(device, Case().random()[0])
    ttnn.deallocate(q)
    _call(device, q=q)


def _deallocated_priority(device):
    import ttnn

    from tt_kernels.common.priority import HOLDS_EXACT, priority_row

    row = upload_words(device, priority_row(HOLDS_EXACT), "uint32")
    ttnn.deallocate(row)
    _call(device, priority=row)


def _config_in_words(device):
    _call(device, program_config="HiFi4")


def _exact_config_in_words(device):
    _call(device, program_config={"grid": (2, 1)}, speculate=False)


def _peer_in_words(device):
    _call(device, peer="the next chip")


def _no_origin(device):
    _call(device, config={"origin": None})


def _no_fidelity(device):
    _call(device, config={"math_fidelity": None})


def _small_grid(device):
    _call(device, config={"grid": (1, 1)})


def _grid_outside(device):
    _call(device, config={"grid": (4, 1), "origin": (1, 0)}, speculate=False)


def _half_a_core(device):
    _call(device, config={"grid": (1.5, 2)})


def _half_a_worker(device):
    _call(device, config={"workers_per_head": 2.5})


def _tiled_priority(device):
    _call(device, priority=upload(device, torch.zeros(1, 1, 32, 32)))


def _priority_in_torch(device):
    _call(device, priority=torch.zeros(1, 1, 1, 32))


def _sharded_result(device):
    import ttnn

    _call(device, speculate=False, memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG)


def _result_memory_in_words(device):
    _call(device, speculate=False, memory_config="L1")


def _threshold_in_words(device):
    _call(device, threshold="0.1")


def _scale_in_words(device):
    _call(device, scale="0.1")


def _too_many_keys_at_once(device):
    _call(device, Case(2, 1, 128, 4096, 4096), config={"key_chunk": 4096}, speculate=False)


def _pair(device, rows=(0, 1), timeout_s=2.0, unlike=(), shared=False, **broken):
    """A pair whose calls are refused. unlike: dicts of each rank's further ProgramConfig. shared: both are given one
    priority tensor. broken: what the second rank is given in the place of its other inputs, by name."""
    from tt_kernels.common.core_pair import CorePair
    from tt_kernels.common.priority import HOLDS_EXACT, MAX_USERS, priority_row
    from tt_kernels.speculative_flash_decode.op import ProgramConfig
    from tt_kernels.speculative_flash_decode.virtual_pair import RankInputs, speculative_flash_decode_pair

    tensors = [upload(device, part) for part in Case().random()]
    at = upload_words(device, [5], "int32")
    priorities = [upload_words(device, priority_row(HOLDS_EXACT), "uint32") for _ in rows]
    if shared:
        priorities[1] = priorities[0]
    seen = upload_words(device, torch.zeros(1, 1, 2, MAX_USERS), "uint32")
    ranks = [
        RankInputs(
            *tensors, at, row, seen, ProgramConfig((4, 1), (0, y), **{"workers_per_head": 1} | further), timeout_s
        )
        for y, row, further in zip(rows, priorities, unlike or ({}, {}), strict=True)
    ]
    ranks[1] = replace(ranks[1], **broken)
    speculative_flash_decode_pair(ranks, CorePair(device, ((3, 0), (3, 1))), chunk_size=64)


def _one_priority_tensor(device):
    _pair(device, shared=True)


def _no_config(device):
    _pair(device, program_config=None)


def _two_fidelities(device):
    _pair(device, unlike=({}, {"math_fidelity": "HiFi2"}))


def _two_key_chunks(device):
    _pair(device, unlike=({}, {"key_chunk": 32}))


def _no_patience(device):
    _pair(device, timeout_s=0)


def _shared_cores(device):
    _pair(device, rows=(0, 0))


def _gated_pair(device):
    from tt_kernels.compute_gate.region import gated_region

    with gated_region():
        _pair(device)


REFUSED = {
    "deallocated query": _deallocated_query,
    "deallocated priority": _deallocated_priority,
    "config in words": _config_in_words,
    "exact config in words": _exact_config_in_words,
    "peer in words": _peer_in_words,
    "no origin": _no_origin,
    "no fidelity": _no_fidelity,
    "one priority tensor": _one_priority_tensor,
    "no config": _no_config,
    "host query": _host_query,
    "small grid": _small_grid,
    "grid outside": _grid_outside,
    "tiled priority": _tiled_priority,
    "priority in torch": _priority_in_torch,
    "query in torch": _query_in_torch,
    "too many keys at once": _too_many_keys_at_once,
    "half a worker": _half_a_worker,
    "half a core": _half_a_core,
    "sharded result": _sharded_result,
    "result memory in words": _result_memory_in_words,
    "threshold in words": _threshold_in_words,
    "scale in words": _scale_in_words,
    "two key chunks": _two_key_chunks,
    "no patience": _no_patience,
    "two fidelities": _two_fidelities,
    "shared cores": _shared_cores,
    "gated pair": _gated_pair,
}
