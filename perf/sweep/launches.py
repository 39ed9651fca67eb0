# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A configuration as something to launch on an open mesh: inputs made, programs compiled at the first call.

Started by runner.py in a process for each configuration, on boards and on simulated chips alike. Values are random, and
caches hold what was there, since none of these ops takes longer for others; a tree and its verification accept what
their bench has them accept.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import ttnn

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.config import LlamaConfig, preset
from models.llama31_8b.simulated import BOARD_TRACE_BYTES
from models.llama31_8b.tt.attention_policies import AttentionPolicy, StockAttention
from models.llama31_8b.tt.kv_cache import cache_block
from models.llama31_8b.tt.layouts import banked_program, in_banks, in_l1
from models.llama31_8b.tt.mesh import TILE, Site
from models.llama31_8b.tt.model import TtLlama
from models.llama31_8b.tt.modules import attention_program, kernel_config, norm_program, pair_rotation, user_shards
from models.llama31_8b.tt.precision import precision_config
from models.llama31_8b.tt.sampling.top_k import greedy
from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings
from models.llama31_8b.tt.sharding import MatmulConfig, Shards
from models.llama31_8b.tt.weights import WeightStore
from perf.footprint.mesh_build import blank_weights
from perf.lib.chip import simulated_timer
from perf.lib.tensors import VirtualPair, intervals_of, parents_of, sampling_inputs, tile, words
from perf.step.device import ExactFlashDecode, ForcedSpeculation, fill
from perf.step.shapes import Shape
from perf.sweep.configurations import Configuration
from perf.sweep.table import FAILED, NOT_RUN, PASS
from perf.sweep.timers import Launch, NoProfiler, measure, realtime_timer
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.speculative_flash_decode.op import ProgramConfig, flash_decode, guess_flash_decode
from tt_kernels.speculative_sampling.op import lossy_sigmoid_sampling, speculative_sampling
from tt_kernels.tree_attention.op import ProgramConfig as TreeConfig
from tt_kernels.tree_attention.op import tree_attention

EXCHANGE_TIMEOUT_S = 0.05
RESIDUAL_CORES = 32
PR_SET_PDEATHSIG = 1  # of Linux's prctl: a signal for when the parent is gone


def _grid(mesh) -> tuple[int, int]:
    size = mesh.compute_with_storage_grid_size()
    return size.x, size.y


def _matmul(mesh, c: Configuration) -> Launch:
    """Return a product. DRAM-sharded: the weight's columns over the 12 banks, the activation's over `cores` in L1, as
    tt_transformers decodes."""
    k, n, m, dtype, cores = (c[name] for name in ("k", "n", "m", "dtype", "cores"))
    if k % TILE or m > TILE:
        raise UnsupportedError(f"k must be a multiple of {TILE} and m at most {TILE}, got k {k}, m {m}")
    product = partial(ttnn.linear, compute_kernel_config=kernel_config(dtype))
    if c["layout"] == "interleaved":
        x, weight = tile(mesh, (1, 1, m, k)), tile(mesh, (1, 1, k, n), dtype=dtype)
        return Launch(partial(product, x, weight, memory_config=ttnn.L1_MEMORY_CONFIG))
    columns, rows = _grid(mesh)
    if cores > columns * rows or (k // TILE) % cores:
        raise UnsupportedError(
            f"{k // TILE} tiles of k are not shared by cores={cores} of {columns}x{rows}, which the activation is on"
        )
    block = k // TILE // cores
    config = MatmulConfig(
        "matmul", k, n, dtype, Shards(cores, k // cores), Shards(cores, -(-n // (TILE * cores)) * TILE),
        max(d for d in range(1, 9) if block % d == 0),
    )  # fmt: skip
    x = tile(mesh, (1, 1, TILE, k), memory=in_l1(mesh, config.source))
    weight = tile(mesh, (1, 1, k, n), dtype=dtype, memory=in_banks(config))
    memory = ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG
    return Launch(partial(product, x, weight, program_config=banked_program(config), memory_config=memory))


def _caches(mesh, c: Configuration, users: int):
    """Return key and value caches, not filled: a simulated chip takes ten minutes to be sent 128K tokens of 8 heads."""
    shape = (users, c["kv_heads"], _capacity(c["context"]), c["head_dim"])
    dtype = getattr(ttnn, c["dtype"])
    return (ttnn.empty(shape, dtype, ttnn.TILE_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG) for _ in range(2))


def _flash_decode(mesh, c: Configuration) -> Launch:
    """Return attention at the last position, compiled at the shortest context that speculates: positions are data, and
    64K tokens take a simulated chip an hour. Speculative: both ranks on one chip, the sender in the upper half of its
    rows, which is what the op costs without a link."""
    users, context, chunk, workers = c["users"], c["context"], c["chunk_size"], c["workers"] or None
    q = tile(mesh, (1, users, c["heads"], c["head_dim"]))
    k, v = _caches(mesh, c, users)
    at = words(mesh, [min(context, 2 * chunk) - 1] * users)
    last = words(mesh, [context - 1] * users, on_device=False)
    launch = partial(Launch, compiled=partial(ttnn.copy_host_to_device_tensor, last, at))
    if c["variant"] == "stock":
        stock = ttnn.transformer.scaled_dot_product_attention_decode
        how = {"program_config": attention_program(mesh, TILE, chunk)}
        how |= {"compute_kernel_config": kernel_config("bfloat8_b")}
        return launch(partial(stock, q, k, v, cur_pos_tensor=at, **how))
    if c["variant"] != "speculative":
        op, name = (flash_decode, "") if c["variant"] == "exact" else (guess_flash_decode, "Guess")
        config = ProgramConfig(workers_per_head=workers)
        return launch(partial(op, q, k, v, at, chunk_size=chunk, program_config=config), f"{name}FlashDecode")
    columns, rows = _grid(mesh)
    if rows < 2:
        raise UnsupportedError(f"a virtual pair needs two rows of cores, the grid is {columns}x{rows}")
    own = {"chunk_size": chunk, "workers": workers, "timeout_s": EXCHANGE_TIMEOUT_S}
    pair = VirtualPair(mesh, (q, k, v, at), [(columns, rows // 2)] * 2, **own)
    return launch(pair.launch, "SpeculativeFlashDecodePair", check=pair.check)


def _tree_attention(mesh, c: Configuration) -> Launch:
    nodes, context = c["nodes"], c["context"]
    if nodes >= context:
        raise UnsupportedError(f"{nodes} nodes are not fewer than context={context}, which holds them")
    q = tile(mesh, (1, c["heads"], nodes, c["head_dim"]))
    k, v = _caches(mesh, c, 1)
    prefix, intervals = words(mesh, [context - nodes]), words(mesh, [intervals_of(parents_of("balanced", nodes))])
    config = TreeConfig(workers_per_head=c["workers"] or None)
    return Launch(partial(tree_attention, q, k, v, prefix, intervals, program_config=config), "TreeAttention")


def _collective(mesh, c: Configuration) -> Launch:
    plan = c.mesh
    if plan.tp < 2:
        raise UnsupportedError(f"a collective is between the columns of a mesh, got {plan}")
    columns, op = c["columns"], c["op"]
    if columns % (TILE * plan.tp):
        raise UnsupportedError(f"columns={columns} are not whole tiles of {TILE} for each of {plan.tp} chips")
    shape = (1, 1, c.get("rows", TILE), columns // plan.tp if op == "all_gather" else columns)
    given = tile(mesh, shape, c.get("dtype", "bfloat16"))
    options: dict[str, dict[str, object]] = {
        "all_gather": {"dim": 3},
        "reduce_scatter": {"dim": 3, "topology": ttnn.Topology.Linear},
        "all_reduce": {"topology": ttnn.Topology.Linear},
    }
    return Launch(partial(getattr(ttnn, op), given, cluster_axis=1, **options[op]))


def _sampling(mesh, c: Configuration) -> Launch:
    method, vocab, users, drafted = c["method"], c["vocab"], c["users"], c["drafted"]
    if method == "argmax":
        return Launch(partial(greedy, tile(mesh, (1, 1, users, vocab))))
    if method == "topk":
        return Launch(partial(ttnn.topk, tile(mesh, (1, 1, TILE, vocab)), k=TILE, dim=-1))
    target = (2 * torch.randn(users, drafted + 1, vocab)).bfloat16()
    tokens = torch.randint(0, vocab, (users, drafted + 1))
    inputs = sampling_inputs(mesh, tokens, target, target.clone(), 2**30)
    op = speculative_sampling if method == "exact" else lossy_sigmoid_sampling
    return Launch(partial(op, **inputs), "SpeculativeSampling")


def _decode(mesh, c: Configuration) -> Launch:
    plan, layers, users, context = c.mesh, c["layers"], c["users"], c["context"]
    speculative = c["attention"] == "speculative"
    if speculative != (plan.sp == 2):
        raise UnsupportedError(f"attention={c['attention']} on {plan}: two rows speculate, and one cannot")
    capacity = _capacity(context)
    shape = Shape(layers=layers, context=capacity, chunk_size=c["chunk_size"])

    def attention(config: LlamaConfig) -> AttentionPolicy:
        if not speculative:
            stock = c["attention"] == "stock"
            return StockAttention(mesh, config, cache_block(capacity)) if stock else ExactFlashDecode(shape)
        chosen = AttentionSettings("alspec", c["chunk_size"], predictor="ends", timeout_s=EXCHANGE_TIMEOUT_S)
        forced = ForcedSpeculation(Site(mesh, plan, config), chosen, users, capacity)
        forced.hits = [True] * layers
        return forced

    model = _model(mesh, c, shape, attention)
    if c["model"] == "tiny":
        fill(model)
    inputs = model.step_inputs([5] * users, [context - 1] * users)
    return Launch(partial(model.decode, inputs, gather_logits=False), check=model.check, model=model)


def _capacity(tokens: int) -> int:
    return -(-tokens // 128) * 128


def _model(mesh, c: Configuration, tiny: Shape, attention: Callable[[LlamaConfig], AttentionPolicy]) -> TtLlama:
    """Return a model's first layers. tiny: of the tiny one; its context is the capacity of either."""
    small, plan = c["model"] == "tiny", c.mesh
    whole = tiny.config() if small else preset(c["model"])
    # The first layers of the whole model: by name its last one has formats of its own.
    config, formats = whole.with_layers(c["layers"]), precision_config(c["precision"], whole.num_hidden_layers)
    # What blank weights hold costs nothing.
    weights = (random_state_dict(config, 0), WeightStore(mesh, plan)) if small else blank_weights(config, mesh, plan)
    settings = ModelSettings(c.get("users", 1), tiny.context, formats, attention(config), decode_sharding=c["plan"])
    return TtLlama.from_state_dict(config, weights[0], mesh, settings, weights[1])


def _prefill(mesh, c: Configuration) -> Launch:
    """Return a chunk of a prompt through the layers, with the last token's logits. What is cached before it holds what
    was there."""
    if c.mesh.sp > 1:
        raise UnsupportedError(f"a prefill is between the columns of a mesh, got {c.mesh}")
    tokens, start, tp = c["tokens"], c["start"], c.mesh.tp
    capacity = _capacity(start + tokens)
    tiny = Shape(heads=2 * tp, kv_heads=tp, intermediate=64 * tp, context=capacity)
    model = _model(mesh, c, tiny, lambda config: StockAttention(mesh, config, cache_block(capacity)))
    chunk = model.chunk([5] * tokens, 0, start)
    return Launch(partial(model.cache_chunk, chunk, last=True, gather_logits=False), model=model)


def _decode_op(mesh, c: Configuration) -> Launch:
    """Return a small op of a decode step, stock ttnn, at Llama 3.1 8B's shapes on one of `tp` chips.

    It is launched as the ALSpec paper's tables 4 to 6 name it: the residual over 32 cores, heads created from an
    interleaved product, queries and keys rotated on a core, one cache written at a time.
    """
    config, tp, op = preset("llama-3.1-8b"), c["tp"], c["op"]
    hidden, dim, ffn = config.hidden_size, config.head_dim, config.intermediate_size // tp
    heads, kv_heads = config.num_attention_heads // tp, config.num_key_value_heads // tp
    fused, one_core = (heads + 2 * kv_heads) * dim, user_shards(mesh, 1, TILE, dim)

    def put(*shape: int, memory=ttnn.L1_MEMORY_CONFIG):
        return tile(mesh, shape, memory=memory)

    def spread(columns: int):
        cores = max(n for n in range(1, RESIDUAL_CORES + 1) if columns // TILE % n == 0)
        return in_l1(mesh, Shards(cores, columns // cores))

    if op == "norm":
        memory, tiles = spread(hidden), hidden // RESIDUAL_CORES // TILE
        grid = memory.shard_spec.grid.bounding_box().grid_size()
        x, weight = put(1, 1, TILE, hidden, memory=memory), put(1, 1, 1, hidden)
        options = {"weight": weight, "epsilon": 1e-5, "memory_config": memory}
        return Launch(partial(ttnn.rms_norm, x, program_config=norm_program(grid.x, grid.y, tiles), **options))
    if op == "unshard":
        x = put(1, 1, TILE, fused, memory=spread(fused))
        return Launch(partial(ttnn.sharded_to_interleaved, x, ttnn.L1_MEMORY_CONFIG))
    if op == "create_heads":
        x = ttnn.reshape(put(1, 1, TILE, fused), (1, 1, 1, fused), (1, 1, TILE, fused))
        create, memory = ttnn.experimental.nlp_create_qkv_heads_decode, ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG
        return Launch(partial(create, x, num_heads=heads, num_kv_heads=kv_heads, memory_config=memory))
    if op == "rotate":
        x = put(1, 1, heads, dim, memory=one_core)
        angles = [put(1, 1, 1, dim, memory=one_core) for _ in range(2)]
        rotation = tile(mesh, pair_rotation(), memory=user_shards(mesh, 1, TILE, TILE))
        rotate = ttnn.experimental.rotary_embedding_llama
        return Launch(partial(rotate, x, *angles, rotation, is_decode_mode=True))
    if op == "update_cache":
        shape, dtype = (1, kv_heads, -(-c["context"] // TILE) * TILE, dim), ttnn.bfloat8_b
        place = {"device": mesh, "memory_config": ttnn.DRAM_MEMORY_CONFIG}
        cache = ttnn.zeros(shape, dtype=dtype, layout=ttnn.TILE_LAYOUT, **place)
        new, at = put(1, 1, kv_heads, dim, memory=one_core), words(mesh, [c["context"] - 1])
        return Launch(partial(ttnn.experimental.paged_update_cache, cache, new, update_idxs_tensor=at))
    if op == "shard":
        return Launch(partial(ttnn.interleaved_to_sharded, put(1, 1, heads, dim), one_core))
    if op == "concat_heads":
        x = put(1, 1, heads, dim, memory=one_core)
        return Launch(partial(ttnn.experimental.nlp_concat_heads_decode, x, num_heads=heads))
    columns = hidden // tp if op == "add" else ffn
    memory = spread(columns)
    x, y = (put(1, 1, TILE, columns, memory=memory) for _ in range(2))
    if op == "add":
        return Launch(partial(ttnn.add, x, y, memory_config=memory))
    silu = [ttnn.UnaryOpType.SILU]
    product = partial(ttnn.mul, x, y, input_tensor_a_activations=silu, dtype=ttnn.bfloat8_b, memory_config=memory)
    return Launch(product)


MAKERS: dict[str, Callable[..., Launch]] = {
    **{"matmul": _matmul, "flash_decode": _flash_decode, "tree_attention": _tree_attention, "sampling": _sampling},
    **{"collective": _collective, "long_rows": _collective},
    **{"decode_op": _decode_op, "decode": _decode, "prefill": _prefill},
}


def main(arguments: list[str]) -> int:
    """Run one configuration. argv: [answer file, source, JSON of [family, options]]."""
    from runtime_patches.simulated_n150.dispatch import opening_options, program_room

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with the sweep, however that ends
    answer, source = Path(arguments[0]), arguments[1]
    family, options = json.loads(arguments[2])
    configuration = Configuration.make(family, **options)
    simulated = source == "sim"
    opening = program_room() | opening_options("fast") if simulated else {"trace_region_size": BOARD_TRACE_BYTES}
    plan, status, reason, rows = configuration.mesh, PASS, "", []
    mesh = plan.open(**opening)
    try:
        torch.manual_seed(0)
        launch = MAKERS[family](mesh, configuration)
        timer = simulated_timer(mesh) if simulated else realtime_timer(mesh)
        rows = measure(mesh, launch, timer, configuration)
    except Exception as error:
        refused = isinstance(error, (ValueError, NoProfiler))
        status, reason = NOT_RUN if refused else FAILED, f"{type(error).__name__}: {error}"
    draft = answer.with_suffix(".draft")
    draft.write_text(json.dumps({"status": status, "reason": reason, "rows": rows}))
    draft.replace(answer)
    plan.close(mesh)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
