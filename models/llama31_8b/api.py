# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The public names of `models.llama31_8b`: the same calls on a CPU, on simulated chips and on boards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checkpoint.load import Checkpoint
from .checkpoint.tensor_shapes import random_state_dict
from .checkpoint.tokenizer import Tokenizer
from .config import LlamaConfig
from .generation.request import SamplingParams as Sampling
from .generation.request import TokenCallback
from .reference.hits import measure_hits
from .reference.load import LoadedModel, load_model
from .results import GenerationResult as Result
from .simulated import opening_options
from .spec_decode.draft_settings import SELF_WINDOW, DraftShape
from .spec_decode.loop import Drafter, Generator
from .tiny import TINY
from .tt.mesh import TILE
from .tt.mesh import MeshShape as Mesh
from .tt.settings import AttentionSettings as Attention
from .tt.settings import ModelSettings

if TYPE_CHECKING:
    import ttnn

    from .tt.model import TtLlama

__all__ = ["Attention", "Draft", "Llama", "Mesh", "Result", "Sampling", "load", "measure_hits"]

RANDOM = "random"  # a source: two small layers with random weights and no tokenizer


@dataclass(frozen=True)
class Draft:
    """What drafts tokens, which the model then verifies, several per step.

    source: "ngram" looks up what followed before; "self" is the model with attention to both ends of its cache; else a
    smaller checkpoint with the same tokenizer, as of `load`. shape: tokens ahead and candidates per node.
    parallel_layers: of a draft checkpoint, or of "self" on the CPU, how many layers run at once (EasySpec's fuzzy
    drafting). window: of "self", tokens read at either end, a multiple of 32.
    """

    source: str = "ngram"
    shape: DraftShape = field(default_factory=DraftShape)
    parallel_layers: int | None = None
    window: int = SELF_WINDOW


class Llama:
    """A model that writes texts; `load` makes it. Leave it by `close`, or use it as a context manager.

    config: of the model. tokenizer: None for random weights. generator: the loop over its engine.
    """

    def __init__(
        self, config: LlamaConfig, tokenizer: Tokenizer | None, generator: Generator, close: Callable[[], None]
    ) -> None:
        self.config, self.tokenizer, self.generator, self._close = config, tokenizer, generator, close

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[Sequence[int]],
        *,
        max_new_tokens: int = 128,
        sampling: Sampling | None = None,
        eos_token_ids: Collection[int] | None = None,
        on_token: TokenCallback | None = None,
    ) -> Result:
        """Continue prompts, up to `users` of `load` together.

        Args:
            prompts: a text, or texts, or their token ids.
            max_new_tokens: per text.
            sampling: greedy by default.
            eos_token_ids: which tokens end a text; None for the model's own.
            on_token: gets each user's number and new token as it comes; True ends that text.

        Returns:
            Ids, texts if there is a tokenizer, times and counts.

        Raises:
            ValueError: before any work; see loop.Generator.generate.
        """
        if isinstance(prompts, str):
            prompts = [prompts]
        ids = [list(self._encoded(prompt)) for prompt in prompts]
        if eos_token_ids is None and self.tokenizer is not None:
            eos_token_ids = self.tokenizer.eos_token_ids
        result = self.generator.generate(
            ids, max_new_tokens=max_new_tokens, sampling=sampling, eos_token_ids=eos_token_ids, on_token=on_token
        )
        if self.tokenizer is None:
            return result
        return replace(result, texts=[self.tokenizer.decode(tokens) for tokens in result.token_ids])

    def close(self) -> None:
        """Release the chips, if any."""
        self._close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _encoded(self, prompt: str | Sequence[int]) -> Sequence[int]:
        if not isinstance(prompt, str):
            return prompt
        if self.tokenizer is None:
            raise ValueError("a model of random weights has no tokenizer: give token ids")
        return self.tokenizer.encode(prompt)


def load(
    source: str | Path | None = None,
    *,
    mesh: str | Mesh | ttnn.MeshDevice | None = None,
    attention: Attention = Attention(),
    draft: Draft | None = None,
    users: int = 1,
    context: int | None = None,
    precision: str = "performance",
) -> Llama:
    """Load a model for the CPU, or onto a mesh.

    Args:
        source: a Hugging Face folder, hub id or GGUF file; None for $HF_MODEL, else SmolLM2-135M-Instruct; "random" for
            a tiny model.
        mesh: rows x columns of chips, such as "2x1", which is opened and closed with the model, or one that is open;
            None for the CPU. Simulated chips: `python -m runtime_patches.simulated_n150 run --patch
            runtime_patches.sgdc --mesh 2x1 -- ...`.
        attention: of decode steps; "alspec" speculates, on a mesh of two rows or on the CPU.
        draft: what drafts, None for one token per step.
        users: prompts that a mesh decodes together; the CPU takes any number.
        context: positions that a prompt and its text take; None for the model's, on a mesh for at most 4096.
        precision: number formats on a mesh.

    Raises:
        ValueError: for settings that do not go together, and what loading a checkpoint raises.
    """
    if mesh is not None:
        return _on_mesh(source, mesh, attention, draft, users, context, precision)
    from .reference.alspec import policies
    from .reference.generate import TorchEngine, drafter_for

    loaded = _loaded(source)
    engine = TorchEngine(loaded.model, policies.by_name(*attention.named))
    engine.capacity = min(context or engine.capacity, engine.capacity)
    drafter, shape = None, DraftShape()
    if draft is not None:
        drafter = drafter_for(loaded, draft.source, window=draft.window, fuzzy=draft.parallel_layers, load=_loaded)
        shape = draft.shape
    return Llama(loaded.config, loaded.tokenizer, Generator(engine, drafter, shape), lambda: None)


def _on_mesh(
    source: str | Path | None,
    mesh: str | Mesh | ttnn.MeshDevice,
    attention: Attention,
    draft: Draft | None,
    users: int,
    context: int | None,
    precision: str,
) -> Llama:
    from .tt.generator import Generator as ChipGenerator
    from .tt.layer_parallel import LayerAssignment
    from .tt.spec_decode.drafters import ModelDrafter, self_drafter

    shape = Mesh.parse(mesh) if isinstance(mesh, str) else mesh
    found = _described(source)
    config = found.config
    nodes = 0 if draft is None else draft.shape.most_nodes
    capacity = -(-(min(context or 4096, config.max_position_embeddings) + nodes) // TILE) * TILE
    settings = ModelSettings(users, capacity, precision, attention)
    device: Any = mesh
    with ExitStack() as opened:
        if isinstance(shape, Mesh):
            settings.check(config, shape)
            device = shape.open(**opening_options())
            opened.callback(shape.close, device)
        model = _chips(source, device, settings)
        drafter: Drafter | None = None
        if draft is not None and draft.source == "self":
            drafter = self_drafter(model, draft.window)
        elif draft is not None and draft.source != "ngram":
            smaller, layers = _described(draft.source).config, draft.parallel_layers
            assigned = None if layers in (None, 1) else LayerAssignment.make(smaller, model.mesh_shape, layers)
            own = replace(settings, attention=Attention(), layer_assignment=assigned)
            drafter = ModelDrafter(_chips(draft.source, device, own))
        generator = ChipGenerator(model, None if draft is None else draft.shape, drafter)
        return Llama(config, found.tokenizer, generator, opened.pop_all().close)


def _chips(source: str | Path | None, device: Any, settings: ModelSettings) -> TtLlama:
    from .tt.model import TtLlama

    if source == RANDOM:
        return TtLlama.from_state_dict(TINY, random_state_dict(TINY), device, settings)
    return TtLlama.from_checkpoint(source, device, settings)


def _described(source: str | Path | None) -> Checkpoint:
    no_tokenizer: Any = None
    return Checkpoint(TINY, no_tokenizer, RANDOM, Path(RANDOM), TINY) if source == RANDOM else Checkpoint.open(source)


@lru_cache(maxsize=2)
def _loaded(source: str | Path | None) -> LoadedModel:
    """Load a checkpoint for the CPU once, however often settings change."""
    if source != RANDOM:
        return load_model(source)
    from .reference.model.model import ReferenceLlama

    model = ReferenceLlama.from_state_dict(TINY, random_state_dict(TINY))
    return LoadedModel(**vars(_described(source)), model=model)
