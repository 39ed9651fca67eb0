# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""`--device n150`: the TT-NN path on boards. Everything that can be refused is, before a board is opened."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loguru import logger

from runtime_patches.simulated_n150 import doctor
from runtime_patches.simulated_n150.doctor import BOARDS, count_boards

from ..tt.mesh import TILE, MeshError, MeshPlan
from ..tt.precision import PrecisionError, PrecisionPlan, precision_plan
from .options import DemoOptions, UserError

if TYPE_CHECKING:
    from ..config import LlamaConfig

PRECISION = "performance"
TRACE_REGION_BYTES = 64 * 1024**2


class BoardPlan(NamedTuple):
    """capacity: cached positions, in whole tiles."""

    mesh: MeshPlan
    precision: PrecisionPlan
    capacity: int


def choose_device() -> tuple[str, str]:
    """The device of this machine, n150 where boards and all they need are there, else cpu; and why."""
    boards = count_boards()
    if not boards:
        return "cpu", f"no Tenstorrent board in {BOARDS}"
    if reason := doctor.why_not("silicon"):
        return "cpu", f"{boards} Tenstorrent chips, but {reason}"
    return "n150", f"{boards} Tenstorrent chips"


def plan_run(config: LlamaConfig, options: DemoOptions, mesh: MeshPlan, prompt_tokens: int) -> BoardPlan:
    """Raises UserError when the mesh cannot split the model, or a chip cannot hold it with this context; the
    message has the bytes needed and present."""
    from perf.roofline import DoesNotFit, budget

    wanted = min(prompt_tokens + options.max_new_tokens, config.max_position_embeddings)
    try:
        precision = precision_plan(
            options.precision or PRECISION, config.num_hidden_layers, options.precision_overrides
        )
        budget(config, mesh, precision, wanted).check(f"{config.name} on {mesh} with {wanted} positions")
    except (MeshError, PrecisionError, DoesNotFit) as error:
        raise UserError(f"--device n150: {error}") from error
    return BoardPlan(mesh, precision, -(-wanted // TILE) * TILE)


def check_machine(options: DemoOptions, text: str | None) -> MeshPlan:
    """The mesh of --mesh or $MESH_DEVICE. Raises UserError when this machine lacks something or has fewer
    chips, and for what boards do not do."""
    try:
        mesh = MeshPlan.choose(options.mesh)
        if reason := doctor.why_not("silicon"):
            raise UserError(f"--device n150: {reason}")
        mesh.check_board(count_boards())
    except MeshError as error:
        raise UserError(f"--device n150: {error}") from error
    unsupported = {
        f"--attention {options.attention}": options.attention in ("sink", "static"),
        "drafting": options.drafter != "none",
        "chat": text is None,
    }
    if asked := [name for name, given in unsupported.items() if given]:
        raise UserError(f"--device n150 does not do {asked[0]}; --device cpu does")
    return mesh


def run(options: DemoOptions, text: str | None) -> int:
    """Generate one text on boards, streamed and reported as on the CPU; exit code 0. Raises UserError before
    any device work."""
    mesh = check_machine(options, text)
    from ..tokenizer import Tokenizer
    from ..weights import LoadedModel, load_state_dict, read_config, resolve_source
    from .demo import TextPrinter, encode_prompt, show_result, token_callback

    folder, shown = resolve_source(options.model)
    config = read_config(folder, name=Path(shown).name)
    if options.max_context is not None:
        config = replace(
            config, max_position_embeddings=min(options.max_context, config.max_position_embeddings)
        )
    tokenizer = Tokenizer.from_folder(folder, eos_token_ids=config.eos_token_ids)
    loaded = LoadedModel(config, None, tokenizer, shown)
    ids = encode_prompt(loaded, options, text)
    plan = plan_run(config, options, mesh, len(ids))
    logger.info(
        "{} on {} N150, {} precision, exact attention: boards do not speculate yet",
        shown,
        mesh,
        plan.precision.name,
    )
    state = load_state_dict(folder, config)

    from ..tt.generator import Generator
    from ..tt.model import TtLlama
    from ..tt.weight_map import WeightMap
    from ..tt.weight_store import WeightStore, entry_folder

    device = mesh.open(trace_region_size=TRACE_REGION_BYTES)
    try:
        store = WeightStore(device, mesh, entry_folder(config, state, mesh, plan.precision))
        model = TtLlama(
            device,
            mesh,
            config,
            plan.precision,
            WeightMap(config, state, mesh),
            store,
            capacity=plan.capacity,
        )
        printer = TextPrinter(loaded, None if options.json else sys.stdout)
        result = Generator(model, choose=options.sample_on or "device").generate(
            [ids],
            max_new_tokens=options.max_new_tokens,
            sampling=options.sampling(),
            eos_token_ids=tokenizer.eos_token_ids,
            on_token=token_callback(loaded, options, printer.push),
        )
        printer.finish()
    finally:
        mesh.close(device)
    used = replace(options, attention="exact", mesh=str(mesh), precision=options.precision or PRECISION)
    return show_result(loaded, used, used.policy(), ids, result)
