# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests on boards do with a checkpoint, on the open device of a worker (see sim_worker.py)."""

from pathlib import Path


def text(length: int, source: str) -> list[int]:
    """Token ids of one of the project's own texts, in the checkpoint's vocabulary."""
    from models.llama31_8b.checkpoint.load import resolve_source
    from models.llama31_8b.checkpoint.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_folder(resolve_source(source)[0])
    words = (Path(__file__).resolve().parents[2] / "LICENSE").read_text(encoding="utf-8")
    return tokenizer.encode(words)[:length]


def teacher_forced(mesh, source: str, precision: str, tokens: list[int], prefill: int) -> dict:
    """Shares of decode steps whose best choice is the reference's, or among its best five; weights go through the
    cache on disk."""
    import torch

    from models.llama31_8b.checkpoint.load import load_state_dict, read_config, resolve_source
    from models.llama31_8b.reference.model.model import ReferenceLlama
    from models.llama31_8b.tt.mesh import MeshShape
    from models.llama31_8b.tt.model import TtLlama, cache_prompt, read
    from models.llama31_8b.tt.prefill import PREFILL_CHUNK
    from models.llama31_8b.tt.settings import ModelSettings
    from models.llama31_8b.tt.weights import HostWeights

    folder, _ = resolve_source(source)
    config = read_config(folder)
    state = load_state_dict(folder, config)
    reference = ReferenceLlama.from_state_dict(config, state, torch.bfloat16)
    capacity = -(-len(tokens) // 32) * 32
    wanted = reference.forward(torch.tensor([tokens]), reference.new_cache(1, capacity), logits="all")[0]
    settings = ModelSettings(capacity=capacity, precision=precision)
    weights = HostWeights.cached(config, state, MeshShape(*mesh.shape), settings)
    model = TtLlama.from_host_weights(weights, mesh, settings)
    cache_prompt(model, tokens[:prefill], 0, PREFILL_CHUNK)
    first = fifth = 0
    for position in range(prefill, len(tokens)):
        got = read(model.decode(model.step_inputs([tokens[position]], [position])))[0, 0, 0].float()
        best = wanted[position].topk(5).indices.tolist()
        first += int(got.argmax()) == best[0]
        fifth += int(got.argmax()) in best
    count = len(tokens) - prefill
    return {"top1": first / count, "top5": fifth / count, "steps": count}


def decode_speed(mesh, source: str, precision: str, prompt: list[int], new_tokens: int) -> dict:
    """Greedy decoding chosen on the device: tokens a second of one user, how many steps replayed a trace, how many
    tokens were decoded, and whether they are those of eager steps."""
    from models.llama31_8b.tt.generator import Generator
    from models.llama31_8b.tt.model import TtLlama
    from models.llama31_8b.tt.settings import ModelSettings

    model = TtLlama.from_checkpoint(source, mesh, ModelSettings(precision=precision))
    generator = Generator(model)
    generator.generate([prompt], max_new_tokens=3, eos_token_ids=())  # compiles every program, and a trace
    result = generator.generate([prompt], max_new_tokens=new_tokens, eos_token_ids=())
    speed = {
        "prefill_tokens_per_s": result.prefill_tokens_per_second,
        "tokens_per_s": result.decode_tokens_per_second,
    }
    eager = Generator(model, trace=False).generate([prompt], max_new_tokens=new_tokens, eos_token_ids=())
    same = eager.token_ids == result.token_ids
    return speed | {"replays": generator.engine.replays, "tokens": result.decode_tokens, "eager_text": same}
