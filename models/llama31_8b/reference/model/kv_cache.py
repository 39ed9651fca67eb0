# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Preallocated key/value cache with per-user lengths, views of single users, and tree compaction."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch

from ...config import ContextLengthError, LlamaConfig


class KVCache:
    """Keys and values of all layers, allocated once.

    keys, values: per layer one tensor [batch, n_kv_heads, capacity, head_dim], keys rotated.
    lengths: int64 [batch], committed tokens per user. A forward with `commit=False` writes after the committed tokens
    and leaves `lengths` alone; `keep` or `commit` then takes what was accepted.
    """

    def __init__(self, config: LlamaConfig, batch: int, capacity: int, dtype: torch.dtype = torch.float32) -> None:
        """Allocate. Raises ValueError for sizes below 1, ContextLengthError beyond the model's context."""
        if batch < 1 or capacity < 1:
            raise ValueError(f"a cache needs batch >= 1 and capacity >= 1, got batch {batch} and capacity {capacity}")
        if capacity > config.max_position_embeddings:
            raise ContextLengthError(
                f"cache capacity {capacity} exceeds the context of {config.name}: "
                f"{config.max_position_embeddings} tokens"
            )
        shape = (batch, config.num_key_value_heads, capacity, config.head_dim)
        self.keys = [torch.empty(shape, dtype=dtype) for _ in range(config.num_hidden_layers)]
        self.values = [torch.empty(shape, dtype=dtype) for _ in range(config.num_hidden_layers)]
        self.capacity = capacity
        self.rows = list(range(batch))  # storage rows this object covers; the user ids of statistics
        self._lengths = torch.zeros(batch, dtype=torch.int64)
        self._written = [0] * batch  # entries written, committed or not

    @property
    def batch(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> torch.Tensor:
        """int64 [batch], a copy: change it with truncate, keep, commit."""
        return self._lengths[self.rows]

    def view(self, users: Sequence[int]) -> KVCache:
        """Return a cache over some of these users that shares storage and lengths, so that writes show in both.

        Raises IndexError for an unknown user and ValueError for a repeated one.
        """
        if len(set(users)) != len(users) or not users:
            raise ValueError(f"a cache view needs distinct users, got {list(users)}")
        other = copy(self)
        other.rows = [self.rows[self._check_user(user)] for user in users]
        return other

    def user(self, user: int) -> KVCache:
        """Return a cache of batch 1 over one user, sharing storage and lengths."""
        return self.view([user])

    @torch.inference_mode()
    def truncate(self, lengths: int | Sequence[int] | torch.Tensor) -> None:
        """Forget entries beyond `lengths` (one for all users, or one per user), uncommitted ones too.

        Raises ValueError when a length is negative or above what is committed.
        """
        wanted = torch.as_tensor(lengths).expand(self.batch).tolist()
        current = self.lengths.tolist()
        if any(w < 0 or w > c for w, c in zip(wanted, current)):
            raise ValueError(f"cannot truncate committed lengths {current} to {wanted}")
        for row, length in zip(self.rows, wanted):
            self._lengths[row] = self._written[row] = length

    @torch.inference_mode()
    def commit(self, tokens: int) -> None:
        """Commit the next `tokens` written entries of every user. Raises ValueError beyond them."""
        wanted = [length + tokens for length in self.lengths.tolist()]
        written = [self._written[row] for row in self.rows]
        if tokens < 0 or any(w > have for w, have in zip(wanted, written)):
            raise ValueError(f"cannot commit {tokens} tokens: lengths would be {wanted}, written are {written}")
        for row, length in zip(self.rows, wanted):
            self._lengths[row] = length

    @torch.inference_mode()
    def keep(self, user: int, slots: Sequence[int]) -> None:
        """Commit some of the uncommitted entries of a user, compacted, and forget the rest.

        slots: strictly increasing offsets from the committed length (an accepted tree path, root side first).
        Raises ValueError for slots out of order or never written.
        """
        row = self.rows[self._check_user(user)]
        length = int(self._lengths[row])
        slots = [int(slot) for slot in slots]
        available = self._written[row] - length
        if any(b <= a for a, b in zip(slots, slots[1:])) or any(s < 0 or s >= available for s in slots):
            raise ValueError(f"keep needs increasing slots below the {available} written ones, got {slots}")
        if slots != list(range(len(slots))):
            source = torch.tensor(slots) + length
            end = length + len(slots)
            for entries in (*self.keys, *self.values):
                entries[row, :, length:end] = entries[row].index_select(1, source)
        self._lengths[row] = self._written[row] = length + len(slots)

    @torch.inference_mode()
    def clone(self) -> KVCache:
        """Return an independent copy of the users this object covers; storage rows are renumbered from 0."""
        other = copy(self)
        other.keys = [entries[self.rows] for entries in self.keys]
        other.values = [entries[self.rows] for entries in self.values]
        other.rows = list(range(self.batch))
        other._lengths = self.lengths
        other._written = [self._written[row] for row in self.rows]
        return other

    def reserve(self, tokens: int, earlier: int = 0) -> None:
        """Check that `tokens` more entries fit for each user, and note them as written.

        earlier: uncommitted entries that they follow. Raises ContextLengthError naming the user, the lengths and the
        capacity, and ValueError when fewer than `earlier` entries were written.
        """
        lengths = self.lengths.tolist()
        for row, length in zip(self.rows, lengths):
            if length + earlier + tokens > self.capacity:
                raise ContextLengthError(
                    f"user {row}: {length} cached + {earlier + tokens} new tokens exceed the cache capacity "
                    f"of {self.capacity}"
                )
            if earlier and self._written[row] < length + earlier:
                raise ValueError(
                    f"user {row}: {earlier} uncommitted entries expected, {self._written[row] - length} were written"
                )
        for row, length in zip(self.rows, lengths):
            self._written[row] = length + earlier + tokens

    def _check_user(self, user: int) -> int:
        if not 0 <= user < self.batch:
            raise IndexError(f"user {user} is outside this cache of {self.batch} users")
        return user
