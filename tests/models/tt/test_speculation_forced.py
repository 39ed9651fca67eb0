# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of one layer between two chips whose guess is forced to pass or to fail: residual, priorities and log."""

from dataclasses import replace

import pytest
import torch

from models.llama31_8b.checkpoint.tensor_shapes import random_state_dict
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.tiny import BANKED
from tests.models.tt.pair_programs import attention_alone, build_pair, load_cache
from tests.support.tt_programs import check_close, of_chips
from tt_kernels.common.priority import HOLDS_EXACT, HOLDS_GUESS, YIELDED

CHUNK_SIZE, CAPACITY, CACHED = 32, 128, 111
CONFIG = replace(BANKED, max_position_embeddings=CAPACITY)
TOKEN, POSITION = 3, 96


def forced(mesh, state, prefilled, decode_sharding: str) -> list[dict]:
    """A hit, then a miss of the first layer: from the embedding to the exchange behind the layer. Returns of each the
    residual of both rows, their priorities, and (hits, misses, bypassed) counted so far; and the residual of a chip
    alone. prefilled: as of `load_cache`."""
    import ttnn

    from models.llama31_8b.tt.alspec import alspec_step, plain_step
    from models.llama31_8b.tt.layer import Pass
    from tt_kernels.speculative_flash_decode.op import ProgramConfig

    # By shapes a chip alone, which needs no core for a peer, might have more workers, and other sums.
    program = ProgramConfig(workers_per_head=1, key_chunk=CHUNK_SIZE)
    how = {"capacity": CAPACITY, "chunk_size": CHUNK_SIZE, "decode_sharding": decode_sharding, "program": program}
    model, pair = build_pair(mesh, CONFIG, state, **how)
    load_cache(model, *prefilled)
    layer, inputs = model.layers[0], model.step_inputs([TOKEN], [POSITION])
    held = model.layout.residual(model.embedding(inputs.tokens, ttnn.L1_MEMORY_CONFIG))
    angles = model.layout.angles(model.rope, inputs.angles)

    def one_layer(attend):
        x = ttnn.clone(held, memory_config=held.memory_config())  # the layer writes into it, and frees it
        one = Pass(model.layout, angles, attend, inputs)
        out = (
            alspec_step([layer], model.cache, pair, x, one)
            if attend is pair
            else plain_step([layer], model.cache, x, one)
        )
        return [chip.float() for chip in of_chips(out)]

    told: list[dict] = []
    for hit in (True, False):
        pair.threshold = float("inf") if hit else 0.0
        rows = one_layer(pair)
        model.check()
        counts = pair.statistics().layers[0]
        told.append({"rows": rows, "priorities": [row[0][0] for row in pair.last_priorities()]})
        told[-1]["counts"] = (counts.hits, counts.misses, counts.bypassed)
    for found, hit in zip(told, (True, False), strict=True):
        found["alone"] = one_layer(attention_alone()(CHUNK_SIZE, guess=hit, program=program))[0]
    return told


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.timeout(7200)
def test_a_hit_and_a_miss_of_sharded_steps(sim_mesh):
    """Bit for bit as a chip alone with the same sharding: after a hit both rows hold the layer's output from the guess,
    after a miss that from the exact result. And as interleaved steps to PCC 0.999. Both chips are whole: the products
    want cores beside all banks."""
    state = random_state_dict(CONFIG, 1)
    model = ReferenceLlama.from_state_dict(CONFIG, state)
    tokens = torch.randint(0, CONFIG.vocab_size, (CACHED,), generator=torch.Generator().manual_seed(3))
    cache = model.new_cache(1, len(tokens))
    model.prefill([tokens.tolist()], cache)
    given = [[layer[0] for layer in part] for part in (cache.keys, cache.values)]
    ways = []
    for grid, decode_sharding in (("2x2", "interleaved"), ("8x8", "sharded")):
        worker = sim_mesh((2, 1), grid, dispatch="fast")
        ways.append(worker.run(forced, state, given, decode_sharding, timeout=3500))
        hit, miss = ways[-1]
        assert not torch.equal(hit["alone"], miss["alone"])
        for found in (hit, miss):
            assert all(torch.equal(row, found["alone"]) and bool(row.any()) for row in found["rows"])
        assert (hit["priorities"], hit["counts"]) == ([YIELDED, HOLDS_GUESS], (1, 0, 0))
        assert (miss["priorities"], miss["counts"]) == ([HOLDS_EXACT, HOLDS_GUESS], (1, 1, 0))
    for interleaved, sharded in zip(*ways, strict=True):
        check_close("sharded", sharded["alone"], interleaved["alone"], 0.999)
