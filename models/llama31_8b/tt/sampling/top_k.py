# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Choose the next tokens on the chips, from logits whose columns are split over them.

Greedy: each chip sends its largest logit with its id; of equal logits the lowest id wins. top_k up to 32: each chip
keeps its 32 largest logits per user, by the stable form of `ttnn.topk`, so that of equal logits the lower ids are
kept, as in the reference. Only these candidates cross the links, and every chip draws from all of them alike. The draw
is the reference's `inverse_cdf` over ascending ids with one number of each user's generator: a seed gives the tokens of
sampling on the host and, as far as logits agree, of the reference. Masses are whole 65536ths of the largest, which
moves a border between two tokens by less than 2.5e-4 of the whole mass; only a number that close to a border may
choose the other token, and a top_p that close to one may keep a token more or fewer. Temperature alone:
FullVocabSampler.

`ttnn.sampling` is not used: its random numbers come from a generator in each core, seeded by an argument that a
captured trace repeats, so no host can reproduce them and they depend on a user's core; its masses are bfloat16. Here
the numbers are an input of the step, like tokens and positions. (Neither `ttnn.sampling` nor `ttnn.rand` runs on the
simulated chip: its compiler cannot build their scalar float arithmetic.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import ttnn

from tt_kernels.speculative_sampling.checks import nearest_temperature
from tt_kernels.speculative_sampling.op import speculative_sampling, uniform_words
from tt_kernels.speculative_sampling.program import BONUS

from ...generation.sampling import SamplingParams
from ..layouts import gather
from ..mesh import TILE, Site
from ..modules import BLOCK_TILES, column_blocks, kernel_config

CANDIDATES = TILE
# A token's key is ORIGIN - id: positive, exact in float32, and larger for lower ids.
ORIGIN = 2**24
# Masses are whole numbers of two such digits; 32 of them sum exactly in float32.
DIGIT = 256
# With so many bits number * total stays below total after any rounding.
DRAWN_BITS = 22
# Beyond this factor only equal logits share mass; an infinite one would give 0 * inf for the largest.
STEEPEST = 1e30
# The first candidate has at least a 32nd of the mass: a lower top_p keeps it alone, too, and may be 0 in float32.
NARROWEST = 1 / 64
LOWEST = torch.finfo(torch.bfloat16).min


def samples_on_chips(params: SamplingParams, vocab: int) -> bool:
    """Return whether chips can sample by these parameters: greedily, with top_k up to 32, or by temperature alone."""
    whole = (params.top_k or vocab) >= vocab and params.top_p == 1.0
    return whole or draws_among_candidates(params, vocab)


def draws_among_candidates(params: SamplingParams, vocab: int) -> bool:
    """Return whether PerUserSampler takes these parameters: greedy ones, and those with top_k up to 32."""
    return params.greedy or min(params.top_k or vocab, vocab) <= CANDIDATES


class Sampler:
    """Choose a token for each row of logits by `params`, the same on every chip.

    block_tiles: tiles of columns sorted at once; above 1024, topk uses a single core. A row with a NaN logit gets any
    token of the vocabulary. Raises ValueError for parameters that `samples_on_chips` excludes.
    """

    def __init__(self, site: Site, params: SamplingParams, *, block_tiles: int = BLOCK_TILES) -> None:
        self.mesh, self.mesh_shape, config = site
        if not samples_on_chips(params, config.vocab_size):
            raise ValueError(
                f"chips sample greedily, with top_k up to {CANDIDATES}, or by temperature alone; got top_k "
                f"{params.top_k} and top_p {params.top_p}"
            )
        self.params, self.vocab, tp = params, config.vocab_size, site.shape.tp
        padded = site.shape.padded_vocab(config)
        self.blocks = column_blocks(padded // tp, block_tiles)
        self._padding = None
        if padded > self.vocab:
            mask = torch.zeros(padded)
            mask[self.vocab :] = LOWEST
            self._padding = self._put(mask, "bfloat16", split=True)
        self._full_vocab = None
        if not params.greedy and min(params.top_k or self.vocab, self.vocab) > CANDIDATES:
            self._full_vocab = FullVocabSampler(site, params)
            return
        # The key of index 0 of every block, chip after chip.
        starts = torch.tensor([0, *accumulate(self.blocks * tp)][:-1])
        self._origins = self._put((ORIGIN - starts).repeat_interleave(CANDIDATES), "float32", split=True)
        rank = torch.arange(CANDIDATES)
        if params.greedy:
            # The key of index 0 of every chip.
            first = ORIGIN - torch.arange(tp) * (padded // tp)
            self._first = self._put(first.float(), "float32", split=True)
            return
        self._steepness: Any = min(1.0 / params.temperature, STEEPEST)
        self._kept = self._put((rank < (params.top_k or CANDIDATES)).float() * DIGIT**2, "float32")
        self._nucleus: Any = None if params.top_p == 1.0 else max(params.top_p, NARROWEST)
        # Rows: higher digits first; columns: sums of all masses, of those up to, and of those before each candidate.
        up_to = (rank[:, None] <= rank).float()
        self._all, self._up_to, self._before = (
            self._put(torch.cat((DIGIT * matrix, matrix)), "bfloat16")
            for matrix in (torch.ones(CANDIDATES, CANDIDATES), up_to, up_to - torch.eye(CANDIDATES))
        )

    def uniforms(self, values: Sequence[float], on_device: bool = True) -> ttnn.Tensor | None:
        """Make a call's random numbers, one in [0, 1) per row: float32 [1, 1, rows, 1], rounded down to 22 bits, or
        FullVocabSampler's without top_k; None if greedy."""
        if self.params.greedy:
            return None
        wrong = [value for value in values if not 0.0 <= value < 1.0]
        if wrong:
            raise ValueError(f"uniform numbers must be in [0, 1), got {wrong[0]}")
        if self._full_vocab is not None:
            return self._full_vocab.uniforms(values, on_device)
        scale = 2.0**DRAWN_BITS
        numbers = torch.floor(torch.tensor(list(values), dtype=torch.float64) * scale) / scale
        return self._put(numbers[:, None], "float32", on_device=on_device)

    def __call__(
        self, logits: ttnn.Tensor, uniforms: ttnn.Tensor | None = None, output: ttnn.Tensor | None = None
    ) -> ttnn.Tensor:
        """logits: bfloat16 [1, 1, rows, padded vocab / tp], up to 32 rows, each chip's own columns. uniforms: see
        `uniforms`. Returns uint32 [1, rows], ROW_MAJOR, written to `output` if given."""
        if self.params.greedy:
            logits = self._without_padding(logits)
            return greedy(logits, output) if self.mesh_shape.tp == 1 else self._likeliest(logits, output)
        if uniforms is None:
            raise ValueError(f"tokens drawn by {self.params} need uniform numbers")
        if self._full_vocab is not None:
            ids = self._full_vocab(self._without_padding(logits), uniforms)
            return ids if output is None else ttnn.copy(ids, output)
        return self.pick(*self.borders(*self.candidates(logits)), uniforms, output)

    def candidates(self, logits: ttnn.Tensor) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """Return the 32 largest logits of all chips, descending, with lower ids first among equals: bfloat16 logits and
        float32 keys ORIGIN - id, both [1, 1, rows, 32]."""
        logits = self._without_padding(logits)
        rows, start, values, places = logits.shape[2], 0, [], []
        for columns in self.blocks:
            part = logits
            if len(self.blocks) > 1:
                part = ttnn.slice(logits, [0, 0, 0, start], [1, 1, rows, start + columns])
            # topk uses several cores only for powers of two.
            wide = 1 << (columns - 1).bit_length()
            if wide > columns:
                part = ttnn.pad(part, [(0, 0), (0, 0), (0, 0), (0, wide - columns)], value=LOWEST)
            largest, indices = ttnn.topk(part, k=CANDIDATES, dim=-1, stable=True)
            values.append(largest)
            places.append(ttnn.typecast(indices, ttnn.float32))
            start += columns
        joined, place = (parts[0] if len(parts) == 1 else ttnn.concat(parts, dim=3) for parts in (values, places))
        keys = gather(ttnn.subtract(self._origins, place), self.mesh_shape)
        joined = gather(joined, self.mesh_shape)
        if joined.shape[3] == CANDIDATES:
            return joined, keys
        # Chips and blocks are in the order of ids, so equal logits still are.
        largest, indices = ttnn.topk(joined, k=CANDIDATES, dim=-1, stable=True)
        return largest, ttnn.gather(keys, -1, indices)

    def _likeliest(self, logits: ttnn.Tensor, output: ttnn.Tensor | None) -> ttnn.Tensor:
        """Choose greedily over a TP group: the lowest id among the chips' largest logits. Nothing is sorted."""
        line = (1, 1, 1, logits.shape[2])  # side by side, so that all rows' numbers of a chip are one tile
        ids = ttnn.to_layout(ttnn.reshape(greedy(logits), line), ttnn.TILE_LAYOUT)
        keys = gather(ttnn.subtract(self._first, ttnn.typecast(ids, ttnn.float32)), self.mesh_shape, dim=1)
        largest = gather(ttnn.reshape(ttnn.max(logits, dim=-1), line), self.mesh_shape, dim=1)
        best = ttnn.eq(largest, ttnn.max(largest, dim=1, keepdim=True))
        return self._named(ttnn.max(ttnn.multiply(keys, ttnn.typecast(best, ttnn.float32)), dim=1), output)

    def borders(self, values: ttnn.Tensor, keys: ttnn.Tensor) -> tuple[ttnn.Tensor, ttnn.Tensor, ttnn.Tensor]:
        """Make the distribution that `pick` draws from, by ascending id, from `candidates`.

        Returns float32 [1, 1, rows, 32]: the keys, 0 for tokens without mass; the mass up to each; the whole mass.
        """
        masses = self._masses(values)
        keys, order = ttnn.sort(keys, dim=-1, descending=True)
        masses = ttnn.gather(masses, -1, order)
        up_to, total = self._sums(masses, self._up_to, self._all)
        return ttnn.multiply(keys, ttnn.gtz(masses)), up_to, total

    def pick(
        self,
        keys: ttnn.Tensor,
        up_to: ttnn.Tensor,
        total: ttnn.Tensor,
        uniforms: ttnn.Tensor,
        output: ttnn.Tensor | None = None,
    ) -> ttnn.Tensor:
        """Pick the first token up to which the mass exceeds uniform * total: uint32 [1, rows]."""
        beyond = ttnn.gt(up_to, ttnn.multiply(total, uniforms))
        return self._named(ttnn.max(ttnn.multiply(keys, beyond), dim=-1), output)

    def _without_padding(self, logits: ttnn.Tensor) -> ttnn.Tensor:
        return logits if self._padding is None else ttnn.add(logits, self._padding)

    def _masses(self, values: ttnn.Tensor) -> ttnn.Tensor:
        """Descending logits -> masses in 65536ths of the first's, 0 for what top-k and top-p exclude; whole numbers in
        float32."""
        logits = ttnn.typecast(values, ttnn.float32)
        below = ttnn.subtract(logits, ttnn.max(logits, dim=-1, keepdim=True))
        masses = ttnn.round(ttnn.multiply(ttnn.exp(ttnn.multiply(below, self._steepness)), self._kept))
        if self._nucleus is None:
            return masses
        before, total = self._sums(masses, self._before, self._all)
        return ttnn.multiply(masses, ttnn.lt(before, ttnn.multiply(total, self._nucleus)))

    @staticmethod
    def _sums(masses: ttnn.Tensor, *choices: ttnn.Tensor) -> list[ttnn.Tensor]:
        """Masses [1, 1, rows, 32] -> their exact sums by each [64, 32] of weights for digits, same shape.

        The matrix unit truncates products to 12 bits at the largest exponent of eight, so masses go in as 8-bit digits.
        """
        higher = ttnn.floor(ttnn.multiply(masses, 1 / DIGIT))
        lower = ttnn.subtract(masses, ttnn.multiply(higher, float(DIGIT)))
        digits = ttnn.concat([ttnn.typecast(part, ttnn.bfloat16) for part in (higher, lower)], dim=3)
        config = kernel_config("bfloat16")
        return [ttnn.matmul(digits, choice, dtype=ttnn.float32, compute_kernel_config=config) for choice in choices]

    def _named(self, keys: ttnn.Tensor, output: ttnn.Tensor | None) -> ttnn.Tensor:
        """One key per row, float32 [1, 1, rows] -> ids, uint32 [1, rows]."""
        best = ttnn.clamp(keys, min=float(ORIGIN - self.vocab + 1), max=float(ORIGIN))
        ids = ttnn.typecast(ttnn.rsub(best, float(ORIGIN)), ttnn.uint32)
        ids = ttnn.reshape(ttnn.to_layout(ids, ttnn.ROW_MAJOR_LAYOUT), (1, ids.shape[-1]))
        return ids if output is None else ttnn.copy(ids, output)

    def _put(self, values: torch.Tensor, dtype: str, split: bool = False, on_device: bool = True) -> ttnn.Tensor:
        """Put rows on the mesh as tiles [1, 1, rows, columns]; split: columns over the chips."""
        values = values.float().reshape(1, 1, -1, values.shape[-1])
        return self.mesh_shape.put(self.mesh, values, dtype, dim=-1 if split else None, on_device=on_device)


class PerUserSampler(Sampler):
    """Sample by parameters of each user, which are data: one trace serves all batches. `load` gives every user its
    parameters and its random number, which the next call uses."""

    def __init__(self, site: Site, users: int) -> None:
        super().__init__(site, SamplingParams(1.0, top_k=CANDIDATES))
        self.users = users
        blank = [(SamplingParams(), 0.0)] * users
        self._steepness, self._kept, self._nucleus, self.numbers = self._made(blank, on_device=True)

    def load(self, draws: Sequence[tuple[SamplingParams, float]]) -> None:
        """Write parameters and a number in [0, 1) of every user. Raises ValueError for parameters that
        `draws_among_candidates` excludes."""
        held = self._steepness, self._kept, self._nucleus, self.numbers
        for device, host in zip(held, self._made(draws, on_device=False), strict=True):
            ttnn.copy_host_to_device_tensor(host, device)

    def _made(self, draws: Sequence[tuple[SamplingParams, float]], on_device: bool) -> list[ttnn.Tensor]:
        """Make 1 / temperature [1, 1, users, 1], the candidates that top_k keeps [1, 1, users, 32], top_p and the
        numbers [1, 1, users, 1], all float32."""
        if len(draws) != self.users:
            raise ValueError(f"{self.users} users need as many parameters, got {len(draws)}")
        rows = []
        for params, _ in draws:
            if not draws_among_candidates(params, self.vocab):
                raise ValueError(
                    f"chips sample users greedily or with top_k up to {CANDIDATES}; got top_k {params.top_k}"
                )
            kept = min(params.top_k or self.vocab, CANDIDATES)
            rows.append((1.0, 1, 1.0) if params.greedy else (1.0 / params.temperature, kept, params.top_p))
        steepness, kept, top_p = (torch.tensor(column)[:, None] for column in zip(*rows, strict=True))
        most = (torch.arange(CANDIDATES) < kept).float() * DIGIT**2
        parts = steepness.clamp(max=STEEPEST), most, top_p.clamp(min=NARROWEST)
        numbers = self.uniforms([number for _, number in draws], on_device)
        assert numbers is not None  # as they are for greedy sampling alone
        return [*(self._put(part, "float32", on_device=on_device) for part in parts), numbers]


def greedy(logits: ttnn.Tensor, output: ttnn.Tensor | None = None) -> ttnn.Tensor:
    """Arg-max of logits with all columns on each chip: bfloat16 [1, 1, rows, vocab] -> uint32 [1, rows]."""
    by_row = ttnn.to_layout(logits, ttnn.ROW_MAJOR_LAYOUT)
    rows, vocab = by_row.shape[2], by_row.shape[3]
    return ttnn.argmax(ttnn.reshape(by_row, (1, rows, vocab)), dim=-1, output_tensor=output)


class FullVocabSampler:
    """Sample a token for each row of logits from the whole vocabulary by `params`' temperature, the same on every chip.

    The draw is verification without a draft (tt_kernels/speculative_sampling): one op, on every chip from all logits.
    Only a number within 2^-19 of the border between two tokens may choose the other one. Temperatures are clamped to
    the op's limits, 1e-4 to 1e4.
    """

    def __init__(self, site: Site, params: SamplingParams) -> None:
        self.mesh, self.mesh_shape, _ = site
        self.temperature = nearest_temperature(params.temperature)
        self._roots: dict[int, tuple[ttnn.Tensor, ttnn.Tensor]] = {}  # by rows: trees of one decided token

    def uniforms(self, values: Sequence[float], on_device: bool = True) -> ttnn.Tensor:
        """Make a call's random numbers, one in [0, 1) per row, rounded down to 32 bits: uint32 [rows, 1], ROW_MAJOR."""
        words = uniform_words(torch.tensor(list(values), dtype=torch.float64))[:, None]
        return self._integers(words, "uint32", on_device)

    def __call__(self, logits: ttnn.Tensor, uniforms: ttnn.Tensor) -> ttnn.Tensor:
        """logits: bfloat16 [1, 1, rows, columns] of a chip, its padding below all others. uniforms: see `uniforms`.
        Returns uint32 [1, rows], ROW_MAJOR."""
        by_row = ttnn.to_layout(gather(logits, self.mesh_shape), ttnn.ROW_MAJOR_LAYOUT)
        rows, columns = by_row.shape[2], by_row.shape[3]
        if rows not in self._roots:
            blank = torch.zeros(rows, 1, dtype=torch.int64)
            self._roots[rows] = self._integers(blank, "uint32"), self._integers(blank - 1, "int32")
        drawn = speculative_sampling(
            *self._roots[rows], ttnn.reshape(by_row, (rows, 1, columns)), None, uniforms, temperature=self.temperature
        )
        ids = ttnn.slice(drawn.result, [0, BONUS], [rows, BONUS + 1])
        return ttnn.bitcast(ttnn.reshape(ids, (1, rows)), ttnn.uint32)

    def _integers(self, values: torch.Tensor, dtype: str, on_device: bool = True) -> ttnn.Tensor:
        values = values.to(getattr(torch, dtype))
        return self.mesh_shape.put(self.mesh, values, dtype, "ROW_MAJOR_LAYOUT", on_device=on_device)
