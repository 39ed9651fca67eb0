# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""An engine in torch over blocks: each call copies a sequence's pages out, runs the reference model, and copies what it
wrote back. As on a device, a later step overwrites a result that nobody has started to read."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.serving.draws import choose_on_host


@dataclass
class Step:
    """A launch, or its copy on the host, which is there once its event has passed."""

    number: int
    result: torch.Tensor
    copied: bool = False
    there: bool = False

    def arrive(self) -> None:
        self.there = True


class Paged:
    """A model over blocks, which start as NaN, so that reading a page that nobody wrote shows."""

    def __init__(self, model: ReferenceLlama, blocks: int, block_size: int) -> None:
        config = model.config
        self.model, self.block_size = model, block_size
        shape = (config.num_hidden_layers, 2, blocks, config.num_key_value_heads, block_size, config.head_dim)
        self.blocks = torch.full(shape, torch.nan, dtype=model.dtype)

    def run(self, tokens: torch.Tensor, start: int, pages: torch.Tensor, padding: int = 0) -> torch.Tensor:
        """Return logits [tokens, vocab] of tokens at positions from `start`. padding: positions after them that are
        overwritten by NaN, as a device writes what a padded row gives."""
        count, pages = tokens.shape[1], torch.nn.functional.pad(pages, (0, 1))  # block 0 after the context
        need = -(-(start + count) // self.block_size)
        table = pages[:need].long()
        cache = self.model.new_cache(1, need * self.block_size)
        held = self.blocks[:, :, table].permute(0, 1, 3, 2, 4, 5).flatten(3, 4)  # layers, 2, heads, positions, dim
        for layer in range(len(cache.keys)):
            cache.keys[layer][0], cache.values[layer][0] = held[layer, 0], held[layer, 1]
        cache.reserve(start)
        cache.commit(start)
        logits = self.model.forward(tokens, cache, logits="all")[0]
        for position in range(start, start + count):
            block, row = int(table[position // self.block_size]), position % self.block_size
            for layer in range(len(cache.keys)):
                self.blocks[layer, 0, block, :, row] = cache.keys[layer][0, :, position]
                self.blocks[layer, 1, block, :, row] = cache.values[layer][0, :, position]
        for position in range(start + count, start + count + padding):
            if position // self.block_size < len(pages):
                self.blocks[:, :, pages[position // self.block_size], :, position % self.block_size] = torch.nan
        return logits


class TorchEngine:
    """What models.llama31_8b.serving.mesh_engine does on a mesh."""

    def __init__(self, model: ReferenceLlama, users: int, blocks: int, block_size: int) -> None:
        self.users, self.vocab_size, self.block_size = users, model.config.vocab_size, block_size
        self.paged = Paged(model, blocks, block_size)
        self.warmed: list[str] = []
        self.launches: list[str] = []
        # What the device keeps for the next step that chooses tokens.
        self.tokens = torch.zeros(users, dtype=torch.int64)
        self.positions = torch.full((users,), -1)

    def prefill(self, tokens, start, pages):
        assert start % self.block_size == 0
        ids = torch.tensor([list(tokens)])
        padding = max(32, 1 << (len(tokens) - 1).bit_length()) - len(tokens)
        return self.paged.run(ids, start, pages, padding)[-1]

    def decode(self, tokens, positions, pages):
        self.launches.append("decode")
        return self._launched(self._logits(tokens[:, None], positions[:, None], pages))

    def sample(self, tokens, positions, pages, draws):
        self.launches.append("sample" if tokens is not None else "sample resident")
        if tokens is not None:
            self.tokens, self.positions = tokens.long(), positions.clone()
        assert torch.equal(self.positions, positions)
        logits = self._logits(self.tokens[:, None], self.positions[:, None], pages)[:, 0]
        self.tokens = choose_on_host(logits, draws, self.positions)
        self.positions = self.positions + (self.positions >= 0)
        return self._launched(self.tokens[:, None])

    def samples(self, draw):
        return draw.params.greedy or 0 < draw.params.top_k <= 32

    def start_read(self, step):
        copy = Step(step.number, self._result(step), copied=True)
        return copy, [copy]

    def read(self, step):
        return self._result(step)

    def read_tokens(self, step):
        return self._result(step)

    def warm_up_prefill(self, again):
        self.warmed.append("prefill again" if again else "prefill")

    def warm_up_decode(self, sampling):
        self.warmed.append("decode and sample" if sampling else "decode")

    def _launched(self, result):
        return Step(len(self.launches), result.clone())

    def _result(self, step):
        if step.copied:
            assert step.there, "nobody has waited for the copy"
        else:
            assert step.number == len(self.launches), "a later step has overwritten the result"
        return step.result

    def _logits(self, tokens, positions, pages):
        found = torch.full((self.users, tokens.shape[1], self.vocab_size), torch.nan)
        for user in range(self.users):
            valid = int((positions[user] >= 0).sum())
            if valid:
                start = int(positions[user, 0])
                assert positions[user, :valid].tolist() == list(range(start, start + valid))
                chain = tokens[user : user + 1, :valid].long()
                found[user, :valid] = self.paged.run(chain, start, pages[user], tokens.shape[1] - valid)
        return found
