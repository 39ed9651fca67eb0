# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Layer-parallel drafting on simulated chips: fuzzy steps by logits, and caches after calibration."""

import pytest
import torch

from models.llama31_8b.spec_decode.tree import TokenTree
from models.llama31_8b.tiny import tiny_for
from tests.support.tt_programs import MIN_PCC, build, cache_figures, check_rows, figures, half_split, of_chips, prompt

CAPACITY = 64


def draft_and_calibrate(mesh, config, groups, prompt: list[int], drafted: int, decided: list[int]) -> dict:
    """Prefill, a fuzzy step over `drafted`, and an exact pass over `decided` at the same positions.

    Figures of the logits of the fuzzy step against the reference's fuzzy forward, and how far that lies from its exact
    one; of the exact pass's logits, and of all caches after it against a plain pass over prompt and `decided`; the
    tensor-parallel caches and the chips' own.
    """
    from models.llama31_8b.tt.model import read

    model, reference = build(mesh, config, capacity=CAPACITY, fuzzy=groups)
    cache, plain = (reference.new_cache(1, CAPACITY) for _ in range(2))
    for each in (cache, plain):
        reference.prefill([prompt], each)
    model.prefill(prompt, 0, 0, last=False)
    wanted = reference.forward(torch.tensor([[drafted]]), cache, layer_groups=groups)[0, 0]
    exact = reference.forward(torch.tensor([[drafted]]), plain)[0, 0]
    got = read(model.decode(model.step_inputs([drafted], [len(prompt)])))[0, 0, 0].float()
    told = {"fuzzy": figures(got, wanted) | {"exact": figures(wanted, exact)["pcc"]}}
    before = own_cache_figures(model, plain, len(prompt) + 1)
    plain.truncate([len(prompt)])
    wanted = reference.forward(torch.tensor([decided]), plain, logits="all")[0]
    chain = TokenTree.chain(len(decided))
    inputs = model.tree_inputs(torch.tensor([decided]), [len(prompt)], chain.enter[None], chain.leave[None])
    got = read(model.decode(inputs))[0, 0, : len(decided)].float()
    told["exact"] = figures(got, wanted)
    length = len(prompt) + len(decided)
    told["cache"] = cache_figures(model, plain, [length])
    told["own"], told["own before"] = own_cache_figures(model, plain, length), before
    return told


def own_cache_figures(model, reference, length: int) -> list[dict]:
    """Compare each chip's own layers' keys and values of the first user."""
    found = []
    plan = model.groups.assignment
    for stage, parallel in zip(plan.parallel_stages, model.groups.parallel_stages, strict=True):
        for name in ("keys", "values"):
            (ours,) = getattr(parallel.cache, name)
            for chip, part in enumerate(of_chips(ours)[: plan.mesh.tp]):
                got, place = part[0, :, :length].float(), stage.place(chip)
                if place is None:
                    assert not torch.any(got), "a chip that idles caches zeros"
                    continue
                got = half_split(got) if name == "keys" else got
                expected = getattr(reference, name)[place[0]][0, :, :length].chunk(stage.share)[place[1]]
                found.append({"layer": place[0], "chip": chip, "what": name} | figures(got, expected))
    return found


# Groups of the layers, and which of them each of two chips has to itself.
@pytest.mark.sim
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "groups, own",
    [
        pytest.param([[0, 1]], [(0, 0), (1, 1)], id="one stage"),
        # A group of one layer, and one of a stage of two and a tensor-parallel layer, which all read what enters it.
        pytest.param([[0], [1, 2, 3]], [(1, 0), (2, 1)], marks=pytest.mark.slow, id="two stages"),
    ],
)
def test_a_row_of_two_drafts_the_references_logits_and_calibrates(sim_mesh, groups, own):
    config = tiny_for(2).with_layers(groups[-1][-1] + 1)
    told = sim_mesh((1, 2), "4x2").run(draft_and_calibrate, config, groups, prompt(20, 2), 5, [5, 23], timeout=2300)
    check_rows("fuzzy", [told["fuzzy"]])
    check_rows("exact", [told["exact"]])
    check_rows("cache", told["cache"] + told["own"])
    assert told["fuzzy"]["exact"] < MIN_PCC, "the groups must change the logits"
    assert [(row["layer"], row["chip"]) for row in told["own"]] == own * 2
    before = min(row["pcc"] for row in told["own before"])
    assert before < MIN_PCC, "fuzzy entries were there"
