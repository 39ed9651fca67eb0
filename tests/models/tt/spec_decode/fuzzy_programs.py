# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Layer-parallel drafts of a small model against the reference's, in a worker (see sim_worker.py)."""

from __future__ import annotations

from tests.support.tt_programs import build, cache_figures, figures, half_split

CAPACITY = 64


def draft_and_calibrate(mesh, config, groups, prompt: list[int], drafted: list[int], decided: list[int]) -> dict:
    """Prefill, fuzzy steps over `drafted`, and an exact pass over `decided` at the same positions.

    Figures of the logits of every fuzzy step against the reference's fuzzy forward, and how far that lies from its
    exact one; of the exact pass's logits, and of all caches after it against a plain pass over prompt and `decided`;
    the tensor-parallel caches and the chips' own.
    """
    import torch

    from models.llama31_8b.spec_decode.tree import TokenTree
    from models.llama31_8b.tt.model import read

    model, reference = build(mesh, config, capacity=CAPACITY, fuzzy=groups)
    cache, plain = (reference.new_cache(1, CAPACITY) for _ in range(2))
    for each in (cache, plain):
        reference.prefill([prompt], each)
    model.prefill(prompt, 0, 0, last=False)
    told = {"fuzzy": [], "plan": str(model.groups.assignment)}

    for position, token in enumerate(drafted, len(prompt)):
        wanted = reference.forward(torch.tensor([[token]]), cache, layer_groups=groups)[0, 0]
        exact = reference.forward(torch.tensor([[token]]), plain)[0, 0]
        got = read(model.decode(model.step_inputs([token], [position])))[0, 0, 0].float()
        told["fuzzy"].append(figures(got, wanted) | {"exact": figures(wanted, exact)["pcc"]})
    before = own_cache_figures(model, plain, len(prompt) + len(drafted))
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
    import torch
    import ttnn

    found = []
    plan = model.groups.assignment
    for stage, parallel in zip(plan.parallel_stages, model.groups.parallel_stages, strict=True):
        for name in ("keys", "values"):
            (ours,) = getattr(parallel.cache, name)
            chips = ttnn.get_device_tensors(ours)[: plan.mesh.tp]
            for chip, part in enumerate(chips):
                got, place = ttnn.to_torch(part)[0, :, :length].float(), stage.place(chip)
                if place is None:
                    assert not torch.any(got), "a chip that idles caches zeros"
                    continue
                got = half_split(got) if name == "keys" else got
                expected = getattr(reference, name)[place[0]][0, :, :length].chunk(stage.share)[place[1]]
                found.append({"layer": place[0], "chip": chip, "what": name} | figures(got, expected))
    return found
