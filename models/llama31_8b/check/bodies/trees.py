# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Token trees in steps that decode, verify and commit, against the reference's plain greedy text."""

from __future__ import annotations

import torch

from models.llama31_8b.generation.sampling import SamplingParams
from models.llama31_8b.reference.model.model import ReferenceLlama
from models.llama31_8b.spec_decode.tree import TokenTree
from models.llama31_8b.tiny import TINY

from ..context import Context
from ..findings import Check
from .small_model import cached, cached_by_reference, filled_cache, load_cache, make, near

CAPACITY, CACHED, FIRST_TOKEN = 64, 30, 71  # the first tree crosses a tile of 32 positions
PARENTS = (-1, 0, 0, 2)  # a wrong child comes before the right path 2, 3: accepted keys and values move
RIGHT = (2, 1, 0)  # drafted tokens of the path that are right, by round


def greedy_text(reference: ReferenceLlama, cache, tokens: int) -> list[int]:
    """Return the token that is fed first and those chosen after it."""
    text = [FIRST_TOKEN]
    for _ in range(tokens):
        text.append(int(reference.forward(torch.tensor([text[-1:]]), cache)[0, 0].argmax()))
    return text


def drafted(text: list[int], right: int) -> list[int]:
    """Return the nodes' tokens of a tree whose root is text[0] and whose path is right in so many tokens."""
    path = [token if depth < right else (token + 1) % TINY.vocab_size for depth, token in enumerate(text[1:3])]
    return [text[0], (text[1] + 2) % TINY.vocab_size, *path]


def token_trees(context: Context) -> list[Check]:
    """Commit a whole path, a part of one and none: the text is the plain greedy one, and so is the cache."""
    from models.llama31_8b.tt.spec_decode.tree_step import TreeStep

    model, reference = make(context.device, TINY, capacity=CAPACITY)
    cache = filled_cache(reference, CACHED, CAPACITY)
    load_cache(model, cache)
    new = sum(RIGHT) + len(RIGHT)
    text = greedy_text(reference, cache, new + 2)
    step, tree = TreeStep(model, len(PARENTS), SamplingParams(0.0)), TokenTree.from_parents(PARENTS)
    made, paths = [FIRST_TOKEN], []
    for right in RIGHT:
        step.load({0: (tree, drafted(text[len(made) - 1 :], right))}, [CACHED + len(made) - 1], ())
        (outcome,) = step().check()
        made += outcome.tokens
        paths.append(list(outcome.path))
    expected = [[2, 3][:right] for right in RIGHT]
    return [
        Check("accepted nodes by round", paths, expected, paths == expected),
        Check("text", made, text[: new + 1], made == text[: new + 1]),
        near("keys and values", cached(model, CACHED + new), cached_by_reference(cache, CACHED + new)),
    ]
