# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""An engine in torch over blocks: each call copies a sequence's pages out, runs the reference model, and copies what it
wrote back."""

from __future__ import annotations

import torch

from models.llama31_8b.reference.model.model import ReferenceLlama


class TorchEngine:
    """See models.llama31_8b.serving.engine. Blocks start as NaN, so that reading a page that nobody wrote shows."""

    def __init__(self, model: ReferenceLlama, users: int, blocks: int, block_size: int) -> None:
        config = model.config
        self.model, self.users, self.vocab_size, self.block_size = model, users, config.vocab_size, block_size
        shape = (config.num_hidden_layers, 2, blocks, config.num_key_value_heads, block_size, config.head_dim)
        self.blocks = torch.full(shape, torch.nan, dtype=model.dtype)
        self.warmed: list[str] = []

    def prefill(self, tokens, start, pages):
        assert start % self.block_size == 0
        return self._run(torch.tensor([list(tokens)]), start, pages)[-1]

    def decode(self, tokens, positions, pages):
        return self.verify(tokens[:, None], positions[:, None], pages)

    def verify(self, tokens, positions, pages):
        found = torch.zeros(self.users, tokens.shape[1], self.vocab_size)
        for user in range(self.users):
            valid = int((positions[user] >= 0).sum())
            if valid:
                start = int(positions[user, 0])
                assert positions[user, :valid].tolist() == list(range(start, start + valid))
                found[user, :valid] = self._run(tokens[user : user + 1, :valid].long(), start, pages[user])
        return found

    def read(self, step):
        return step

    def warm_up_prefill(self):
        self.warmed.append("prefill")

    def warm_up_decode(self, traced):
        self.warmed.append("traced decode" if traced else "decode")

    def _run(self, tokens, start, pages):
        """Return logits [tokens, vocab] of tokens at positions from `start`."""
        count = tokens.shape[1]
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
        return logits
