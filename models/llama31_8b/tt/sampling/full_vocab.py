# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Draws from more tokens than the stable top-k sorts: temperature alone, any top_k, any top_p, on the chips.

The draw is verification's without a draft (tt_kernels/speculative_sampling): one op, on every chip from the logits of
all, exact up to numbers within 2^-19 of the border of two tokens. What top_k or top_p leave out is set below all logits
before.

For that a chip's columns lie in tiles of 32 ids, the tiles in blocks: [blocks, tiles, 32 rows, 32 ids]. Nothing is
sorted. Kept are the tokens above a threshold and, of those equal to it, the first by id; 16 halvings over the ordered
bfloat16 numbers find it, by counts or by mass. Over links go sums alone, 4 KB for each, and the logits once.

Masses are float32, exp((logit - largest) / temperature). Sums over tiles and blocks are `ttnn.cumsum`'s, which along
those dimensions compensates its rounding. Within a tile the matrix unit sums; it cuts products to 11 bits at the
largest exponent of eight, so it gets whole numbers up to 1024: a sum as one and the remainder. Counts are exact.
Against float64, the tail of 128256 tokens included, top_p keeps a token more or fewer only where the mass before it is
within 2e-5 of top_p. A token that top_k or top_p left out is never drawn.

Logits below -2**126 count as that. A temperature above 1e4, or below 1e-4, acts as that one, the op's limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt

import torch
import ttnn

from tt_kernels.speculative_sampling.checks import MAX_TEMPERATURE, MIN_TEMPERATURE
from tt_kernels.speculative_sampling.op import speculative_sampling
from tt_kernels.speculative_sampling.program import BONUS
from tt_kernels.speculative_sampling.uniforms import uniform_words

from ...config import LlamaConfig
from ...generation.sampling import SamplingParams
from ..linear import gather, kernel_config
from ..parallel.mesh import TILE, TP_AXIS, MeshShape

# Whole numbers up to it are exact in the matrix unit; 2048 is not beside odd ones.
PIECE = 1024.0
# Counts of a lane, up to 2**12, as pieces of at most 6 bits before and 6 behind the point.
COUNT = 1 / 64
# The sign and 15 bits of a bfloat16.
HALVINGS = 16
LEAST_KEY = -(2.0**15)
LEAST_LOGIT = -(2.0**126)
LEAST_P = 1e-30


def block_shape(columns: int) -> tuple[int, int]:
    """Blocks and tiles a block for `columns` of a chip (a multiple of 32): about as many of one as of the other."""
    tiles = columns // TILE
    width = ceil(sqrt(tiles))
    return ceil(tiles / width), width


class FullVocabSampler:
    """Draws a token for each row of logits by `params`, on every chip the same.

    Tensors of this class are float32 [blocks, tiles, 32, 32] where not said otherwise; numbers of a row are tiles
    [1, 1, 32, 32], equal along a row. shape: blocks and tiles a block, `block_shape` by default.
    """

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        plan: MeshShape,
        config: LlamaConfig,
        params: SamplingParams,
        *,
        shape: tuple[int, int] | None = None,
    ) -> None:
        self.mesh, self.plan, self.params = mesh, plan, params
        self.columns, self.vocab = plan.padded_vocab(config) // plan.tp, config.vocab_size
        self.temperature = min(max(params.temperature, MIN_TEMPERATURE), MAX_TEMPERATURE)
        self._limited, self._cut = 0 < params.top_k < self.vocab, params.top_p < 1.0
        self._roots: dict[int, tuple[ttnn.Tensor, ttnn.Tensor]] = {}  # by rows: trees of one decided token
        if not (self._limited or self._cut):
            return
        self.blocks, self.tiles = shape or block_shape(self.columns)
        self._count_goal, self._mass_goal = params.top_k * COUNT, PIECE * max(params.top_p, LEAST_P)
        ones = torch.ones(TILE, TILE)
        self._ones = self._put(ones)
        self._two = self._put(torch.cat((ones, ones)))
        self._before = self._put(ones.triu(1))
        # A Python number as an operand would be spread over a tile by a core at every run.
        numbers = (
            PIECE,
            COUNT,
            LEAST_KEY,
            1 / self.temperature,
            self._count_goal,
            self._mass_goal,
            *(2**bit for bit in range(HALVINGS)),
        )
        self._tile = {number: self._put(torch.full((TILE, TILE), float(number))) for number in numbers}
        if plan.tp > 1:
            chip = torch.arange(plan.tp)
            earlier = (chip < chip[:, None]).float().reshape(-1, 1, 1, 1)
            self._earlier = self._put(earlier.expand(-1, 1, TILE, TILE), split=0)

    def uniforms(self, values: Sequence[float], on_device: bool = True) -> ttnn.Tensor:
        """What a call reads, a number in [0, 1) a row, rounded down to 32 bits: uint32 [rows, 1], ROW_MAJOR."""
        words = uniform_words(torch.tensor(list(values), dtype=torch.float64))[:, None]
        return self._integers(words, "uint32", on_device)

    def __call__(self, logits: ttnn.Tensor, uniforms: ttnn.Tensor) -> ttnn.Tensor:
        """logits: bfloat16 [1, 1, rows, columns] of a chip, its padding below all others; up to 32 rows where top_k or
        top_p leave any out. uniforms: of `uniforms`. Returns uint32 [1, rows], ROW_MAJOR."""
        return self.draw(self.left(logits), uniforms)

    def draw(self, logits: ttnn.Tensor, uniforms: ttnn.Tensor) -> ttnn.Tensor:
        """A call where nothing is left out."""
        by_row = ttnn.to_layout(gather(logits, self.plan), ttnn.ROW_MAJOR_LAYOUT)
        rows, columns = by_row.shape[2], by_row.shape[3]
        if rows not in self._roots:
            blank = torch.zeros(rows, 1, dtype=torch.int64)
            self._roots[rows] = self._integers(blank, "uint32"), self._integers(blank - 1, "int32")
        drawn = speculative_sampling(
            *self._roots[rows],
            ttnn.reshape(by_row, (rows, 1, columns)),
            None,
            uniforms,
            temperature=self.temperature,
        )
        ids = ttnn.slice(drawn.result, [0, BONUS], [rows, BONUS + 1])
        return ttnn.bitcast(ttnn.reshape(ids, (1, rows)), ttnn.uint32)

    def left(self, logits: ttnn.Tensor) -> ttnn.Tensor:
        """Logits as of a call, with LEAST_LOGIT where top_k and then top_p leave a token out."""
        if not (self._limited or self._cut):
            return logits
        _, _, rows, columns = logits.shape
        masses, blocks = self.masses(logits)
        blocks = ttnn.where(self.kept(masses, blocks), blocks, LEAST_LOGIT)
        # The way back is by rows of 32 ids: to join heads a core would hold all tiles of a row.
        tiles = ttnn.to_layout(ttnn.typecast(blocks, ttnn.bfloat16), ttnn.ROW_MAJOR_LAYOUT)
        tiles = ttnn.reshape(tiles, (1, self.blocks * self.tiles, TILE, TILE))
        wide = ttnn.reshape(ttnn.transpose(tiles, 1, 2), (1, 1, TILE, self.blocks * self.tiles * TILE))
        return ttnn.to_layout(ttnn.slice(wide, [0] * 4, [1, 1, rows, columns]), ttnn.TILE_LAYOUT)

    def masses(self, logits: ttnn.Tensor) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """Of logits as of a call the masses, the largest 1, and the logits in blocks."""
        largest = self._largest_of_chips(ttnn.max(logits, dim=-1, keepdim=True))
        wide = self.blocks * self.tiles * TILE
        _, _, rows, columns = logits.shape
        rest = [(0, 0), (0, 0), (0, TILE - rows)]
        if rows < TILE:
            largest = ttnn.pad(largest, [*rest, (0, 0)], value=LEAST_LOGIT)
        if rows < TILE or columns < wide:
            logits = ttnn.pad(logits, [*rest, (0, wide - columns)], value=LEAST_LOGIT)
        # As heads of 32 columns, every tile is a matrix of its own; the blocks are a view of that.
        tiles, _, _ = ttnn.experimental.nlp_create_qkv_heads(
            logits, num_heads=wide // TILE, num_kv_heads=0, transpose_k_heads=False
        )
        logits = ttnn.reshape(tiles, (self.blocks, self.tiles, TILE, TILE))
        logits = ttnn.clamp(ttnn.typecast(logits, ttnn.float32), min=LEAST_LOGIT)
        below = ttnn.subtract(logits, ttnn.typecast(largest, ttnn.float32))
        return ttnn.exp(ttnn.multiply(below, self._tile[1 / self.temperature])), logits

    def kept(self, masses: ttnn.Tensor, logits: ttnn.Tensor) -> ttnn.Tensor:
        """Of `masses` ones for the tokens that top_k and then top_p leave, zeros for the others."""
        keys = ordered_keys(logits)
        if not self._limited:
            return self._first_of(keys, masses, self.share(masses), self._tile[self._mass_goal])
        kept = self._first_of(keys, None, self._tile[COUNT], self._tile[self._count_goal])
        if not self._cut:
            return kept
        masses = ttnn.multiply(masses, kept)
        goal = self._tile[self._mass_goal]
        return ttnn.multiply(kept, self._first_of(keys, masses, self.share(masses), goal))

    def _first_of(
        self, keys: ttnn.Tensor, measure: ttnn.Tensor | None, unit: ttnn.Tensor, goal: ttnn.Tensor
    ) -> ttnn.Tensor:
        """Ones for the tokens before which the sum of unit * measure has not reached `goal`, by falling keys and, of
        equal ones, rising ids; zeros for the others. measure: None counts."""
        threshold = self._tile[LEAST_KEY]
        for bit in reversed(range(HALVINGS)):
            tried = ttnn.add(threshold, self._tile[2**bit])
            reached = ttnn.ge(self._sum(ttnn.ge(keys, tried), measure, unit), goal)
            threshold = ttnn.add(threshold, ttnn.multiply(reached, self._tile[2**bit]))
        above, equal = ttnn.gt(keys, threshold), ttnn.eq(keys, threshold)
        among = self._rank(equal)
        if measure is not None:
            among = ttnn.multiply(among, measure)
        before = ttnn.add(ttnn.multiply(among, unit), self._sum(above, measure, unit))
        return ttnn.add(above, ttnn.multiply(equal, ttnn.lt(before, goal)))

    def share(self, masses: ttnn.Tensor) -> ttnn.Tensor:
        """Numbers of a row: what makes the sum of all masses 1024."""
        # Before the sum of a lane is known, the largest of them is taken for it.
        lanes = self._lanes(masses)
        largest = self._largest_of_chips(ttnn.max(lanes, dim=-1, keepdim=True))
        unit = ttnn.multiply(self._tile[PIECE], ttnn.reciprocal(largest))
        return ttnn.divide(ttnn.multiply(unit, self._tile[PIECE]), self._sum_of_lanes(lanes, unit))

    def _sum(self, chosen: ttnn.Tensor, measure: ttnn.Tensor | None, unit: ttnn.Tensor) -> ttnn.Tensor:
        """Numbers of a row: the sum of unit * measure over what is chosen, of all chips."""
        lanes = self._lanes(chosen if measure is None else ttnn.multiply(chosen, measure))
        return self._sum_of_lanes(lanes, unit)

    @staticmethod
    def _lanes(parts: ttnn.Tensor) -> ttnn.Tensor:
        """The sums over tiles and blocks of a chip, [1, 1, 32, 32]."""
        return _total(_total(parts, 1), 0)

    def _sum_of_lanes(self, lanes: ttnn.Tensor, unit: ttnn.Tensor) -> ttnn.Tensor:
        """Lanes of a chip -> numbers of a row: unit * their sum, of all chips. unit * lane is at most 1024."""
        scaled = ttnn.multiply(lanes, unit)
        whole = ttnn.floor(scaled)
        pieces = ttnn.concat([whole, ttnn.subtract(scaled, whole)], dim=3)
        return self._sum_of_chips(_product(pieces, self._two))

    def _rank(self, equal: ttnn.Tensor) -> ttnn.Tensor:
        """Of zeros and ones the count of ones at lower ids, exact."""
        sums = _product(equal, self._ones)
        tiles = ttnn.cumsum(sums, 1)
        blocks = _last(tiles, 1)
        up_to = ttnn.cumsum(blocks, 0)
        offset = ttnn.subtract(up_to, blocks)
        if self.plan.tp > 1:
            earlier = ttnn.multiply(self._of_chips(_last(up_to, 0)), self._earlier)
            offset = ttnn.add(offset, _total(earlier, 0))
        within = ttnn.add(ttnn.subtract(tiles, sums), _product(equal, self._before))
        return ttnn.add(within, offset)

    def _of_chips(self, part: ttnn.Tensor) -> ttnn.Tensor:
        """[n, 1, 32, 32] of each chip -> [n * tp, 1, 32, 32] on each."""
        return part if self.plan.tp == 1 else ttnn.all_gather(part, dim=0, cluster_axis=TP_AXIS)

    def _sum_of_chips(self, part: ttnn.Tensor) -> ttnn.Tensor:
        return part if self.plan.tp == 1 else _total(self._of_chips(part), 0)

    def _largest_of_chips(self, part: ttnn.Tensor) -> ttnn.Tensor:
        """[1, 1, rows, columns] of each chip -> the largest of them."""
        if self.plan.tp == 1:
            return part
        parts = ttnn.chunk(self._of_chips(part), self.plan.tp, dim=0)
        largest = parts[0]
        for other in parts[1:]:
            largest = ttnn.maximum(largest, other)
        return largest

    def _put(self, values: torch.Tensor, split: int | None = None) -> ttnn.Tensor:
        """Float32 tiles on the chips; split: a dimension of four that is shared out."""
        return self.plan.put(self.mesh, values if values.ndim == 4 else values[None, None], "float32", dim=split)

    def _integers(self, values: torch.Tensor, dtype: str, on_device: bool = True) -> ttnn.Tensor:
        values = values.to(getattr(torch, dtype))
        return self.plan.put(self.mesh, values, dtype, "ROW_MAJOR_LAYOUT", on_device=on_device)


def ordered_keys(logits: ttnn.Tensor) -> ttnn.Tensor:
    """Float32 of bfloat16 numbers -> float32 whole numbers in the same order: their upper bits, with their sign. Zeros
    of both signs are 0."""
    bits = ttnn.bitwise_right_shift(ttnn.bitcast(ttnn.abs(logits), ttnn.int32), 16)
    return ttnn.multiply(ttnn.typecast(bits, ttnn.float32), ttnn.sign(logits))


def _product(numbers: ttnn.Tensor, matrix: ttnn.Tensor) -> ttnn.Tensor:
    """Sums along the last dimension, exact for whole numbers up to 1024."""
    config = kernel_config("bfloat16")
    return ttnn.matmul(numbers, matrix, dtype=ttnn.float32, compute_kernel_config=config)


def _last(x: ttnn.Tensor, dim: int) -> ttnn.Tensor:
    """The last along dimension 0 or 1, of length 1 there."""
    if x.shape[dim] == 1:
        return x
    begin, end = [0] * 4, list(x.shape)
    begin[dim] = end[dim] - 1
    return ttnn.slice(x, begin, end)


def _total(parts: ttnn.Tensor, dim: int) -> ttnn.Tensor:
    """The sum along dimension 0 or 1, of length 1 there."""
    return parts if parts.shape[dim] == 1 else _last(ttnn.cumsum(parts, dim), dim)
