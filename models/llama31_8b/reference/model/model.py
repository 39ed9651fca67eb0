# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A Llama-architecture model in plain torch: the reference of the tests and the backend of a machine without
boards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from ...checkpoint.tensor_shapes import check_shapes, random_state_dict
from ...config import ContextLengthError, LlamaConfig, inverse_frequencies
from ...spec_decode.draft_settings import groups_of
from ...spec_decode.tree import TokenTree, TokenTreeBatch
from ..alspec.policies import AttentionPolicy
from .attention import decode_attention, dense_attention
from .kv_cache import KVCache
from .step import DecodeStep, GuessRange

SHORT_ROW = 1024  # inputs below which the transposed copy pays
FEW_ROWS = 128  # token rows up to which W x^T is the faster form


class Projection(nn.Module):
    """x [..., inputs] -> x W^T [..., outputs], for x of one or two dimensions.

    Decoding is bound by how fast weights stream from memory. On AVX2 machines torch's BLAS reaches 13 GB/s for W x when
    W has short rows (576 inputs) and 24 GB/s for the same product from W transposed; for 2 to 128 rows W x^T takes a
    third to nine tenths of the time of x W^T. So wide matrices with short rows also keep a transposed copy, read when x
    is a single vector.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        """Keep `weight`, [outputs, inputs]."""
        super().__init__()
        outputs, inputs = weight.shape
        self.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
        single = weight.t().contiguous().t() if inputs < SHORT_ROW and inputs < outputs else self.weight
        self.register_buffer("single", single, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.ndim == 1:
            return F.linear(x, self.single)
        if len(x) <= FEW_ROWS:
            return torch.mm(self.weight, x.t()).t().contiguous()
        return F.linear(x, self.weight)


def rotary_rows(
    frequencies: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (cos, sin) of positions [...], each [..., 1, head_dim], the first half of sin negated.

    Computed on the CPU for every device: a GPU's cosines round differently, and decisions would too.
    """
    angles = positions.cpu().float()[..., None, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    halves = (cos, cos), (-sin, sin)
    cos, sin = (torch.cat(pair, dim=-1).to(positions.device, dtype) for pair in halves)
    return cos, sin


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate x [..., heads, head_dim] by `rotary_rows`."""
    swapped = x.roll(x.shape[-1] // 2, dims=-1)
    return torch.addcmul(x * cos, swapped, sin)


class LlamaLayer(nn.Module):
    """Weights of one decoder layer, with q/k/v and gate/up fused: one product reads each group."""

    def __init__(self, weights: Mapping[str, torch.Tensor], prefix: str) -> None:
        super().__init__()
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        self.qkv = Projection(torch.cat([weights[f"{attention}.{name}_proj.weight"] for name in "qkv"]))
        self.o = Projection(weights[f"{attention}.o_proj.weight"])
        self.gate_up = Projection(torch.cat([weights[f"{mlp}.{name}_proj.weight"] for name in ("gate", "up")]))
        self.down = Projection(weights[f"{mlp}.down_proj.weight"])
        self.attention_norm = _frozen(weights[f"{prefix}.input_layernorm.weight"])
        self.mlp_norm = _frozen(weights[f"{prefix}.post_attention_layernorm.weight"])


class ReferenceLlama(nn.Module):
    """Llama in torch: grouped-query attention, RoPE with llama3/linear/no scaling, tied or untied head.

    Batches may hold users with different numbers of cached tokens. Single-token decoding of one user runs as
    matrix-vector products. All methods run under torch.inference_mode.
    """

    def __init__(self, config: LlamaConfig, weights: Mapping[str, torch.Tensor]) -> None:
        """Fuse the weights, which have checked Hugging Face names and shapes and one dtype; use from_state_dict."""
        super().__init__()
        self.config = config
        tied = config.tie_word_embeddings
        self.head = Projection(weights["model.embed_tokens.weight" if tied else "lm_head.weight"])
        self.embedding = self.head.weight if tied else _frozen(weights["model.embed_tokens.weight"])
        self.layers = nn.ModuleList(
            LlamaLayer(weights, f"model.layers.{index}") for index in range(config.num_hidden_layers)
        )
        self.norm = _frozen(weights["model.norm.weight"])
        self.dtype = self.embedding.dtype
        with torch.device("cpu"):
            self._frequencies = inverse_frequencies(config)
        self._layers = list(self.layers)  # nn.ModuleList indexing is slow enough to show in decoding
        self._scale = 1.0 / math.sqrt(config.head_dim)

    @classmethod
    def from_state_dict(
        cls, config: LlamaConfig, state_dict: Mapping[str, torch.Tensor], dtype: torch.dtype = torch.float32
    ) -> ReferenceLlama:
        """Make a model of tensors with Hugging Face names and half-split q/k layout, e.g.
        model.layers.0.self_attn.q_proj.weight.

        Raises ModelLoadError naming the missing, misshapen or unexpected tensor.
        """
        check_shapes(config, {name: tuple(tensor.shape) for name, tensor in state_dict.items()}, config.name)
        return cls(config, {name: tensor.to(dtype) for name, tensor in state_dict.items()})

    @classmethod
    def random(cls, config: LlamaConfig, seed: int = 0, dtype: torch.dtype = torch.float32) -> ReferenceLlama:
        """Make a model of random weights, scaled so that activations keep their magnitude through the layers."""
        return cls.from_state_dict(config, random_state_dict(config, seed), dtype)

    def new_cache(self, batch: int = 1, capacity: int | None = None) -> KVCache:
        """Return an empty cache; capacity defaults to the model's context length."""
        capacity = self.config.max_position_embeddings if capacity is None else capacity
        return KVCache(self.config, batch, capacity, self.dtype)

    @torch.inference_mode()
    def prefill(
        self,
        tokens: Sequence[Sequence[int]] | torch.Tensor,
        cache: KVCache,
        chunk_size: int = 512,
        progress: Callable[[int, int], None] | None = None,
    ) -> torch.Tensor:
        """Write prompts after what the cache holds, by exact attention, one user after the other in chunks.

        tokens: one id sequence per user (lengths may differ), or [batch, T]. progress(done, total) counts tokens of
        all users. Returns logits of each user's last token, float32 [batch, vocab].
        Raises ValueError for an empty prompt, a wrong number of prompts or an unknown id, and ContextLengthError for a
        prompt over the limit; nothing is written then.
        """
        if len(tokens) != cache.batch:
            raise ValueError(f"{len(tokens)} prompts for a cache of {cache.batch} users")
        prompts = [torch.as_tensor(prompt, dtype=torch.int64) for prompt in tokens]
        for user, (prompt, length) in enumerate(zip(prompts, cache.lengths.tolist())):
            if prompt.ndim != 1 or not len(prompt):
                raise ValueError(
                    f"the prompt of user {user} is empty or no flat list of ids: shape {list(prompt.shape)}"
                )
            self._check_ids(prompt)
            if length + len(prompt) > cache.capacity:  # at most the model's context
                cached = f" after {length} cached ones" if length else ""
                raise ContextLengthError(
                    f"the prompt of user {user} has {len(prompt)} tokens{cached}; the limit is {cache.capacity}"
                )
        done, total, last = 0, sum(map(len, prompts)), []
        for user, prompt in enumerate(prompts):
            single = cache.user(user)
            for start in range(0, len(prompt), chunk_size):
                chunk = prompt[None, start : start + chunk_size]
                final = start + chunk_size >= len(prompt)
                logits = self.forward(chunk, single, logits="last" if final else "none")
                done += chunk.shape[1]
                if progress is not None:
                    progress(done, total)
            last.append(logits[:, 0])
        return torch.cat(last)

    @torch.inference_mode()
    def forward(
        self,
        tokens: torch.Tensor,
        cache: KVCache,
        *,
        policy: AttentionPolicy | None = None,
        tree: TokenTree | TokenTreeBatch | None = None,
        layer_groups: Sequence[Sequence[int]] | None = None,
        commit: bool = True,
        logits: str = "last",
        hidden: bool = False,
    ) -> torch.Tensor | tuple[torch.Tensor | None, torch.Tensor] | None:
        """Run one step of T tokens per user, written at cache slots [length, length + T) of each user.

        tokens: int64 [batch, T]. Positions are length + t, or length + depth in a tree.
        policy: the attention policy of a decode step; None, as in prefill, is exact attention in one softmax.
        tree: intervals by which new tokens see each other; all see the committed tokens. With more nodes than tokens,
        the tokens are its last nodes, written after the entries of the earlier ones, which are uncommitted.
        layer_groups: consecutive layers whose attentions all read the hidden state that enters the group, MLPs staying
        sequential (EasySpec, algorithm 2); must cover all layers once, in order.
        commit: False leaves cache.lengths, for KVCache.keep or commit to advance.
        logits: "last" -> float32 [batch, 1, vocab], "all" -> [batch, T, vocab], "none" -> None.
        hidden: return (logits, hidden states after the final norm, [batch, T, hidden_size]).
        Raises ValueError for shapes, ids, groups or options out of range, and ContextLengthError for too many tokens;
        nothing is written then.
        """
        if tokens.ndim != 2 or tokens.shape[0] != cache.batch or not tokens.shape[1]:
            raise ValueError(f"tokens have shape {list(tokens.shape)}; expected [{cache.batch}, T] with T >= 1")
        if logits not in ("last", "all", "none"):
            raise ValueError(f"logits must be 'last', 'all' or 'none', got {logits!r}")
        layers = self.config.num_hidden_layers
        groups = groups_of(layers, 1 if layer_groups is None else layer_groups)
        self._check_ids(tokens)
        batch, count = tokens.shape
        earlier = 0 if tree is None else max(0, tree.enter.shape[-1] - count)
        guess_range = GuessRange(1, 1, 1) if policy is None else policy.guess_range
        step = DecodeStep(cache.lengths.tolist(), cache.rows, count, tree, guess_range)
        cache.reserve(count, earlier)
        rotary = rotary_rows(self._frequencies, step.positions, self.dtype)
        if policy is not None:
            policy.begin_step(step, layers)

        x = F.embedding(tokens.reshape(-1), self.embedding)
        if len(x) == 1:
            x = x[0]  # a vector: every product below is then matrix times vector
        for group in groups:
            entry = x
            for index in group:
                layer = self._layers[index]
                x = x + layer.o(self._attention(index, entry, cache, step, rotary, policy))
                gate, up = layer.gate_up(self._rms_norm(x, layer.mlp_norm)).chunk(2, dim=-1)
                x = x + layer.down(F.silu(gate).mul_(up))
        if commit:
            cache.commit(count)
        if logits == "none" and not hidden:
            return None
        states = self._rms_norm(x, self.norm).view(batch, count, -1)
        scores = None if logits == "none" else self._logits(states if logits == "all" else states[:, -1:])
        return (scores, states) if hidden else scores

    def _attention(
        self,
        index: int,
        x: torch.Tensor,
        cache: KVCache,
        step: DecodeStep,
        rotary: tuple[torch.Tensor, torch.Tensor],
        policy: AttentionPolicy | None,
    ) -> torch.Tensor:
        config, layer, batch, count = self.config, self._layers[index], len(step.users), step.tokens
        heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        qkv = layer.qkv(self._rms_norm(x, layer.attention_norm))
        qkv = qkv.view(batch, count, heads + 2 * kv_heads, head_dim)
        rotated = rotate(qkv[:, :, : heads + kv_heads], *rotary)
        keys, values = cache.keys[index], cache.values[index]
        for group in step.groups:
            users = slice(group.start, group.end)
            rows = slice(group.storage, group.storage + group.end - group.start)
            start = group.length + step.earlier
            slots = slice(start, start + count)
            keys[rows, :, slots] = rotated[users, :, heads:].transpose(1, 2)
            values[rows, :, slots] = qkv[users, :, heads + kv_heads :].transpose(1, 2)
        query = rotated[:, :, :heads]
        if policy is None:
            out = dense_attention(query, keys, values, step, self._scale)
        else:
            out = decode_attention(policy, index, query * self._scale, keys, values, step)
        return out.to(x.dtype).view(x.shape[:-1] + (-1,))

    def _rms_norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = (wide * wide).mean(-1, keepdim=True).add_(self.config.rms_norm_eps).rsqrt_()
        return (wide * scale).to(x.dtype) * weight

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        rows = states.flatten(0, 1)
        scores = self.head(rows[0] if len(rows) == 1 else rows).float()
        return scores.view(*states.shape[:2], -1)

    def _check_ids(self, tokens: torch.Tensor) -> None:
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= self.config.vocab_size:
            raise ValueError(
                f"token id {low if low < 0 else high} is outside the vocabulary of {self.config.vocab_size} ids"
            )


def _frozen(tensor: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.contiguous(), requires_grad=False)
