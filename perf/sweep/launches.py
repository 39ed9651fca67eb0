# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A configuration as something to launch on an open mesh: inputs made, programs compiled at the first call.

Runs in the process of one configuration (worker.py), on boards and on simulated chips alike. Values are random, and
caches hold what was there, since none of these ops takes longer for others; a tree and its verification accept what
their bench has them accept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import ttnn

from models.llama31_8b.tt.attention_policies import DecodeAttention, StockDecodeAttention
from models.llama31_8b.tt.kv_cache import cache_block
from models.llama31_8b.tt.layouts import banked_program, in_banks, in_l1
from models.llama31_8b.tt.mesh import TILE
from models.llama31_8b.tt.modules import kernel_config
from models.llama31_8b.tt.sharding import MatmulConfig, Shards
from perf.lib.tensors import VirtualPair, intervals_of, parents_of, sampling_inputs, tile, words
from perf.sweep.configurations import Configuration
from perf.sweep.decode_ops import decode_op
from perf.sweep.launch import Launch, nothing
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, MAX_USERS, priority_row
from tt_kernels.common.tensor_facts import UnsupportedError

EXCHANGE_TIMEOUT_S = 0.05


def build(mesh, configuration: Configuration) -> Launch:
    """Return the launch of a configuration. Errors: ValueError (UnsupportedError among them) where the op refuses the
    shape."""
    torch.manual_seed(0)
    makers = {
        "matmul": _matmul,
        "flash_decode": _flash_decode,
        "tree_attention": _tree_attention,
        "exchange": _exchange,
        "gate": _gate,
        "collective": _collective,
        "sampling": _sampling,
        "decode_op": decode_op,
        "decode": _decode,
    }
    return makers[configuration.family](mesh, configuration)


def _rows_of_grid(mesh) -> tuple[int, int]:
    size = mesh.compute_with_storage_grid_size()
    return size.x, size.y


def _matmul(mesh, c: Configuration) -> Launch:
    k, n, m, dtype = c["k"], c["n"], c["m"], c["dtype"]
    if k % TILE or m > TILE:
        raise UnsupportedError(f"k must be a multiple of {TILE} and m at most {TILE}, got k {k}, m {m}")
    if c["layout"] == "interleaved":
        x, weight = tile(mesh, (1, 1, m, k)), tile(mesh, (1, 1, k, n), dtype=dtype)
        run = partial(ttnn.linear, x, weight, memory_config=ttnn.L1_MEMORY_CONFIG,
                      compute_kernel_config=kernel_config(dtype))  # fmt: skip
        return Launch(run)
    return _dram_sharded(mesh, c)


def _dram_sharded(mesh, c: Configuration) -> Launch:
    """Return the weight's columns over the 12 banks, the activation's over `cores` in L1, as tt_transformers
    decodes."""
    k, n, dtype, cores = c["k"], c["n"], c["dtype"], c["cores"]
    columns, rows = _rows_of_grid(mesh)
    if cores > columns * rows or (k // TILE) % cores:
        raise UnsupportedError(
            f"{k // TILE} tiles of k are not shared by cores={cores} of {columns}x{rows}, which the activation is on"
        )
    block = k // TILE // cores
    product = MatmulConfig(
        "matmul", k, n, dtype, Shards(cores, k // cores), Shards(cores, -(-n // (TILE * cores)) * TILE),
        max(d for d in range(1, 9) if block % d == 0),
    )  # fmt: skip
    x = tile(mesh, (1, 1, TILE, k), memory=in_l1(mesh, product.source))
    weight, config = tile(mesh, (1, 1, k, n), dtype=dtype, memory=in_banks(product)), banked_program(product)
    run = partial(ttnn.linear, x, weight, program_config=config, memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
                  compute_kernel_config=kernel_config(dtype))  # fmt: skip
    return Launch(run)


def _attention_tensors(mesh, c: Configuration, users: int):
    """Return key and value caches, not filled: a simulated chip takes ten minutes to be sent 128K tokens of 8 heads."""
    capacity = -(-c["context"] // 128) * 128
    shape = (users, c["kv_heads"], capacity, c["head_dim"])
    dtype = getattr(ttnn, c["dtype"])
    return (ttnn.empty(shape, dtype, ttnn.TILE_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG) for _ in range(2))


def _flash_decode(mesh, c: Configuration) -> Launch:
    """Return attention at the last position, compiled at the shortest context that speculates: positions are data, and
    64K tokens take a simulated chip an hour."""
    users, context = c["users"], c["context"]
    q = tile(mesh, (1, users, c["heads"], c["head_dim"]))
    k, v = _attention_tensors(mesh, c, users)
    at = words(mesh, [min(context, 2 * c["chunk_size"]) - 1] * users)
    last = words(mesh, [context - 1] * users, on_device=False)
    return replace(_attention(mesh, c, (q, k, v, at)), compiled=partial(ttnn.copy_host_to_device_tensor, last, at))


def _attention(mesh, c: Configuration, tensors) -> Launch:
    from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode, guess_flash_decode

    q, k, v, at = tensors
    if c["variant"] == "stock":
        config = ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=_rows_of_grid(mesh), q_chunk_size=TILE, k_chunk_size=c["chunk_size"],
            exp_approx_mode=False,
        )  # fmt: skip
        stock = ttnn.transformer.scaled_dot_product_attention_decode
        run = partial(stock, q, k, v, cur_pos_tensor=at, program_config=config,
                      compute_kernel_config=kernel_config("bfloat8_b"))  # fmt: skip
        return Launch(run)
    workers = c["workers"] or None
    if c["variant"] in ("exact", "guess"):
        own = ProgramConfig(workers_per_head=workers)
        op, name = (
            (flash_decode, "FlashDecode") if c["variant"] == "exact" else (guess_flash_decode, "GuessFlashDecode")
        )
        return Launch(partial(op, *tensors, chunk_size=c["chunk_size"], program_config=own), name)
    return _virtual_pair(mesh, c, tensors, workers)


def _virtual_pair(mesh, c: Configuration, tensors, workers: int | None) -> Launch:
    """Return both ranks on one chip, the sender in the upper half of its rows: what the op costs without a link."""
    columns, rows = _rows_of_grid(mesh)
    if rows < 2:
        raise UnsupportedError(f"a virtual pair needs two rows of cores, the grid is {columns}x{rows}")
    pair = VirtualPair.make(
        *(mesh, tensors, [(columns, rows // 2)] * 2),
        chunk_size=c["chunk_size"],
        workers=workers,
        timeout_s=EXCHANGE_TIMEOUT_S,
    )
    return Launch(pair.launch, "SpeculativeFlashDecodePair", check=pair.check)


def _tree_attention(mesh, c: Configuration) -> Launch:
    from tt_kernels.tree_attention.op import ProgramConfig, check_intervals, check_room, tree_attention

    nodes, context = c["nodes"], c["context"]
    if nodes >= context:
        raise UnsupportedError(f"{nodes} nodes are not fewer than context={context}, which holds them")
    q = tile(mesh, (1, c["heads"], nodes, c["head_dim"]))
    k, v = _attention_tensors(mesh, c, 1)
    enter, leave = intervals_of(parents_of("balanced", nodes))
    check_intervals(enter, leave)
    check_room([context - nodes], nodes, context)
    prefix, intervals = words(mesh, [context - nodes]), words(mesh, [[enter, leave]])
    config = ProgramConfig(workers_per_head=c["workers"] or None)
    return Launch(partial(tree_attention, q, k, v, prefix, intervals, program_config=config), "TreeAttention")


def _exchange(mesh, c: Configuration) -> Launch:
    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.device_exchange.op import DeviceExchange

    plan = c.mesh
    if plan.sp != 2:
        raise UnsupportedError(f"an exchange is between the two rows of a mesh, got {plan}")
    exchange = DeviceExchange(ChipPairs(mesh), users=1, timeout_s=EXCHANGE_TIMEOUT_S)
    rows = torch.stack([priority_row(value).reshape(1, MAX_USERS) for value in (HOLDS_EXACT, HOLDS_GUESS)])
    priority = ttnn.from_torch(
        rows.reshape(2, 1, 1, MAX_USERS), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh, mesh_shape=plan.shape, dims=(0, None)),
    )  # fmt: skip
    tensor = tile(mesh, (1, 1, 1, c["columns"]))
    return Launch(partial(exchange, tensor, priority), "DeviceExchange", check=exchange.check)


def _gate(mesh, c: Configuration) -> Launch:
    from tt_kernels.compute_gate.op import clear_compute_gate, set_compute_gate

    priority = words(mesh, priority_row(0), "uint32")  # 0 closes it
    close = partial(set_compute_gate, priority, users=1)
    opening = partial(clear_compute_gate, mesh)
    if c["part"] == "close":
        return Launch(close, "SetComputeGate", after=opening)
    if c["part"] == "open":
        return Launch(opening, "ClearComputeGate", before=close)
    x = tile(mesh, (1, 1, TILE, TILE))
    return Launch(partial(ttnn.add, x, x), before=close, after=opening)


def _collective(mesh, c: Configuration) -> Launch:
    plan = c.mesh
    if plan.tp < 2:
        raise UnsupportedError(f"a collective is between the columns of a mesh, got {plan}")
    columns, op = c["columns"], c["op"]
    if columns % (TILE * plan.tp):
        raise UnsupportedError(f"columns={columns} are not whole tiles of {TILE} for each of {plan.tp} chips")
    given = tile(mesh, (1, 1, TILE, columns // plan.tp if op == "all_gather" else columns))
    if op == "all_gather":
        return Launch(partial(ttnn.all_gather, given, dim=3, cluster_axis=1))
    if op == "reduce_scatter":
        scatter = partial(ttnn.reduce_scatter, given, dim=3, cluster_axis=1, topology=ttnn.Topology.Linear)
        return Launch(scatter)
    return Launch(partial(ttnn.all_reduce, given, cluster_axis=1, topology=ttnn.Topology.Linear))


def _sampling(mesh, c: Configuration) -> Launch:
    method, vocab, users, drafted = c["method"], c["vocab"], c["users"], c["drafted"]
    if method == "argmax":
        from models.llama31_8b.tt.sampling.top_k import greedy

        return Launch(partial(greedy, tile(mesh, (1, 1, users, vocab))))
    if method == "topk":
        return Launch(partial(ttnn.topk, tile(mesh, (1, 1, TILE, vocab)), k=TILE, dim=-1))
    from tt_kernels.speculative_sampling.op import lossy_sigmoid_sampling, speculative_sampling

    target = (2 * torch.randn(users, drafted + 1, vocab)).bfloat16()
    tokens = torch.randint(0, vocab, (users, drafted + 1))
    inputs = sampling_inputs(mesh, tokens, target, target.clone(), 2**30)
    op = speculative_sampling if method == "exact" else lossy_sigmoid_sampling
    return Launch(partial(op, **inputs), "SpeculativeSampling")


def _decode(mesh, c: Configuration) -> Launch:
    from models.llama31_8b.checkpoint.random_weights import random_state_dict
    from models.llama31_8b.config import preset
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.precision import precision_config
    from models.llama31_8b.tt.settings import ModelSettings
    from models.llama31_8b.tt.sharding import DECODE_SHARDINGS
    from models.llama31_8b.tt.weights import WeightStore
    from perf.footprint.mesh_build import blank_weights
    from perf.step.device import ExactFlashDecode, ForcedSpeculation, fill
    from perf.step.shapes import Shape

    plan, layers, users, context = c.mesh, c["layers"], c["users"], c["context"]
    if c["plan"] not in DECODE_SHARDINGS:
        raise UnsupportedError(
            f"plan={c['plan']} is known to the decode model alone; chips run plan={' or plan='.join(DECODE_SHARDINGS)}"
        )
    speculative = c["attention"] == "speculative"
    if speculative != (plan.sp == 2):
        raise UnsupportedError(f"attention={c['attention']} on {plan}: two rows speculate, and one cannot")
    capacity = -(-context // 128) * 128
    shape = Shape(layers=layers, context=capacity, chunk_size=c["chunk_size"])
    tiny = c["model"] == "tiny"
    whole = shape.config() if tiny else preset(c["model"])
    # The first layers of the whole model: by name its last one has formats of its own.
    config, formats = whole.with_layers(layers), precision_config(c["precision"], whole.num_hidden_layers)
    if tiny:
        state, store = random_state_dict(config, 0), WeightStore(mesh, plan)
    else:  # what blank weights hold costs nothing
        state, store = blank_weights(config, mesh, plan)
    attention: DecodeAttention
    check: Callable[[], Any] = nothing
    if speculative:
        forced = ForcedSpeculation(
            mesh, plan, config, users=users, capacity=capacity, chunk_size=c["chunk_size"],
            timeout_s=EXCHANGE_TIMEOUT_S,
        )  # fmt: skip
        forced.hits = [True] * layers
        attention, check = forced, forced.check
    elif c["attention"] == "exact":
        attention = ExactFlashDecode(shape)
    else:
        attention = StockDecodeAttention(mesh, config, cache_block(capacity))
    settings = ModelSettings(users, capacity, formats, attention, decode_sharding=c["plan"])
    model = TtLlama.from_state_dict(config, state, mesh, settings, store)
    if tiny:
        fill(model)
    inputs = model.step_inputs([5] * users, [context - 1] * users)
    return Launch(partial(model.decode, inputs, gather_logits=False), check=check, model=model)
