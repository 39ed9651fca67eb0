# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Generate with attention-level speculation on a pair of N150; on a simulated pair, with a tiny random model:

    python -m runtime_patches.simulated_n150 run --patch runtime_patches.sgdc --mesh 2x1 --grid 2x2 -- \
        python examples/llama_on_a_mesh.py

On two boards name a checkpoint: python examples/llama_on_a_mesh.py meta-llama/Llama-3.1-8B-Instruct
"""

import sys

from models.llama31_8b.checkpoint.load import resolve_source
from models.llama31_8b.checkpoint.random_weights import random_state_dict
from models.llama31_8b.checkpoint.tokenizer import Tokenizer
from models.llama31_8b.tiny import TINY
from models.llama31_8b.tt.mesh import MeshShape
from models.llama31_8b.tt.settings import AttentionSettings, ModelSettings


def generate(mesh, source: str | None = None, new_tokens: int = 4):
    from models.llama31_8b.tt.generator import Generator
    from models.llama31_8b.tt.model import TtLlama

    settings = ModelSettings(capacity=256, attention=AttentionSettings("alspec", chunk_size=32, threshold=0.3))
    if source is None:
        model, prompt = TtLlama.from_state_dict(TINY, random_state_dict(TINY), mesh, settings), list(range(70))
    else:
        model = TtLlama.from_checkpoint(source, mesh, settings)
        prompt = Tokenizer.from_folder(resolve_source(source)[0]).encode("The tides are caused by the moon. " * 10)
    return Generator(model).generate([prompt], max_new_tokens=new_tokens, eos_token_ids=())


if __name__ == "__main__":
    shape = MeshShape(2, 1)
    mesh = shape.open(trace_region_size=32 * 1024**2)
    result = generate(mesh, sys.argv[1] if sys.argv[1:] else None)
    print(f"tokens {result.token_ids[0]}; {result.statistics.hit_rate:.0%} of the guesses accepted")
    shape.close(mesh)
