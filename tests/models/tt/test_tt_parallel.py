# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism by value: a two-layer Llama split over simulated chips, its collectives over the fabric."""

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch

from models.llama31_8b.generation.sampling import SamplingParams, inverse_cdf, warp_logits
from models.llama31_8b.tiny import tiny_for
from models.llama31_8b.tt.precision import precision_config
from tests.models.tt.pair_programs import guarded
from tests.support.tt_programs import build, cache_figures, check_rows, compared, of_chips, prompt
from tt_kernels.token_guard.op import FAILED

# Two query heads and a key/value head a chip; 96 tokens leave the second chip 32 columns and a tile of padding.
CONFIG = tiny_for(2)
CAPACITY = 64


def prefill_decode_choose(mesh, prompt: list[int], params, number: float) -> dict:
    """Prefill one user, then feed the reference's greedy token; every row of the mesh does the same.

    Of the prefill and of the step: figures of the first chip's logits, its best token and the reference's, and whether
    all chips have the same logits. Figures of the caches, whether all rows have the same, and of the step the tokens
    that every chip chooses: the greedy one, and by `params` and a uniform number; and the host's choice by the same.
    And tokens of a chip that has given up on another.
    """
    from models.llama31_8b.tt.layouts import gather
    from models.llama31_8b.tt.sampling.top_k import Sampler

    model, reference = build(mesh, CONFIG, capacity=CAPACITY)
    cache, told = reference.new_cache(1, CAPACITY), []

    def compare(logits, row: int, wanted) -> None:
        ours = [chip[0, 0, row, : CONFIG.vocab_size].float() for chip in of_chips(logits)]
        told.append(compared(ours[0], wanted) | {"same": [torch.equal(ours[0], other) for other in ours]})

    wanted = reference.prefill([prompt], cache)[0]
    compare(model.prefill(prompt, 0, 0, last=True), (len(prompt) - 1) % 32, wanted)
    token = int(wanted.argmax())
    part = model.decode(model.step_inputs([token], [len(prompt)]), gather_logits=False)
    logits = gather(part, model.mesh_shape)
    compare(logits, 0, reference.forward(torch.tensor([[token]]), cache)[0, 0])
    chosen = []
    for choice in (SamplingParams(0.0), params):
        sampler = Sampler(model.site, choice)
        chosen.append([int(ids[0, 0]) for ids in of_chips(sampler(part, sampler.uniforms([number])))])
    masses = warp_logits(of_chips(logits)[0][0, 0, :1, : CONFIG.vocab_size].float(), params)
    caches = [of_chips(tensor) for tensor in (*model.cache.keys, *model.cache.values)]
    columns = model.mesh_shape.tp
    model.check()
    return {
        "steps": told,
        "cache": cache_figures(model, cache, [len(prompt) + 1]),
        "rows": [
            all(torch.equal(chip, parts[place % columns]) for place, chip in enumerate(parts)) for parts in caches
        ],
        "greedy": chosen[0],
        "drawn": chosen[1],
        "host": int(inverse_cdf(masses, torch.tensor([number]))),
        "guarded": guarded(model, model.layout.all_reduce, 1),
    }


GRID = "4x2"  # prefill: with two links reduce_scatter wants eight cores
MAX_ERROR, LEAST_GAP = 0.15, 0.02


@pytest.mark.sim
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "shape", [pytest.param((1, 2), id="1x2"), pytest.param((2, 2), marks=pytest.mark.slow, id="2x2")]
)
def test_the_chips_of_a_row_give_the_reference_and_choose_the_same_tokens(sim_mesh, shape):
    """On 2x2 both rows hold the whole model, and do the same."""
    sampling, chips = SamplingParams(2.0, top_k=8), shape[0] * shape[1]
    told = sim_mesh(shape, GRID).run(prefill_decode_choose, prompt(20, 5), sampling, 0.6, timeout=3500)
    assert len(told["steps"]) == 2
    check_rows("step", told["steps"])
    for step in told["steps"]:
        assert step["absolute"] < MAX_ERROR
        assert step["same"] == [True] * chips, "every chip must see the same logits"
        assert step["gap"] > LEAST_GAP, "the prompt was chosen so that no two best logits lie close"
        assert step["token"] == step["reference_token"]
    assert len({step["token"] for step in told["steps"]}) > 1
    check_rows("cache", told["cache"])
    assert told["rows"] == [True] * 2 * CONFIG.num_hidden_layers, "every row must cache the same"
    assert told["greedy"] == [told["steps"][-1]["reference_token"]] * chips
    assert told["drawn"] == [told["host"]] * chips
    well, failed = told["guarded"]
    assert well == ([7] * chips, [[7]]) and failed[0] == [7, FAILED, 7, 7][:chips]
    assert failed[1] == "sum of a TP group: chip (0, 1) gave up in call 0: TP rank 0 sent no rows"


LONG, FEW = 64, 32  # tokens of a prompt, and rows that are sent as they are


def prefill_of_many_rows(mesh, prompt: list[int], more: list[int]) -> dict:
    """Prefill a prompt of many rows, and a shorter one after it, with bfloat16 weights and coarser collectives: figures
    of logits and caches, whether all chips have the same logits, and how many collectives of either prompt had which
    format."""
    import ttnn

    from models.llama31_8b.tt.modules import dtype_name

    formats = replace(precision_config("bfloat16", CONFIG.num_hidden_layers), long_rows="bfloat8_b")
    model, reference = build(mesh, CONFIG, formats, capacity=128)
    cache, sent = reference.new_cache(1, 128), Counter()

    def counted(name: str):
        op = getattr(ttnn, name)

        def called(x, *others, **options):
            sent[f"{name} {dtype_name(x)}"] += 1
            return op(x, *others, **options)

        return patch.object(ttnn, name, called)

    with (
        patch("models.llama31_8b.tt.prefill.BANKED_PRODUCT_ROWS", FEW),
        counted("all_gather"),
        counted("reduce_scatter"),
        counted("linear"),
    ):
        model.prefill(prompt, 0, 0, last=False)
        first = Counter(sent)
        logits = of_chips(model.prefill(more, 0, len(prompt), last=True))
    wanted = reference.prefill([prompt + more], cache)[0]
    return {
        "logits": compared(logits[0][0, 0, len(more) - 1, : CONFIG.vocab_size].float(), wanted),
        "same": [torch.equal(logits[0], other) for other in logits],
        "cache": cache_figures(model, cache, [len(prompt) + len(more)]),
        "sent": [dict(first), dict(sent - first)],
    }


@pytest.mark.sim
@pytest.mark.timeout(3600)
def test_many_rows_of_a_prefill_are_sent_in_the_format_of_long_rows(sim_mesh):
    """The second layer only caches a chunk that is not the last: three norms, each with a gather of squares before that
    of the rows, and two sums; of five products all but attention's have coarse rows. Of 20 more rows, sent as they are,
    five norms, the last before the LM head, whose logits are gathered too, four sums and nine products."""
    text = prompt(LONG + 20, 7)
    told = sim_mesh((1, 2), GRID).run(prefill_of_many_rows, text[:LONG], text[LONG:], timeout=3500)
    many = {"all_gather bfloat16": 3, "all_gather bfloat8_b": 3, "reduce_scatter bfloat8_b": 2}
    many |= {"linear bfloat8_b": 4, "linear bfloat16": 1}
    assert told["sent"] == [many, {"all_gather bfloat16": 6, "reduce_scatter bfloat16": 4, "linear bfloat16": 9}]
    check_rows("logits", [told["logits"]])
    check_rows("cache", told["cache"])
    assert told["same"] == [True, True], "every chip must see the same logits"
