# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Generate with attention-level speculation on a pair of N150; on a simulated pair, with a tiny random model:

    python -m runtime_patches.simulated_n150 run --patch runtime_patches.sgdc --mesh 2x1 --grid 2x2 -- \
        python examples/llama_on_a_mesh.py

On two boards name a checkpoint: python examples/llama_on_a_mesh.py meta-llama/Llama-3.1-8B-Instruct
"""

import sys

from models.llama31_8b import Attention, load


def generate(mesh, source="random", new_tokens=4):
    prompt = [list(range(70))] if source == "random" else "The tides are caused by the moon. " * 10
    with load(source, mesh=mesh, attention=Attention("alspec", 32, threshold=0.3), context=256) as llama:
        return llama.generate(prompt, max_new_tokens=new_tokens, eos_token_ids=())


if __name__ == "__main__":
    result = generate("2x1", *sys.argv[1:2])
    print(f"tokens {result.token_ids[0]}; {result.statistics.hit_rate:.0%} of the guesses accepted")
