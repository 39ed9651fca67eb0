# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the model answers when a server that speculates is configured, by the contract at 00d6258."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from models.llama31_8b.serving import tiny_checkpoint
from models.llama31_8b.serving.generator_vllm import LlamaForCausalLM
from models.llama31_8b.serving.spec_contract import SpecPlan, SpecReject, VerifyOutput, in_contract

OWNED, MARKER = "custom_class", "vllm_tt_plugin.model_owned_drafter"


def plan(method: str, users: int, requested: int, **overrides: Any) -> Any:
    """Ask as the plugin does: positionally, with a config that holds vLLM's settings alone."""
    config = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=SimpleNamespace(alspec=overrides)),
        speculative_config=SimpleNamespace(method=method, model=MARKER, num_speculative_tokens=requested),
    )
    return LlamaForCausalLM.spec_plan(config, users, requested)


def test_declarations_are_those_that_the_contract_knows():
    declared = LlamaForCausalLM.model_capabilities
    assert declared["supports_spec_decode"] is True and declared["output_tokens_per_step"] == 1
    assert set(declared["spec_requirements"]) == {"device_propose"}
    assert declared["supports_async_decode"] and declared["supports_async_spec_decode"]
    assert not hasattr(LlamaForCausalLM, "decode_input_update_contract")


def test_plans(tmp_path):
    tiny_checkpoint.write(tmp_path)
    folder = str(tmp_path)
    for method, users, requested, overrides, served in (
        ("ngram", 8, 5, {}, 5),
        ("ngram", 8, 100, {}, 31),
        ("ngram", 4, 100, {"decode_sharding": "sharded"}, 7),
        ("ngram", 8, 100, {"attention": "alspec"}, 31),
        (OWNED, 4, 9, {"draft": folder}, 6),
        (OWNED, 1, 9, {"draft": folder}, 9),
        (OWNED, 8, 9, {"draft": folder}, 2),
        (OWNED, 8, 9, {"draft": "self"}, 9),
    ):
        found = plan(method, users, requested, **overrides)
        assert isinstance(found, SpecPlan) and found.effective_k == served
        assert found.accept_modes == ("argmax_ids", "logits")
        assert found.supports_narrow_decode == (method == "ngram")
        itself = overrides.get("draft") == "self"
        assert found.drafter_state == ("shared_with_target" if itself else "internal")
        assert bool(found.drafter_target_cache_requires) == itself
        # Keys and values of two layers, one head of 64 numbers, bfloat8_b: 1088 bytes hold 1024 numbers.
        assert found.extra_bytes_per_token == (2 * 2 * 68 if overrides.get("draft") == folder else 0)


@pytest.mark.parametrize(
    "method, users, requested, overrides, reason, supported",
    [
        ("ngram", 9, 3, {}, "1 to 8 sequences", ()),
        ("ngram", 2, 0, {}, "0 drafts", tuple(range(1, 32))),
        (OWNED, 2, 3, {}, "nothing drafts", ()),
        (OWNED, 2, 3, {"draft": "/nowhere"}, "draft /nowhere: no model /nowhere", ()),
    ],
)
def test_refusals_say_what_would_be_served(method, users, requested, overrides, reason, supported):
    found = plan(method, users, requested, **overrides)
    assert isinstance(found, SpecReject) and reason in found.reason and found.supported_k == supported


def test_the_plugins_classes_are_used_where_it_runs(monkeypatch):
    @dataclass(frozen=True)
    class Theirs:
        spec_mode: str
        argmax_ids: torch.Tensor

    assert in_contract(VerifyOutput) is VerifyOutput
    module = ModuleType("vllm_tt_plugin.spec_decode")
    module.VerifyOutput = Theirs
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert in_contract(VerifyOutput) is Theirs and in_contract(SpecPlan) is SpecPlan
