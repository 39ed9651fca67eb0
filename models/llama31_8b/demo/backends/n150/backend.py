# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device n150`: the TT-NN path on boards. Everything that can be refused is, before a board is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loguru import logger

from runtime_patches.board import boards as driver
from runtime_patches.board import doctor
from runtime_patches.board.runtime_root import project_cache_dir
from tt_kernels.common.page_table import BLOCKS

from ....spec_decode.draft_shape import SELF_WINDOW
from ....tt.boards import check_boards, find_boards
from ....tt.dram_budget import DoesNotFit, budget, longest_context
from ....tt.mesh import TILE, MeshError, MeshShape
from ....tt.precision import PrecisionConfig, PrecisionError, precision_config
from ....tt.settings import SpeculationError, check_chunk_size, check_speculation, followed_range
from ....tt.sharding import ShardingError, check_sharding_of_rows
from ...options import ATTENTIONS, DemoOptions, UserError
from ...support import CHIP_DRAFTING, CHIP_DRAFTS_REFUSE, DECODE_SHARDING, Support, chip_tree_nodes, layer_parallel

if TYPE_CHECKING:
    import ttnn

    from ....checkpoint.tokenizer import Tokenizer
    from ....config import LlamaConfig
    from ....tt.generator import Generator
    from ....tt.layer_parallel import LayerAssignment
    from ....tt.model import TtLlama
    from ....tt.settings import ModelSettings


def attention_of_mesh(options: DemoOptions) -> str:
    """Return the default of --attention: alspec if the mesh has two rows, else exact."""
    try:
        return "alspec" if MeshShape.choose(options.mesh).sp == 2 else "exact"
    except MeshError:
        return "exact"  # `run` says what is wrong with the mesh


SUPPORT = Support(
    device="n150",
    what="N150 boards, in TT-NN",
    default_attention=attention_of_mesh,
    attention={name: None for name in ATTENTIONS},
    drafting=CHIP_DRAFTING,
    drafts_refuse=CHIP_DRAFTS_REFUSE,
    chat=None,
    refused={
        "layers": "the first layers alone write no text",
        "html": "chips count hits by layer, not by token",
    },
)
PRECISION = "performance"
TRACE_REGION_BYTES = 64 * 1024**2


class RunConfig(NamedTuple):
    """capacity: cached positions per user, in whole blocks as far as the model's context allows. limit: positions that
    a prompt and its continuation may take. users: prompts decoded together. decode_sharding: of the model; its draft's
    is interleaved. draft_precision, draft_layers: of a draft model. notice: what to say if `limit` is the longest
    context that fits and the model has a longer one."""

    mesh: MeshShape
    precision: PrecisionConfig
    capacity: int
    limit: int
    draft_precision: PrecisionConfig | None = None
    draft_layers: LayerAssignment | None = None  # of --fuzzy
    decode_sharding: str = DECODE_SHARDING
    users: int = 1
    notice: str | None = None


def choose_device() -> tuple[str, str]:
    """Return this machine's device and the reason: n150 with boards and all they need, else cpu."""
    boards = len(driver.visible_boards())
    if not boards:
        return "cpu", f"no Tenstorrent board in {driver.BOARDS}"
    try:
        check_boards(find_boards())
    except MeshError as error:
        return "cpu", f"{boards} Tenstorrent boards, but {error}"
    if reason := doctor.why_not("silicon"):
        return "cpu", f"{boards} Tenstorrent chips, but {reason}"
    return "n150", f"{boards} Tenstorrent chips"


def plan_run(
    config: LlamaConfig,
    options: DemoOptions,
    mesh: MeshShape,
    prompt_tokens: int | None,
    draft: LlamaConfig | None = None,
    users: int = 1,
) -> RunConfig:
    """Decide what a run needs. config: the checkpoint's own; prompt_tokens: of the longest prompt, None for a
    conversation; draft: of a draft model on the same mesh; users: prompts decoded together. Without --max-context the
    limit is the longest context that fits, in whole blocks, if the model's does not. Raises UserError if the mesh
    cannot split the models, a chip cannot hold them with the prompt or with --max-context (the message has the bytes
    needed and present), or the model's context is shorter than --max-context."""
    limit, context = context_limit(config, options), config.max_position_embeddings
    decode_sharding, nodes = options.decode_sharding or DECODE_SHARDING, chip_tree_nodes(options, users)
    drafts, layers, notice = None, None, None
    for_users = "" if users == 1 else f" for each of {users} users"

    def wanted(limit: int) -> int:
        """A step over trees writes all their nodes after the sequence."""
        return (limit if prompt_tokens is None else min(prompt_tokens + options.max_new_tokens, limit)) + nodes

    def capacity_for(positions: int) -> int:
        return min(_whole(positions, max(BLOCKS)), _whole(context, TILE))

    def check_memory(positions: int) -> None:
        capacity = capacity_for(positions)
        held, what = budget(config, mesh, precision, min(capacity, context), users, decode_sharding), config.name
        if draft is not None and drafts is not None:
            _check_draft_context(draft, capacity)
            held = held.beside(budget(draft, mesh, drafts, capacity, users))
            what += f" with {draft.name} as its draft"
            if layers is not None:
                held = held.beside(layers.extra(drafts, capacity, users))
                what += f", {options.fuzzy} of its layers in parallel,"
        held.check(f"{what} on {mesh} with a cache of {capacity} positions for {positions}{for_users}")

    try:
        precision = precision_config(options.precision or PRECISION, config.num_hidden_layers)
        check_sharding_of_rows(decode_sharding, users * max(nodes, 1))
        if draft is not None:
            drafts = precision_config(options.precision or PRECISION, draft.num_hidden_layers)
            layers = layer_parallel(options, draft, mesh)
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
        check_attention(options, mesh, config, capacity, users)
    except (MeshError, PrecisionError, ShardingError, DoesNotFit, SpeculationError) as error:
        raise UserError(f"--device n150: {error}") from error
    return RunConfig(mesh, precision, capacity, limit, drafts, layers, decode_sharding, users, notice)


def _check_draft_context(draft: LlamaConfig, capacity: int) -> None:
    """Raises DoesNotFit."""
    if capacity > draft.max_position_embeddings:
        raise DoesNotFit(
            f"--draft: {draft.name} has a context of {draft.max_position_embeddings}, this run takes {capacity} "
            "positions"
        )


def check_attention(options: DemoOptions, mesh: MeshShape, config: LlamaConfig, capacity: int, users: int = 1) -> None:
    """Raises SpeculationError and UserError if chips cannot decode with this attention policy."""
    if options.attention == "alspec":
        check_speculation(mesh, users, capacity, options.chunk_size, options.threshold)
        if options.predictor == "followed":
            followed_range(options.chunk_size)
    elif options.attention in ("sink", "static"):
        check_chunk_size(options.chunk_size, capacity)
    options.check_static_layers(config.name, config.num_hidden_layers)


def context_limit(config: LlamaConfig, options: DemoOptions) -> int:
    """Return --max-context, else the model's context. Raises UserError for more than the model has."""
    most = config.max_position_embeddings
    if options.max_context is not None and options.max_context > most:
        raise UserError(f"max_context must be between 1 and {most} for {config.name}, got {options.max_context}")
    return options.max_context or most


def _whole(count: int, step: int) -> int:
    return -(-count // step) * step


def check_machine(options: DemoOptions) -> MeshShape:
    """Return the mesh of --mesh or $MESH_DEVICE. Raises UserError if this machine lacks something, has fewer chips, or
    has other boards."""
    try:
        mesh = MeshShape.choose(options.mesh)
        if reason := doctor.why_not("silicon"):
            raise UserError(f"--device n150: {reason}")
        unsure = check_boards(find_boards())
        mesh.check_board(len(driver.visible_boards()))
    except MeshError as error:
        raise UserError(f"--device n150: {error}") from error
    if unsure:
        logger.warning(
            "taken for N150, since the driver does not tell their type: board {}", ", ".join(map(str, unsure))
        )
    return mesh


def run(options: DemoOptions, texts: Sequence[str] | None) -> int:
    """Generate on boards for the prompts `texts`, or chat without any, shown and reported as on the CPU; return the
    exit code. Raises UserError, before any device work or if the boards do not open."""
    mesh = check_machine(options)
    from ....checkpoint.gguf.conversion_cache import make_cache_folder
    from ....checkpoint.load import Checkpoint, read_config, resolve_source
    from ....checkpoint.tokenizer import Tokenizer
    from ....tt.layouts import ShardedModules
    from ....tt.model import TtLlama
    from ....tt.weights import HostWeights
    from ...chat import chat, check_chat
    from ...session import run_prompts
    from ...text import encode_prompts
    from .session import BoardSession

    make_cache_folder(project_cache_dir())
    folder, shown = resolve_source(options.model)
    config = read_config(folder, name=Path(shown).name)
    tokenizer = Tokenizer.from_folder(folder, eos_token_ids=config.eos_token_ids)
    limited = replace(config, max_position_embeddings=context_limit(config, options))
    checkpoint = Checkpoint(limited, tokenizer, shown)
    prompts = None
    if texts is None:
        check_chat(checkpoint)
    else:
        prompts = encode_prompts(checkpoint, options, texts)
    longest, users = (None, 1) if prompts is None else (max(map(len, prompts)), len(prompts))
    draft = _draft_source(options, config, tokenizer)
    run_config = plan_run(config, options, mesh, longest, None if draft is None else draft.config, users)
    logger.info(
        "{} on {} N150, {} precision, {} attention, {} decode sharding{}",
        shown,
        mesh,
        run_config.precision.name,
        options.attention,
        run_config.decode_sharding,
        "" if users == 1 else f", {users} users",
    )
    if run_config.notice is not None:
        logger.info("{}", run_config.notice)
    formats = run_config.draft_precision
    if run_config.draft_layers is not None and formats is not None:
        logger.info(
            "{}\n{}", run_config.draft_layers, run_config.draft_layers.by_chip(formats, run_config.capacity, users)
        )
    settings, draft_settings = _settings(run_config, options), _draft_settings(run_config)
    weights = HostWeights.read(folder, config, mesh, settings)
    drafts = None if draft is None else HostWeights.read(draft.folder, draft.config, mesh, draft_settings)
    used = replace(
        options, mesh=str(mesh), precision=options.precision or PRECISION, decode_sharding=run_config.decode_sharding
    )
    device = open_mesh(mesh)
    try:
        model = TtLlama.from_host_weights(weights, device, settings)
        if isinstance(model.decode_modules, ShardedModules):
            logger.info("{}", model.decode_modules.config.describe(run_config.precision))
        drafter = None if drafts is None else TtLlama.from_host_weights(drafts, device, draft_settings)
        generator = _generator(model, drafter, options, chat=prompts is None)
        session = BoardSession(checkpoint, used, generator, run_config.limit)
        code = chat(session, used) if prompts is None else run_prompts(session, used, prompts)[1]
        generator.release()
        return code
    finally:
        mesh.close(device)


class Source(NamedTuple):
    """A checkpoint's folder and its configuration."""

    folder: Path
    config: LlamaConfig


def _draft_source(options: DemoOptions, config: LlamaConfig, tokenizer: Tokenizer) -> Source | None:
    """Find the checkpoint of a draft model. Raises UserError if its vocabulary differs."""
    if options.draft_kind != "model":
        return None
    from ....checkpoint.load import read_config, resolve_source
    from ....checkpoint.tokenizer import Tokenizer
    from ....spec_decode.vocabulary import VocabularyMismatchError, check_vocabularies

    folder, shown = resolve_source(options.drafter)
    draft = read_config(folder, name=Path(shown).name)
    other = Tokenizer.from_folder(folder, eos_token_ids=draft.eos_token_ids)
    try:
        check_vocabularies(config, draft, tokenizer.fingerprint(), other.fingerprint())
    except VocabularyMismatchError as error:
        raise UserError(f"--draft: {error}") from error
    return Source(folder, draft)


def _settings(run: RunConfig, options: DemoOptions) -> ModelSettings:
    """Return the target model's settings, with the attention that the options ask for."""
    from ....tt.settings import AttentionSettings, ModelSettings

    static = options.static_layer_set()
    return ModelSettings(
        users=run.users,
        capacity=run.capacity,
        precision=run.precision,
        attention=AttentionSettings(
            str(options.attention), options.chunk_size, options.threshold, static, options.predictor
        ),
        decode_sharding=run.decode_sharding,
    )


def _draft_settings(run: RunConfig) -> ModelSettings:
    """Return the draft model's settings."""
    from ....tt.settings import ModelSettings

    return ModelSettings(
        users=run.users,
        capacity=run.capacity,
        precision=run.draft_precision or run.precision,
        layer_assignment=run.draft_layers,
    )


def _generator(model: TtLlama, draft: TtLlama | None, options: DemoOptions, chat: bool) -> Generator:
    """chat: one trace of decode steps serves all turns; traces of tree steps are recorded per turn."""
    if options.drafter != "none":
        from ....tt.spec_decode.drafters import NGramDrafter, TreeDrafter
        from ....tt.spec_decode.model_drafters import ModelDrafter, SelfDrafter
        from ....tt.spec_decode.tree_generator import TreeGenerator

        drafter: TreeDrafter = NGramDrafter()
        if draft is not None:
            drafter = ModelDrafter(draft)
        elif options.draft_kind == "self":
            drafter = SelfDrafter(model, min(SELF_WINDOW, model.capacity // TILE * TILE))
        return TreeGenerator(model, options.draft_shape(), drafter, adaptive=options.adapt)
    from ....tt.generator import Generator

    return Generator(model, sample_on=options.sample_on or "device", keep_trace=chat)


def open_mesh(mesh: MeshShape) -> ttnn.MeshDevice:
    """Open the boards. Raises UserError with ttnn's message if they do not open as this mesh."""
    try:
        return mesh.open(trace_region_size=TRACE_REGION_BYTES)
    except (MeshError, RuntimeError) as error:
        # A failed check of ttnn ends with pages of return addresses.
        why = str(error).split("backtrace:")[0].strip()
        raise UserError(f"--device n150: the boards do not open as a {mesh} mesh: {why}") from error
