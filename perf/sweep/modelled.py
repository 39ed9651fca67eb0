# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The time source `model`: a configuration's rows by perf.projection.decode, fitted to one published table."""

from __future__ import annotations

from collections.abc import Sequence

from models.llama31_8b.latency import Times
from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S
from models.llama31_8b.tt.precision import bytes_of
from perf.projection.decode import (
    ATTENTION,
    STREAM,
    WORKERS,
    Op,
    Step,
    Timed,
    attention,
    collective,
    fit,
    guess_ns,
    matmul,
    predict,
)
from perf.sweep.configurations import Configuration
from perf.sweep.table import FIRMWARE_NS, FIRST, GAP_NS, GROUP, KERNEL_NS, LAYER, MID, OP_GROUP, ROLE, TAIL
from tt_kernels.common.attention_checks import TILE
from tt_kernels.speculative_flash_decode.guess_range import GuessRange


class NotModelled(ValueError):
    """Raised where the decode model knows no time: nobody has published one."""


def rows(configuration: Configuration) -> list[dict[str, object]]:
    """Return the configuration's rows. Raises NotModelled, NotIdentified, and ValueError for shapes the model
    refuses."""
    if configuration.family == "decode":
        return _decode(configuration)
    return [_row(Timed(op, ns), OP_GROUP, None) for op, ns in _ops(configuration)]


def _ops(c: Configuration) -> list[tuple[Op, float]]:
    parameters = fit()
    if c.family == "matmul":
        dram = c["layout"] == "dram_sharded"
        ops = [matmul(c["role"], c["k"], c["n"], c["dtype"], cores=c["cores"], dram_sharded=dram, m=c["m"])]
    elif c.family == "flash_decode":
        context, guess = c["context"], GuessRange.both_ends(c["chunk_size"])
        if c["variant"] == "guess":
            context = min(context, guess.first + TILE * guess.tail_tiles(context))
        op = attention(c["kv_heads"], c["head_dim"], context, c["users"], c["dtype"])
        if c["variant"] == "speculative":
            return [(op, parameters.ns(op) + Times().verify_ns)]
        ops = [op]
    elif c.family == "collective":
        names = {"all_gather": ["AllGather"], "reduce_scatter": ["ReduceScatter"]}
        names["all_reduce"] = ["ReduceScatter", "AllGather"]
        ops = [collective(name, "collective", 1, c["columns"], c.mesh.tp) for name in names[c["op"]]]
    elif c.family == "sampling" and c["method"] == "argmax":
        ops = [Op("ArgMax", "greedy choice", STREAM, dram_bytes=bytes_of(32 * c["vocab"], "bfloat16"))]
    else:
        raise NotModelled(f"{c.family} is not in the decode model: no time of it on N150 is published")
    return [(op, parameters.ns(op)) for op in ops]


def _decode(c: Configuration) -> list[dict[str, object]]:
    if c["model"] == "tiny":
        raise NotModelled("model=tiny is not in the decode model, whose table is of Llama 3.1 8B")
    step = Step(c.mesh, c["context"], c["users"], c["plan"], c["precision"])
    speculative = c["attention"] == "speculative"
    if speculative != (c.mesh.sp == 2):
        raise NotModelled(f"attention={c['attention']} on {c.mesh}: two rows speculate, and one cannot")
    if c["layers"] > len(step.layers()):
        raise NotModelled(f"layers={c['layers']}, and the model has {len(step.layers())}")
    layers = step.layers()[: c["layers"]]
    told = predict(step, hit_rate=1.0 if speculative else None)
    once = {FIRST: told.before, TAIL: told.after}
    sender = told.attention_ns + Times().verify_ns
    receiver = guess_ns(told, c["chunk_size"], sender) if speculative else 0.0
    found: list[dict[str, object]] = []
    for chip in range(c.mesh.chips):
        at = _append(found, chip, 0.0, FIRST, None, once[FIRST])
        for index in range(len(layers)):
            group, timed = FIRST if index == 0 else MID, told.layers[index]
            if not speculative:
                at = _append(found, chip, at, group, index, timed)
                continue
            # Every layer hits: roles alternate, the sender skips what follows its attention, and both meet after it.
            sends = chip // c.mesh.tp == index % 2
            place = next(n for n, one in enumerate(timed) if one.op.kind == ATTENTION)
            before, after = timed[:place], timed[place + 1 :]
            begun = at + sum(one.ns for one in before)
            attended = Timed(timed[place].op, sender if sends else receiver)
            _append(found, chip, at, group, index, [*before, attended, *([] if sends else after)])
            at = max(begun + sender, begun + receiver + sum(one.ns for one in after))
        _append(found, chip, at, TAIL, None, once[TAIL])
    return found


def _append(
    found: list[dict[str, object]],
    chip: int,
    at: float,
    group: str,
    layer: int | None,
    timed: Sequence[Timed],
) -> float:
    """Append rows of programs that follow each other from `at` on; return when they end."""
    for one in timed:
        own = [row for row in found[-1:] if row["DEVICE ID"] == chip]
        row = _row(one, group, layer) | {"DEVICE ID": chip}
        row |= {"DEVICE FW START CYCLE": at, "DEVICE FW END CYCLE": at + one.ns}
        row[GAP_NS] = at - float(str(own[0]["DEVICE FW END CYCLE"])) if own else None
        at += one.ns
        found.append(row)
    return at


def _row(timed: Timed, group: str, layer: int | None) -> dict[str, object]:
    op = timed.op
    facts = {"role": op.role, "dram_bytes": op.dram_bytes, "link_bytes": op.link_bytes, **op.attributes}
    text = "; ".join(f"{key}={value}" for key, value in facts.items())
    row: dict[str, object] = {
        "OP CODE": op.name,
        "DEVICE ID": 0,
        "DEVICE ARCH": "wormhole_b0",
        "ATTRIBUTES": text,
        "CORE COUNT": op.cores if op.products else None,
        "AVAILABLE WORKER CORE COUNT": WORKERS,
        FIRMWARE_NS: timed.ns,
        KERNEL_NS: timed.ns,
        "PM IDEAL [ns]": op.dram_bytes / DRAM_BYTES_PER_S * 1e9,
        GROUP: group,
        LAYER: layer,
        ROLE: op.role,
        "INPUT_0_MEMORY": "DEV_0_L1_WIDTH_SHARDED",
    }
    return row | (_matmul_cells(op) if "k" in op.attributes else {})


def _matmul_cells(op: Op) -> dict[str, object]:
    m, k, n = (int(op.attributes[name]) for name in "mkn")
    sharded = bool(op.attributes["dram_sharded"])
    weights = "DRAM_WIDTH_SHARDED" if sharded else "DRAM_INTERLEAVED"
    cells: dict[str, object] = {"MATH FIDELITY": op.fidelity}
    for place, y, x, dtype, memory in (
        ("INPUT_0", m, k, "BFLOAT16", "L1_WIDTH_SHARDED"),
        ("INPUT_1", k, n, str(op.attributes["dtype"]).upper(), weights),
        ("OUTPUT_0", m, n, "BFLOAT16", "L1_WIDTH_SHARDED"),
    ):
        sizes = {"W": "1[1]", "Z": "1[1]", "Y": f"{-(-y // 32) * 32}[{y}]", "X": f"{-(-x // 32) * 32}[{x}]"}
        cells |= {f"{place}_{axis}_PAD[LOGICAL]": size for axis, size in sizes.items()}
        cells |= {f"{place}_LAYOUT": "TILE", f"{place}_DATATYPE": dtype, f"{place}_MEMORY": f"DEV_0_{memory}"}
    if sharded:
        block = op.attributes["in0_block_w"]
        cells["ATTRIBUTES"] = (
            f"role={op.role}; program_config=MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(in0_block_w={block})"
        )
    return cells
