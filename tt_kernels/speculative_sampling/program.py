# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The ttnn programs of the op: a walker and a calculator on each core, with its ids of a row of logits in L1; and a hub
where a vocabulary is split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tt_kernels.common.cores import Core, core_set
from tt_kernels.common.kernel import UNGATED_DEFINE, float_bits, kernel_descriptor, program_of, semaphores_on
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.tensor_facts import UnsupportedError
from tt_kernels.speculative_sampling.checks import Problem

TILE_IDS = 1024
# As lines.hpp has it: groups of a hub, and so users at a time where the vocabulary is split.
MAX_GROUPS = 8
# By default a core has at least this many tiles of ids: with fewer, telling the others takes longer than it saves.
MIN_TILES = 4
KERNELS = Path(__file__).parent / "kernels"
ROW_TILE_BYTES, RESULT_BYTES, COMMAND_BYTES, LINE_BYTES = 2048, 4096, 512, 128
PARTS_LINE_BYTES = 320  # lines.hpp
RESULT_HEAD = 4
BONUS = 2  # the word of the bonus token in a result
SCRATCH_LINES = 6  # the tree's three and the result
CBS = {f"cb_{name}": n for n, name in enumerate(("target", "draft", "command", "result", "scratch", "lines"))}
# On a hub what each group has posted; on the others the answers.
SEMAPHORES = MAX_GROUPS + 1


@dataclass(frozen=True)
class Slice:
    """The ids of a core."""

    first: int
    count: int


@dataclass(frozen=True)
class WorkSplit:
    """groups: for each group the cores that share a user's ids; users take turns. hub: the core that talks for them,
    None if a core has all ids of its users."""

    groups: tuple[tuple[Core, ...], ...]
    slices: tuple[Slice, ...]
    hub: Core | None

    @property
    def walkers(self) -> list[Core]:
        return [core for group in self.groups for core in group]


def choose_work_split(cores: Sequence[Core], users: int, ids: int, cores_per_user: int | None) -> WorkSplit:
    """Split `users` and a chip's `ids` over its `cores`. cores_per_user: None chooses. Errors: UnsupportedError."""
    tiles = -(-ids // TILE_IDS)
    if cores_per_user is None:
        room = (len(cores) - 1) // min(users, MAX_GROUPS)
        cores_per_user = max(1, min(room, tiles // MIN_TILES))
    if type(cores_per_user) is not int or not 1 <= cores_per_user <= tiles:
        raise UnsupportedError(
            f"cores_per_user must be from 1 to {tiles}, the tiles of 1024 ids, got {cores_per_user!r}"
        )
    # Whole tiles are dealt to the cores, to each as many as to another or one more; the last has the rest of the ids.
    borders = [min(ids, TILE_IDS * (tiles * core // cores_per_user)) for core in range(cores_per_user)] + [ids]
    slices = tuple(Slice(first, stop - first) for first, stop in zip(borders, borders[1:]))
    if cores_per_user == 1:
        return WorkSplit(tuple((core,) for core in cores[:users]), slices, None)
    *free, hub = cores
    groups = min(users, MAX_GROUPS, len(free) // cores_per_user)
    if groups == 0:
        raise UnsupportedError(
            f"a split vocabulary with {cores_per_user} cores per user needs these and a hub, {hub}: the grid has "
            f"{len(cores)} cores, {list(cores)[:4]}..."
        )
    starts = range(0, groups * cores_per_user, cores_per_user)
    return WorkSplit(tuple(tuple(free[start : start + cores_per_user]) for start in starts), slices, hub)


@dataclass(frozen=True)
class Rule:
    """How drafted tokens are verified. sharpness: 1 / temperature. sigmoid: alpha and beta of the lossy approximation,
    or None for the exact rule."""

    sharpness: float
    sigmoid: tuple[float, float] | None = None

    def words(self) -> dict[str, int]:
        """Return the numbers by name, as float32 words. A sigmoid's argument is logit * slope + center: equation 5 of
        the paper, (z - alpha) / (beta - alpha)."""
        alpha, beta = self.sigmoid or (-1.0, 1.0)
        numbers = {
            "sharpness": self.sharpness,
            "center": -alpha / (beta - alpha),
            "slope": self.sharpness / (beta - alpha),
        }
        return {name: float_bits(number) for name, number in numbers.items()}


def buffer_bytes(problem: Problem, split: WorkSplit) -> dict[str, tuple[str, int, int]]:
    """Return each circular buffer's format, bytes per page and pages; the rows have one more tile for gathered
    logits."""
    tiles = max(-(-part.count // TILE_IDS) for part in split.slices)
    scratch = -(-(SCRATCH_LINES * LINE_BYTES + 8 * tiles) // 32) * 32
    lines = 2 if split.hub is None else len(split.groups) * len(split.slices) + 1
    return {
        "cb_target": ("bfloat16", ROW_TILE_BYTES, tiles + 1),
        "cb_draft": ("bfloat16", ROW_TILE_BYTES, tiles + 1 if problem.has_draft else 1),
        "cb_command": ("uint32", COMMAND_BYTES, 2),
        "cb_result": ("float32", RESULT_BYTES, 4),
        "cb_scratch": ("uint32", scratch, 1),
        "cb_lines": ("uint32", PARTS_LINE_BYTES, lines),
    }


def build_program(
    problem: Problem,
    tensors: dict[Any, Any],
    split: WorkSplit,
    l1_free: int,
    rule: Rule,
    noc_core: Callable[..., Any],
) -> Any:
    """Return the ttnn.ProgramDescriptor. tensors: target, draft (or None), parents, tokens, uniforms, result.
    noc_core: from a core to its (x, y) on the NoC. Errors: UnsupportedError if the rows do not fit L1."""
    buffers = buffer_bytes(problem, split)
    needed = sum(page * pages for _, page, pages in buffers.values())
    if needed > l1_free:
        raise UnsupportedError(
            f"a vocabulary of {problem.vocab} needs {needed} bytes of L1 on each core, {l1_free} are free"
        )
    hub = split.hub
    constants = CBS | {
        "has_draft": int(problem.has_draft),
        "tiled": int(problem.tiled),
        "sigmoid": int(rule.sigmoid is not None),
        "split": int(hub is not None),
    }
    walkers = core_set(*split.walkers)
    everywhere = core_set(*split.walkers, *(() if hub is None else (hub,)))
    calculator = kernel_descriptor(
        KERNELS / "calculator.cpp",
        # It multiplies in the vector unit alone; the default, HiFi4, is wrong beside float32 on Wormhole.
        ttnn.ComputeConfigDescriptor(math_fidelity=ttnn.MathFidelity.HiFi3, fp32_dest_acc_en=True),
        cores=walkers,
        constants=constants,
        defines=[UNGATED_DEFINE],
    )
    kernels = [_walker(problem, tensors, split, rule, constants, noc_core), calculator]
    if hub is not None:
        kernels.append(_hub(hub, split, noc_core))
    held = [_circular_buffer(name, everywhere, *buffer) for name, buffer in buffers.items()]
    semaphores = semaphores_on(everywhere, *(0 if hub is None else SEMAPHORES) * [0])
    return program_of(kernels, held, semaphores, ungated="speculative_sampling")


def _walker(
    problem: Problem,
    tensors: dict[Any, Any],
    split: WorkSplit,
    rule: Rule,
    constants: dict[str, Any],
    noc_core: Callable[..., Any],
) -> Any:
    draft = tensors["target"] if tensors["draft"] is None else tensors["draft"]
    names = ("parents", "tokens", "uniforms", "result")
    common = {
        "users": problem.users,
        "nodes": problem.nodes,
        "vocab": problem.vocab,
        "groups": len(split.groups),
        **rule.words(),
        "target": tensors["target"].buffer_address(),
        "draft": draft.buffer_address(),
        **{name: tensors[name].buffer_address() for name in names},
    }
    hub = (0, 0) if split.hub is None else noc_core(split.hub)
    per_core = {
        core: {
            "first_user": group,
            "first_id": part.first,
            "ids": part.count,
            "reports": int(index == 0),
            "hub_x": hub[0],
            "hub_y": hub[1],
            "group": group,
            "place": group * len(split.slices) + index,
        }
        for group, cores in enumerate(split.groups)
        for index, (core, part) in enumerate(zip(cores, split.slices, strict=True))
    }
    return kernel_descriptor(
        KERNELS / "walker.cpp",
        "Writer",
        constants=constants,
        accessors={
            "target": tensors["target"],
            "draft": draft,
            "tree": tensors["tokens"],
            "result": tensors["result"],
        },
        common=common,
        per_core=per_core,
        defines=[UNGATED_DEFINE],
    )


def _hub(core: Core, split: WorkSplit, noc_core: Callable[..., Any]) -> Any:
    return kernel_descriptor(
        KERNELS / "hub.cpp",
        "Writer",
        constants={"cb_lines": CBS["cb_lines"]},
        common={"groups": len(split.groups), "cores": len(split.slices)},
        per_core={core: {"places": [number for walker in split.walkers for number in noc_core(walker)]}},
        defines=[UNGATED_DEFINE],
    )


def greedy_program(users: int, nodes: int, vocab: int, tensors: dict[Any, Any]) -> Any:
    """Return the ttnn.ProgramDescriptor of greedy verification. tensors: parents, tokens, choices, result."""
    core = core_set((0, 0))
    names = ("parents", "tokens", "choices", "result")
    kernel = kernel_descriptor(
        KERNELS / "greedy.cpp",
        "Writer",
        cores=core,
        constants={"cb_scratch": CBS["cb_scratch"]},
        accessors={"tree": tensors["tokens"], "result": tensors["result"]},
        common={"users": users, "nodes": nodes, "vocab": vocab}
        | {name: tensors[name].buffer_address() for name in names},
        defines=[UNGATED_DEFINE],
    )
    scratch = _circular_buffer("cb_scratch", core, "uint32", SCRATCH_LINES * LINE_BYTES, 1)
    return program_of([kernel], [scratch], ungated="greedy_verification")


def _circular_buffer(name: str, cores: ttnn.CoreRangeSet, dtype: str, page: int, pages: int) -> Any:
    form = ttnn.CBFormatDescriptor(buffer_index=CBS[name], data_format=getattr(ttnn, dtype), page_size=page)
    return ttnn.CBDescriptor(total_size=page * pages, core_ranges=cores, format_descriptors=[form])
