# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device n150`: the TT-NN path on boards. Everything that can be refused is, before a board is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loguru import logger

from runtime_patches import boards as driver
from runtime_patches.runtime_root import project_cache_dir
from runtime_patches.simulated_n150 import doctor

from ....spec_decode.draft_shape import SELF_WINDOW
from ....tt.decode_attention.settings import SpeculationError, check_chunk_size, check_speculation
from ....tt.device.boards import check_cards, find_cards
from ....tt.device.dram_budget import DoesNotFit, budget
from ....tt.device.precision import PrecisionConfig, PrecisionError, precision_plan
from ....tt.parallel.mesh import BLOCKS, TILE, MeshError, MeshShape
from ....tt.sharding.config import ShardingError, check_plan_rows
from ...options import ATTENTIONS, DemoOptions, UserError
from ...support import CHIP_DRAFTING, CHIP_DRAFTS_REFUSE, PLAN, Support, chip_tree_nodes, layer_parallel

if TYPE_CHECKING:
    import torch
    import ttnn

    from ....checkpoint.tokenizer import Tokenizer
    from ....config import LlamaConfig
    from ....tt.attention import DecodeAttention
    from ....tt.generator import Generator
    from ....tt.model import TtLlama
    from ....tt.parallel.layer_parallel import LayerAssignment


def attention_of_mesh(options: DemoOptions) -> str:
    """Without --attention: alspec where the mesh has two rows, which is what they are for, else exact."""
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
    """capacity: cached positions of each user, in whole blocks where the model's context has them. limit: positions
    that a prompt and its text may take. users: texts side by side. layout: how decode steps of the model lie on a chip;
    those of its draft lie simply. draft_precision, draft_layers: of a draft model."""

    mesh: MeshShape
    precision: PrecisionConfig
    capacity: int
    limit: int
    draft_precision: PrecisionConfig | None = None
    draft_layers: LayerAssignment | None = None  # of --fuzzy
    layout: str = PLAN
    users: int = 1


def choose_device() -> tuple[str, str]:
    """The device of this machine, n150 where boards and all they need are there, else cpu; and why."""
    boards = len(driver.visible_boards())
    if not boards:
        return "cpu", f"no Tenstorrent board in {driver.BOARDS}"
    try:
        check_cards(find_cards())
    except MeshError as error:
        return "cpu", f"{boards} Tenstorrent cards, but {error}"
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
    """config: the checkpoint's own; prompt_tokens: of the longest prompt, None for a conversation; draft: of a draft
    model that lies beside it; users: prompts side by side. Raises UserError when the mesh cannot split the models, a
    chip cannot hold them with this context (the message has the bytes needed and present), or the model has no context
    of --max-context."""
    limit, context = context_limit(config, options), config.max_position_embeddings
    if prompt_tokens is None:
        limit = options.chat_context(limit)
    layout, nodes = options.plan or PLAN, chip_tree_nodes(options, users)
    # A step over trees writes all their nodes behind the text.
    wanted = (limit if prompt_tokens is None else min(prompt_tokens + options.max_new_tokens, limit)) + nodes
    capacity = min(_whole(wanted, BLOCKS[0]), _whole(context, TILE))
    try:
        precision = precision_plan(options.precision or PRECISION, config.num_hidden_layers)
        held, what = budget(config, mesh, precision, min(capacity, context), users, layout), config.name
        drafts, layers = None, None
        check_plan_rows(layout, users * max(nodes, 1))
        if draft is not None:
            _check_draft_context(draft, capacity)
            drafts = precision_plan(options.precision or PRECISION, draft.num_hidden_layers)
            held = held.beside(budget(draft, mesh, drafts, capacity, users))
            what += f" with {draft.name} as its draft"
            if (layers := layer_parallel(options, draft, mesh)) is not None:
                held = held.beside(layers.extra(drafts, capacity, users))
                what += f", {options.fuzzy} of its layers in parallel,"
        for_users = "" if users == 1 else f" for each of {users} users"
        held.check(f"{what} on {mesh} with a cache of {capacity} positions for {wanted}{for_users}")
        check_attention(options, mesh, config, capacity, users)
    except (MeshError, PrecisionError, ShardingError, DoesNotFit, SpeculationError) as error:
        shorter = ""
        if prompt_tokens is None and isinstance(error, DoesNotFit):
            shorter = "; --max-context takes a shorter conversation"
        raise UserError(f"--device n150: {error}{shorter}") from error
    return RunConfig(mesh, precision, capacity, limit, drafts, layers, layout, users)


def _check_draft_context(draft: LlamaConfig, capacity: int) -> None:
    if capacity > draft.max_position_embeddings:
        raise UserError(
            f"--draft: {draft.name} has a context of {draft.max_position_embeddings}, this run takes {capacity} "
            "positions"
        )


def check_attention(options: DemoOptions, mesh: MeshShape, config: LlamaConfig, capacity: int, users: int = 1) -> None:
    """Raises SpeculationError and UserError when chips cannot decode with this attention policy."""
    if options.attention == "alspec":
        check_speculation(mesh, users, capacity, options.chunk_size, options.threshold)
    elif options.attention in ("sink", "static"):
        check_chunk_size(options.chunk_size, capacity)
    options.check_static_layers(config.name, config.num_hidden_layers)


def context_limit(config: LlamaConfig, options: DemoOptions) -> int:
    """Positions of --max-context, else the model's. Raises UserError for more than the model has."""
    most = config.max_position_embeddings
    if options.max_context is not None and options.max_context > most:
        raise UserError(f"max_context must be between 1 and {most} for {config.name}, got {options.max_context}")
    return options.max_context or most


def _whole(count: int, step: int) -> int:
    return -(-count // step) * step


def check_machine(options: DemoOptions) -> MeshShape:
    """The mesh of --mesh or $MESH_DEVICE. Raises UserError when this machine lacks something, has fewer chips or
    other cards."""
    try:
        mesh = MeshShape.choose(options.mesh)
        if reason := doctor.why_not("silicon"):
            raise UserError(f"--device n150: {reason}")
        unsure = check_cards(find_cards())
        mesh.check_board(len(driver.visible_boards()))
    except MeshError as error:
        raise UserError(f"--device n150: {error}") from error
    if unsure:
        logger.warning(
            "taken for N150, since the driver does not tell their type: card {}", ", ".join(map(str, unsure))
        )
    return mesh


def run(options: DemoOptions, texts: Sequence[str] | None) -> int:
    """Generate on boards for the prompts `texts`, or chat where there is none, shown and reported as on the CPU; exit
    code. Raises UserError, before any device work or when the boards cannot be opened."""
    mesh = check_machine(options)
    from ....checkpoint.gguf.conversion_cache import make_cache_folder
    from ....checkpoint.load import Checkpoint, read_config, resolve_source
    from ....checkpoint.tokenizer import Tokenizer
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
    plan = plan_run(config, options, mesh, longest, None if draft is None else draft.config, users)
    logger.info(
        "{} on {} N150, {} precision, {} attention, {} plan{}",
        shown,
        mesh,
        plan.precision.name,
        options.attention,
        plan.layout,
        "" if users == 1 else f", {users} users",
    )
    formats = plan.draft_precision
    if plan.draft_layers is not None and formats is not None:
        logger.info("{}\n{}", plan.draft_layers, plan.draft_layers.by_chip(formats, plan.capacity, users))
    weights = Weights.read(Source(folder, config), mesh, plan.precision)
    drafts = None if draft is None or formats is None else Weights.read(draft, mesh, formats)
    used = replace(options, mesh=str(mesh), precision=options.precision or PRECISION, plan=plan.layout)
    device = open_mesh(mesh)
    try:
        model = _load_model(device, plan, weights, options)
        generator = _generator(model, plan, drafts, options, chat=prompts is None)
        session = BoardSession(checkpoint, used, generator, plan.limit)
        code = chat(session, used) if prompts is None else run_prompts(session, used, prompts)[1]
        generator.release()
        return code
    finally:
        mesh.close(device)


class Source(NamedTuple):
    """A checkpoint's folder and its configuration."""

    folder: Path
    config: LlamaConfig


class Weights(NamedTuple):
    """A model's tensors, the formats they take on chips, and the folder of those already converted."""

    config: LlamaConfig
    state: dict[str, torch.Tensor]
    precision: PrecisionConfig
    entry: Path

    @classmethod
    def read(cls, source: Source, mesh: MeshShape, precision: PrecisionConfig) -> Weights:
        """Raises what loading a checkpoint and making a cache folder do."""
        from ....checkpoint.gguf.conversion_cache import make_cache_folder
        from ....checkpoint.load import load_state_dict
        from ....tt.weights.cache import entry_folder

        state = load_state_dict(source.folder, source.config)
        entry = entry_folder(source.config, state, mesh, precision)
        make_cache_folder(entry)
        return cls(source.config, state, precision, entry)

    def on(
        self,
        device: ttnn.MeshDevice,
        plan: RunConfig,
        attend: DecodeAttention | None = None,
        layers: LayerAssignment | None = None,
        layout: str = PLAN,
    ) -> TtLlama:
        """The model of the plan's users. layers: of a draft model."""
        from ....tt.model import TtLlama
        from ....tt.weights.map import WeightMap
        from ....tt.weights.store import WeightStore

        store, weights = (
            WeightStore(device, plan.mesh, self.entry),
            WeightMap(self.config, self.state, plan.mesh),
        )
        return TtLlama(
            device,
            plan.mesh,
            self.config,
            self.precision,
            weights,
            store,
            users=plan.users,
            capacity=plan.capacity,
            attend=attend,
            fuzzy=layers,
            layout=layout,
        )


def _draft_source(options: DemoOptions, config: LlamaConfig, tokenizer: Tokenizer) -> Source | None:
    """The checkpoint of a draft model. Raises UserError for one that numbers tokens otherwise."""
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


def _load_model(device: ttnn.MeshDevice, plan: RunConfig, weights: Weights, options: DemoOptions) -> TtLlama:
    """The model with the attention that these options ask for."""
    from ....tt.decode_attention.by_name import decode_attention
    from ....tt.sharding.modules import ShardedModules

    attend = decode_attention(
        str(options.attention),
        device,
        plan.mesh,
        weights.config,
        users=plan.users,
        capacity=plan.capacity,
        kv_cache=plan.precision.kv_cache,
        layout=plan.layout,
        chunk_size=options.chunk_size,
        threshold=options.threshold,
        static_layers=options.static_layer_set(),
    )
    model = weights.on(device, plan, attend, layout=plan.layout)
    if isinstance(model.layout, ShardedModules):
        logger.info("{}", model.layout.plan.describe(plan.precision))
    return model


def _generator(model: TtLlama, plan: RunConfig, drafts: Weights | None, options: DemoOptions, chat: bool) -> Generator:
    """chat: the trace of decode steps serves all turns; those of drafted trees are recorded in each."""
    if options.drafter != "none":
        from ....tt.spec_decode.drafters import NGramDrafter, TreeDrafter
        from ....tt.spec_decode.model_drafters import ModelDrafter, SelfDrafter
        from ....tt.spec_decode.tree_generator import TreeGenerator

        drafter: TreeDrafter = NGramDrafter()
        if drafts is not None:
            drafter = ModelDrafter(drafts.on(model.mesh, plan, layers=plan.draft_layers))
        elif options.draft_kind == "self":
            drafter = SelfDrafter(model, min(SELF_WINDOW, plan.capacity // TILE * TILE))
        return TreeGenerator(model, options.draft_shape(), drafter, adaptive=options.adapt)
    from ....tt.generator import Generator

    return Generator(model, choose=options.sample_on or "device", keep_trace=chat)


def open_mesh(mesh: MeshShape) -> ttnn.MeshDevice:
    """Raises UserError with what ttnn says when the boards do not open as this mesh."""
    try:
        return mesh.open(trace_region_size=TRACE_REGION_BYTES)
    except (MeshError, RuntimeError) as error:
        # A failed check of ttnn ends with pages of return addresses.
        why = str(error).split("backtrace:")[0].strip()
        raise UserError(f"--device n150: the boards do not open as a {mesh} mesh: {why}") from error
