# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What each op's program takes of the 69 KB that a core keeps for kernels by default.

Each op of ours is launched at shapes of Llama 3.1 8B on a mock mesh whose buffer for kernels is too small for any of
them: the runtime then says how large the program is on the cores that hold the most, and of what. Sizes are those of
the stand-in compiler where no SFPI is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from models.llama31_8b.simulated import BOARD_KERNEL_BYTES

# What ttnn keeps on each core for programs in flight, unless a device is opened with another worker_l1_size.
DEFAULT_BYTES = 69 * 1024
# What boards are opened with for programs that the default is too small for.
LARGER = ("speculative_tree_attention by a budget",)
TOO_SMALL = 256
MESH = (2, 2)
# Values of arguments, and descriptions of semaphores and buffers; then the code of a core's processors.
PARTS = ("args", "semaphores", "buffers", "brisc", "ncrisc", "trisc0", "trisc1", "trisc2")
_TOTAL = re.compile(r"Program size \((\d+)\) too large for kernel config buffer")
_PART = re.compile(r"^ +(runtime args|semaphores|circular buffers|brisc|ncrisc|trisc[012]) +(\d+) B$", re.MULTILINE)


def room_of(op: str) -> int:
    return BOARD_KERNEL_BYTES if op in LARGER else DEFAULT_BYTES


def size_in(op: str, message: str) -> dict[str, Any]:
    """Return a program's bytes by PARTS, their `total` and its `share` of the default, from ttnn's error.

    Raises ValueError if the error says something else.
    """
    total, parts = _TOTAL.search(message), _PART.findall(message)
    if total is None or len(parts) != len(PARTS):
        raise ValueError(f"{op} ended with another error: {message}")
    sizes = dict(zip(PARTS, (int(size) for _, size in parts), strict=True))
    return {"op": op, **sizes, "total": int(total[1]), "share": int(total[1]) / DEFAULT_BYTES}


def sizes() -> list[dict[str, Any]]:
    """Return the size of every op's program, in a process in the environment of a mock mesh."""
    import ttnn

    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    room = ttnn.device.get_max_worker_l1_unreserved_size() - TOO_SMALL
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*MESH), worker_l1_size=room)
    try:
        found = []
        for op, launch in _launches(mesh):
            try:
                launch()
            except RuntimeError as error:
                found.append(size_in(op, str(error)))
            else:
                raise RuntimeError(f"{op} takes less than {TOO_SMALL} bytes: its size is not known")
        return found
    finally:
        ttnn.close_mesh_device(mesh)


def _launches(mesh) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each op with its name, on a chip's part of the model."""
    import ttnn

    from models.llama31_8b.tt.layouts import in_banks, in_l1
    from models.llama31_8b.tt.sharding import MatmulConfig, Shards
    from tt_kernels.all_reduce.op import AllReduce
    from tt_kernels.banked_product.op import banked_product
    from tt_kernels.common.peer import ChipPairs
    from tt_kernels.common.tp_group import TpGroup
    from tt_kernels.compute_gate.op import OutcomeLog, set_compute_gate
    from tt_kernels.decode_product.op import decode_product
    from tt_kernels.device_exchange.op import DeviceExchange
    from tt_kernels.draft_round.op import Chain, Decided, DraftStep, append_token, begin_chain, take_result
    from tt_kernels.gated_product.op import gated_product
    from tt_kernels.rotated_heads.op import cached_heads
    from tt_kernels.speculative_flash_decode.guess_range import chosen_words
    from tt_kernels.speculative_flash_decode.op import (
        GuessRange,
        Peer,
        flash_decode,
        guess_flash_decode,
        speculative_flash_decode,
    )
    from tt_kernels.speculative_sampling.op import greedy_verification, lossy_sigmoid_sampling, speculative_sampling
    from tt_kernels.tile_selection.op import select_tiles
    from tt_kernels.token_guard.op import guard_tokens
    from tt_kernels.tree_attention.op import prefill_attention, speculative_tree_attention, tree_attention
    from tt_kernels.tree_cache.op import commit_path, write_nodes

    def tile(*shape: int, dtype: str = "bfloat16"):
        return ttnn.empty(list(shape), getattr(ttnn, dtype), ttnn.TILE_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG)

    def words(*shape: int, dtype: str = "uint32"):
        layout = ttnn.ROW_MAJOR_LAYOUT
        return ttnn.empty(list(shape), getattr(ttnn, dtype), layout, mesh, ttnn.DRAM_MEMORY_CONFIG)

    def rows(shards: Shards):
        shape, memory = [1, 1, users, shards.width], in_l1(mesh, shards)
        return ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh, memory)

    users, nodes, heads, kv_heads, head_dim, tokens, vocab, chunk = 8, 4, 16, 4, 128, 1024, 64128, 128
    q, position = tile(1, users, heads, head_dim), words(users, dtype="int32")
    k, v = (tile(users, kv_heads, tokens, head_dim, dtype="bfloat8_b") for _ in range(2))
    priority, group = words(1, 1, 1, 32), TpGroup(mesh, 1, (6, 7))
    pairs = ChipPairs(mesh, 0, (7, 7))
    peer = Peer(pairs, words(1, 1, 2, 32))
    decode = (q, k, v, position)
    yield "flash_decode", lambda: flash_decode(*decode, chunk_size=chunk)
    narrow_k, narrow_v = (tile(users, kv_heads, tokens, 64) for _ in range(2))
    narrow = (tile(1, users, heads, 64), narrow_k, narrow_v, position)
    yield "flash_decode, head_dim 64, bfloat16", partial(flash_decode, *narrow, chunk_size=chunk)
    yield "guess_flash_decode", lambda: guess_flash_decode(*decode, chunk_size=chunk)
    yield "speculative_flash_decode", lambda: speculative_flash_decode(*decode, chunk_size=chunk)
    speculating: dict[str, Any] = {"chunk_size": chunk, "priority": priority, "peer": peer, "tp_group": group}
    pair = partial(speculative_flash_decode, *decode, **speculating)
    yield "speculative_flash_decode, chip pairs of TP groups", pair
    masses, chosen = words(users, kv_heads, tokens // 32), words(users, kv_heads, chosen_words(tokens))
    range_ = GuessRange(32, chunk, whole_tail=True)
    by_budget: dict[str, Any] = {"guess_range": range_, "chosen": chosen, "tile_masses": masses}
    yield "speculative_flash_decode by a budget, chip pairs of TP groups", partial(pair, **by_budget)
    yield "select_tiles", lambda: select_tiles([masses] * 32, [chosen] * 32, position, range_, 0.98)
    tree, intervals = tile(1, heads, users * nodes, head_dim), words(users, 2, nodes, dtype="int32")
    yield "tree_attention", lambda: tree_attention(tree, k, v, position, intervals)
    narrow = (tile(1, heads, users * nodes, 64), narrow_k, narrow_v, position)
    yield "tree_attention, head_dim 64, bfloat16", partial(tree_attention, *narrow, intervals)
    blocks = [tile(16, kv_heads, 64, head_dim, dtype="bfloat8_b") for _ in range(2)]
    prompt, start, pages = tile(1, heads, 256, head_dim), words(1, dtype="int32"), words(1, 16, dtype="int32")
    yield "prefill_attention", lambda: prefill_attention(prompt, blocks[0], blocks[1], start, pages)
    tree_pair = partial(speculative_tree_attention, tree, k, v, position, intervals, **speculating)
    yield "speculative_tree_attention", tree_pair
    yield "speculative_tree_attention by a budget", partial(tree_pair, **by_budget)
    keys, values = (tile(1, kv_heads, users * nodes, head_dim, dtype="bfloat8_b") for _ in range(2))
    yield "write_nodes", lambda: write_nodes(k, v, keys, values, position, nodes)
    result = words(users, 4 + 2 * nodes, dtype="int32")
    yield "commit_path", lambda: commit_path([k, v] * 32, position, result, nodes, first_column=4)
    drafted, parents, numbers = words(users, nodes), words(users, nodes, dtype="int32"), words(users, nodes)
    target, draft = tile(users, nodes, vocab), tile(users, nodes, vocab)
    verified = (drafted, parents, target)
    yield "speculative_sampling", lambda: speculative_sampling(*verified, draft, numbers)
    yield "lossy_sigmoid_sampling", lambda: lossy_sigmoid_sampling(*verified, draft, numbers)
    yield "greedy_verification", lambda: greedy_verification(drafted, parents, drafted, vocab)
    yield "gated_product", lambda: gated_product(rows(Shards(56, 256)), 128)
    fused = rows(Shards(24, head_dim))
    angles = words(1, 1, users, head_dim, dtype="bfloat16")
    product = (fused, angles, angles, heads, kv_heads)
    yield "cached_heads", lambda: cached_heads(*product, k, v, position, q_memory=ttnn.L1_MEMORY_CONFIG)
    shape = MatmulConfig("gate_up", 4096, 7168, "bfloat8_b", Shards(32, 128), Shards(56, 128), 4)
    weight = ttnn.empty([1, 1, shape.inputs, shape.outputs], ttnn.bfloat8_b, ttnn.TILE_LAYOUT, mesh, in_banks(shape))
    yield "banked_product", lambda: banked_product(tile(1, 1, 128, shape.inputs), weight)
    yield "decode_product", lambda: decode_product(rows(shape.source), weight, in_l1(mesh, shape.result))
    exchange = DeviceExchange(pairs, users)
    yield "device_exchange", lambda: exchange(tile(1, 1, users, 4096), priority, tile(1, users, heads, head_dim))
    reduce, row = AllReduce(mesh, users, 4096), tile(1, 1, users, 4096)
    yield "all_reduce", lambda: reduce(row, residual=row, norm=tile(1, 1, 1, 4096))
    log = OutcomeLog(mesh, layers=32, users=users)
    yield "set_compute_gate", lambda: set_compute_gate(priority, log=log, layer=0)
    tokens_of_users, all_nodes = words(1, users), words(1, users * nodes)
    decided = Decided(all_nodes, position, words(1, users * nodes), words(users, dtype="int32"), words(1, users))
    step = DraftStep(words(1, users), words(users, dtype="int32"), words(1, users))
    chain = Chain(words(1, users * nodes), position, words(1, users * nodes), words(users, nodes))
    yield "begin_chain", lambda: begin_chain(decided, words(1, users * nodes), step, chain)
    yield "append_token", lambda: append_token(tokens_of_users, 2, chain)
    yield "take_result", lambda: take_result(result, decided)
    yield "guard_tokens", lambda: guard_tokens(tokens_of_users, [pairs, group])
