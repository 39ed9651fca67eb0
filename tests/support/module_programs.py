# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Each module of the TT-NN model alone against torch, on the device of a worker, at any model's shapes."""

from tests.support.tt_programs import build, figures, half_split

ROWS = 32


def modules(mesh, config, precision: str) -> dict[str, dict]:
    """Figures of every module of a two-layer model's first layer, with random weights: name -> PCC and
    largest errors. The last layer has other formats in the performance plan."""
    import torch
    import torch.nn.functional as F
    import ttnn

    from models.llama31_8b.reference.model.model import RotaryTable, rotate
    from models.llama31_8b.tt.layer import Pass
    from models.llama31_8b.tt.model import StepInputs, read

    config = config.with_layers(2)
    model, reference = build(mesh, config, precision)
    ours, theirs = model.layers[0], reference.layers[0]
    heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    generator = torch.Generator().manual_seed(7)
    dram, l1 = ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG

    def normal(*shape) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).bfloat16().float()

    def put(tensor, memory=dram):
        return ttnn.from_torch(tensor, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, memory_config=memory)

    def rotated(x, start):
        """x: [heads, rows, head_dim], positions from start."""
        cos, sin = RotaryTable(config, torch.float32).rows(slice(start, start + x.shape[1]), start + x.shape[1])
        return rotate(x.transpose(0, 1), cos, sin).transpose(0, 1)

    found = {}
    x, one = normal(ROWS, config.hidden_size), normal(1, config.hidden_size)
    tokens = torch.randint(0, config.vocab_size, (1, ROWS), generator=generator)
    found["embedding"] = figures(
        read(model.embedding(model.put_integers(tokens, "uint32"), dram))[0, 0],
        F.embedding(tokens[0], reference.embedding),
    )
    found["rms_norm"] = figures(read(ours.mlp_norm(put(x[None, None])))[0, 0], reference._rms_norm(x, theirs.mlp_norm))

    def mlp(rows):
        gate, up = theirs.gate_up(rows).chunk(2, dim=-1)
        return theirs.down(F.silu(gate) * up)

    with torch.inference_mode():
        found["mlp, a tile of rows"] = figures(read(ours.mlp(put(x[None, None]), model.rows))[0, 0], mlp(x))
        found["mlp, one row in L1"] = figures(read(ours.mlp(put(one[None, None], l1), model.layout))[0, 0], mlp(one))
        found["lm_head"] = figures(
            read(model.head(put(x[None, None]), model.rows))[0, 0, :, : config.vocab_size], reference.head(x)
        )

    angles = model.rope.row_angles(model.put_integers(torch.arange(64, 64 + ROWS)[None], "uint32"))
    many = normal(1, heads, ROWS, dim)  # neighbours are pairs
    found["rope, prefill"] = figures(
        half_split(read(model.rope.prefill(put(many), angles))[0]), rotated(half_split(many[0]), 64)
    )

    # A whole prompt of one chunk: causal attention and the output projection.
    chunk = model.chunk([0] * ROWS, 0, 0)
    given = StepInputs(chunk.inputs.tokens, chunk.inputs.start, chunk.inputs.angles)
    rows = Pass(model.rows, model.rope.row_angles(given.angles), model.attention, given)
    heads_output = ours.attention.attend_chunk(
        ours.attention.project_qkv(put(x[None, None]), rows), model.cache, chunk, rows
    )
    got = read(ours.attention.project_output(heads_output, model.rows))[0, 0]

    def projected(rows, start):
        """Queries, keys and values, [heads, rows, head_dim] each."""
        q, k, v = theirs.qkv(rows).view(len(rows), -1, dim).transpose(0, 1).split([heads, kv_heads, kv_heads])
        return rotated(q, start), rotated(k, start), v

    def attended(q, k, v, causal):
        out = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal, enable_gqa=True)
        return theirs.o(out[0].transpose(0, 1).reshape(q.shape[1], heads * dim))

    with torch.inference_mode():
        q, k, v = projected(x, 0)
        found["attention, prefill"] = figures(got, attended(q, k, v, True))

        # One more token behind it.
        inputs = model.step_inputs([0], [ROWS])
        step = Pass(model.layout, model.rope.decode_angles(inputs.angles), model.attention, inputs)
        found_heads = ours.attention.project_qkv(put(one[None, None], l1), step)
        out = ours.attention.attend(found_heads, model.cache, step)
        got = read(ours.attention.project_output(out, model.layout))[0, 0]
        q, k1, v1 = projected(one, ROWS)
        keys, values = torch.cat((k, k1), 1), torch.cat((v, v1), 1)
        found["attention, decode"] = figures(got, attended(q, keys, values, False))
    cached = read(model.cache.keys[0]).float()[0, :, : ROWS + 1]
    found["cached keys"] = figures(half_split(cached), keys)
    found["cached values"] = figures(read(model.cache.values[0]).float()[0, :, : ROWS + 1], values)
    return found
