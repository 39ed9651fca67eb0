# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens chosen on the device of a worker (see sim_worker.py), from given logits and in whole texts."""

from __future__ import annotations

from dataclasses import replace

from tests.support.tt_programs import TINY, build


def make_chooser(mesh, params, vocab: int, **options):
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.sampling.top_k import Sampler

    return Sampler(mesh, MeshShape(*mesh.shape), replace(TINY, vocab_size=vocab), params, **options)


def choose(mesh, logits, cases: list, block_tiles: int) -> dict:
    """bfloat16 logits [rows, vocab], followed by the LM head's padding, in blocks of `block_tiles` tiles; cases:
    pairs of parameters and uniform numbers, float64 [rows].

    Returns the arg-max of each row; the candidates' values and keys; for each
    case the distribution its tokens are drawn from, as of `Sampler.borders`, and the tokens [rows].
    """
    import torch.nn.functional as F
    import ttnn

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.tt.model import read

    vocab = logits.shape[1]
    greedy = make_chooser(mesh, SamplingParams(), vocab, block_tiles=block_tiles)
    # What the head makes of the padding must not be chosen, even where it is larger than all logits.
    padded = F.pad(logits, (0, sum(greedy.blocks) - vocab), value=float(logits.max()) + 1)
    given = ttnn.from_torch(padded[None, None], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    values, keys = greedy.candidates(given)
    draws = []
    for params, numbers in cases:
        sampler = make_chooser(mesh, params, vocab, block_tiles=block_tiles)
        borders = sampler.borders(values, keys)
        picked = read(sampler.pick(*borders, sampler.uniforms(numbers.tolist())))[0].long()
        draws.append({"borders": [read(part)[0, 0] for part in borders], "tokens": picked})
    return {
        "argmax": read(greedy(given))[0].long(),
        "values": read(values)[0, 0],
        "keys": read(keys)[0, 0],
        "draws": draws,
    }


def pick_among(mesh, ids, numbers) -> list[int]:
    """Tokens drawn by uniform `numbers` [rows] from equally probable, ascending `ids` [rows, 32] of Llama 3.1's."""
    import torch

    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.sampling.top_k import ORIGIN

    sampler = make_chooser(mesh, SamplingParams(1.0, top_k=32), 128256)
    up_to = torch.arange(1.0, 33.0).repeat(len(ids), 1)
    parts = [sampler._put(part, "float32") for part in ((ORIGIN - ids).float(), up_to, torch.full_like(up_to, 32.0))]
    return read(sampler.pick(*parts, sampler.uniforms(numbers)))[0].tolist()


def choose_per_user(mesh, logits, batches: list) -> list:
    """bfloat16 logits [users, vocab]; batches: for each call a pair of parameters and a number per user. Returns each
    call's tokens, int64 [users]; all calls replay one trace where the mesh has them."""
    import ttnn

    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.model import read
    from models.llama31_8b.tt.sampling.per_user import PerUserSampler
    from models.llama31_8b.tt.trace import TracedStep, why_no_trace

    users, vocab = logits.shape
    sampler = PerUserSampler(mesh, MeshShape(*mesh.shape), replace(TINY, vocab_size=vocab), users)
    padded = -(-vocab // 32) * 32
    blank = logits.new_zeros(1, 1, users, padded)
    blank[0, 0, :, :vocab] = logits
    given = ttnn.from_torch(blank, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    step = TracedStep(mesh, lambda: sampler(given, sampler.numbers), why_no_trace(mesh) is not None)
    found = []
    for draws in batches:
        sampler.load(draws)
        found.append(read(step())[0].long())
    try:
        sampler.load([(replace(batches[0][0][0], temperature=1.0, top_k=33), 0.0)] * users)
    except ValueError as error:
        found.append(str(error))
    return found


def host_side(mesh) -> dict:
    """Messages about a number outside [0, 1) and about too many candidates; first ids of blocks."""
    from models.llama31_8b.generation.sampling import SamplingParams
    from models.llama31_8b.tt.sampling.top_k import block_starts

    told = {"starts": block_starts([96, 64], 3)}
    for name, params in (("one", SamplingParams(0.7, top_k=5)), ("many", SamplingParams(0.7, top_k=33, top_p=0.9))):
        try:
            make_chooser(mesh, params, 128256).uniforms([0.5, 1.0])
        except ValueError as error:
            told[name] = str(error)
    return told


def generate_sampled(mesh, prompts: list[list[int]], new_tokens: int, params) -> dict:
    """Texts drawn by the host and on the device, and on the device of the last user alone with its own seed; the
    host's distributions and numbers. Of the first text the first token drawn from the whole vocabulary, on the device
    and by the host, and the distribution."""
    import torch

    from models.llama31_8b.generation.sampling import draw_uniforms, make_generators, warp_logits
    from models.llama31_8b.tt.generator import Generator

    model, _ = build(mesh, TINY.with_layers(1), users=len(prompts), capacity=64)
    masses: list[list[torch.Tensor]] = [[] for _ in prompts]

    def texts(choose, prompts, params, on_logits=None, **options):
        generator = Generator(model, sample_on=choose, prefill_chunk=32, on_logits=on_logits)
        found = generator.generate(prompts, max_new_tokens=new_tokens, sampling=params, eos_token_ids=(), **options)
        return found.token_ids

    own = replace(params, seed=params.seed + len(prompts) - 1)
    told = {
        "host": texts(
            "host", prompts, params, on_logits=lambda user, row: masses[user].append(warp_logits(row, params))
        ),
        "device": texts("device", prompts, params),
        "alone": texts("device", prompts[-1:], own),
        "masses": [torch.stack(rows) for rows in masses],
        "numbers": draw_uniforms(make_generators(params, len(prompts)), new_tokens),
    }
    unlimited, seen = replace(params, top_k=0), []
    first = {"on_token": lambda user, token: True}
    return told | {
        "device from all": texts("device", prompts[:1], unlimited, **first),
        "host from all": texts("host", prompts[:1], unlimited, on_logits=lambda user, row: seen.append(row), **first),
        "all": warp_logits(seen[0][None], unlimited),
    }


def build_steps(mesh, users: int) -> dict[str, dict]:
    """Llama 3.1 8B with the generator's decode step, greedy and sampled: what choosing alone takes, the shape of the
    tokens, and the transfers from or to the host in a step and in giving it new numbers. Nothing executes."""
    from dataclasses import asdict

    from models.llama31_8b.generation.sampling import Draws, SamplingParams, make_generators
    from models.llama31_8b.tt.generator import PlainSteps
    from models.llama31_8b.tt.sampling.top_k import Sampler
    from perf.footprint.mesh_build import build_model, step_memory

    model = build_model(mesh, "performance", users, 1024)
    inputs = model.step_inputs([0] * users, [0] * users)
    logits = model.decode(inputs, gather_logits=False)
    found = {}
    for name, params in (
        ("greedy", SamplingParams()),
        ("sampled", SamplingParams(0.7, top_k=20, top_p=0.9)),
        ("by temperature", SamplingParams(0.7)),
    ):
        sampler = Sampler(mesh, model.mesh_shape, model.config, params)
        steps, draws = PlainSteps(model, params, sampler, eager=True), Draws(params, make_generators(params, users))
        wanted = dict.fromkeys(range(users), (0, 0))
        steps.load(wanted, draws)
        # The first run also writes what programs keep on the device.
        steps.run()
        memory, ids = step_memory(lambda sampler=sampler, steps=steps: sampler(logits, steps.uniforms, inputs.tokens))
        found[name] = asdict(memory) | {
            "ids": ids,
            "blocks": sampler.blocks,
            "step": transfers(steps.run),
            "draw": transfers(lambda steps=steps, draws=draws, wanted=wanted: steps.load(wanted, draws)),
        }
    return found


def transfers(work) -> list[str]:
    """Names of what moves tensors between host and device while `work` is recorded."""
    import ttnn

    ttnn.graph.begin_graph_capture(ttnn.graph.RunMode.NO_DISPATCH)
    try:
        work()
    finally:
        graph = ttnn.graph.end_graph_capture()
    names = [node["params"]["name"] for node in graph if node["node_type"] == "function_start"]
    return [name for name in names if name.endswith(("to_device", "to_host", "from_device", "cpu"))]


def likeliest(mesh, logits) -> list:
    """bfloat16 logits [rows, vocab], split over the chips of a row -> the token that each chip chooses for each row."""
    import torch.nn.functional as F
    import ttnn

    from models.llama31_8b.generation.sampling import SamplingParams

    rows, vocab = logits.shape
    sampler = make_chooser(mesh, SamplingParams(), vocab)
    width = sum(sampler.blocks) * mesh.shape[1]
    padded = F.pad(logits, (0, width - vocab), value=float(logits.max()) + 1)
    given = ttnn.from_torch(
        padded[None, None],
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=sampler.mesh_shape.mapper(mesh, -1),
    )
    output = ttnn.empty([1, rows], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, mesh, ttnn.DRAM_MEMORY_CONFIG)
    sampler(given, None, output)
    return [ttnn.to_torch(part)[0].tolist() for part in ttnn.get_device_tensors(output)]
