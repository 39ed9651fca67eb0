# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Each module of the TT-NN model alone against torch, on the device of a worker; shapes are those of the tiny model."""

from __future__ import annotations

from tt_programs import TINY, build, figures, half_split

ROWS = 32


def modules(mesh) -> dict[str, dict]:
    """Figures of every module: name -> PCC and largest errors."""
    import torch
    import torch.nn.functional as F
    import ttnn

    from models.llama31_8b.reference.rope import RotaryTable, rotate
    from models.llama31_8b.tt.model import read

    model, reference = build(mesh, TINY)
    ours, theirs = model.layers[0], reference.layers[0]
    generator = torch.Generator().manual_seed(7)
    dram, l1 = ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG

    def normal(*shape) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).bfloat16().float()

    def put(tensor, memory=dram):
        return ttnn.from_torch(
            tensor, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, memory_config=memory
        )

    found = {}
    x, one = normal(ROWS, TINY.hidden_size), normal(1, TINY.hidden_size)
    tokens = torch.randint(0, TINY.vocab_size, (1, ROWS), generator=generator)
    found["embedding"] = figures(
        read(model.embedding(model.put_integers(tokens, "uint32"), dram))[0, 0], F.embedding(tokens[0], reference.embedding)
    )
    found["rms_norm"] = figures(
        read(ours.mlp_norm(put(x[None, None])))[0, 0], reference._rms_norm(x, theirs.mlp_norm)
    )

    def mlp(rows):
        gate, up = theirs.gate_up(rows).chunk(2, dim=-1)
        return theirs.down(F.silu(gate) * up)

    with torch.inference_mode():
        found["mlp, a tile of rows"] = figures(read(ours.mlp(put(x[None, None]), dram))[0, 0], mlp(x))
        found["mlp, one row in L1"] = figures(read(ours.mlp(put(one[None, None], l1), l1))[0, 0], mlp(one))
        found["lm_head"] = figures(read(model.head(put(x[None, None])))[0, 0], reference.head(x))

    positions = torch.arange(64, 64 + ROWS)
    angles = model.rope.prefill_angles(model.put_integers(positions[None], "uint32"))
    heads = normal(1, 2, ROWS, 64)  # neighbours are pairs
    cos, sin = RotaryTable(TINY, torch.float32).rows(positions, 64 + ROWS)
    expected = rotate(half_split(heads[0]).transpose(0, 1), cos, sin).transpose(0, 1)
    found["rope, prefill"] = figures(half_split(read(model.rope.prefill(put(heads), angles))[0]), expected)

    # A whole prompt of one chunk: causal attention and the output projection.
    begin = model.put_integers(torch.tensor([0]), "int32")
    angles = model.rope.prefill_angles(model.put_integers(torch.arange(ROWS)[None], "uint32"))
    got = read(ours.attention.prefill(put(x[None, None]), model.cache, 0, 0, begin, angles))[0, 0]
    with torch.inference_mode():
        q, k, v = theirs.qkv(x).view(ROWS, 4, 64).split([2, 1, 1], dim=1)
        cos, sin = RotaryTable(TINY, torch.float32).rows(slice(0, ROWS), ROWS)
        q, k = (rotate(part, cos, sin).transpose(0, 1) for part in (q, k))
        out = F.scaled_dot_product_attention(q[None], k[None], v.transpose(0, 1)[None], is_causal=True, enable_gqa=True)
        found["attention, prefill"] = figures(got, theirs.o(out[0].transpose(0, 1).reshape(ROWS, 128)))

        # One more token behind it.
        inputs = model.step_inputs([0], [ROWS])
        got = read(ours.attention.decode(put(one[None, None], l1), model.cache, inputs.positions,
                                         model.rope.decode_angles(inputs.angles)))[0, 0]  # fmt: skip
        q1, k1, v1 = theirs.qkv(one).view(1, 4, 64).split([2, 1, 1], dim=1)
        cos, sin = RotaryTable(TINY, torch.float32).rows(slice(ROWS, ROWS + 1), ROWS + 1)
        q1, k1 = (rotate(part, cos, sin).transpose(0, 1) for part in (q1, k1))
        keys = torch.cat((k, k1), 1)
        values = torch.cat((v, v1)).transpose(0, 1)
        out = F.scaled_dot_product_attention(q1[None], keys[None], values[None], enable_gqa=True)
        found["attention, decode"] = figures(got, theirs.o(out[0].transpose(0, 1).reshape(1, 128)))
    cached = read(model.cache.keys[0]).float()[0, :, : ROWS + 1]
    found["cached keys"] = figures(half_split(cached), keys)
    found["cached values"] = figures(read(model.cache.values[0]).float()[0, :, : ROWS + 1], values)
    return found
