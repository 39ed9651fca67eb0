# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Causal attention of prefill chunks over a cache in blocks, on the simulated N150 against torch's in float64. Free
blocks and what is behind a chunk hold NaN."""

import math
from dataclasses import dataclass

import pytest
import torch
from loguru import logger

from perf.lib.tensors import errors_of
from tests.support.run_op import Call, In, check_refused, run_ops, words
from tests.tt_kernels.attention import in_blocks
from tt_kernels.common.attention_split import WORKER
from tt_kernels.common.circular_buffers import l1_bytes
from tt_kernels.common.page_table import Paging
from tt_kernels.tree_attention.checks import Problem, pass_tiles, piece_tokens
from tt_kernels.tree_attention.work_split import choose_work_split

OP = "tt_kernels.tree_attention.op:prefill_attention"
CHIP, CORES = "2x1", 2
PCC = {"bfloat16": 0.9999, "bfloat8_b": 0.999}


@dataclass(frozen=True)
class Case:
    """shared: all key/value heads have the blocks of one row of the page table, else each has a row."""

    heads: int
    kv_heads: int
    head_dim: int
    tokens: int
    block: int = 64
    cache: str = "bfloat16"
    shared: bool = True

    def random(self, seed: int = 0) -> list[torch.Tensor]:
        """Return one user's queries, keys and values, [heads, tokens, head_dim], of all positions."""
        generator = torch.Generator().manual_seed(seed)
        shapes = [(heads, self.tokens, self.head_dim) for heads in (self.heads, self.kv_heads, self.kv_heads)]
        return [torch.randn(shape, generator=generator).bfloat16() for shape in shapes]

    def calls(self, given: list[torch.Tensor], chunks: list[tuple[int, int]], seed: int = 0) -> list[Call]:
        """Return a call for each chunk, from its first token to its end, over blocks in a random order. A program
        serves all that have as many tokens."""
        groups = 1 if self.shared else self.kv_heads
        width = -(-self.tokens // self.block)
        order = torch.randperm(groups * width + 2, generator=torch.Generator().manual_seed(seed))
        table = order[: groups * width].view(groups, width)
        calls = []
        for start, end in chunks:
            caches = []
            for content in given[1:]:
                behind = torch.full((self.kv_heads, width * self.block, self.head_dim), math.nan, dtype=content.dtype)
                behind[:, :end] = content[:, :end]
                of_groups = behind.view(groups, -1, *behind.shape[1:])
                caches.append(In(in_blocks(of_groups, table, len(order)), self.cache))
            q, padded = In(given[0][None, :, start:end]), torch.nn.functional.pad(table, (0, -width % 8))
            calls.append(Call(OP, q, *caches, words([start]), words(padded)))
        return calls

    def wanted(self, given: list[torch.Tensor]) -> torch.Tensor:
        q, k, v = (part.double()[None] for part in given)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0]


def check(case: Case, given: list[torch.Tensor], chunks: list[tuple[int, int]], found: list[dict]) -> None:
    wanted = case.wanted(given)
    for (start, end), row in zip(chunks, found, strict=True):
        errors = errors_of(row["out"][0], wanted[:, start:end])
        logger.info("{} {}-{}: {}", case, start, end, errors)
        assert errors["pcc"] > PCC[case.cache], (start, end)


CASES = {
    # Pieces of 64 tokens, of four heads each; a chunk that begins within a tile; more jobs than cores.
    "4/1 of 128": (Case(4, 1, 128, 449, cache="bfloat8_b"), [(384, 448), (385, 449), (0, 64)]),
    "4/2 of 64": (Case(4, 2, 64, 352, block=32, shared=False), [(32, 352), (0, 320)]),
    # A piece of 256 tokens, whose last queries see eight tiles that the first ones do not.
    "2/2 of 64": (Case(2, 2, 64, 384, block=128, cache="bfloat8_b"), [(128, 384)]),
    "3/1 of 64": (Case(3, 1, 64, 72), [(40, 72), (0, 32)]),
}


@pytest.mark.sim
@pytest.mark.parametrize("case, chunks", CASES.values(), ids=CASES)
def test_chunks_attend_to_all_tokens_up_to_their_own(sim_device, case, chunks):
    given = case.random()
    found = run_ops(sim_device(CHIP), case.calls(given, chunks))
    check(case, given, chunks, found)
    same = [
        row["entries"]
        for (start, end), row in zip(chunks, found, strict=True)
        if end - start == chunks[0][1] - chunks[0][0]
    ]
    assert len(set(same)) == 1, "starts and page tables are data"


@pytest.mark.sim
def test_cores_share_a_pieces_query_heads_where_most_would_have_none(sim_device):
    """On eight cores a piece of four query heads is four jobs, with the bits of a job of all four."""
    case = Case(4, 1, 64, 256, cache="bfloat8_b")
    given = case.random(4)
    chunks = [(200, 232), (0, 32)]
    found = run_ops(sim_device("4x2"), case.calls(given, chunks))
    check(case, given, chunks, found)
    for few, many in zip(run_ops(sim_device(CHIP), case.calls(given, chunks)), found, strict=True):
        assert torch.equal(few["out"], many["out"])


@pytest.mark.sim
def test_results_do_not_depend_on_the_cut(sim_device):
    """Bit for bit, whatever score the exponentials of a tile of queries are relative to."""
    case = Case(4, 1, 64, 320)
    given = case.random(1)
    chunks = [(32, 288), (32, 96), (96, 288), *((start, start + 32) for start in range(224, 288, 32))]
    whole, *parts = (row["out"] for row in run_ops(sim_device(CHIP), case.calls(given, chunks)))
    for (start, end), part in zip(chunks[1:], parts, strict=True):
        assert torch.equal(part, whole[:, :, start - 32 : end - 32]), (start, end)


@pytest.mark.sim
@pytest.mark.parametrize("rises", [True, False], ids=["above", "below"])
def test_scores_far_from_those_to_the_first_tile(sim_device, rises):
    """Beyond the exponential's range: a row of a head scores 200 above them with later keys, or with all keys 200 below
    the other rows of its tile, so its job is done again. In another head all of a chunk's rows do."""
    case = Case(4, 2, 64, 320)
    given = case.random(2)
    q, k, _ = given
    for head, row in ((1, 200), (3, slice(64, 320))):
        q[head, row] = torch.zeros(64, dtype=q.dtype)
        q[head, row, ..., 0] = 40.0
        keys = k[head // 2]
        keys[:, 0] = 40.0 if rises else -40.0
        keys[: 32 if rises else 0, 0] = 0.0
    found = run_ops(sim_device(CHIP), case.calls(given, [(64, 320)]))
    assert torch.isfinite(found[0]["out"]).all()
    check(case, given, [(64, 320)], found)


@pytest.mark.parametrize(
    ("tokens", "group_heads", "kv_heads", "cores", "piece"),
    [(2048, 4, 8, 64, 64), (2048, 4, 1, 64, 32), (2048, 4, 2, 64, 64), (128, 4, 8, 64, 32), (2048, 1, 32, 64, 256)],
)
def test_pieces_keep_cores_busy(tokens, group_heads, kv_heads, cores, piece):
    assert piece_tokens(tokens, group_heads, kv_heads, cores) == piece


@pytest.mark.parametrize(
    ("tokens", "kv_heads", "tiles"), [(2048, 8, 8), (2048, 1, 4), (128, 8, 4), (128, 1, 1), (512, 1, 2), (32, 8, 1)]
)
def test_query_heads_of_a_piece_keep_half_of_the_cores_busy(tokens, kv_heads, tiles):
    nodes = piece_tokens(tokens, 4, kv_heads, 64)
    shape = (tokens // nodes, 4 * kv_heads, kv_heads, 128, 2048, "BFLOAT8_B")
    assert pass_tiles(Problem(*shape, nodes=nodes, block_heads=kv_heads), 64) == tiles


@pytest.mark.parametrize("tokens", [2048, 131072])
def test_a_core_takes_256_keys_at_once_in_half_of_its_memory(tokens):
    """However long the cache is: its state is not rounded by chunks, as that of trees is."""
    cores = tuple((x, y) for y in range(8) for x in range(8))
    table = Paging(128, tokens // 128)
    problem = Problem(32, 32, 8, 128, tokens, "BFLOAT8_B", paging=table, nodes=64, block_heads=8)
    split = choose_work_split(problem, cores, 1_200_000, workers_per_head=1, query_tiles=problem.query_tiles)
    assert (split.key_tiles, split.passes, len(split.assignment.groups)) == (8, 1, 64)
    assert l1_bytes(split.buffers)[WORKER] < 600_000


@pytest.mark.sim
def test_refusals(sim_device):
    case = Case(4, 2, 64, 128)
    (call,) = case.calls(case.random(), [(32, 64)])
    q, *_, table = call.arguments
    given = dict(zip(("q", "k", "v", "start", "page_table"), call.arguments, strict=True))

    def changed(**options) -> Call:
        return Call(OP, **given | options)

    check_refused(
        sim_device(CHIP),
        {
            "a multiple of 32 tokens up to the 512": changed(q=In(torch.zeros(1, 4, 20, 64))),
            "its shape is (2, 4, 32, 64)": changed(q=In(torch.zeros(2, 4, 32, 64))),
            "3 query heads cannot be shared evenly by 2": changed(q=In(torch.zeros(1, 3, 32, 64))),
            "q must be on device": changed(q=In(q.values, memory="HOST")),
            "q has head_dim 128, the caches have 64": changed(q=In(torch.zeros(1, 4, 32, 128))),
            "start must be INT32": changed(start=words([32], "uint32")),
            "page_table must be INT32": changed(page_table=In(table.values.float())),
            "HiFi4": changed(math_fidelity="HiFi4"),
            "scale must be": changed(scale=0.0),
        },
    )
