# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The rates at which a DRAM-sharded product and flash decode read: on a board in nanoseconds at Llama 3.1 8B's shapes,
on a simulated chip in cycles of its cost model at small ones.

`python -m perf.reports` puts the decode model's figures for the same shapes beside them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.tiny import BANKED
from models.llama31_8b.tt.precision import LayerPrecision, bytes_of

from ..context import Context
from ..expectations import correlation
from ..findings import Check

MODEL, CONTEXT = "llama-3.1-8b", 4096
SIM_CONTEXT = 256
KV_CACHE, CHUNK_SIZE = "bfloat8_b", 128
MIN_PCC = 0.99  # of eight-bit weights and caches
LAUNCHES, REPLAYS = 32, 5


def rates(context: Context) -> list[Check]:
    """Time both ops, and check what they compute against torch."""
    config = BANKED if context.simulated else preset(MODEL)
    return [*product(context, config), *attention(context, config)]


def product(context: Context, config: LlamaConfig) -> list[Check]:
    """Multiply one row by the down projection, laid out by DRAM bank.

    The stock kernel's cores that send and multiply set their own flag before the multicast to themselves has landed;
    only their wait until the flag's multicast is sent keeps them from using their block too early.
    """
    import ttnn

    from models.llama31_8b.tt.layouts import in_l1, make_decode_modules
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.sharding import ShardedDecodeConfig
    from models.llama31_8b.tt.weights import WeightStore

    device, mesh_shape, formats = context.device, MeshShape(), LayerPrecision()
    shape = ShardedDecodeConfig.of(config, mesh_shape, 1).ff2(formats.ff2)
    generator = torch.Generator().manual_seed(4)
    weight = torch.randn(shape.inputs, shape.outputs, generator=generator)
    x = torch.randn(1, 1, 1, shape.inputs, generator=generator).bfloat16()
    modules = make_decode_modules("sharded", device, mesh_shape, config, 1)
    matrix = modules.matrix(WeightStore(device, mesh_shape), 0, "ff2", lambda: weight, formats, -2)
    rows = ttnn.interleaved_to_sharded(mesh_shape.put(device, x, "bfloat16"), in_l1(device, shape.source))
    name = f"product with {shape.inputs} x {shape.outputs} in {shape.dtype}"
    facts = {"inputs": shape.inputs, "outputs": shape.outputs, "cores": shape.source.cores, "dtype": shape.dtype}
    return _checks(context, name, lambda: matrix.decode(rows), x[0, 0].float() @ weight, shape.laid_bytes, facts)


def attention(context: Context, config: LlamaConfig) -> list[Check]:
    """Attend with flash decode to a full cache of one user."""
    from models.llama31_8b.tt.mesh import MeshShape
    from tt_kernels.speculative_flash_decode.op import flash_decode

    device, length = context.device, SIM_CONTEXT if context.simulated else CONTEXT
    heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(1, 1, heads, head_dim, generator=generator).bfloat16()
    cache = [torch.randn(1, kv_heads, length, head_dim, generator=generator) for _ in range(2)]
    put = MeshShape().put
    query = put(device, q, "bfloat16")
    keys, values = (put(device, part, KV_CACHE) for part in cache)
    position = put(device, torch.tensor([length - 1], dtype=torch.int32), "int32", "ROW_MAJOR_LAYOUT")
    expected = torch.nn.functional.scaled_dot_product_attention(q.float().transpose(1, 2), *cache, enable_gqa=True)
    size = 2 * bytes_of(kv_heads * length * head_dim, KV_CACHE)
    name = f"flash decode of {kv_heads} x {length} x {head_dim} in {KV_CACHE}"
    facts = {"kv_heads": kv_heads, "context": length, "head_dim": head_dim, "dtype": KV_CACHE}

    def launch():
        return flash_decode(query, keys, values, position, chunk_size=CHUNK_SIZE)

    return _checks(context, name, launch, expected, size, facts)


def _checks(
    context: Context, name: str, launch: Callable[[], Any], expected: torch.Tensor, size: int, facts: dict[str, Any]
) -> list[Check]:
    import ttnn

    pcc = correlation(ttnn.to_torch(launch()).float().flatten(), expected.flatten())  # compiles it, too
    ns = cycles(context.device, launch) if context.simulated else nanoseconds(context.device, launch)
    rate = {"GB/s": round(size / ns, 3), "ns": round(ns, 1), "bytes": size}
    return [
        Check(f"{name} against torch", f"PCC {pcc:.6f}", f"PCC of {MIN_PCC} or more", pcc >= MIN_PCC),
        Check(name, rate | facts),
    ]


def cycles(device, launch: Callable[[], Any]) -> float:
    """Return the cycles of one launch on a simulated chip at 1 GHz, from its first core's start to its last's end."""
    from runtime_patches.profiling.cycles import measure

    spans = [core.program for core in measure(device, launch).values() if core.program is not None]
    return float(max(span.end for span in spans) - min(span.start for span in spans))


def nanoseconds(device, launch: Callable[[], Any]) -> float:
    """Return the time of one launch among many on a board: what LAUNCHES more of them add to a trace's replay."""
    one, many = (_replay_seconds(device, launch, times) for times in (1, 1 + LAUNCHES))
    return (many - one) / LAUNCHES * 1e9


def _replay_seconds(device, launch: Callable[[], Any], times: int) -> float:
    """Return the shortest time of a replay of so many launches, which have run before."""
    import ttnn

    trace = ttnn.begin_trace_capture(device, cq_id=0)
    for _ in range(times):
        ttnn.deallocate(launch())
    ttnn.end_trace_capture(device, trace, cq_id=0)
    took = []
    for _ in range(REPLAYS):
        started = time.perf_counter()
        ttnn.execute_trace(device, trace, cq_id=0, blocking=True)
        took.append(time.perf_counter() - started)
    ttnn.release_trace(device, trace)
    return min(took)
