# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The class that vllm-tt-plugin calls (tested with its commit b95c050 and vLLM 0.25.1). docs/serving.md."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from loguru import logger

from tt_kernels.common.page_table import BLOCKS

from .draws import choose_on_host, penalised, requested_draws
from .settings import model_settings

if TYPE_CHECKING:
    from .mesh_engine import MeshEngine

# Chips that sample keep this many of the largest logits (tt/sampling/top_k.py).
CANDIDATES = 32
_DECODE_ONLY = (
    "this model samples decode steps on the device and prompts on the host: "
    'set {"tt": {"sample_on_device_mode": "decode_only"}}'
)
# Positions of all users that vllm-tt-plugin plans a cache for; blocks beyond what a sequence may have are never read.
_BLOCK_MARGIN = max(BLOCKS)


@dataclass(frozen=True)
class PendingStep:
    """A step that the device may still run. launched: what the engine returned. finish: waits for it and gives the
    result as the plugin wants it."""

    launched: Any
    finish: Callable[[Any], torch.Tensor]


class Kept(NamedTuple):
    """What the last step chose: each slot's token, int64 [slots], or the engine's step, which keeps them on the device;
    and the position that each was computed at, int64 [slots]."""

    tokens: Any
    positions: torch.Tensor

    def continued_by(self, positions: torch.Tensor) -> bool:
        """Return whether a step's positions are the next ones, or, of a plugin that has not read the last step yet, the
        same, with the same slots skipped."""
        ahead = self.positions + (self.positions >= 0) - positions
        return bool(((ahead == 0) | ((ahead == 1) & (positions >= 0))).all())


class LlamaForCausalLM:
    """Llama for vllm-tt-plugin. The engine appears with the cache, whose size the plugin decides later than the
    model's."""

    model_capabilities = {
        "supports_prefix_caching": True,
        "supports_chunked_prefill": True,
        "supports_sample_on_device": True,
        "max_device_top_k": CANDIDATES,
        "supports_device_penalties": False,
        "supports_async_decode": True,
        "output_tokens_per_step": 1,
    }

    def __init__(self, make_engine: Callable[[int, int], MeshEngine], users: int, max_seq_len: int) -> None:
        """make_engine(blocks, block_size): build the model with its cache."""
        self._make_engine, self.users, self.max_seq_len = make_engine, users, max_seq_len
        self.engine: MeshEngine | None = None
        self.block_size = 0
        self._kept: Kept | None = None
        self._unseeded = random.Random().random

    @classmethod
    def initialize_vllm_model(
        cls,
        hf_config: Any,
        mesh_device: Any,
        max_batch_size: int,
        max_seq_len: int,
        tt_data_parallel: int = 1,
        optimizations: str | None = None,
    ) -> LlamaForCausalLM:
        """Read the weights of `hf_config._name_or_path` for an open mesh. max_batch_size: slots, 1 to 32. max_seq_len:
        positions per sequence. Raises ValueError for a data-parallel server, and what `model_settings` and
        `HostWeights.load` raise."""
        if tt_data_parallel != 1:
            raise ValueError(f"one model spans the mesh: tt_data_parallel must be 1, got {tt_data_parallel}")
        settings = model_settings(getattr(hf_config, "alspec", None), optimizations, max_batch_size)
        from .mesh_engine import mesh_engine_maker  # imports ttnn

        make = mesh_engine_maker(hf_config._name_or_path, mesh_device, settings, max_seq_len)
        return cls(make, max_batch_size, max_seq_len)

    @classmethod
    def get_max_tokens_all_users(cls, *, max_model_len: int = 0, max_num_seqs: int = 1, **_: Any) -> int:
        """Return the positions that the caches of all sequences together hold."""
        return max_model_len * max_num_seqs + _BLOCK_MARGIN

    def allocate_kv_cache(self, shape: Sequence[int], dtype: torch.dtype, num_layers: int) -> list[Any]:
        """Build the model with a cache. shape: (blocks, KV heads of a chip, block size, head_dim). dtype: the plugin's
        idea of the format; the model's precision decides. Returns what the plugin hands to every call.

        Raises ValueError for a block size other than BLOCKS."""
        blocks, _, block_size, _ = shape
        if block_size not in BLOCKS:
            raise ValueError(f"the block size must be one of {BLOCKS} (--block-size), got {block_size}")
        self.block_size = block_size
        self.engine = self._make_engine(blocks, block_size)
        logger.info(
            "{} slots, a cache of {} blocks of {} tokens, {} layers", self.users, blocks, block_size, num_layers
        )
        return [[]]

    def warmup_model_prefill(self, kv_cache: list[Any], enable_trace: bool, can_sample_on_device: bool = False) -> None:
        """Run prefills: the first call compiles all, the second, with enable_trace, records that of a whole chunk.
        Raises ValueError for `can_sample_on_device`."""
        if can_sample_on_device:
            raise ValueError(_DECODE_ONLY)
        self._ready().warm_up_prefill(again=enable_trace)

    def warmup_model_decode(
        self,
        kv_cache: list[Any],
        enable_trace: bool,
        max_batch_size: int,
        num_blocks: int,
        can_sample_on_device: bool = False,
    ) -> None:
        """Run decode steps: the first call compiles them, the second, with enable_trace, records them."""
        self._ready().warm_up_decode(can_sample_on_device)

    def prefill_forward(
        self,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: list[Any],
        prompt_lens: Sequence[int],
        start_pos: Sequence[int] | None = None,
        enable_trace: bool = False,
        empty_slots: Sequence[int] | None = None,
        sampling_params: Any = None,
    ) -> torch.Tensor:
        """Cache a part of each row's prompt and return its last token's logits, float32 [rows, 1, vocab].

        tokens: int [rows, positions], from position 0 on. prompt_lens: where each row's part ends; start_pos: where it
        begins, by default 0. A part that begins inside a block is computed from that block's start on, which gives the
        cached positions their values again; blocks that sequences share end where parts begin. empty_slots: unused, as
        nothing but pages belongs to a slot."""
        if sampling_params is not None:
            raise ValueError(_DECODE_ONLY)
        engine, found = self._ready(), []
        for row, end in enumerate(int(length) for length in prompt_lens):
            begin = 0 if start_pos is None else int(start_pos[row])
            begin -= begin % self.block_size
            ids = tokens[row, begin:end].tolist()
            if not ids:
                raise ValueError(f"row {row} has no tokens between positions {begin} and {end}")
            found.append(engine.prefill(ids, begin, self._live(page_table[row : row + 1], [end])[0]))
        return torch.stack(found)[:, None]

    def decode_forward(
        self,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: list[Any],
        start_pos: torch.Tensor,
        enable_trace: bool = True,
        read_from_device: bool = True,
        sampling_params: Any = None,
        prompt_tokens: torch.Tensor | None = None,
        output_tokens: torch.Tensor | None = None,
        reset_batch: bool = True,
        slot_remap: torch.Tensor | None = None,
    ) -> Any:
        """Decode one token per slot.

        tokens: int [slots, 1]. start_pos: int [slots], -1 for an empty slot. Returns float32 logits [slots, 1, vocab]
        if read_from_device, else what `read_decode_output` takes.

        sampling_params: choose tokens, int32 [slots, 1], in place of logits; lists per slot, see `requested_draws`.
        Batches that the chips cannot sample, with penalties (which come with prompt_tokens and output_tokens, int
        [slots, any], -1 at ends) or with log-probabilities are sampled on the host by the same numbers, and the result
        is on the host; with enable_log_probs it is a pair with those of the tokens, float32 [slots, 1].
        reset_batch: False says that the slots are the last step's, whose tokens and next positions this step takes:
        `tokens` and `start_pos` may then be older. slot_remap: unused, see `prefill_forward`."""
        engine, positions = self._ready(), start_pos.reshape(-1)
        if sampling_params is not None:
            kept = self._kept
            if reset_batch or kept is None or not kept.continued_by(positions):
                kept = None
            history = None if prompt_tokens is None or output_tokens is None else (prompt_tokens, output_tokens)
            found = self._sample(engine, kept, tokens[:, 0], positions, page_table, sampling_params, history)
            return self._given(found, read_from_device)
        self._kept = None
        launched = engine.decode(tokens[:, 0], positions, self._live(page_table, positions + 1))
        return self._given(PendingStep(launched, engine.read), read_from_device)

    def read_decode_output(self, tt_out: Any, async_read: bool = False) -> Any:
        """Return a step's result on the host, see `decode_forward`; with async_read what `process_decode_output_host`
        takes once events have passed, and those ttnn events."""
        if not async_read:
            return self._given(tt_out, read=True)
        if not isinstance(tt_out, PendingStep):
            return tt_out, []
        copied, events = self._ready().start_read(tt_out.launched)
        return PendingStep(copied, tt_out.finish), events

    def process_decode_output_host(self, tt_out: Any, is_tokens: bool = False) -> Any:
        """Return a step's result on the host, see `decode_forward`."""
        return self._given(tt_out, read=True)

    @staticmethod
    def _given(found: Any, read: bool) -> Any:
        return found.finish(found.launched) if read and isinstance(found, PendingStep) else found

    def _sample(
        self,
        engine: MeshEngine,
        kept: Kept | None,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        pages: torch.Tensor,
        params: Any,
        history: tuple[torch.Tensor, torch.Tensor] | None,
    ) -> Any:
        """Run a step that chooses tokens. tokens, positions: int [slots], superseded by those of `kept`."""
        inputs: torch.Tensor | None = tokens
        if kept is not None:
            positions = kept.positions + (kept.positions >= 0)
            inputs = kept.tokens if isinstance(kept.tokens, torch.Tensor) else None
        positions = positions.long()
        pages = self._live(pages, positions + 1)
        draws = requested_draws(params, positions, engine.vocab_size, self._unseeded)
        log_probs = bool(any(params.enable_log_probs or ()))
        if history is None and not log_probs and all(map(engine.samples, draws)):
            launched = engine.sample(inputs, positions, pages, draws)
            self._kept = Kept(launched, positions)
            return PendingStep(launched, lambda step: engine.read_tokens(step).to(torch.int32))
        if inputs is None and kept is not None:
            inputs = engine.read_tokens(kept.tokens)[:, 0]
        logits = engine.read(engine.decode(inputs, positions, pages))[:, 0]
        warped = logits if history is None else penalised(logits, params, *history)
        chosen = choose_on_host(warped, draws, positions)
        self._kept = Kept(chosen, positions)
        tokens = chosen[:, None]
        if not log_probs:
            return tokens.to(torch.int32)
        return tokens.to(torch.int32), logits.log_softmax(-1).gather(1, tokens)

    def _live(self, pages: torch.Tensor, ends: torch.Tensor | Sequence[int]) -> torch.Tensor:
        """Return a page table, int [rows, blocks], with block 0 from each row's end on: the plugin leaves there what an
        earlier sequence had, and the model writes padding there. ends: int [rows], positions in use."""
        first = torch.arange(pages.shape[1]) * self.block_size
        return pages.where(first < torch.as_tensor(ends)[:, None], 0)

    def _ready(self) -> MeshEngine:
        if self.engine is None:
            raise RuntimeError("the cache is not allocated: allocate_kv_cache comes first")
        return self.engine
