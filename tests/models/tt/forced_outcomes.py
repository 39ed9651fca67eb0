# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of one layer on a pair of chips whose outcomes are drawn, beside the same steps of every chip alone; in a
worker (see sim_worker.py)."""

from __future__ import annotations

from typing import NamedTuple

from tests.models.tt.speculation_programs import build_pair, load_cache


class Drawn(NamedTuple):
    """A step: the token, its position, and whether the guess is to be accepted."""

    token: int
    position: int
    hit: bool


def attention_alone() -> type:
    """An AttentionPolicy, which needs ttnn."""
    from models.llama31_8b.tt.attention_policies import AttentionPolicy
    from tt_kernels.speculative_flash_decode.op import speculative_flash_decode

    class Alone(AttentionPolicy):
        """Either result of the op without a peer: every chip takes it. chosen: by layer, of a guess that follows the
        attention."""

        def __init__(self, chunk_size: int, guess: bool, guess_range=None, chosen=None, program=None) -> None:
            self.guess, self.chosen = guess, chosen
            self.options = {"chunk_size": chunk_size, "threshold": 0.0, "guess_range": guess_range}
            self.options["program_config"] = program

        def attend(self, layer, q, cache, inputs):
            given = cache.keys, cache.values, inputs.positions
            chosen = None if self.chosen is None else self.chosen[layer]
            decoded = speculative_flash_decode(q, *given, chosen=chosen, **self.options)
            return decoded.guess if self.guess else decoded.exact

    return Alone


def forced(
    mesh,
    config,
    state,
    prefilled,
    chunk_size: int,
    capacity: int,
    steps: list[Drawn],
    decode_sharding: str = "interleaved",
) -> tuple[list[dict], dict[Drawn, list]]:
    """Steps of the first layer: from the embedding to the exchange behind the layer, the first of each kind eagerly,
    the others from one trace for each kind where this dispatch has traces.

    Returns of each step the residual of both rows, their priorities, and (hits, misses, bypassed) counted so far; and
    for each kind of step the residual of a chip alone. prefilled: as of `load_cache`.
    """
    import ttnn
    from loguru import logger

    from models.llama31_8b.tt.alspec import alspec_step, plain_step
    from models.llama31_8b.tt.layer import Pass
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace
    from tt_kernels.speculative_flash_decode.op import ProgramConfig

    # By shapes a chip alone, which needs no core for a peer, might have more workers, and other sums.
    program = ProgramConfig(workers_per_head=1, key_chunk=chunk_size)
    model, pair = build_pair(
        mesh, config, state, capacity=capacity, chunk_size=chunk_size, decode_sharding=decode_sharding
    )
    pair.program = program
    load_cache(model, *prefilled)
    layer, entered = model.layers[0], {}
    for step in dict.fromkeys(step._replace(hit=True) for step in steps):
        inputs = model.step_inputs([step.token], [step.position])
        x = model.layout.residual(model.embedding(inputs.tokens, ttnn.L1_MEMORY_CONFIG))
        entered[step] = (x, model.layout.angles(model.rope, inputs.angles), inputs)

    def one_layer(attend, step: Drawn):
        held, angles, inputs = entered[step._replace(hit=True)]
        x = ttnn.clone(held, memory_config=held.memory_config())  # the layer writes into it, and frees it
        one = Pass(model.layout, angles, attend, inputs)
        if attend is pair:
            return alspec_step([layer], model.cache, pair, x, one)
        return plain_step([layer], model.cache, x, one)

    def together(step: Drawn):
        pair.threshold = float("inf") if step.hit else 0.0
        return one_layer(pair, step)

    eager = why_no_trace(mesh) is not None
    replays = {step: TracedStep(mesh, lambda step=step: together(step), eager) for step in set(steps)}
    told = []
    for index, step in enumerate(steps):
        rows = [ttnn.to_torch(part).float() for part in ttnn.get_device_tensors(replays[step]())]
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
    alone = {step: one_layer(make(chunk_size, guess=step.hit, program=program), step) for step in replays}
    return told, {step: ttnn.to_torch(ttnn.get_device_tensors(out)[0]).float() for step, out in alone.items()}
