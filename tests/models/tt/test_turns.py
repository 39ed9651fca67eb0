# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Turns of a conversation by the generators, of which a later one goes behind what the cache holds. No device: the
reference is in the place of the chips. On the simulated chip: test_tt_generator.py and test_tt_trace.py."""

from types import SimpleNamespace

import pytest

from models.llama31_8b.reference.generate import generate
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import TINY
from tests.support.reference_chips import ReferenceChips, stand_in_for_ttnn
from tests.support.tt_programs import prompt

MODEL = ReferenceLlama.random(TINY, seed=3)
BLOCK = 32


@pytest.fixture
def host(monkeypatch):
    ttnn = pytest.importorskip("ttnn")
    stand_in_for_ttnn(monkeypatch, ttnn)
    return ttnn


def chips() -> ReferenceChips:
    return ReferenceChips(MODEL, 2, 128, BLOCK)


class Traces:
    """Captured steps that a replay runs again, and how often each call came."""

    def __init__(self, monkeypatch, ttnn) -> None:
        from models.llama31_8b.tt import generator
        from models.llama31_8b.tt import trace as replay

        self.calls = {"capture": 0, "execute": 0, "release": 0}
        monkeypatch.setattr(generator, "why_no_trace", lambda mesh: None)
        monkeypatch.setattr(replay, "_capture", self._capture)
        monkeypatch.setattr(ttnn, "execute_trace", self._execute)
        monkeypatch.setattr(ttnn, "release_trace", lambda mesh, trace: self._count("release"))

    def _count(self, name: str) -> None:
        self.calls[name] += 1

    def _capture(self, mesh, step):
        self._count("capture")
        inputs = [tensor for tensor in step.__self__.inputs if tensor is not None]
        before = [tensor.clone() for tensor in inputs]
        output = step()
        for tensor, kept in zip(inputs, before, strict=True):  # a capture runs nothing
            tensor.copy_(kept)
        return (step, output), output

    def _execute(self, mesh, trace, **_):
        self._count("execute")
        step, output = trace
        output.copy_(step())

    def since(self) -> dict[str, int]:
        """Calls since this was asked last, but for those that did not come."""
        found = {name: count for name, count in self.calls.items() if count}
        self.calls = dict.fromkeys(self.calls, 0)
        return found


def test_a_kept_trace_serves_turns_until_a_prefill_compiles(host, monkeypatch):
    """What a new program keeps on the chips may lie where the trace writes: it is recorded again. Texts are those of
    whole prefills whatever was kept."""
    from models.llama31_8b.tt.generator import Generator

    traces, model = Traces(monkeypatch, host), chips()
    programs = {"compiled": 5, "by prefill": 0}
    model.mesh = SimpleNamespace(num_program_cache_entries=lambda: programs["compiled"])
    prefill = model.prefill

    def compiling(*arguments, **named):
        programs["compiled"] += programs["by prefill"]
        return prefill(*arguments, **named)

    monkeypatch.setattr(model, "prefill", compiling)
    generator = Generator(model, sample_on="host", keep_trace=True)
    request, texts, told = {"max_new_tokens": 4, "eos_token_ids": ()}, [[], []], []
    for turn, compiles in enumerate((1, 0, 0, 1)):
        programs["by prefill"] = compiles
        more = [prompt(9, turn), prompt(20, 10 + turn)]
        held = [generator.cached_ids(user) for user in range(2)]
        found = generator.generate(more, context=held, **request)
        whole = [[*ids, *new] for ids, new in zip(held, more, strict=True)]
        assert found.token_ids == generate(MODEL, whole, **request).token_ids
        assert [starts for _, starts, _ in model.prefilled[-2:]] == [len(ids) // BLOCK * BLOCK for ids in held]
        told.append((traces.since(), generator.replays, generator.warm_up_tokens))
        texts = whole
    assert texts[1][:20] == prompt(20, 10) and len(texts[1]) == 4 * 20 + 3 * 3
    recorded = {"capture": 1, "execute": 2}
    assert told == [
        (recorded, 2, 4),
        ({"execute": 3}, 3, 0),
        ({"execute": 3}, 3, 0),
        ({"release": 1} | recorded, 2, 4),
    ]
    generator.release()
    assert traces.since() == {"release": 1}
    Generator(model, sample_on="host").generate([prompt(3, 1)], **request)
    assert traces.since() == recorded | {"release": 1}, "nothing is kept unless asked for"


def test_a_draft_model_goes_behind_what_its_cache_holds(host, monkeypatch):
    """Its cache is a round behind the target's: whole blocks of what both have are kept."""
    from models.llama31_8b.tt.spec_decode import drafters

    monkeypatch.setattr(drafters, "Sampler", lambda *_: None)
    model = chips()
    model.mesh_shape = None
    drafter = drafters.ModelDrafter(model, prefill_chunk=32)
    drafter.prefill([prompt(70, 1), prompt(64, 2)], [0, 0], 128)
    model.prefilled.clear()
    drafter.prefill([prompt(75, 1), prompt(70, 2)], [66, 65], 128)
    assert model.prefilled == [(0, 64, 11), (1, 64, 6)]
    model.prefilled.clear()
    drafter.prefill([prompt(33, 3)], [0], 128)
    assert model.prefilled == [(0, 0, 32), (0, 32, 1)]
