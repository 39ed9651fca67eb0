# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""perf.studies.quality's switches of the guess that follows: what each may know, and that each reads as many keys."""

from __future__ import annotations

import re

import pytest
import torch

from models.llama31_8b.reference.alspec.policies import ALSpecAttention
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.reference.model.step import GuessRange
from perf.studies.quality import cli
from perf.studies.quality.forward import text_pass
from perf.studies.quality.switches import HISTORY, SWITCHES, Switch, SwitchedFollower
from tests.support.attention_cases import random_tokens, tiny_config

TOKENS = 300


@pytest.fixture(scope="module")
def tiny() -> ReferenceLlama:
    return ReferenceLlama.random(tiny_config(max_position_embeddings=TOKENS), seed=4)


@pytest.mark.parametrize("threshold", (0.3, 0.5))
def test_followed_decides_as_the_reference(tiny, threshold):
    ids = random_tokens(TOKENS, seed=6)
    reference = text_pass(tiny, ids, ALSpecAttention(threshold, GuessRange.followed(64)))
    ours = text_pass(tiny, ids, SwitchedFollower(threshold, 64, SWITCHES["own passes"]))
    assert torch.equal(ours.accepted, reference.accepted) and 0 < ours.hit_rate() < 1
    torch.testing.assert_close(ours.states, reference.states, rtol=1e-4, atol=1e-4)


def test_ends_decide_as_the_reference(tiny):
    ids = random_tokens(TOKENS, seed=6)
    reference = text_pass(tiny, ids, ALSpecAttention(0.3, 64))
    assert torch.equal(text_pass(tiny, ids, SwitchedFollower(0.3, 64, SWITCHES["ends"])).accepted, reference.accepted)


def known_by_loops(switch: Switch, masses: torch.Tensor, sender: list[int]) -> torch.Tensor:
    """What the guess of each token may know of the masses [kv_heads, g, t, tiles], token by token."""
    found = []
    for token in range(masses.shape[2]):
        row = torch.zeros_like(masses[:, :, 0])
        if switch.own:
            mine = [t for t in range(token) if sender[t] == sender[token]]
            row = masses[:, :, mine[-1]] if mine else row
        elif switch.decay:
            for t in range(token):
                row = switch.decay * row + (1 - switch.decay) * masses[:, :, t]
        elif token >= switch.age:
            row = masses[:, :, token - switch.age]
        found.append(row)
    return torch.stack(found, dim=2)


@pytest.mark.parametrize("name", ("followed", "oracle", "two steps old", "four steps old", "own passes", "average 0.8"))
@pytest.mark.parametrize("cuts", ((0, 40), (0, 1, 17, 40)))
def test_what_a_guess_knows_whatever_the_blocks(name, cuts):
    switch, draw = SWITCHES[name], torch.Generator().manual_seed(3)
    assert switch.age <= HISTORY
    masses = torch.rand((2, 3, 40, 5), generator=draw)
    sender = torch.randint(0, 2, (40,), generator=draw)
    policy, found = SwitchedFollower(0.1, 128, switch), []
    for start, end in zip(cuts, cuts[1:]):
        policy._sender = sender[start:end]
        found.append(policy._known(0, masses[:, :, start:end], torch.ones(end - start, 4))[0])
    wanted = known_by_loops(switch, masses, sender.tolist())
    torch.testing.assert_close(torch.cat(found, dim=2), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SWITCHES)
def test_every_switch_reads_as_many_keys(name):
    """Where the middle has tiles enough; a mass in place of a count leaves out no more than it says."""
    switch, draw = SWITCHES[name], torch.Generator().manual_seed(5)
    policy, cached = SwitchedFollower(0.1, 128, switch), torch.tensor([1024, 1056])
    known = torch.softmax(4 * torch.randn((2, 3, 2, 33), generator=draw), dim=-1)
    known[:, :, 0, 32] = 0  # after the query
    read = policy._read(known, cached, 1056)
    assert read.shape == (2, 2, 1056) and not bool(read[:, 0, 1024:].any())
    if switch.unread is None:
        assert read.sum(-1).double().mean(0).tolist() == [256, 256]
        assert switch.shared or bool((read.sum(-1) == 256).all())
    else:
        left = (known.sum(1) * ~read.unflatten(-1, (-1, 32)).any(-1)).sum(-1)
        assert bool((left <= switch.unread * 3 + 1e-5).all())


def test_a_turned_query_has_no_guess(tiny):
    policy = SwitchedFollower(0.5, 64, Switch(turned=2.0))
    assert text_pass(tiny, random_tokens(TOKENS, seed=6), policy).hit_rate() == 0
    assert float(policy.turned) == 3 * (TOKENS - 127)


@pytest.mark.parametrize(
    "options,why",
    [
        (("--short-tail",), "--predictor followed reads whole tiles of 32"),
        (("--tail-alignment", "1"), "--predictor followed reads whole tiles of 32"),
        (("--chunk-sizes", "32", "64"), r"multiples of 32 above 32, got \[32\]"),
    ],
)
def test_followed_guesses_read_whole_tiles(options, why, capsys):
    with pytest.raises(SystemExit):
        cli.parse_args(["--predictor", "followed", *options])
    assert re.search(why, capsys.readouterr().err)
