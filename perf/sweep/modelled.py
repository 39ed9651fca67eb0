# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The time source `model`: a configuration's rows by perf.projection.decode, fitted to one published table."""

from __future__ import annotations

from collections.abc import Sequence

from models.llama31_8b.latency import Times
from models.llama31_8b.tt.dram_budget import DRAM_BYTES_PER_S
from models.llama31_8b.tt.mesh import TILE
from models.llama31_8b.tt.precision import bytes_of
from perf.lib.launch_labels import Tensor
from perf.projection import decode
from perf.projection.decode import Op, Step, Timed
from perf.sweep import table
from perf.sweep.configurations import Configuration
from perf.sweep.timers import tensor_cells
from tt_kernels.speculative_flash_decode.guess_range import GuessRange

Row = dict[str, object]
PROGRAM = "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig"


class NotModelled(ValueError):
    """The decode model knows no time: nobody has published one."""


def rows(configuration: Configuration) -> list[Row]:
    """Return the configuration's rows. Raises NotModelled, NotIdentified, and ValueError for shapes the model
    refuses."""
    if configuration.family == "decode":
        return _decode(configuration)
    return [_row(timed, table.OP_GROUP, None) for timed in _ops(configuration)]


def _ops(c: Configuration) -> list[Timed]:
    parameters = decode.fit()
    if c.family == "matmul":
        dram = c["layout"] == "dram_sharded"
        ops = [decode.matmul(c["role"], c["k"], c["n"], c["dtype"], cores=c["cores"], dram_sharded=dram, m=c["m"])]
    elif c.family == "flash_decode":
        context, guess = c["context"], GuessRange.both_ends(c["chunk_size"])
        if c["variant"] == "guess":
            context = min(context, guess.first + TILE * guess.tail_tiles(context))
        op = decode.attention(c["kv_heads"], c["head_dim"], context, c["users"], c["dtype"])
        if c["variant"] == "speculative":
            return [Timed(op, parameters.ns(op) + Times().verify_ns)]
        ops = [op]
    elif c.family == "collective":
        names = {"all_gather": ["AllGather"], "reduce_scatter": ["ReduceScatter"]}
        names["all_reduce"] = ["ReduceScatter", "AllGather"]
        ops = [decode.collective(name, "collective", 1, c["columns"], c.mesh.tp) for name in names[c["op"]]]
    elif c.family == "sampling" and c["method"] == "argmax":
        ops = [Op("ArgMax", "greedy choice", decode.STREAM, dram_bytes=bytes_of(32 * c["vocab"], "bfloat16"))]
    else:
        raise NotModelled(f"{c.family} is not in the decode model: no time of it on N150 is published")
    return [Timed(op, parameters.ns(op)) for op in ops]


def _decode(c: Configuration) -> list[Row]:
    if c["model"] == "tiny":
        raise NotModelled("model=tiny is not in the decode model, whose table is of Llama 3.1 8B")
    step = Step(c.mesh, c["context"], c["users"], c["plan"], c["precision"])
    speculative = c["attention"] == "speculative"
    if speculative != (c.mesh.sp == 2):
        raise NotModelled(f"attention={c['attention']} on {c.mesh}: two rows speculate, and one cannot")
    if c["layers"] > len(step.layers()):
        raise NotModelled(f"layers={c['layers']}, and the model has {len(step.layers())}")
    told = decode.predict(step, hit_rate=1.0 if speculative else None)
    sender = told.attention_ns + Times().verify_ns
    receiver = decode.guess_ns(told, c["chunk_size"], sender) if speculative else 0.0
    found: list[Row] = []
    for chip in range(c.mesh.chips):
        at = _append(found, chip, 0.0, table.FIRST, None, told.before)
        for index, timed in enumerate(told.layers[: c["layers"]]):
            group = table.MID if index else table.FIRST
            if not speculative:
                at = _append(found, chip, at, group, index, timed)
                continue
            # Every layer hits: roles alternate, the sender skips what follows its attention, and both meet after it.
            sends = chip // c.mesh.tp == index % 2
            place = next(n for n, one in enumerate(timed) if one.op.kind == decode.ATTENTION)
            before, after = timed[:place], timed[place + 1 :]
            begun = at + sum(one.ns for one in before)
            attended = Timed(timed[place].op, sender if sends else receiver)
            _append(found, chip, at, group, index, [*before, attended, *([] if sends else after)])
            at = max(begun + sender, begun + receiver + sum(one.ns for one in after))
        _append(found, chip, at, table.TAIL, None, told.after)
    return found


def _append(found: list[Row], chip: int, at: float, group: str, layer: int | None, timed: Sequence[Timed]) -> float:
    """Append rows of programs that follow each other from `at` on; return when they end."""
    for one in timed:
        row = _row(one, group, layer) | {"DEVICE ID": chip}
        row |= {"DEVICE FW START CYCLE": at, "DEVICE FW END CYCLE": at + one.ns}
        if found and found[-1]["DEVICE ID"] == chip:
            row[table.GAP_NS] = at - float(str(found[-1]["DEVICE FW END CYCLE"]))
        at += one.ns
        found.append(row)
    return at


def _row(timed: Timed, group: str, layer: int | None) -> Row:
    op = timed.op
    facts = {"role": op.role, "dram_bytes": op.dram_bytes, "link_bytes": op.link_bytes, **op.attributes}
    row: Row = {
        "OP CODE": op.name,
        "DEVICE ID": 0,
        "DEVICE ARCH": "wormhole_b0",
        "ATTRIBUTES": "; ".join(f"{key}={value}" for key, value in facts.items()),
        "CORE COUNT": op.cores if op.products else None,
        "AVAILABLE WORKER CORE COUNT": decode.WORKERS,
        table.FIRMWARE_NS: timed.ns,
        table.KERNEL_NS: timed.ns,
        "PM IDEAL [ns]": op.dram_bytes / DRAM_BYTES_PER_S * 1e9,
        table.GROUP: group,
        table.LAYER: layer,
        table.ROLE: op.role,
        "INPUT_0_MEMORY": "DEV_0_L1_WIDTH_SHARDED",
    }
    if "k" not in op.attributes:
        return row
    m, k, n = (int(op.attributes[name]) for name in "mkn")
    sharded, row["MATH FIDELITY"] = bool(op.attributes["dram_sharded"]), op.fidelity
    weights, activation = (
        f"DRAM_{'WIDTH_SHARDED' if sharded else 'INTERLEAVED'}",
        ("BFLOAT16", "TILE", "L1_WIDTH_SHARDED"),
    )
    for place, y, x, facts_of in (
        ("INPUT_0", m, k, activation),
        ("INPUT_1", k, n, (str(op.attributes["dtype"]).upper(), "TILE", weights)),
        ("OUTPUT_0", m, n, activation),
    ):
        padded = (1, 1, *(-(-size // TILE) * TILE for size in (y, x)))
        row |= tensor_cells(place, Tensor((1, 1, y, x), padded, *facts_of))
    if sharded:
        row["ATTRIBUTES"] = f"role={op.role}; program_config={PROGRAM}(in0_block_w={op.attributes['in0_block_w']})"
    return row
