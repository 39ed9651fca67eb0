# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device n150`: the TT-NN path on boards, or on simulated chips of `--device sim`.

Everything that can be refused is, before a board is opened: make a `Plan`, open the mesh, serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from loguru import logger

from runtime_patches.board import doctor
from runtime_patches.board import environment as driver
from runtime_patches.board.runtime_root import project_cache_dir
from tt_kernels.common.page_table import BLOCKS

from ... import simulated
from ...config import preset
from ...latency import MAX_CONTEXT, PREFILL_FROM, layouts, prefill_ns
from ...spec_decode.draft_settings import SELF_WINDOW
from ...tt.dram_budget import DoesNotFit, budget, longest_context, most_positions
from ...tt.layer_parallel import LayerAssignment
from ...tt.mesh import TILE, MeshError, MeshShape, check_boards, find_boards
from ...tt.precision import PrecisionError, precision_config
from ...tt.settings import ModelSettings, SpeculationError
from ...tt.sharding import ShardingError, check_sharding_of_rows
from ..options import AUTO, DemoOptions, UserError, named, with_attention
from ..session import Session, run_session

if TYPE_CHECKING:
    import ttnn

    from ...checkpoint.load import Checkpoint
    from ...config import LlamaConfig
    from ...spec_decode.loop import Drafter
    from ...tt.generator import Generator

PRECISION, DECODE_SHARDING = "performance", "interleaved"
_LAYER_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
_OPTION = "--device n150: "  # how its refusals begin


@dataclass(frozen=True)
class Plan:
    """What a run needs of the chips.

    target, draft: of the models; their capacity is in whole blocks as far as the model's context allows, with the nodes
    of a step after them. limit: positions that a prompt and its continuation may take. notice: what to say if `limit`
    is the longest context that fits and the model has a longer one.
    """

    mesh: MeshShape
    target: ModelSettings
    limit: int
    draft: ModelSettings | None = None
    notice: str | None = None


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
    conversation; draft: of a draft model on the same mesh; users: prompts decoded together. Without --max-context the
    limit is the longest context that fits, in whole blocks, if the model's does not. Raises UserError if the mesh
    cannot split the models, or a chip cannot hold them with the prompt or with --max-context (the message has the bytes
    needed and present)."""
    context = config.max_position_embeddings
    limit = options.max_context or context
    decode_sharding, nodes = options.decode_sharding or DECODE_SHARDING, chip_tree_nodes(options, users)
    name, drafts, layers, notice = options.precision or PRECISION, None, None, None
    for_users = "" if users == 1 else f" for each of {users} users"

    def wanted(limit: int) -> int:
        """A step over trees writes all their nodes after the sequence."""
        return (limit if prompt_tokens is None else min(prompt_tokens + options.max_new_tokens, limit)) + nodes

    def capacity_for(positions: int) -> int:
        return min(-(-positions // max(BLOCKS)) * max(BLOCKS), most_positions(config, nodes))

    def check_memory(positions: int) -> None:
        capacity = capacity_for(positions)
        held, what = budget(config, mesh, precision, capacity, users, decode_sharding, nodes), config.name
        if draft is not None and drafts is not None:
            if positions - nodes > draft.max_position_embeddings:
                raise DoesNotFit(
                    f"--draft: {draft.name} has a context of {draft.max_position_embeddings}, this run takes "
                    f"{positions - nodes} positions"
                )
            held = held.beside(budget(draft, mesh, drafts, capacity, users, nodes=nodes))
            what += f" with {draft.name} as its draft"
            if layers is not None:
                held = held.beside(layers.extra(drafts, capacity, users))
                what += f", {options.fuzzy} of its layers in parallel,"
        held.check(f"{what} on {mesh} with a cache of {capacity} positions for {positions}{for_users}")

    with named(_OPTION, MeshError, PrecisionError, ShardingError, DoesNotFit, SpeculationError):
        precision = precision_config(name, config.num_hidden_layers)
        check_sharding_of_rows(decode_sharding, users * max(nodes, 1))
        if draft is not None:
            drafts = precision_config(name, draft.num_hidden_layers)
            layers = _layer_parallel(options, draft, mesh)
        try:
            check_memory(wanted(limit))
        except DoesNotFit as error:
            longest = longest_context(check_memory, wanted(limit), max(BLOCKS)) - nodes
            if options.max_context is not None or longest <= (prompt_tokens or 0):
                fits = f"; the longest context that fits has {longest} positions" if longest > 0 else ""
                raise DoesNotFit(f"{error}{fits}") from error
            limit = longest
            notice = f"a context of {limit} positions{for_users} is the longest that fits; {config.name} has {context}"
        capacity = capacity_for(wanted(limit))
        attention = replace(options, attention=options.attention or "exact").attention_settings()
        attention.check(mesh, users, capacity)
    target = ModelSettings(users, capacity, name, attention, decode_sharding)
    own = None if draft is None else ModelSettings(users, capacity, name, layer_assignment=layers)
    return Plan(mesh, target, limit, own, notice)


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


@dataclass(frozen=True)
class Request:
    """A checkpoint without its weights, and the prompts' ids, None for a chat."""

    target: Checkpoint
    prompts: list[list[int]] | None

    @classmethod
    def read(cls, options: DemoOptions, texts: Sequence[str] | None) -> Request:
        """Open the model and encode `texts`. Raises UserError, and what Checkpoint.open raises."""
        from ...checkpoint.cache import make_cache_folder
        from ...checkpoint.load import Checkpoint
        from ..text import encode_prompts

        make_cache_folder(project_cache_dir())
        target = Checkpoint.open(options.model, max_context=options.max_context, layers=options.layers)
        return cls(target, encode_prompts(target, options, texts))

    def plan(self, options: DemoOptions, mesh: MeshShape, draft: LlamaConfig | None = None) -> Plan:
        """See plan_run."""
        longest, users = (None, 1) if self.prompts is None else (max(map(len, self.prompts)), len(self.prompts))
        whole = self.target.whole.max_position_embeddings
        own = replace(self.target.config, max_position_embeddings=whole)
        return plan_run(own, options, mesh, longest, draft, users)


def with_mesh(options: DemoOptions, texts: Sequence[str] | None) -> tuple[DemoOptions, Request]:
    """Return the options of --mesh auto with the mesh of this machine's chips that `latency.layouts` finds fastest of
    those that --attention and the model allow, and the request for `run`. texts: the prompts, None for a chat; the
    tokens that count are those that the longest text will have, or that a chat may have.

    Raises UserError where no mesh holds the model, with why the fastest one does not.
    """
    chips = check_chips()
    request = Request.read(options, texts)
    limit = request.target.config.max_position_embeddings
    if request.prompts is None:
        context = options.chat_context(limit)
    else:
        context = min(max(map(len, request.prompts)) + options.max_new_tokens, limit)
    why = f"--mesh {AUTO}: --attention {options.attention} takes two rows of chips, this machine has {chips}"
    for layout in layouts(chips, min(context, MAX_CONTEXT), guess=options.predictor):
        if options.attention is not None and (options.attention == "alspec") != (layout.rows == 2):
            continue
        chosen = with_attention(replace(options, mesh=str(layout)))
        try:
            request.plan(chosen, MeshShape(layout.rows, layout.columns))
        except UserError as error:
            why = str(error)
            continue
        logger.info(
            f"--mesh {AUTO}: {layout} of {chips} chips, {layout.tokens_per_s:.0f} tokens/s projected for Llama 3.1 8B "
            f"and {context} tokens"
        )
        return chosen, request
    raise UserError(why)


def run(options: DemoOptions, texts: Sequence[str] | None, request: Request | None = None) -> int:
    """Generate on boards for the prompts `texts`, or chat without any, shown and reported as on the CPU; return the
    exit code. request: of `with_mesh`, by default read here. Raises UserError, before any device work or if the boards
    do not open."""
    with named(_OPTION):
        mesh = MeshShape.choose(options.mesh)
        if not simulated.on_simulated_chips():
            mesh.check_board(check_chips())
    from ...tt.weights import HostWeights

    request = request or Request.read(options, texts)
    target = request.target
    draft = _draft(options, target)
    plan = request.plan(options, mesh, None if draft is None else draft.config)
    _announce(plan, options, target.source)
    weights = [HostWeights.read(target.folder, target.whole, mesh, plan.target, options.layers)]
    if draft is not None and plan.draft is not None:
        weights.append(HostWeights.read(draft.folder, draft.config, mesh, plan.draft))
    precision, sharding = options.precision or PRECISION, plan.target.decode_sharding
    used = replace(options, mesh=str(mesh), precision=precision, decode_sharding=sharding)
    try:
        device = mesh.open(**simulated.opening_options())
    except (MeshError, RuntimeError) as error:
        # A failed check of ttnn ends with pages of return addresses.
        why = str(error).split("backtrace:")[0].strip()
        raise UserError(f"{_OPTION}the boards do not open as a {mesh} mesh: {why}") from error
    try:
        return _serve(plan, device, target, used, weights, request.prompts)
    finally:
        mesh.close(device)


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
    if plan.notice is not None:
        logger.info("{}", plan.notice)
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
    code = run_session(session_on_boards(checkpoint, options, generator, plan), prompts)
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


def expected_prefill(plan: Plan, config: LlamaConfig, prompts: Sequence[int], cached: Sequence[int]) -> str | None:
    """Return what a prefill will take at least on N150 boards, None for short prompts, and for models and precisions
    of which nothing is projected. config: of the layers that run. prompts: tokens of each; cached: those before it."""
    known = preset("llama-3.1-8b")
    same = all(getattr(config, size) == getattr(known, size) for size in _LAYER_SIZES)
    if plan.target.precision != PRECISION or not same or max(prompts) < PREFILL_FROM:
        return None
    row, layers = plan.mesh.tp, config.num_hidden_layers
    spans = zip(prompts, cached, strict=True)
    seconds = sum(prefill_ns(tokens, row, before, layers) for tokens, before in spans) / 1e9
    return f"prefill of {sum(prompts)} tokens, projected for N150 boards: at least {seconds:.1f} s"


def session_on_boards(checkpoint: Checkpoint, options: DemoOptions, generator: Generator, plan: Plan) -> Session:
    """Return a session on boards that the caller opens and closes."""
    capacity = min(generator.engine.capacity - generator.engine.spare, plan.limit)
    expected = partial(expected_prefill, plan, checkpoint.config)
    return Session(checkpoint, options, generator, capacity, expected=expected)
