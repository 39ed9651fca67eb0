# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's matrices in the chips' form: transposed, fused, split, RoPE pairs adjacent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F

from ...checkpoint.tensor_shapes import LM_HEAD, check_shapes
from ...config import LlamaConfig
from ..parallel.layer_parallel import Stage
from ..parallel.mesh import MeshShape

EMBEDDING, FINAL_NORM = "model.embed_tokens.weight", "model.norm.weight"


class WeightMap:
    """Host matrices, made on demand, each [inputs, outputs] in the checkpoint's dtype. state: Hugging Face names; q and
    k rows in its half-split RoPE order. Raises ModelLoadError naming the missing, misshapen or unexpected tensor."""

    def __init__(self, config: LlamaConfig, state: Mapping[str, torch.Tensor], mesh: MeshShape) -> None:
        mesh.check_model(config)
        check_shapes(config, {name: tuple(tensor.shape) for name, tensor in state.items()}, config.name)
        self.config, self.state, self.mesh = config, state, mesh

    def embedding(self) -> torch.Tensor:
        """Return [vocab, hidden]; columns are split over the chips."""
        return self.state[EMBEDDING]

    def lm_head(self, start: int, columns: int) -> torch.Tensor:
        """Return [hidden, tp * columns]: `columns` columns from `start` of every chip's part of the vocabulary; columns
        are split again. The vocabulary is padded with zeros to whole tiles on every chip."""
        head = self.state[EMBEDDING if self.config.tie_word_embeddings else LM_HEAD]
        head = F.pad(head, (0, 0, 0, self.mesh.padded_vocab(self.config) - len(head)))
        return head.view(self.mesh.tp, -1, head.shape[1])[:, start : start + columns].flatten(0, 1).t()

    def final_norm(self) -> torch.Tensor:
        return self.state[FINAL_NORM]

    def norm(self, layer: int, which: str) -> torch.Tensor:
        """Return [hidden]. which: attention or mlp."""
        name = {"attention": "input_layernorm", "mlp": "post_attention_layernorm"}[which]
        return self.state[f"model.layers.{layer}.{name}.weight"]

    def qkv(self, layer: int) -> torch.Tensor:
        """Return [hidden, (heads + 2 kv heads) * head_dim]: chip by chip its query, key and value columns."""
        return joined(self._qkv_rows(layer, self.mesh.tp)).t()

    def _qkv_rows(self, layer: int, chips: int) -> list[torch.Tensor]:
        """Return, for each of `chips` that share a layer's heads, its query, key and value rows, [outputs, hidden]."""
        config = self.config
        parts = {name: self.state[f"model.layers.{layer}.self_attn.{name}_proj.weight"] for name in "qkv"}
        parts["q"] = adjacent_pairs(parts["q"], config.num_attention_heads)
        parts["k"] = adjacent_pairs(parts["k"], config.num_key_value_heads)
        return [joined(rows) for rows in zip(*(part.chunk(chips) for part in parts.values()), strict=True)]

    def wo(self, layer: int) -> torch.Tensor:
        """Return [heads * head_dim, hidden]; rows are split."""
        return self.state[f"model.layers.{layer}.self_attn.o_proj.weight"].t()

    def own_qkv(self, stage: Stage) -> torch.Tensor:
        """Return [hidden, tp * columns]: chip by chip the query, key and value columns of its own layer, or of its part
        of one; zeros for a chip that idles. Columns are split."""
        return joined(self._own(stage, lambda layer: self._qkv_rows(layer, stage.share))).t()

    def own_wo(self, stage: Stage) -> torch.Tensor:
        """Return [tp * heads * head_dim / share, hidden] likewise; rows are split."""
        return joined(self._own(stage, lambda layer: self.wo(layer).chunk(stage.share)))

    def own_norms(self, stage: Stage) -> torch.Tensor:
        """Return [tp * hidden]: chip by chip the attention norm of its own layer."""
        return joined(self._own(stage, lambda layer: [self.norm(layer, "attention")] * stage.share))

    def _own(self, stage: Stage, parts: Callable[[int], Sequence[torch.Tensor]]) -> list[torch.Tensor]:
        """Return each chip's part of what `parts` splits over the chips of a layer."""
        by_layer = {layer: parts(layer) for layer in stage.layers}
        idle = torch.zeros_like(by_layer[stage.layers[0]][0])
        places = [stage.place(chip) for chip in range(stage.chips)]
        return [idle if place is None else by_layer[place[0]][place[1]] for place in places]

    def ff1(self, layer: int) -> torch.Tensor:
        """Return the gate, [hidden, intermediate]; columns are split."""
        return self.state[f"model.layers.{layer}.mlp.gate_proj.weight"].t()

    def ff3(self, layer: int) -> torch.Tensor:
        """Return the up projection, [hidden, intermediate]; columns are split."""
        return self.state[f"model.layers.{layer}.mlp.up_proj.weight"].t()

    def ff2(self, layer: int) -> torch.Tensor:
        """Return the down projection, [intermediate, hidden]; rows are split."""
        return self.state[f"model.layers.{layer}.mlp.down_proj.weight"].t()


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenate rows. For meta tensors (blank models) torch.cat would take a second: it imports torch's compiler."""
    if parts[0].is_meta:
        return parts[0].new_empty((sum(map(len, parts)), *parts[0].shape[1:]))
    return torch.cat(tuple(parts))


def adjacent_pairs(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder [heads * head_dim, inputs] so that dimension i of a head is next to i + head_dim / 2, its partner in
    RoPE.

    Hugging Face keeps the pair half a head apart; the chip's rotary op takes neighbours. Attention scores do not change
    if queries and keys are permuted alike.
    """
    rows, inputs = weight.shape
    return weight.view(heads, 2, rows // heads // 2, inputs).transpose(1, 2).reshape(rows, inputs)
