# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The values of vllm-tt-plugin's contract for speculative decoding (its docs/SPEC_DECODE_CONTRACT.md at 00d6258), and
what this model answers at configuration time.

The plugin checks that it gets its own classes. It is not imported: if it runs and has the contract, its classes are
used, and otherwise those here, with the same fields.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch

from ..checkpoint.load import read_config, resolve_source
from ..spec_decode.draft_shape import DEFAULT_TREE_BUDGET
from ..tt.device.precision import bytes_of, precision_config
from ..tt.parallel.mesh import TILE

_PLUGIN = "vllm_tt_plugin.spec_decode"
# Of the tree step and of guesses: tt_kernels/tree_attention and speculative_flash_decode.
MAX_USERS = 8
MAX_WIDTH = 32  # tokens of a verification, within the block that a cache has beyond the context
MODEL_OWNED = "custom_class"
SELF = "self"


@dataclass(frozen=True)
class VerifyOutput:
    """A verification. logits: float32 [users, 1 + K, vocab] with spec_mode "logits"; argmax_ids: int32 [users, 1 + K]
    with "argmax_ids", -1 where a column holds no draft."""

    spec_mode: str
    argmax_ids: Any = None
    logits: Any = None
    accepted_token_ids: torch.Tensor | None = None
    accepted_counts: torch.Tensor | None = None
    hidden: Any = None


@dataclass(frozen=True)
class DraftOutput:
    """Drafts, int32 [users, K], and how many of each row are offered, int32 [users]."""

    draft_token_ids: torch.Tensor
    num_valid: torch.Tensor | None = None
    draft_scores: torch.Tensor | None = None


@dataclass(frozen=True)
class SpecPlan:
    """What is served for a number of sequences and drafts; for the fields see the contract, section 3."""

    effective_k: int
    lanes_per_request: int
    extra_bytes_per_seq: int
    extra_bytes_per_token: int
    accept_modes: tuple[str, ...]
    drafter_state: str
    drafter_target_cache_requires: tuple[str, ...] = ()
    supports_narrow_decode: bool = False


@dataclass(frozen=True)
class SpecReject:
    """Why drafts are not served, and the draft lengths that would be."""

    reason: str
    supported_k: tuple[int, ...] = ()


def in_contract(ours: type) -> Any:
    """Return the plugin's class of that name if it is loaded, else ours."""
    return getattr(sys.modules.get(_PLUGIN), ours.__name__, ours)


def plan_speculation(overrides: dict[str, Any], method: str, users: int, requested: int) -> Any:
    """Return a SpecPlan or a SpecReject. overrides: `alspec` of the Hugging Face config. method: vLLM's. users:
    sequences together. requested: drafts per sequence."""
    draft, owned = overrides.get("draft"), method == MODEL_OWNED
    reject = in_contract(SpecReject)
    if owned and draft is None:
        return reject('nothing drafts: set {"alspec": {"draft": CHECKPOINT}}, or "self"')
    if users > MAX_USERS:
        return reject(f"a step over drafts has 1 to {MAX_USERS} sequences")
    longest = longest_draft(users, draft if owned else None, overrides.get("decode_sharding") == "sharded")
    if longest < 1:
        return reject(f"a pass over drafts has {DEFAULT_TREE_BUDGET} rows, too few for {users} sequences")
    if requested < 1:
        return reject(f"{requested} drafts per sequence", tuple(range(1, longest + 1)))
    itself, cached = owned and draft == SELF, 0
    if owned and not itself:
        try:
            cached = bytes_per_token(str(draft), overrides.get("precision", "performance"))
        except (OSError, ValueError) as error:
            return reject(f"draft {draft}: {error}")
    return in_contract(SpecPlan)(
        effective_k=min(requested, longest),
        lanes_per_request=1,
        extra_bytes_per_seq=0,
        extra_bytes_per_token=cached,
        accept_modes=("argmax_ids", "logits"),
        drafter_state="shared_with_target" if itself else "internal",
        drafter_target_cache_requires=("named_layer_caches", "absolute_positions") if itself else (),
        supports_narrow_decode=not owned,  # a drafter here learns what is decided from verifications alone
    )


def bytes_per_token(source: str, precision: str) -> int:
    """Return what a model's cache takes for a token, over all chips, rounded up. source: see `resolve_source`. Raises
    what that raises, and PrecisionError."""
    config = read_config(resolve_source(source)[0])
    block = config.num_key_value_heads * TILE * config.head_dim
    held = bytes_of(block, precision_config(precision, config.num_hidden_layers).kv_cache)
    return -(-2 * config.num_hidden_layers * held // TILE)


def longest_draft(users: int, draft: str | None, sharded: bool) -> int:
    """Return the most drafts per sequence. draft: the model that drafts, None for the host. sharded: decode steps,
    whose passes over drafts have 32 rows, as a draft model's have."""
    longest = DEFAULT_TREE_BUDGET // users - 1 if sharded else MAX_WIDTH - 1
    if draft in (None, SELF):
        return longest
    return min(longest, DEFAULT_TREE_BUDGET // users - 2)  # its exact pass also takes the last step's input
