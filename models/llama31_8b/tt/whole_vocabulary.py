# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Draws from more tokens than the stable top-k sorts: temperature alone, any top_k, any top_p, on the chips.

A chip's columns lie in tiles of 32 ids, the tiles in blocks: [blocks, tiles, 32 rows, 32 ids]. Nothing is sorted. What
top_k or top_p keeps are the tokens above a threshold and, of those equal to it, the first by id; 16 halvings over the
ordered bfloat16 numbers find it, by counts or by mass. The draw is the reference's `inverse_cdf` over ascending ids,
first the block of all chips, then the tile, then the id. Over links go sums alone: 4 KB for each, or for each block.

Masses are float32, exp((logit - largest) / temperature). Sums over tiles and blocks are `ttnn.cumsum`'s, which along
those dimensions compensates its rounding. Within a tile the matrix unit sums; it cuts products to 11 bits at the
largest exponent of eight, so it gets whole numbers up to 1024: a mass as two of them and the remainder, a sum as one
and the remainder. Counts are exact. Against float64 the border between two tokens moves by less than 2e-5 of the
whole mass, the tail of 128256 tokens included, and top_p keeps a token more or fewer only where the mass before it is
that close to top_p. A token that top_k or top_p left out, or of mass 0, is never drawn.

Logits below -2**126 count as that. A temperature above 1e30, or below 1e-30, acts as that one.
"""

from __future__ import annotations

from math import ceil, sqrt

import torch
import ttnn

from models.llama31_8b.sampling import SamplingParams

from ..config import LlamaConfig
from .linear import kernel_config
from .mesh import TILE, TP_AXIS, MeshPlan

# Whole numbers up to it are exact in the matrix unit; 2048 is not beside odd ones.
PIECE = 1024.0
# Counts of a lane, up to 2**12, as pieces of at most 6 bits before and 6 behind the point.
COUNT = 1 / 64
# The sign and 15 bits of a bfloat16.
HALVINGS = 16
LEAST_KEY = -(2.0**15)
LEAST_LOGIT = -(2.0**126)
EXTREME = 1e30
# Times a sum below that sum after any rounding, and by no more than the drawn numbers tell apart.
NEARLY_ONE = 1 - 2**-22
HALF = 0.5
LEAST_P = 1e-30
# A token travels as ORIGIN - id: positive, a whole float32, and larger for lower ids.
ORIGIN = 2**24


def block_shape(columns: int) -> tuple[int, int]:
    """Blocks and tiles a block for `columns` of a chip (a multiple of 32): about as many of one as of the other."""
    tiles = columns // TILE
    width = ceil(sqrt(tiles))
    return ceil(tiles / width), width


class WholeVocabulary:
    """Draws a token for each row of logits by `params`, on every chip the same.

    Tensors of this class are float32 [blocks, tiles, 32, 32] where not said otherwise; numbers of a row are tiles
    [1, 1, 32, 32], equal along a row. shape: blocks and tiles a block, `block_shape` by default.
    """

    def __init__(
        self, mesh: ttnn.MeshDevice, plan: MeshPlan, config: LlamaConfig, params: SamplingParams, *,
        shape: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        self.mesh, self.plan, self.params = mesh, plan, params
        self.columns, self.vocab = plan.padded_vocab(config) // plan.tp, config.vocab_size
        self.blocks, self.tiles = shape or block_shape(self.columns)
        self.sharpness = min(max(1.0 / max(params.temperature, 1 / EXTREME), 1 / EXTREME), EXTREME)
        self._added_columns = self.blocks * self.tiles * TILE - self.columns
        self._count_goal, self._mass_goal = params.top_k * COUNT, PIECE * max(params.top_p, LEAST_P)
        up_to, ones = torch.ones(TILE, TILE).triu(), torch.ones(TILE, TILE)
        self._ones = self._put(ones)
        self._two = self._put(torch.cat((ones, ones)))
        self._before = self._put(up_to - torch.eye(TILE))
        # A mass is its first piece, 1024ths of its second and those of the remainder.
        self._up_to_of_three, self._all_of_three = (
            self._put(torch.cat((matrix, matrix / PIECE, matrix / PIECE))) for matrix in (up_to, ones)
        )
        # A Python number as an operand would be spread over a tile by a core at every run.
        numbers = (
            PIECE, COUNT, NEARLY_ONE, LEAST_KEY, ORIGIN, TILE, HALF, self.sharpness, self.tiles, 1 / self.blocks,
            self._added_columns, self._count_goal, self._mass_goal, *(2**bit for bit in range(HALVINGS)),
        )  # fmt: skip
        self._tile = {number: self._put(torch.full((TILE, TILE), float(number))) for number in numbers}
        self._block_numbers = self._put(self._numbers(self.blocks * plan.tp, 0), split=0)
        self._tile_numbers = self._put(self._numbers(self.tiles, 1))
        if plan.tp > 1:
            chip = torch.arange(plan.tp)
            earlier = (chip < chip[:, None]).float().reshape(-1, 1, 1, 1)
            self._earlier = self._put(earlier.expand(-1, 1, TILE, TILE), split=0)

    def __call__(self, logits: ttnn.Tensor, uniforms: ttnn.Tensor) -> ttnn.Tensor:
        """logits: bfloat16 [1, 1, rows, columns] of a chip, its padding below all others. uniforms: float32
        [1, 1, 32, 1] in [0, 1), of 22 bits. Returns float32 [1, 1, rows, 32], ORIGIN - id, equal along a row."""
        keys = self.draw(self.kept_masses(*self.masses(logits)), uniforms)
        return ttnn.slice(keys, [0, 0, 0, 0], [1, 1, logits.shape[2], TILE])

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
        return ttnn.exp(ttnn.multiply(below, self._tile[self.sharpness])), logits

    def kept_masses(self, masses: ttnn.Tensor, logits: ttnn.Tensor) -> ttnn.Tensor:
        """Of `masses` those that top_k and then top_p leave, the others 0."""
        limited = 0 < self.params.top_k < self.vocab
        if not limited and self.params.top_p == 1.0:
            return masses
        keys = ordered_keys(logits)
        if limited:
            masses = ttnn.multiply(
                masses, self.kept(keys, None, self._tile[COUNT], self._tile[self._count_goal])
            )
        if self.params.top_p < 1.0:
            goal = self._tile[self._mass_goal]
            masses = ttnn.multiply(masses, self.kept(keys, masses, self.share(masses), goal))
        return masses

    def kept(
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

    def draw(self, masses: ttnn.Tensor, uniforms: ttnn.Tensor) -> ttnn.Tensor:
        """Numbers of a row: ORIGIN - the first id at which the mass exceeds uniform * whole, by ascending ids."""
        pieces = self._pieces(masses)
        up_to, sums = (_product(pieces, matrix) for matrix in (self._up_to_of_three, self._all_of_three))
        blocks = self._of_chips(_total(sums, 1))
        blocks_up_to = ttnn.cumsum(blocks, 0)
        target = ttnn.multiply(_last(blocks_up_to, 0), uniforms)
        block, rest = self._descend(blocks, blocks_up_to, target, 0)
        here = ttnn.eq(self._block_numbers, block)
        up_to, sums = _chosen(up_to, here, 0), _chosen(sums, here, 0)
        tile, rest = self._descend(sums, ttnn.cumsum(sums, 1), rest, 1)
        here = ttnn.eq(self._tile_numbers, tile)
        up_to, whole = _chosen(up_to, here, 1), _chosen(sums, here, 1)
        before = ttnn.le(up_to, ttnn.minimum(rest, ttnn.multiply(whole, self._tile[NEARLY_ONE])))
        place = _product(before, self._ones)
        ids = ttnn.add(ttnn.multiply(block, self._tile[self.tiles]), tile)
        ids = ttnn.add(ttnn.multiply(ids, self._tile[TILE]), place)
        if self.plan.tp > 1 and self._added_columns:
            chip = ttnn.multiply(ttnn.add(block, self._tile[HALF]), self._tile[1 / self.blocks])
            ids = ttnn.subtract(ids, ttnn.multiply(ttnn.floor(chip), self._tile[self._added_columns]))
        # Only the chip that has the block has mass.
        return self._largest_of_chips(ttnn.multiply(ttnn.subtract(self._tile[ORIGIN], ids), ttnn.gtz(whole)))

    def _descend(
        self, parts: ttnn.Tensor, up_to: ttnn.Tensor, target: ttnn.Tensor, dim: int
    ) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """Numbers of a row: the first place along a dimension at which the sum of `parts`, `up_to`, exceeds the target,
        and what the parts before it leave of that. A target not below the sum of all is lowered to be."""
        target = ttnn.minimum(target, ttnn.multiply(_last(up_to, dim), self._tile[NEARLY_ONE]))
        before = ttnn.le(up_to, target)
        passed = _total(ttnn.multiply(parts, before), dim)
        return _total(before, dim), ttnn.relu(ttnn.subtract(target, passed))

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

    def _pieces(self, masses: ttnn.Tensor) -> ttnn.Tensor:
        """Masses up to 1 -> [blocks, tiles, 32, 96]: 1024ths, their 1024ths, and what remains of those."""
        pieces = []
        for _ in range(2):
            masses = ttnn.multiply(masses, self._tile[PIECE])
            pieces.append(ttnn.floor(masses))
            masses = ttnn.subtract(masses, pieces[-1])
        return ttnn.concat([*pieces, masses], dim=3)

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

    @staticmethod
    def _numbers(count: int, dim: int) -> torch.Tensor:
        """0, 1, ... along `dim`, a tile of each."""
        shape = [1, 1, 1, 1]
        shape[dim] = count
        return torch.arange(count).float().reshape(shape).expand(-1, -1, TILE, TILE)

    def _put(self, values: torch.Tensor, split: int | None = None) -> ttnn.Tensor:
        """Float32 tiles on the chips; split: a dimension of four that is shared out."""
        return ttnn.from_torch(
            values if values.ndim == 4 else values[None, None],
            dtype=ttnn.float32,
            layout=ttnn.TILE_LAYOUT,
            device=self.mesh,
            mesh_mapper=self.plan.mapper(self.mesh, split),
        )


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


def _chosen(x: ttnn.Tensor, here: ttnn.Tensor, dim: int) -> ttnn.Tensor:
    """What stands where the one of zeros and a one is, along a dimension: exact."""
    return _total(ttnn.multiply(x, here), dim)
