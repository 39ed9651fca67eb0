# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The class that vllm-tt-plugin calls (tested with its commit e3fc849 and vLLM 0.25.1). docs/serving.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from loguru import logger

from tt_kernels.common.page_table import BLOCKS

from .engine import Engine
from .settings import model_settings

# Positions of all users that vllm-tt-plugin plans a cache for; blocks beyond what a sequence may have are never read.
_BLOCK_MARGIN = max(BLOCKS)


class VerifyOutput(NamedTuple):
    """A verification by the plugin's speculation contract. logits: float32 [users, 1 + K, vocab] with spec_mode
    "logits"; argmax_ids: int32 [users, 1 + K] with "argmax_ids"."""

    spec_mode: str
    argmax_ids: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    accepted_token_ids: torch.Tensor | None = None
    accepted_counts: torch.Tensor | None = None
    hidden: torch.Tensor | None = None


class LlamaForCausalLM:
    """Llama for vllm-tt-plugin. The engine appears with the cache, whose size the plugin decides later than the
    model's."""

    model_capabilities = {
        "supports_prefix_caching": True,
        "supports_chunked_prefill": True,
        "supports_sample_on_device": False,
        "supports_async_decode": False,
        "output_tokens_per_step": 1,
    }

    def __init__(self, make_engine: Callable[[int, int], Engine], users: int, max_seq_len: int) -> None:
        """make_engine(blocks, block_size): build the model with its cache."""
        self._make_engine, self.users, self.max_seq_len = make_engine, users, max_seq_len
        self.engine: Engine | None = None
        self.block_size = 0

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
    def get_max_tokens_all_users(
        cls,
        model_name: str = "",
        num_devices: int = 1,
        tt_data_parallel: int = 1,
        max_model_len: int = 0,
        max_num_seqs: int = 1,
        **_: Any,
    ) -> int:
        """Return the positions that the caches of all sequences together hold."""
        return max_model_len * max_num_seqs + _BLOCK_MARGIN

    def allocate_kv_cache(self, shape: Sequence[int], dtype: torch.dtype, num_layers: int) -> list:
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

    def warmup_model_prefill(self, kv_cache: list, enable_trace: bool, can_sample_on_device: bool = False) -> None:
        """Compile what prefills need; they are not traced."""
        if not enable_trace:
            self._ready().warm_up_prefill()

    def warmup_model_decode(
        self,
        kv_cache: list,
        enable_trace: bool,
        max_batch_size: int,
        num_blocks: int,
        can_sample_on_device: bool = False,
    ) -> None:
        """Compile a decode step, and record it with enable_trace."""
        self._ready().warm_up_decode(enable_trace)

    def prefill_forward(
        self,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: list,
        prompt_lens: Sequence[int],
        start_pos: Sequence[int] | None = None,
        enable_trace: bool = False,
        empty_slots: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Cache a part of each row's prompt and return its last token's logits, float32 [rows, 1, vocab].

        tokens: int [rows, positions], from position 0 on. prompt_lens: where each row's part ends; start_pos: where it
        begins, by default 0. A part that begins inside a block is computed from that block's start on, which gives the
        cached positions their values again; blocks that sequences share end where parts begin. empty_slots: unused, as
        nothing but pages belongs to a slot."""
        engine, found = self._ready(), []
        for row, end in enumerate(int(length) for length in prompt_lens):
            begin = 0 if start_pos is None else int(start_pos[row])
            begin -= begin % self.block_size
            ids = tokens[row, begin:end].tolist()
            if not ids:
                raise ValueError(f"row {row} has no tokens between positions {begin} and {end}")
            found.append(engine.prefill(ids, begin, page_table[row]))
        return torch.stack(found)[:, None]

    def decode_forward(
        self,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: list,
        start_pos: torch.Tensor,
        enable_trace: bool = True,
        read_from_device: bool = True,
        slot_remap: torch.Tensor | None = None,
        num_valid_drafts: torch.Tensor | None = None,
        accepted_counts: torch.Tensor | None = None,
        spec_mode: str | None = None,
    ) -> Any:
        """Decode one token per slot, or verify K drafts with `spec_mode`.

        tokens: int [slots, 1], or [slots, 1 + K] with a slot's last token first. start_pos: int [slots], -1 for an
        empty slot, or [slots, 1 + K], -1 in columns without a draft. Returns float32 [slots, 1, vocab] if
        read_from_device, else what `read_decode_output` takes; with spec_mode a VerifyOutput. slot_remap: unused, see
        `prefill_forward`. num_valid_drafts, accepted_counts: unused, since the columns' positions say the first, and
        the second changes no cache: rejected drafts lie after the accepted ones, where the next tokens overwrite
        them."""
        engine = self._ready()
        if spec_mode is not None:
            return self._verify(engine, tokens, page_table, start_pos, spec_mode)
        step = engine.decode(tokens[:, 0], start_pos.reshape(-1), page_table)
        return engine.read(step) if read_from_device else step

    def read_decode_output(self, tt_out: Any, async_read: bool = False) -> Any:
        """Return a step's logits on the host, float32 [slots, 1, vocab], and with async_read no events to wait for."""
        found = tt_out if isinstance(tt_out, torch.Tensor) else self._ready().read(tt_out)
        return (found, []) if async_read else found

    def process_decode_output_host(self, tt_out: Any, is_tokens: bool = False) -> torch.Tensor:
        """Return a step's logits, float32 [slots, 1, vocab]. Raises ValueError for tokens, which this model does not
        sample."""
        if is_tokens:
            raise ValueError("this model returns logits; it declares supports_sample_on_device False")
        return self.read_decode_output(tt_out)

    def _verify(
        self, engine: Engine, tokens: torch.Tensor, page_table: torch.Tensor, positions: torch.Tensor, spec_mode: str
    ) -> VerifyOutput:
        if spec_mode not in ("logits", "argmax_ids"):
            raise ValueError(f"spec_mode must be logits or argmax_ids, got {spec_mode!r}")
        valid = positions >= 0
        logits = engine.read(engine.verify(tokens.where(valid, 0), positions, page_table))
        if spec_mode == "logits":
            return VerifyOutput(spec_mode, logits=logits)
        return VerifyOutput(spec_mode, argmax_ids=logits.argmax(-1).to(torch.int32).where(valid, -1))

    def _ready(self) -> Engine:
        if self.engine is None:
            raise RuntimeError("the cache is not allocated: allocate_kv_cache comes first")
        return self.engine
