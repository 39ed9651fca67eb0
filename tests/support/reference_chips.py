# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The reference in the place of a TtLlama, under the real generator: what a run on boards does, but for the chips."""

from types import SimpleNamespace

import torch

from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tt.mesh import MeshShape


def stand_in_for_ttnn(monkeypatch, ttnn) -> None:
    """The calls of ttnn that the generator makes itself, on tensors of torch."""
    monkeypatch.setenv("TT_METAL_SLOW_DISPATCH_MODE", "1")
    monkeypatch.setattr(ttnn, "get_device_tensors", lambda tensor: [tensor])
    monkeypatch.setattr(ttnn, "to_torch", lambda tensor: tensor)
    monkeypatch.setattr(ttnn, "plus_one", lambda where, **_: where.add_((where >= 0).to(where.dtype)))
    monkeypatch.setattr(ttnn, "copy_host_to_device_tensor", lambda host, device: device.copy_(host))


class ReferenceChips:
    """prefilled: (user, start, tokens) of every chunk. Tokens are for the host to choose."""

    mesh, mesh_shape, site = None, MeshShape(1, 1), None

    def __init__(self, model: ReferenceLlama, users: int, capacity: int, block: int, policy=None) -> None:
        self.config, self.users, self.capacity = model.config, users, capacity
        self.cache = SimpleNamespace(block=block)
        self.layout, self.attention = None, SimpleNamespace(check_trees=lambda: None)
        self.prefilled: list[tuple[int, int, int]] = []
        self._model, self._cache, self._policy = model, model.new_cache(users, capacity), policy

    def reset(self) -> None:
        if self._policy is not None:
            self._policy.statistics.reset()

    def check(self) -> None:
        """Nothing fails."""

    def guard_tokens(self, tokens) -> None:
        """Nothing fails."""

    def statistics(self):
        """What a TtLlama counts since its last `reset`, None without speculation."""
        from models.llama31_8b.results import ChipCounters, LayerCounters

        if self._policy is None:
            return None
        layers = tuple(LayerCounters(*counts) for counts in self._policy.statistics.counts_per_layer())
        return ChipCounters(layers, ties=1, sent=(3, 4), failures=())

    def prefill(self, tokens, user, start=0, last=True, gather_logits=True):
        self.prefilled.append((user, start, len(tokens)))
        view = self._cache.user(user)
        view.truncate(start)  # raises where a chunk begins behind what was cached
        logits = self._model.forward(torch.tensor([list(tokens)]), view)
        tile = torch.zeros(1, 1, 32, self.config.vocab_size)
        tile[0, 0, (len(tokens) - 1) % 32] = logits[0, 0]
        return tile if last else None

    def decode(self, inputs, gather_logits=True):
        users = [user for user, position in enumerate(inputs.positions.tolist()) if position >= 0]
        view = self._cache.view(users)
        view.truncate(inputs.positions[users])
        logits = torch.zeros(1, 1, self.users, self.config.vocab_size)
        logits[0, 0, users] = self._model.forward(inputs.tokens[0, users][:, None], view, policy=self._policy)[:, 0]
        return logits

    def step_inputs(self, tokens, positions, on_device=True):
        from models.llama31_8b.tt.model import StepInputs

        where = torch.tensor(list(positions))
        return StepInputs(torch.tensor([list(tokens)]), where, where.clone())
