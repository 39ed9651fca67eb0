# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens chosen on the device of a worker (see sim_worker.py), from given logits and in whole texts."""

from __future__ import annotations

from dataclasses import replace

from tt_programs import TINY, build


def make_chooser(mesh, params, vocab: int, **options):
    from models.llama31_8b.tt.mesh import MeshPlan
    from models.llama31_8b.tt.sampling import Chooser

    return Chooser(mesh, MeshPlan(*mesh.shape), replace(TINY, vocab_size=vocab), params, **options)


def choose(mesh, logits, cases: list, block_tiles: int) -> dict:
    """bfloat16 logits [rows, vocab], followed by the LM head's padding, in blocks of `block_tiles` tiles; cases:
    pairs of parameters and uniform numbers, float64 [draws, rows].

    Returns the arg-max of each row; the candidates' values and keys; for each case the distribution its tokens are
    drawn from, as of `Chooser.borders`, and the tokens [draws, rows].
    """
    import torch
    import torch.nn.functional as F
    import ttnn

    from models.llama31_8b.reference.sampling import SamplingParams
    from models.llama31_8b.tt.model import read

    rows, vocab = logits.shape
    greedy = make_chooser(mesh, SamplingParams(), vocab, block_tiles=block_tiles)
    # What the head makes of the padding must not be chosen, even where it is larger than all logits.
    padded = F.pad(logits, (0, sum(greedy.blocks) - vocab), value=float(logits.max()) + 1)
    given = ttnn.from_torch(padded[None, None], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    values, keys = greedy.candidates(given)
    draws = []
    for params, numbers in cases:
        chooser = make_chooser(mesh, params, vocab, block_tiles=block_tiles)
        borders = chooser.borders(values, keys)
        picked = [read(chooser.pick(*borders, chooser.uniforms(row.tolist())))[0] for row in numbers]
        draws.append({"borders": [read(part)[0, 0] for part in borders], "tokens": torch.stack(picked).long()})
    return {
        "argmax": read(greedy(given))[0].long(),
        "values": read(values)[0, 0],
        "keys": read(keys)[0, 0],
        "draws": draws,
    }


def pick_among(mesh, ids, numbers) -> list[int]:
    """Tokens drawn by uniform `numbers` [rows] from equally probable, ascending `ids` [rows, 32] of Llama 3.1's."""
    import torch

    from models.llama31_8b.reference.sampling import SamplingParams
    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.sampling import ORIGIN

    chooser = make_chooser(mesh, SamplingParams(1.0, top_k=32), 128256)
    up_to = torch.arange(1.0, 33.0).repeat(len(ids), 1)
    parts = [chooser._put(part, "float32") for part in ((ORIGIN - ids).float(), up_to, torch.full_like(up_to, 32.0))]
    return read(chooser.pick(*parts, chooser.uniforms(numbers)))[0].tolist()


def refusals(mesh) -> dict[str, str]:
    """What the chips refuse to choose by, and numbers that are no uniform ones: the messages."""
    from models.llama31_8b.reference.sampling import SamplingParams

    told = {}
    for name, params, number in (
        ("all tokens", SamplingParams(0.7, top_p=0.9), 0.0),
        ("33 tokens", SamplingParams(0.7, top_k=33), 0.0),
        ("one", SamplingParams(0.7, top_k=5), 1.0),
    ):
        try:
            make_chooser(mesh, params, 128256).uniforms([0.5, number])
        except ValueError as error:
            told[name] = str(error)
    return told


def generate_sampled(mesh, prompts: list[list[int]], new_tokens: int, params) -> dict:
    """Texts drawn on the device and by the host, of the first user alone with the same seed, and with another; the
    host's distributions and numbers; what was logged of a distribution that only the host can draw from."""
    import torch
    from loguru import logger

    from models.llama31_8b.reference.sampling import draw_uniforms, make_generators, warp_logits
    from models.llama31_8b.tt.generator import Generator

    model, _ = build(mesh, TINY, users=len(prompts), capacity=64)
    masses: list[list[torch.Tensor]] = [[] for _ in prompts]

    def texts(choose, prompts=prompts, params=params, **options):
        generator = Generator(model, choose=choose, prefill_chunk=32)
        found = generator.generate(prompts, max_new_tokens=new_tokens, sampling=params, eos_token_ids=(), **options)
        return found.token_ids

    told = {
        "host": texts("host", on_logits=lambda user, row: masses[user].append(warp_logits(row, params))),
        "device": texts("device"),
        "alone": texts("device", prompts[:1]),
        "other seed": texts("device", prompts[:1], replace(params, seed=params.seed + 1)),
        "masses": [torch.stack(rows) for rows in masses],
        "numbers": draw_uniforms(make_generators(params, len(prompts)), new_tokens),
    }
    messages = []
    sink = logger.add(messages.append, level="WARNING", format="{message}")
    try:
        Generator(model)._chooser(replace(params, top_k=0), None)
    finally:
        logger.remove(sink)
    return told | {"logged": "".join(messages)}


def build_choosers(mesh, rows: int) -> dict:
    """At Llama 3.1 8B's vocabulary, greedy and sampled: shapes, and L1 and DRAM left allocated. Nothing executes."""
    import ttnn
    from mesh_programs import memory

    from models.llama31_8b.config import preset
    from models.llama31_8b.reference.sampling import SamplingParams
    from models.llama31_8b.tt.mesh import MeshPlan
    from models.llama31_8b.tt.sampling import Chooser

    plan, config = MeshPlan(*mesh.shape), preset("llama-3.1-8b")
    columns = plan.padded_vocab(config) // plan.tp
    before = memory(mesh)
    logits = ttnn.empty(
        [1, 1, rows, columns], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG
    )
    output = ttnn.empty([1, rows], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG)
    shapes = []
    for params in (SamplingParams(), SamplingParams(0.7, top_k=20, top_p=0.9)):
        chooser = Chooser(mesh, plan, config, params)
        numbers = None if params.greedy else chooser.uniforms([0.5] * rows)
        shapes.append(tuple(chooser(logits, numbers, output).shape))
    used = memory(mesh)
    return {"shapes": shapes, "blocks": chooser.blocks, "programs": mesh.num_program_cache_entries()} | {
        name: used[name] - before[name] for name in used
    }
