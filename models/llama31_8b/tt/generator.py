# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A TtLlama as an engine of the generation loop: traced steps that choose, or verify and commit, on the chips."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Generator as Yielding
from contextlib import closing
from typing import Any

import torch
import ttnn
from loguru import logger

from tt_kernels.common.attention_checks import MAX_USERS
from tt_kernels.speculative_sampling.checks import MAX_NODES
from tt_kernels.speculative_sampling.op import Verified

from ..generation.sampling import Draws, SamplingParams, SigmoidApproximation, sample, warp_logits
from ..results import AttentionStatistics
from ..spec_decode import loop
from ..spec_decode.draft_settings import DraftShape
from ..spec_decode.drafters import NGramDrafter
from ..spec_decode.loop import Drafter, Drafts, Engine, Outcome
from ..spec_decode.tree import TokenTree
from .mesh import TILE
from .model import StepInputs, TtLlama, advance, cache_prompt, overwrite, read
from .prefill import PREFILL_CHUNK, check_chunk
from .sampling.top_k import Sampler, samples_on_chips
from .spec_decode.tree_step import TreeStep
from .trace import TracedPrefill, TracedStep, why_no_trace


class PlainSteps:
    """Decode steps of one token per user. sampler: chooses on the chips, None if the host does. A step leaves its
    tokens, if it chooses, and advanced positions in its inputs: `held` says what they then hold, (token, position) by
    user, so that only what differs is written."""

    def __init__(self, model: TtLlama, sampling: SamplingParams, sampler: Sampler | None, eager: bool) -> None:
        self.model, self.sampling, self.sampler = model, sampling, sampler
        self.uniforms = sampler.uniforms([0.0] * model.users) if sampler else None
        self.inputs: StepInputs = model.step_inputs([0] * model.users, [-1] * model.users)
        self.traced = TracedStep(model.mesh, self.run, eager)
        self.held: dict[int, tuple[int, int]] = {}

    def load(self, wanted: dict[int, tuple[int, int]], draws: Draws) -> None:
        """Write the users' tokens and positions unless they are held, and new random numbers."""
        users = range(self.model.users)
        if self.held != wanted:
            tokens, positions = zip(*(wanted.get(user, (0, -1)) for user in users), strict=True)
            overwrite(self.inputs, self.model.step_inputs(tokens, positions, on_device=False))
        if self.sampler is not None and self.uniforms is not None:
            numbers = [float(draws.uniforms([user], 1)) if user in wanted else 0.0 for user in users]
            overwrite([self.uniforms], [self.sampler.uniforms(numbers, on_device=False)])
        self.held = wanted

    def run(self) -> ttnn.Tensor:
        """Run a step: the chosen tokens, or the logits of all users."""
        if self.sampler is not None:
            return decode_and_choose(self.model, self.inputs, self.sampler, self.uniforms)
        logits = self.model.decode(self.inputs)
        advance(self.inputs)
        return logits


class ChipEngine(Engine):
    """A TtLlama on its mesh.

    A step, and a prefill chunk of `prefill_chunk` tokens, is captured as a trace after its first run if the mesh was
    opened with a trace region and fast dispatch; otherwise, and with trace=False, all run eagerly and `why_eager` says
    why. `replays` counts the steps of the last text that replayed a trace.

    nodes: of every step over token trees, whatever the trees are, so that one trace serves all; 0 decodes one token per
    step. sample_on: "device" samples on the chips and reads back ids alone, "host" reads logits; both draw the same
    tokens from the same seeds. Parameters that chips do not sample by (`samples_on_chips`) are sampled on the host,
    which is logged. on_logits(user, float32 [vocab]): sees every distribution of plain steps, and needs the host to
    sample. on_prefill(done, total): counts the prompts' tokens after each chunk, for which the host then waits.
    keep_trace: replay it in later calls with the same sampling, for a conversation. Until `release`, nothing
    else may then put lasting tensors on the mesh. Raises ValueError for trees that are not decoded.
    """

    def __init__(
        self,
        model: TtLlama,
        nodes: int = 0,
        *,
        sample_on: str = "device",
        prefill_chunk: int = PREFILL_CHUNK,
        trace: bool = True,
        keep_trace: bool = False,
        lossy: SigmoidApproximation | None = None,
        on_logits: Callable[[int, torch.Tensor], None] | None = None,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> None:
        if sample_on not in ("device", "host"):
            raise ValueError(f"sample_on must be device or host, got {sample_on!r}")
        check_chunk(prefill_chunk)
        if nodes:
            model.attention.check_trees()
        if nodes > MAX_NODES:
            raise ValueError(f"trees of up to {MAX_NODES} nodes are verified, a draft of this shape has {nodes}")
        if nodes and model.users > MAX_USERS:
            raise ValueError(f"trees of up to {MAX_USERS} users are verified, the model has {model.users}")
        if nodes >= model.capacity:
            raise ValueError(f"a cache of {model.capacity} positions has no room for trees of {nodes} nodes")
        self.model, self.config, self.capacity, self.spare = model, model.config, model.capacity, nodes
        self.sample_on, self.prefill_chunk, self.keep_trace = sample_on, prefill_chunk, keep_trace
        self.lossy, self.on_logits, self.on_prefill = lossy, on_logits, on_prefill
        self.why_eager = why_no_trace(model.mesh) if trace else "trace=False"
        self.tree_step: TreeStep | None = None
        self._plain: PlainSteps | None = None
        self._traced: TracedStep[Any] | None = None
        self._before = 0, 0  # runs and replays before this text's first step

    @property
    def replays(self) -> int:
        """Return how many of the last text's steps replayed a trace."""
        return 0 if self._traced is None else self._traced.replays - self._before[1]

    @property
    def warm_up_steps(self) -> int:
        return max(0, (2 if self.replays else 1) - self._before[0])

    def open(self, texts: int, positions: int, draws: Draws) -> None:
        model, sampling = self.model, draws.sampling
        if texts > model.users:
            raise ValueError(f"{texts} prompts for a model of {model.users} users")
        if self.spare and (sampling.top_k or sampling.top_p < 1.0) and not sampling.greedy:
            raise ValueError(
                f"drafts are verified against the whole distribution: top_k {sampling.top_k} and top_p "
                f"{sampling.top_p} are for decoding without drafts"
            )
        self.draws = draws
        if self._plain is None or self._plain.sampling != sampling:
            self.release()
            self._sampler = self._make_sampler(sampling)
        if self.why_eager is not None:
            logger.info("decode steps and prefills run eagerly: {}", self.why_eager)
        model.reset()

    def kept(self, user: int, cached: int) -> int:
        return cached // TILE * TILE  # a chunk starts a tile

    def prefill(self, texts: Sequence[Sequence[int]], starts: Sequence[int]) -> Yielding[tuple[int, int], None, None]:
        counts = [len(text) - start for text, start in zip(texts, starts, strict=True)]
        done, total = 0, sum(counts)

        def count(tokens: int) -> None:
            nonlocal done
            done += tokens
            if self.on_prefill is not None:
                self.on_prefill(done, total)

        # A single chunk needs no tensors that a trace would read.
        chunks = sum(-(-count // self.prefill_chunk) for count in counts)
        eager = self.why_eager is not None or chunks < 2
        with closing(TracedPrefill(self.model, self.prefill_chunk, eager)) as run:
            for user, (text, start) in enumerate(zip(texts, starts, strict=True)):
                logits = cache_prompt(
                    *(self.model, text, user, self.prefill_chunk),
                    start=start,
                    logits=True,
                    gather_logits=self._sampler is None,
                    progress=None if self.on_prefill is None else count,
                    prefill=run,
                )
                assert logits is not None  # of a text that is not empty
                yield user, self._first(logits, user, (len(text) - 1) % TILE)

    def begin(self) -> None:
        model, eager = self.model, self.why_eager is not None
        if self.spare:
            self.tree_step = TreeStep(model, self.spare, self.draws.sampling, self.lossy)
            self._traced = TracedStep(model.mesh, self.tree_step, eager)
        else:
            if self._plain is None:
                self._plain = PlainSteps(model, self.draws.sampling, self._sampler, eager)
            self._plain.held, self._traced = {}, self._plain.traced
            self._traced.refresh()
        self._before = self._traced.runs, self._traced.replays

    def step(
        self, tokens: Mapping[int, Sequence[int]], trees: Mapping[int, TokenTree], positions: Mapping[int, int]
    ) -> ttnn.Tensor | Verified:
        if self._traced is None:
            raise RuntimeError("steps need `begin`")
        if self.tree_step is not None:
            if tokens:
                self.tree_step.load({user: (trees[user], tokens[user]) for user in trees}, positions)
            self.tree_step.draw({user: len(tree) for user, tree in trees.items()}, self.draws)
        elif self._plain is not None:
            wanted = {user: (tokens[user][0], position) for user, position in positions.items()}
            self._plain.load(wanted, self.draws)
        return self._traced()

    def verify(self, step: ttnn.Tensor | Verified, drafts: Drafts) -> dict[int, Outcome]:
        if isinstance(step, Verified):
            found = agreed_outcomes(self.model, step)
            return {user: Outcome(found[user].path, found[user].tokens) for user in drafts.trees}
        plain, model = self._plain, self.model
        if plain is None:
            raise RuntimeError("a plain step needs `begin`")
        if plain.sampler is None:
            model.check()
            logits = read(step)
            chosen = {user: self._sampled(user, logits[0, 0, user].float()) for user in drafts.trees}
            plain.held = {user: (token, position + 1) for user, (token, position) in plain.held.items()}
        else:
            tokens = agreed_tokens(model, step)
            chosen = {user: int(tokens[0, user]) for user in drafts.trees}
            plain.held = {user: (chosen[user], position + 1) for user, (_, position) in plain.held.items()}
        return {user: Outcome([], [token]) for user, token in chosen.items()}

    def end(self, whole: bool) -> None:
        self.tree_step = None
        if self._traced is not None and not (whole and self.keep_trace and self._plain is not None):
            self._traced.release()
            self._plain = None

    def release(self) -> None:
        """Release a kept trace."""
        if self._plain is not None:
            self._plain.traced.release()
        self._plain = None

    def statistics(self) -> AttentionStatistics | None:
        return self.model.statistics()

    def _make_sampler(self, sampling: SamplingParams) -> Sampler | None:
        """Make what samples on the chips; None if the host does."""
        if self.sample_on == "host" or self.on_logits is not None:
            return None
        if not samples_on_chips(sampling, self.config.vocab_size):
            logger.info("top_k {} and top_p {}: sampled on the host", sampling.top_k, sampling.top_p)
            return None
        return Sampler(self.model.site, sampling)

    def _first(self, logits: ttnn.Tensor, user: int, row: int) -> int:
        """Return the token after `row` of a prompt's last tile of logits, [1, 1, 32, columns]."""
        if self._sampler is None:
            return self._sampled(user, read(logits)[0, 0, row].float())
        line = ttnn.slice(logits, [0, 0, row, 0], [1, 1, row + 1, logits.shape[3]])
        numbers = self._sampler.uniforms([float(self.draws.uniforms([user], 1))])
        return int(read(self._sampler(line, numbers))[0, 0])

    def _sampled(self, user: int, logits: torch.Tensor) -> int:
        if self.on_logits is not None:
            self.on_logits(user, logits)
        return int(sample(warp_logits(logits[None], self.draws.sampling), [self.draws.generators[user]])[0])


class Generator(loop.Generator):
    """Generate with a TtLlama; with a `shape` several tokens per step, which `drafter` drafts, by default by n-gram
    look-up in each user's text.

    Every step then verifies `shape.most_nodes` nodes per user. With n-gram drafts, and with a draft model's chains,
    sampled text uses the random numbers of the reference, and so yields its tokens unless one is at a border. on_step:
    see loop.Generator. options: of ChipEngine. Both raise ValueError.
    """

    engine: ChipEngine

    def __init__(
        self,
        model: TtLlama,
        shape: DraftShape | None = None,
        drafter: Drafter | None = None,
        *,
        on_step: Callable[[ChipEngine, Drafts, dict[int, Outcome]], None] | None = None,
        **options: Any,
    ) -> None:
        if shape is not None and shape.length < 1:
            raise ValueError("a draft length of 0 drafts nothing")
        engine = ChipEngine(model, 0 if shape is None else shape.most_nodes, **options)
        if shape is None:
            super().__init__(engine)
        else:
            super().__init__(engine, drafter or NGramDrafter(), shape, on_step=on_step)


def decode_and_choose(
    model: TtLlama, inputs: StepInputs, sampler: Sampler, uniforms: ttnn.Tensor | None = None
) -> ttnn.Tensor:
    """Run a decode step whose tokens are sampled on the chips, and make its inputs ready for the next: positions
    advanced, tokens replaced. Returns the tokens, `inputs.tokens`."""
    logits = model.decode(inputs, gather_logits=False)
    advance(inputs)
    tokens = sampler(logits, uniforms, inputs.tokens)
    model.guard_tokens(tokens)
    return tokens


def agreed_tokens(model: TtLlama, output: ttnn.Tensor) -> torch.Tensor:
    """Return the tokens that a step chose, int64 [1, users], from a tensor on the chips or its copy on the host. Of
    several chips, every one's tokens are compared, which shows whether one failed. Raises what `TtLlama.check`
    raises, and RuntimeError if chips chose different tokens."""
    if model.mesh_shape.chips == 1:
        return read(output).long()
    found = [ttnn.to_torch(part).to(torch.int64) & 0xFFFFFFFF for part in ttnn.get_device_tensors(output)]
    if beyond := [t.tolist() for t in found if bool((t >= model.config.vocab_size).any())]:
        model.check()
        raise RuntimeError(f"tokens outside the vocabulary of {model.config.vocab_size}: {beyond[0]}")
    if any(not torch.equal(tokens, found[0]) for tokens in found):
        raise RuntimeError(f"the chips of {model.mesh_shape} chose different tokens: {[t.tolist() for t in found]}")
    return found[0]


def agreed_outcomes(model: TtLlama, verified: Verified) -> list[Any]:
    """Return each user's outcome, a VerificationResult. Of several chips, read every one's, which show whether one
    failed. Raises what `Verified.check` and `TtLlama.check` raise, and RuntimeError if chips decided
    differently."""
    if model.mesh_shape.chips == 1:
        return verified.check()
    found = [verified.read(chip) for chip in range(model.mesh_shape.chips)]
    if any(outcome.status for outcomes in found for outcome in outcomes):
        model.check()
    if any(outcomes != found[0] for outcomes in found):
        raise RuntimeError(f"the chips of {model.mesh_shape} verified differently: {found}")
    return verified.check()
