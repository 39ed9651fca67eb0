# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Attention-level speculation inside the model, on a mesh of two rows in a worker; and what the reference's ranks know
for guesses by a budget, faults included."""

import torch

from models.llama31_8b.reference.alspec.budget import BudgetGuess, tiles_by_budget
from models.llama31_8b.reference.model.step import GuessRange
from tests.support.tt_programs import half_split, of_chips
from tt_kernels.speculative_flash_decode.guess_range import MASS_UNIT

# By rank and user, what the masses of each layer become: a word for each tile of the cache; or, of an int, what they
# were after that step.
Fault = dict[tuple[int, int], "list[int] | int"]

# Cycles of the 1 GHz clock that a row waits for the other: the host launches chip after chip.
TIMEOUT_S = 0.02


def build_pair(
    mesh,
    config,
    state,
    *,
    users=1,
    capacity=128,
    chunk_size=32,
    threshold=0.1,
    decode_sharding="interleaved",
    budget=None,
    timeout_s=TIMEOUT_S,
    program=None,
):
    """(TtLlama that speculates, its PairAlspec). Its guess reads the ends, or by a budget."""
    from models.llama31_8b.tt.alspec import PairAlspec
    from models.llama31_8b.tt.mesh import MeshShape, Site
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings

    guess = {"predictor": "ends"} if budget is None else {"predictor": "budget", "budget": budget}
    chosen = AttentionSettings("alspec", chunk_size, threshold, timeout_s=timeout_s, program=program, **guess)
    pair = PairAlspec(Site(mesh, MeshShape(*mesh.shape), config), chosen, users, capacity)
    settings = ModelSettings(users, capacity, "bfloat16", pair, decode_sharding)
    return TtLlama.from_state_dict(config, state, mesh, settings), pair


def load_cache(model, keys, values) -> None:
    """Fill user 0's cache on every chip, or several users', with what prompts leave there, the heads split over the
    columns of the mesh.

    keys, values: by layer float32 [kv heads, tokens, head_dim], or [users, ...]; keys in Hugging Face's order.
    """
    import ttnn

    for layer in range(model.config.num_hidden_layers):
        pairs = torch.stack(keys[layer].chunk(2, -1), -1).flatten(-2)  # RoPE pairs side by side
        for tensor, content in ((model.cache.keys[layer], pairs), (model.cache.values[layer], values[layer])):
            users, _, capacity, head_dim = tensor.shape
            whole = torch.zeros(users, content.shape[-3], capacity, head_dim)
            whole[: 1 if content.ndim == 3 else users, :, : content.shape[-2]] = content
            host = ttnn.from_torch(
                whole, dtype=tensor.dtype, layout=ttnn.TILE_LAYOUT, mesh_mapper=model.mesh_shape.mapper(model.mesh, 1)
            )
            ttnn.copy_host_to_device_tensor(host, tensor)


def caches_of(model) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """By layer and chip keys, in Hugging Face's order, and values, float32 [users, the chip's kv heads, capacity,
    head_dim]."""
    return [
        [(half_split(k.float()), v.float()) for k, v in zip(of_chips(keys), of_chips(values), strict=True)]
        for keys, values in zip(model.cache.keys, model.cache.values, strict=True)
    ]


def words_of(tensors) -> list[list[torch.Tensor]]:
    """By layer and chip the words of chosen tiles or masses, int64 [users, the chip's kv heads, words]."""
    return [[chip.long() & 0xFFFFFFFF for chip in of_chips(layer)] for layer in tensors]


def put_masses(pair, fault: Fault, after: list) -> None:
    """Make the masses of two chips what they become by `fault`. after: by step, what `words_of` gave of them."""
    import ttnn

    for layer, (tensor, chips) in enumerate(zip(pair.by_budget.masses, words_of(pair.by_budget.masses), strict=True)):
        for (rank, user), words in fault.items():
            chips[rank][user] = after[words][layer][rank][user] if isinstance(words, int) else torch.tensor(words)
        bits = torch.cat(chips).to(torch.int32)
        mapper = ttnn.ShardTensorToMesh(pair.mesh, dim=0)
        host = ttnn.from_torch(bits, dtype=tensor.dtype, layout=tensor.layout, mesh_mapper=mapper)
        ttnn.copy_host_to_device_tensor(host, tensor)


def attention_alone() -> type:
    """An AttentionPolicy, which needs ttnn."""
    from models.llama31_8b.tt.attention_policies import AttentionPolicy
    from tt_kernels.speculative_flash_decode.op import speculative_flash_decode

    class Alone(AttentionPolicy):
        """Either result of the op without a peer: every chip takes it. chosen: by layer, of a guess that follows the
        attention."""

        def __init__(self, chunk_size: int, guess: bool, guess_range=None, chosen=None, program=None) -> None:
            self.guess, self.chosen = guess, chosen
            self.options = {"chunk_size": chunk_size, "threshold": 0.0, "guess_range": guess_range}
            self.options["program_config"] = program

        def attend(self, layer, q, cache, inputs):
            given = cache.keys, cache.values, inputs.positions
            chosen = None if self.chosen is None else self.chosen[layer]
            decoded = speculative_flash_decode(q, *given, chosen=chosen, **self.options)
            return decoded.guess if self.guess else decoded.exact

    return Alone


def guarded(model, state, status: int) -> list:
    """Tokens behind the guard, while all is well and when the second chip has given up with this status of `state`: all
    chips' tokens, and what the generator makes of them."""
    from models.llama31_8b.tt.generator import agreed_tokens
    from tt_kernels.common.peer import PeerError

    told = []
    for found in (0, status):
        end_second_chip_in(model, state, found)
        tokens = model.put_integers(torch.tensor([[7]]), "uint32")
        model.guard_tokens(tokens)
        seen = [int(chip) & 0xFFFFFFFF for chip in of_chips(tokens)]
        try:
            outcome = agreed_tokens(model, tokens).tolist()
        except PeerError as error:
            outcome = str(error)
        told.append((seen, outcome))
    model.reset()
    return told


def end_second_chip_in(model, state, status: int) -> None:
    """Make the second chip have given up with this status of `state`, 0 for not at all."""
    import ttnn

    states = torch.zeros(model.mesh_shape.chips, 1, 1, state.STATE_WORDS, dtype=torch.int32)
    states[1, ..., state.FIELDS["status"]] = status
    host = ttnn.from_torch(
        states, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, mesh_mapper=ttnn.ShardTensorToMesh(model.mesh, dim=0)
    )
    ttnn.copy_host_to_device_tensor(host, state.state)


def own_masses(by_budget: BudgetGuess, layers: int, users: int) -> list:
    """By layer, rank and user, the masses [kv_heads, tiles] that the rank knows, None without a pass."""

    def known(rank: int, layer: int, user: int) -> torch.Tensor | None:
        found = by_budget.known(rank, layer, user)
        return None if found is None else found.clone()

    return [[[known(rank, layer, user) for user in range(users)] for rank in (0, 1)] for layer in range(layers)]


def poison(tiles: int) -> Fault:
    """The worst that words can hold: every bit set, one tile that outweighs all, nothing, and the sign bit."""
    most = 2**32 - 1
    one = [most if tile == 1 else 0 for tile in range(tiles)]
    return {(0, 0): [most] * tiles, (0, 1): one, (1, 0): [0] * tiles, (1, 1): [2**31] * tiles}


def put_known(by_budget: BudgetGuess, fault: Fault, after: list) -> None:
    """Make what the ranks know of users that have had a guess what it becomes by `fault`. after: by step, what
    `own_masses` were."""
    for (layer, user), own in by_budget._own.items():
        for rank in (0, 1):
            words = fault.get((rank, user))
            if words is None:
                continue
            known = after[words][layer][rank][user] if isinstance(words, int) else torch.tensor([words]) * MASS_UNIT
            own[rank] = 0
            if known is not None:
                tiles = min(own.shape[-1], known.shape[-1])
                own[rank, :, :tiles] = known[:, :tiles]


def wrap_sums(by_budget: BudgetGuess, known: list) -> None:
    """Make averages after a step what words of 32 bits give: half of a sum that has wrapped. known: as of `own_masses`,
    before it."""
    for (layer, user), own in by_budget._own.items():
        for rank in (0, 1):
            before = known[layer][rank][user]
            if before is not None and not torch.equal(own[rank, :, : before.shape[-1]], before):
                own[rank] %= 2**31 * MASS_UNIT


def chosen_tiles(masses: torch.Tensor, guess_range: GuessRange, tokens: int) -> list[int]:
    """Return the tiles that are chosen for a head's guess with so many cached tokens. masses: [tiles]."""
    assert guess_range.budget is not None
    end = torch.tensor(guess_range.tail_start(tokens) // 32)
    chosen = tiles_by_budget(masses, guess_range.budget, guess_range.first // 32, end)
    return chosen.nonzero().flatten().tolist()


def bits_of(words: torch.Tensor) -> list[int]:
    """Return the tiles whose bits are set in a head's words."""
    return [32 * at + bit for at, word in enumerate(words.tolist()) for bit in range(32) if word >> bit & 1]
