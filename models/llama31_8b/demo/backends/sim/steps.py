# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The process of `--device sim`: prefill, then greedy steps on simulated chips, compared with the reference."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import ttnn

from runtime_patches.simulated_n150.dispatch import mesh_options, opening_options, program_room

from ....checkpoint.random_weights import random_state_dict
from ....checkpoint.tensor_shapes import tensor_shapes
from ....config import LlamaConfig
from ....generation.sampling import SamplingParams
from ....reference.alspec import policies
from ....reference.model.model import ReferenceLlama
from ....results import GenerationResult
from ....spec_decode.draft_shape import DraftShape
from ....spec_decode.metrics import SpeculativeResult
from ....spec_decode.tree import TokenTree, TokenTreeBatch
from ....tt.layer_parallel import LayerAssignment
from ....tt.mesh import MeshShape
from ....tt.model import TtLlama, read
from ....tt.precision import PrecisionConfig, precision_config
from ....tt.settings import AttentionSettings, ModelSettings
from ....tt.spec_decode.drafters import NGramDrafter, TreeDrafter
from ....tt.spec_decode.model_drafters import ModelDrafter, SelfDrafter
from ....tt.spec_decode.tree_generator import TreeGenerator
from ....tt.spec_decode.tree_step import TreeStep
from ...options import DemoOptions
from ...report import ReportConsole, drafting_line, make_report, print_levels
from .backend import CHUNK_SIZE, TINY, tiny_model
from .checked_steps import lowest_pcc, step_figures, verdict

if TYPE_CHECKING:
    from tt_kernels.speculative_sampling.op import Verified

    from ....reference.alspec.policies import AttentionPolicy

CHUNK = 32  # tokens of a prefill chunk
PATTERN = 3  # tokens that a random prompt repeats where drafts are looked up
# Rounding the weights of a random gated MLP to bfloat4_b leaves a PCC of 0.987 by itself.
MIN_PCC, MIN_PCC_OF_FOUR_BITS = 0.99, 0.95


class Source(NamedTuple):
    """The model whose numbers are checked, and the prompt."""

    name: str
    config: LlamaConfig
    state: dict[str, torch.Tensor]
    prompt: list[int]


def source_of(request: dict[str, Any]) -> Source:
    """Return the tiny random model with a random prompt, or the first layers of a checkpoint with the prompt's first
    tokens, repeated if it is shorter."""
    count = request["prompt_tokens"]
    if request["model"] is None:
        generator = torch.Generator().manual_seed(request["seed"])
        prompt = torch.randint(0, TINY.vocab_size, (count,), generator=generator).tolist()
        if request["draft"] == NGramDrafter.name:
            prompt = (prompt[:PATTERN] * count)[:count]  # something to look up
        config = TINY if request["fuzzy"] is None else tiny_model(request["fuzzy"], MeshShape.parse(request["mesh"]))
        return Source("a tiny random Llama", config, random_state_dict(config, request["seed"]), prompt)
    from ....checkpoint.load import load_state_dict, read_config, resolve_source
    from ....checkpoint.tokenizer import Tokenizer

    folder, shown = resolve_source(request["model"])
    whole = read_config(folder, name=Path(shown).name)
    config = whole.with_layers(request["layers"])
    tokenizer = Tokenizer.from_folder(folder, eos_token_ids=config.eos_token_ids)
    ids = tokenizer.encode(request["prompt"])
    ids = (ids * (count // len(ids) + 1))[:count]
    return Source(
        f"{shown}, {config.num_hidden_layers} layers",
        config,
        load_state_dict(folder, whole, layers=request["layers"]),
        ids,
    )


def reference_policy(request: dict[str, Any]) -> AttentionPolicy:
    """Return the reference's attention policy that the chips must follow."""
    name, chunk_size = request["attention"], request["chunk_size"]
    if name == "alspec":
        options = DemoOptions(attention=name, chunk_size=chunk_size, predictor=request["predictor"])
        return policies.ALSpecAttention(request["threshold"], options.guess_range())
    if name == "static":
        return policies.StaticAttention(chunk_size, request["static_layers"])
    return {"exact": policies.ExactAttention, "sink": policies.SinkAttention}[name](chunk_size)


def main(arguments: Sequence[str]) -> int:
    """Run a request of `plan_request`, given as JSON; return 0 if every step agrees."""
    request = json.loads(arguments[0])
    mesh_shape, source = MeshShape.parse(request["mesh"]), source_of(request)
    precision = precision_config(request["precision"], source.config.num_hidden_layers)
    show = print if not request["json"] else (lambda *_, **__: None)
    sharding = "" if request["decode_sharding"] == "interleaved" else f", {request['decode_sharding']} decode steps"
    guess = "" if request["attention"] == "exact" else f", chunks of {request['chunk_size']}, {request['predictor']}"
    show(
        f"simulated N150, {mesh_shape} of {request['grid']} cores: {source.name}, hidden {source.config.hidden_size}, "
        f"{precision.name} precision{sharding}, a prompt of {len(source.prompt)} tokens; "
        f"{request['attention']} attention{guess}, steps run eagerly",
        flush=True,
    )
    dispatch = request["dispatch"]
    if mesh_shape.chips > 1:
        device = mesh_shape.open(**program_room(), **mesh_options(dispatch))
    else:
        device = ttnn.open_device(device_id=0, **program_room(), **opening_options(dispatch))
    run = _tree_steps if request["nodes"] else _steps
    try:
        steps, result = run(device, mesh_shape, source, precision, request, show)
    finally:
        if mesh_shape.chips > 1:
            mesh_shape.close(device)
        else:
            ttnn.close_device(device)
    formats = precision.weight_formats(source.config.num_hidden_layers)
    required = MIN_PCC_OF_FOUR_BITS if "bfloat4_b" in formats else MIN_PCC
    drafts = {name: request[name] for name in ("draft", "temperature")} if request["nodes"] else {}
    options = DemoOptions(
        attention=request["attention"], chunk_size=request["chunk_size"], predictor=request["predictor"], **drafts
    )
    context = len(source.prompt) + len(result.token_ids[0])
    report = make_report(source.name, options, [result], context, result.statistics)
    if report.both is not None:  # chips decide on whole trees; the reference knows what their roots alone would hit
        roots_alone = {"hit_rate_of_roots_alone": steps[-1]["reference_roots_alone"]}
        report = replace(report, both=report.both | roots_alone)
    lowest = lowest_pcc([step["pcc"] for step in steps])
    if request["json"]:
        found = {"request": request, "steps": steps, "lowest_pcc": lowest, "required_pcc": required}
        print(json.dumps(found | report.to_dict()))
        return int(not lowest >= required)
    if report.speculation is not None:
        ReportConsole(file=sys.stdout, highlight=False).print(drafting_line(report.speculation))
    if result.statistics is not None:
        print_levels(report, ReportConsole(file=sys.stdout, highlight=False))
    return verdict([step["pcc"] for step in steps], required)


def _steps(
    device, mesh_shape, source: Source, precision: PrecisionConfig, request, show
) -> tuple[list[dict], GenerationResult]:
    """Return figures of the prefill and every step; both sides continue with the chips' token, so that a near tie does
    not separate them."""
    config, capacity, prompt = source.config, request["capacity"], source.prompt
    static = frozenset(request["static_layers"])
    settings = ModelSettings(
        capacity=capacity,
        precision=precision,
        attention=AttentionSettings(
            request["attention"], request["chunk_size"], request["threshold"], static, request["predictor"]
        ),
        decode_sharding=request["decode_sharding"],
    )
    model = TtLlama.from_state_dict(config, source.state, device, settings)
    reference, policy = ReferenceLlama.from_state_dict(config, source.state), reference_policy(request)
    cache = reference.new_cache(1, capacity)
    started = time.perf_counter()
    expected = reference.prefill([prompt], cache)[0]
    for start in range(0, len(prompt), CHUNK):
        part = prompt[start : start + CHUNK]
        logits = model.prefill(part, 0, start, last=start + CHUNK >= len(prompt))
    got = read(logits)[0, 0, (len(prompt) - 1) % 32].float()
    found, tokens = [step_figures("prefill", got, expected, show)], [int(got.argmax())]
    prefilled = time.perf_counter()
    for step in range(request["tokens"] - 1):
        expected = reference.forward(torch.tensor([tokens[-1:]]), cache, policy=policy)[0, 0]
        out = model.decode(model.step_inputs(tokens[-1:], [len(prompt) + step]))
        model.decode_attention.check()
        got = read(out)[0, 0, 0].float()
        found.append(step_figures(f"decode {step + 1}", got, expected, show))
        tokens.append(int(got.argmax()))
    result = GenerationResult(
        [tokens],
        ["length"],
        len(prompt),
        prefilled - started,
        len(tokens) - 1,
        time.perf_counter() - prefilled,
        model.decode_attention.statistics(),
    )
    ours, theirs = result.statistics, policy.statistics
    if ours is not None and theirs is not None:
        show(
            f"hits, misses, bypassed positions: {ours.hits}, {ours.misses}, {ours.bypassed_positions} "
            f"(reference {theirs.hits}, {theirs.misses}, {theirs.bypassed_positions})",
            flush=True,
        )
        found[-1]["reference_counts"] = [theirs.hits, theirs.misses, theirs.bypassed_positions]
    return found, result


def _tree_steps(
    device, mesh_shape, source: Source, precision: PrecisionConfig, request, show
) -> tuple[list[dict], SpeculativeResult]:
    """Return figures of the prefill and every tree step, comparing all nodes with the reference's forward pass over the
    same tree under the same attention policy; both sides continue with the path that the chips accept."""
    config, capacity, prompt = source.config, request["capacity"], source.prompt
    settings = ModelSettings(
        capacity=capacity,
        precision=precision,
        attention=AttentionSettings(request["attention"], request["chunk_size"], request["threshold"]),
        decode_sharding=request["decode_sharding"],
    )
    model = TtLlama.from_state_dict(config, source.state, device, settings)
    reference, policy = ReferenceLlama.from_state_dict(config, source.state), reference_policy(request)
    cache = reference.new_cache(1, capacity)
    found: list[dict] = []

    def check(step: TreeStep, drafts: dict[int, tuple[TokenTree, list[int]]], verified: Verified) -> None:
        tree, tokens = drafts[0]
        got = read(step.logits)[0, 0, : len(tree)].float()
        trees = TokenTreeBatch.stack([tree])
        ids = torch.tensor([tokens])
        expected = reference.forward(ids, cache, policy=policy, tree=trees, commit=False, logits="all")[0]
        path = verified.read()[0].path
        cache.keep(0, [0, *path])
        last = path[-1] if path else 0
        name = f"{len(path)} of {len(tree) - 1}:"
        nodes = [step_figures("", row, wanted, lambda *_, **__: None) for row, wanted in zip(got, expected)]
        figures = step_figures(name, got[last], expected[last], show)
        found.append(figures | {"pcc": lowest_pcc([node["pcc"] for node in nodes]), "nodes": len(tree)})

    shape = DraftShape.parse(request["tree"], request["draft_length"])
    drafter: TreeDrafter = NGramDrafter()
    if request["draft"] == SelfDrafter.name:
        drafter = SelfDrafter(model, CHUNK_SIZE)
    elif request["draft"] != NGramDrafter.name:
        # A fuzzy draft is the target itself, so that what it loses is seen alone; else the first layer drafts.
        first, layers = (config if request["fuzzy"] else config.with_layers(1)), None
        if (request["fuzzy"] or 1) > 1:
            layers = LayerAssignment.make(first, mesh_shape, request["fuzzy"])
            show(str(layers), flush=True)
        state = {name: source.state[name] for name in tensor_shapes(first)}
        settings = ModelSettings(capacity=capacity, precision=request["precision"], layer_assignment=layers)
        draft = TtLlama.from_state_dict(first, state, device, settings)
        drafter = ModelDrafter(draft, prefill_chunk=CHUNK)
    generator = TreeGenerator(model, shape, drafter, prefill_chunk=CHUNK, on_step=check)
    expected = reference.prefill([prompt], cache)[0]
    found.append(step_figures("prefill", generator.prefill(prompt, 0), expected, show))
    result = generator.generate(
        [prompt],
        max_new_tokens=request["tokens"],
        eos_token_ids=(),
        sampling=SamplingParams(request["temperature"], seed=request["seed"]),
    )
    ours, theirs = result.statistics, policy.statistics
    if ours is not None and theirs is not None:
        roots = [step.accepted[:, 0, 0] for step in theirs.steps if bool(step.verified[0, 0])]
        hits, misses = (sum(int(found.sum()) for found in kind) for kind in (roots, [~found for found in roots]))
        show(f"hits, misses of steps: {ours.hits}, {ours.misses} (reference {hits}, {misses})", flush=True)
        found[-1]["reference_counts"] = [hits, misses]
        found[-1]["reference_roots_alone"] = theirs.hit_rate_of_roots_alone
    return found, result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
