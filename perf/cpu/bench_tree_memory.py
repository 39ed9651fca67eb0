# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Memory of tree masks: two integers a node against a dense bit mask. `python -m perf.cpu.bench_tree_memory`.

FlashSpecInfer (section 6.1) counts 2 Gbit against 32 Mbit for 128 trees of 4096 nodes. Both are built here
for the same random trees; the dense mask is made from the parent arrays by another rule (a node's row is its
parent's plus itself) and compared with the intervals, bit by bit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Sequence

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from models.llama31_8b.reference.model.step import QUERY_BLOCK
from models.llama31_8b.spec_decode.tree import TokenTree, TokenTreeBatch, interval_mask


def random_parents(nodes: int, seed: int) -> list[int]:
    """A random tree: each node hangs from one of the 64 before it."""
    generator = np.random.default_rng(seed)
    return [-1, *(int(generator.integers(max(0, n - 64), n)) for n in range(1, nodes))]


def dense_bits(parents: Sequence[int]) -> np.ndarray:
    """[N, ceil(N / 8)] uint8: bit j of row i is set iff j is i or its ancestor."""
    nodes = len(parents)
    mask = np.zeros((nodes, -(-nodes // 8)), dtype=np.uint8)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] = mask[parent]
        mask[node, node // 8] |= 1 << (node % 8)
    return mask


def differing_bits(tree: TokenTree, dense: np.ndarray) -> int:
    """Bits in which the mask by intervals, built block by block, differs from the dense one."""
    wrong = 0
    for first in range(0, len(tree), QUERY_BLOCK):
        block = interval_mask(tree.enter, tree.leave, first, first + QUERY_BLOCK).numpy()
        bits = np.unpackbits(dense[first : first + QUERY_BLOCK], axis=1, count=len(tree), bitorder="little")
        wrong += int((bits.astype(bool) != block).sum())
    return wrong


def measure(nodes: int, batch: int) -> dict[str, float | int]:
    """Bytes of both forms, as allocated, and the seconds to build them."""
    arrays = [random_parents(nodes, seed) for seed in range(batch)]
    start = time.perf_counter()
    trees = [TokenTree.from_parents(parents) for parents in arrays]
    batched = TokenTreeBatch.stack(trees)
    intervals_seconds = time.perf_counter() - start
    intervals = batched.enter.untyped_storage().nbytes() + batched.leave.untyped_storage().nbytes()
    start = time.perf_counter()
    dense, wrong, checking = 0, 0, 0.0
    for tree, parents in zip(trees, arrays):
        mask = dense_bits(parents)
        dense += mask.nbytes
        began = time.perf_counter()
        wrong += differing_bits(tree, mask)
        checking += time.perf_counter() - began
    return {
        "nodes": nodes,
        "batch": batch,
        "integers_per_sequence": intervals // 4 // batch,
        "interval_bytes": intervals,
        "dense_bytes": dense,
        "ratio": dense / intervals,
        "interval_seconds": intervals_seconds,
        "dense_seconds": time.perf_counter() - start - checking,
        "largest_mask_block_bytes": min(QUERY_BLOCK, nodes) * nodes,
        "differing_bits": wrong,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[64, 256, 1024, 4096], help="tree sizes")
    parser.add_argument("--batch", type=int, default=128, help="sequences")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)
    if min(options.nodes) < 1 or options.batch < 1:
        parser.error(f"nodes and batch must be at least 1, got {options.nodes} and {options.batch}")
    torch.set_num_threads(1)
    rows = [measure(nodes, options.batch) for nodes in options.nodes]
    if options.json:
        print(json.dumps(rows))
    else:
        Console(file=sys.stdout).print(_table(rows))
    return 1 if any(row["differing_bits"] for row in rows) else 0


def _table(rows: Sequence[dict]) -> Table:
    table = Table(title=f"tree masks of {rows[0]['batch']} sequences", title_justify="left")
    for name in (
        "nodes",
        "enter + leave",
        "dense, 1 bit an entry",
        "ratio",
        "built in",
        "dense built in",
        "differ",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row["nodes"]),
            _mbit(row["interval_bytes"]),
            _mbit(row["dense_bytes"]),
            f"{row['ratio']:.0f}x",
            f"{row['interval_seconds']:.2f} s",
            f"{row['dense_seconds']:.2f} s",
            f"{row['differing_bits']} bits",
        )
    return table


def _mbit(size: int) -> str:
    return f"{size * 8 / 2**20:,.2f} Mbit"


if __name__ == "__main__":
    raise SystemExit(main())
