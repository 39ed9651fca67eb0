# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device n150`: the TT-NN path on boards, or on simulated chips of `--device sim`.

Everything that can be refused is, before a board is opened: make a `Plan`, open the mesh, serve.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loguru import logger

from runtime_patches.board import doctor
from runtime_patches.board import environment as driver
from runtime_patches.board.runtime_root import project_cache_dir
from tt_kernels.common.page_table import BLOCKS

from ... import simulated
from ...spec_decode.draft_settings import SELF_WINDOW
from ...tt.dram_budget import DoesNotFit, budget, most_positions
from ...tt.layer_parallel import LayerAssignment
from ...tt.mesh import TILE, MeshError, MeshShape, check_boards, find_boards
from ...tt.precision import PrecisionError, precision_config
from ...tt.settings import ModelSettings, SpeculationError
from ...tt.sharding import ShardingError, check_sharding_of_rows
from ..options import DemoOptions, UserError, named
from ..session import OnToken, Session

if TYPE_CHECKING:
    import ttnn

    from ...checkpoint.load import Checkpoint
    from ...config import LlamaConfig
    from ...results import AttentionStatistics, GenerationResult
    from ...spec_decode.loop import Drafter
    from ...tt.generator import Generator

PRECISION, DECODE_SHARDING = "performance", "interleaved"
_OPTION = "--device n150: "  # how its refusals begin


@dataclass(frozen=True)
class Plan:
    """What a run needs of the chips.

    target, draft: of the models; their capacity is in whole blocks as far as the model's context allows, with the nodes
    of a step after them. limit: positions that a prompt and its continuation may take.
    """

    mesh: MeshShape
    target: ModelSettings
    limit: int
    draft: ModelSettings | None = None


def choose_device() -> tuple[str, str]:
    """Return this machine's device and the reason: n150 with boards and all they need, else cpu."""
    boards = len(driver.visible_boards())
    if simulated.on_simulated_chips():
        return "n150", "simulated chips"
    if not boards:
        return "cpu", f"no Tenstorrent board in {driver.BOARDS}"
    said = f"{boards} Tenstorrent chip{'s' * (boards > 1)}"
    try:
        check_boards(find_boards())
    except MeshError as error:
        return "cpu", f"{said}, but {error}"
    if reason := doctor.why_not("silicon"):
        return "cpu", f"{said}, but {reason}"
    return "n150", said


def plan_run(
    config: LlamaConfig,
    options: DemoOptions,
    mesh: MeshShape,
    prompt_tokens: int | None,
    draft: LlamaConfig | None = None,
    users: int = 1,
) -> Plan:
    """Decide what a run needs. config: the checkpoint's own; prompt_tokens: of the longest prompt, None for a
    conversation; draft: of a draft model on the same mesh; users: prompts decoded together. Raises UserError if the
    mesh cannot split the models, a chip cannot hold them with these positions (the message has the bytes needed and
    present), or the draft's context does not."""
    decode_sharding, nodes = options.decode_sharding or DECODE_SHARDING, chip_tree_nodes(options, users)
    name, own = options.precision or PRECISION, None
    limit = options.max_context or config.max_position_embeddings
    positions = options.chat_context(limit)
    if prompt_tokens is not None:
        positions = min(prompt_tokens + options.max_new_tokens, limit)
    # A step over trees writes all their nodes after the sequence.
    capacity = -(-(positions + nodes) // max(BLOCKS)) * max(BLOCKS)
    capacity = min(capacity, most_positions(config, nodes))
    with named(_OPTION, MeshError, PrecisionError, ShardingError, DoesNotFit, SpeculationError):
        check_sharding_of_rows(decode_sharding, users * max(nodes, 1))
        precision = precision_config(name, config.num_hidden_layers)
        held, what = budget(config, mesh, precision, capacity, users, decode_sharding, nodes), config.name
        if draft is not None:
            if positions > draft.max_position_embeddings:
                raise DoesNotFit(
                    f"--draft: {draft.name} has a context of {draft.max_position_embeddings}, this run takes "
                    f"{positions} positions"
                )
            drafts, layers = precision_config(name, draft.num_hidden_layers), _layer_parallel(options, draft, mesh)
            own = ModelSettings(users, capacity, name, layer_assignment=layers)
            held = held.beside(budget(draft, mesh, drafts, capacity, users, nodes=nodes))
            what += f" with {draft.name} as its draft"
            if layers is not None:
                held = held.beside(layers.extra(drafts, capacity, users))
                what += f", {options.fuzzy} of its layers in parallel,"
        for_users = "" if users == 1 else f" for each of {users} users"
        held.check(f"{what} on {mesh} with a cache of {capacity} positions for {positions + nodes}{for_users}")
        attention = replace(options, attention=options.attention or "exact").attention_settings()
        attention.check(mesh, users, capacity)
    target = ModelSettings(users, capacity, name, attention, decode_sharding)
    return Plan(mesh, target, limit if prompt_tokens is not None else positions, own)


def chip_tree_nodes(options: DemoOptions, users: int = 1) -> int:
    """Return the nodes per user that a step on chips verifies, 0 without a drafter. Raises UserError for drafts of no
    token, for trees and layer groups that drafters on chips do not have, and for more rows than a pass of a draft model
    takes."""
    if options.drafter == "none":
        return 0
    shape = options.draft_shape()
    if shape.length < 1:
        raise UserError("--draft-length 0 drafts nothing: chips decode without drafts by --draft none")
    if options.draft_kind == "self" and (asked := options.flags("tree", "fuzzy")):
        raise UserError(f"{asked[0]}: on chips a model drafts chains for itself, its layers one after another")
    if options.draft_kind == "model":
        if shape.width > 1 and (options.fuzzy or 1) > 1:
            raise UserError(
                f"--fuzzy {options.fuzzy} with --tree {options.tree} would change nothing: on chips trees are drafted "
                "by exact passes"
            )
        from ...spec_decode.tree import check_draft_passes

        with named(f"--draft {options.drafter} wants a lower --draft-length, a smaller --tree or fewer prompts: "):
            check_draft_passes(shape, users)
    return shape.most_nodes


def _layer_parallel(options: DemoOptions, draft: LlamaConfig, mesh: MeshShape) -> LayerAssignment | None:
    """Return the layer assignment of --fuzzy for a draft model, None for sequential drafts. Raises UserError for a
    number of layers that the model does not have and for drafts of one token, MeshError for a model that the mesh
    cannot hold."""
    if options.fuzzy is None or options.fuzzy == 1:
        return None
    if options.draft_shape().length < 2:
        raise UserError(
            f"--fuzzy {options.fuzzy} with --draft-length 1 would change nothing: the first token of a draft comes "
            "from the exact pass"
        )
    with named(f"--fuzzy {options.fuzzy}: "):
        return LayerAssignment.make(draft, mesh, options.fuzzy)


def check_chips() -> int:
    """Return the chips of this machine. Raises UserError if it lacks something or has other boards."""
    if reason := doctor.why_not("silicon"):
        raise UserError(f"{_OPTION}{reason}")
    with named(_OPTION):
        unsure = check_boards(find_boards())
    if unsure:
        logger.warning(
            "taken for N150, since the driver does not tell their type: board {}", ", ".join(map(str, unsure))
        )
    return len(driver.visible_boards())


def run(options: DemoOptions, texts: Sequence[str] | None) -> int:
    """Generate on boards for the prompts `texts`, or chat without any, shown and reported as on the CPU; return the
    exit code. Raises UserError, before any device work or if the boards do not open, and what Checkpoint.open
    raises."""
    with named(_OPTION):
        mesh = MeshShape.choose(options.mesh)
        if not simulated.on_simulated_chips():
            mesh.check_board(check_chips())
    from ...checkpoint.cache import make_cache_folder
    from ...checkpoint.load import Checkpoint
    from ...tt.weights import HostWeights
    from ..chat import check_chat
    from ..text import encode_prompts

    make_cache_folder(project_cache_dir())
    target = Checkpoint.open(options.model, max_context=options.max_context, layers=options.layers)
    if texts is None:
        check_chat(target)
    prompts = None if texts is None else encode_prompts(target, options, texts)
    longest, users = (None, 1) if prompts is None else (max(map(len, prompts)), len(prompts))
    draft = _draft(options, target)
    whole = replace(target.config, max_position_embeddings=target.whole.max_position_embeddings)
    plan = plan_run(whole, options, mesh, longest, None if draft is None else draft.config, users)
    _announce(plan, options, target.source)
    weights = [HostWeights.read(target.folder, target.whole, mesh, plan.target, options.layers)]
    if draft is not None and plan.draft is not None:
        weights.append(HostWeights.read(draft.folder, draft.config, mesh, plan.draft))
    used = replace(
        options,
        mesh=str(mesh),
        precision=options.precision or PRECISION,
        decode_sharding=plan.target.decode_sharding,
    )
    with open_mesh(mesh) as device:
        return _serve(plan, device, target, used, weights, prompts)


def _announce(plan: Plan, options: DemoOptions, shown: str) -> None:
    """Log what is about to run."""
    where = "simulated N150" if simulated.on_simulated_chips() else "N150"
    settings = plan.target
    users = "" if settings.users == 1 else f", {settings.users} users"
    logger.info(
        f"{{}} on {plan.mesh} {where}, {settings.precision} precision, {options.attention} attention, "
        f"{settings.decode_sharding} decode sharding{users}",
        shown,
    )
    if plan.draft is not None and (layers := plan.draft.layer_assignment) is not None:
        saved = "" if plan.mesh.tp > 1 else "; one chip runs them one after another, which saves no time"
        logger.info("layer-parallel drafts: {} groups of up to {} layers{}", len(layers.groups), layers.size, saved)


def _serve(
    plan: Plan, device: ttnn.MeshDevice, checkpoint: Checkpoint, options: DemoOptions, weights: Any, prompts: Any
) -> int:
    """Load the models onto open chips, and generate for the prompts' ids or chat without any; return the exit code.
    weights: the target's HostWeights, then those of a draft model."""
    from ...tt.generator import Generator
    from ...tt.model import TtLlama
    from ...tt.spec_decode.drafters import ModelDrafter, self_drafter
    from ..chat import chat
    from ..session import run_prompts

    model = TtLlama.from_host_weights(weights[0], device, plan.target)
    if options.drafter == "none":  # one trace of decode steps serves all turns of a chat
        generator = Generator(model, sample_on=options.sample_on or "device", keep_trace=prompts is None)
    else:
        drafter: Drafter | None = None
        if plan.draft is not None:
            drafter = ModelDrafter(TtLlama.from_host_weights(weights[1], device, plan.draft))
        elif options.draft_kind == "self":
            drafter = self_drafter(model, min(SELF_WINDOW, model.capacity // TILE * TILE))
        generator = Generator(model, options.draft_shape(), drafter)
    session = BoardSession(checkpoint, options, generator, plan.limit)
    code = chat(session) if prompts is None else run_prompts(session, prompts)
    generator.engine.release()
    return code


def _draft(options: DemoOptions, target: Checkpoint) -> Checkpoint | None:
    """Find the checkpoint of a draft model. Raises UserError if its vocabulary differs."""
    if options.draft_kind != "model":
        return None
    from ...checkpoint.load import Checkpoint
    from ...spec_decode.draft_settings import check_vocabularies

    draft = Checkpoint.open(options.drafter)
    with named("--draft: "):
        check_vocabularies(target.config, draft.config, target.tokenizer.fingerprint(), draft.tokenizer.fingerprint())
    return draft


@contextmanager
def open_mesh(mesh: MeshShape) -> Iterator[ttnn.MeshDevice]:
    """Open the boards, or the simulated chips of this process. Raises UserError with ttnn's message if they do not open
    as this mesh."""
    try:
        device = mesh.open(**simulated.opening_options())
    except (MeshError, RuntimeError) as error:
        # A failed check of ttnn ends with pages of return addresses.
        why = str(error).split("backtrace:")[0].strip()
        raise UserError(f"--device n150: the boards do not open as a {mesh} mesh: {why}") from error
    try:
        yield device
    finally:
        mesh.close(device)


class BoardSession(Session):
    """A session on boards that the caller opens and closes."""

    def __init__(self, checkpoint: Checkpoint, options: DemoOptions, generator: Generator, limit: int) -> None:
        """limit: tokens that a prompt and its text may have."""
        super().__init__()
        self.checkpoint, self.options, self.generator, self.context_limit = checkpoint, options, generator, limit
        self.capacity = min(generator.engine.capacity - generator.engine.spare, limit)
        self.warm_up = (0, 0.0)
        self._counted: list[Any] = []
        if sys.stderr.isatty():  # to count, the host waits for each chunk
            generator.engine.on_prefill = self._bar

    def generate(
        self, prompts: Sequence[Sequence[int]], on_token: OnToken, context: Sequence[Sequence[int]] | None = None
    ) -> GenerationResult:
        result = super().generate(prompts, on_token, context)
        assert self.warm_up is not None
        tokens, seconds = self.warm_up
        self.warm_up = tokens + self.generator.warm_up_tokens, seconds + self.generator.warm_up_seconds
        if result.statistics is not None:
            self._counted.append(result.statistics)
        return result

    @property
    def statistics(self) -> AttentionStatistics | None:
        """Return the sums over all texts; the chips count from zero in each."""
        return type(self._counted[0]).merged(self._counted) if self._counted else None
