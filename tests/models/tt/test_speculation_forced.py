# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of one layer with drawn outcomes: residual, priorities and log are exact at each."""

import random
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from loguru import logger

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import BANKED, TINY
from tests.models.tt.pair_programs import attention_alone, build_pair, load_cache
from tests.support.tt_programs import check_close, of_chips
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, YIELDED

CHUNK_SIZE, CAPACITY, CACHED = 32, 128, 111
STEPS, POSITION = 100, 101
# A tile of everything: what is compared is who computes and who takes, not how much.
SMALLEST = replace(
    TINY, vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1
)


class Drawn(NamedTuple):
    """A step: the token, its position, and whether the guess is to be accepted."""

    token: int
    position: int
    hit: bool


def forced(
    mesh, config, state, prefilled, steps: list[Drawn], decode_sharding: str = "interleaved"
) -> tuple[list[dict], dict[Drawn, list]]:
    """Steps of the first layer: from the embedding to the exchange behind the layer, the first of each kind eagerly,
    the others from one trace for each kind where this dispatch has traces.

    Returns of each step the residual of both rows, their priorities, and (hits, misses, bypassed) counted so far; and
    for each kind of step the residual of a chip alone. prefilled: as of `load_cache`.
    """
    import ttnn

    from models.llama31_8b.tt.alspec import alspec_step, plain_step
    from models.llama31_8b.tt.layer import Pass
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace
    from tt_kernels.speculative_flash_decode.op import ProgramConfig

    # By shapes a chip alone, which needs no core for a peer, might have more workers, and other sums.
    program = ProgramConfig(workers_per_head=1, key_chunk=CHUNK_SIZE)
    how = {"capacity": CAPACITY, "chunk_size": CHUNK_SIZE, "decode_sharding": decode_sharding, "program": program}
    model, pair = build_pair(mesh, config, state, **how)
    load_cache(model, *prefilled)
    layer, entered = model.layers[0], {}
    for step in dict.fromkeys(step._replace(hit=True) for step in steps):
        inputs = model.step_inputs([step.token], [step.position])
        x = model.layout.residual(model.embedding(inputs.tokens, ttnn.L1_MEMORY_CONFIG))
        entered[step] = (x, model.layout.angles(model.rope, inputs.angles), inputs)

    def one_layer(attend, step: Drawn):
        held, angles, inputs = entered[step._replace(hit=True)]
        x = ttnn.clone(held, memory_config=held.memory_config())  # the layer writes into it, and frees it
        one = Pass(model.cache, model.layout, angles, attend, inputs)
        return (alspec_step if attend is pair else plain_step)([layer], x, one)

    def together(step: Drawn):
        pair.threshold = float("inf") if step.hit else 0.0
        return one_layer(pair, step)

    eager = why_no_trace(mesh) is not None
    replays = {step: TracedStep(mesh, lambda step=step: together(step), eager) for step in set(steps)}
    told = []
    for index, step in enumerate(steps):
        rows = [row.float() for row in of_chips(replays[step]())]
        model.check()
        counts = pair.statistics().layers[0]
        logger.info("step {}: {}, counted {}", index, step, counts)
        told.append(
            {
                "rows": rows,
                "priorities": [row[0][0] for row in pair.last_priorities()],
                "counts": (counts.hits, counts.misses, counts.bypassed),
            }
        )
    for replay in replays.values():
        replay.release()
    make = attention_alone()
    alone = {step: one_layer(make(CHUNK_SIZE, guess=step.hit, program=program), step) for step in replays}
    return told, {step: of_chips(out)[0].float() for step, out in alone.items()}


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(7200)
def test_a_hundred_drawn_outcomes_leave_what_one_chip_alone_computes(sim_mesh):
    """Bit for bit: after a hit both rows hold the layer's output from the guess, after a miss that from the exact
    result, as the same kernels without a peer give them. Two tokens at one position, so that no step sees what
    another wrote, and either outcome: of these four traces one is replayed at each step."""
    draw = random.Random(5)
    steps = [draw.choice([Drawn(7, POSITION, False), Drawn(21, POSITION, False)]) for _ in range(STEPS)]
    steps = [step._replace(hit=draw.random() < 0.5) for step in steps]
    assert len(set(steps)) == 4 and abs(sum(step.hit for step in steps) / STEPS - 0.5) < 0.2
    state, given = prepared(SMALLEST)
    told, alone = sim_mesh((2, 1), "2x2", dispatch="fast").run(forced, SMALLEST, state, given, steps, timeout=7000)
    check(told, alone, steps)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(7200)
def test_a_hit_and_a_miss_of_sharded_steps(sim_mesh):
    """Bit for bit as a chip alone with the same sharding, and as interleaved steps to PCC 0.999. Both chips are whole:
    the products want cores beside all banks."""
    config = replace(BANKED, max_position_embeddings=CAPACITY)
    state, given = prepared(config)
    steps = [Drawn(3, 96, True), Drawn(3, 96, False)]
    results = []
    for grid, decode_sharding in (("2x2", "interleaved"), ("8x8", "sharded")):
        told, alone = sim_mesh((2, 1), grid, dispatch="fast").run(
            forced, config, state, given, steps, decode_sharding, timeout=3500
        )
        check(told, alone, steps)
        results.append(alone)
    for step in steps:
        check_close(step, results[1][step], results[0][step], 0.999)


def prepared(config) -> tuple[dict, list[list[torch.Tensor]]]:
    """Random weights, and keys and values of a random prompt, as of `load_cache`."""
    state = random_state_dict(config, 1)
    model = ReferenceLlama.from_state_dict(config, state)
    tokens = torch.randint(0, config.vocab_size, (CACHED,), generator=torch.Generator().manual_seed(3))
    cache = model.new_cache(1, len(tokens))
    model.prefill([tokens.tolist()], cache)
    return state, [[layer[0] for layer in part] for part in (cache.keys, cache.values)]


def check(told: list[dict], alone: dict[Drawn, torch.Tensor], steps: list[Drawn]) -> None:
    """Residual, priorities and counts of each step."""
    assert len(told) == len(steps)
    values = list(alone.values())
    assert all(not torch.equal(values[0], other) for other in values[1:]), "each kind of step has its own result"
    for number, (found, step) in enumerate(zip(told, steps, strict=True)):
        for row in found["rows"]:
            assert torch.equal(row, alone[step]) and bool(row.any()), (number, step)
        assert found["priorities"] == [YIELDED if step.hit else HOLDS_EXACT, HOLDS_GUESS], (number, step)
        hits = sum(earlier.hit for earlier in steps[: number + 1])
        assert found["counts"] == (hits, number + 1 - hits, 0), number
