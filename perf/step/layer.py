# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Execute a decode layer of Llama 3.1 8B, embedding and LM head on a simulated chip: values, cycles, tokens/s.

What is executed, how it makes a token of all layers, and what is left out: docs/results/decode_layer.md. Of several
chips (`--tp`) each runs its part; two all-reduces per layer take what perf/data/ops/all_reduce.json has of them, in
place of the part's norms and adds, and the embedding's gather what perf/data/paper_cycles.csv has. `--stages prefill
--weights blank` runs one layer over a prompt of --contexts tokens in place of a step.

Each stage has a process of its own and is written as soon as it is done; a run goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

from models.llama31_8b.config import LlamaConfig, RopeScaling, preset
from models.llama31_8b.tt.precision import PrecisionConfig, precision_config
from models.llama31_8b.tt.sharding import DECODE_SHARDINGS
from perf.lib.chip import Chip, measure_apart, of_roofline, one_after_the_other
from perf.lib.data_file import FOLDER, Row, Table, commit, markdown, read_rows
from perf.lib.launch_labels import DECODE_PRODUCT
from perf.step.shapes import EMBEDDING, FULL_GRID, HEAD, LAYER, THIN_VOCABULARY, check_fits, head_pieces, part_of
from perf.sweep.paper import collective_cycles

STEPS = FOLDER / "steps" / "decode_layer.csv"
NORM, REPLACED = "rms_norm", ("rms_norm", "add")  # by the all-reduces of a layer
KEYS = ("model", "tp", "context", "sharding", "weights", "stage")
ERRORS = tuple(f"{error}_{of}" for error in ("pcc", "largest", "largest_relative", "error") for of in ("held", "given"))
VALUES = ("cores", "cycles", "bytes", "of_roofline", "tokens_per_s", *ERRORS)
OP_KEYS = (*KEYS, "number")
OP_VALUES = ("op", "shape", "cores", "cycles", "bytes", "of_roofline")
RANDOM, BLANK = WEIGHTS = "random", "blank"
TOKEN, PREFILL = "token", "prefill"
CORES = 64
THIN_MLP, THIN_CONTEXT = 384, 128  # of the layer before the LM head
TIMEOUT_S = 3 * 3600


def ops_of(programs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return OP_VALUES of each program, with its part."""
    found = []
    turns = one_after_the_other((program["start"], program["end"]) for program in programs)
    for program, (_, took) in zip(programs, turns, strict=True):
        row = {name: program[name] for name in ("part", "op", "shape", "cores", "bytes")}
        found.append(row | {"cycles": took, "of_roofline": of_roofline(row["bytes"], took)})
    return found


def sums_of(ops: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return cycles, bytes and share of the roofline of ops one after the other."""
    cycles, read = (sum(op[name] for op in ops) for name in ("cycles", "bytes"))
    return {"cycles": cycles, "bytes": read, "of_roofline": of_roofline(read, cycles)}


def token_of(
    rows: Mapping[str, Mapping[str, Any]], norm: int, layers: int, pieces: int, group: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return a token's cycles, bytes, share of the roofline and tokens/s. rows: by stage; norm: cycles of the head's
    first program, which runs once however many pieces a chip has; group: of a TP group of several chips, cycles of a
    gather, of a layer's all_reduces, and of the programs that they replace."""
    counts = {EMBEDDING: 1, LAYER: layers, HEAD: pieces}
    cycles = sum(int(rows[stage]["cycles"]) * count for stage, count in counts.items()) - (pieces - 1) * norm
    if group is not None:
        # Only the first layer's first norm is a program of its own.
        cycles += round(group["gather"] + layers * (group["all_reduces"] - group["replaced"]) + norm)
    read = sum(int(rows[stage]["bytes"]) * count for stage, count in counts.items())
    return {"cycles": cycles, "bytes": read, "of_roofline": of_roofline(read, cycles), "tokens_per_s": 1e9 / cycles}


def collectives_of(config: LlamaConfig, tp: int) -> dict[str, float]:
    """Return the executed cycles of a gather of `config`'s hidden size over 1x`tp` chips, of an all-reduce, and of a
    layer's all-reduces with the products in them."""
    cycles = [
        [row["cycles"] for row in read_rows(name) if (row["chips"], row["columns"]) == (tp, config.hidden_size)]
        for name in ("ops/all_reduce.json", "ops/all_reduce_products.json")
    ]
    gather = collective_cycles("all_gather", tp, config.hidden_size)
    return {"gather": gather, "all_reduce": cycles[0][0], "all_reduces": sum(cycles[1])}


def replaced_by_all_reduces(names: Sequence[str]) -> list[bool]:
    """Return which programs of a chip's part of the layers, in their order, all-reduces replace: norms, adds, and a
    product that follows a norm."""
    behind = [False, *(name == NORM for name in names)]
    return [
        name in REPLACED or (name == DECODE_PRODUCT and after_norm)
        for name, after_norm in zip(names, behind[:-1], strict=True)
    ]


def run(
    config: LlamaConfig,
    sharding: str,
    context: int,
    weights: str = RANDOM,
    grid: str = FULL_GRID,
    prefill: bool = False,
) -> dict[str, Any]:
    """Measure one layer of `config`, and embedding and head of its vocabulary, in a process of its own: see
    `layer_device.measure_layer`. Raises SystemExit with what went wrong there."""
    asked = {"config": asdict(config), "sharding": sharding, "context": context}
    work = {"work": "layer", "asked": asked | {"blank": weights == BLANK, "prefill": prefill}}
    return measure_apart("perf.step", work, Chip(grid, timed=True).environment(), TIMEOUT_S)


def work(config: dict[str, Any], sharding: str, context: int, blank: bool, prefill: bool) -> dict[str, Any]:
    from perf.step.layer_device import measure_layer

    whole = LlamaConfig(**config | {"rope_scaling": RopeScaling(**config["rope_scaling"])})
    layer = precision_config("performance", whole.num_hidden_layers).of_layer(0)
    with Chip(FULL_GRID, timed=True).opened() as device:
        formats = PrecisionConfig("performance", layer)
        return measure_layer(device, whole.with_layers(1), formats, sharding, context, blank, prefill)


class Rows:
    """The rows of a model's stages and those of their programs: in one file, and in the one beside it."""

    def __init__(self, path: Path, config: LlamaConfig, tp: int, head: Mapping[str, str] | None = None) -> None:
        self.config, self.tp = config, tp
        self.steps = Table(path, KEYS, VALUES, head)
        self.ops = Table(path.with_name(f"{path.stem}_ops.csv"), OP_KEYS, OP_VALUES, head)

    def measure_all(
        self, contexts: Sequence[int], shardings: Sequence[str], stages: Sequence[str], weights: str
    ) -> None:
        """Add the rows that are not there."""
        config, shared = self.config, {"model": self.config.name, "weights": weights}
        for sharding in shardings:
            for own in ((LAYER, EMBEDDING), (PREFILL,)):
                for context in contexts if own[0] in stages else ():
                    layer = replace(part_of(config, self.tp), vocab_size=THIN_VOCABULARY)
                    key = shared | {"tp": self.tp, "context": context, "sharding": sharding}
                    self._measure(layer, key, own, context, "layer")
            if HEAD in stages:
                thin = replace(config, num_attention_heads=4, num_key_value_heads=1, intermediate_size=THIN_MLP)
                head = replace(thin, vocab_size=config.vocab_size // head_pieces(config))
                key = shared | {"tp": 1, "context": None, "sharding": sharding}
                self._measure(head, key, (HEAD,), THIN_CONTEXT, "logits")
        self._add_tokens()

    def _measure(
        self, config: LlamaConfig, key: Mapping[str, Any], stages: Sequence[str], context: int, judged: str
    ) -> None:
        """Run a step and add its `stages`, of which the first is judged by the values of `judged`."""
        if self.steps.has({**key, "stage": stages[-1]}):
            return
        found = run(config, str(key["sharding"]), context, str(key["weights"]), prefill=stages[0] == PREFILL)
        told = ops_of(found["programs"])
        for stage in stages:
            part = LAYER if stage == PREFILL else stage
            where, own = {**key, "stage": stage}, [op for op in told if op["part"] == part]
            numbered = enumerate({name: op[name] for name in OP_VALUES} for op in own)
            self.ops.append([{**where, "number": number, **op} for number, op in numbered])
            values = dict.fromkeys(ERRORS) | (found["values"].get(judged, {}) if stage == stages[0] else {})
            self.steps.append([{**where, **sums_of(own), **values, "cores": CORES, "tokens_per_s": None}])
            print(report(where, own, values), flush=True)

    def _add_tokens(self) -> None:
        """Add the tokens of all layers whose stages are there."""
        group, pieces = None if self.tp == 1 else collectives_of(self.config, self.tp), head_pieces(self.config)
        if pieces % self.tp:
            return
        rows = list(self.steps.rows)
        for layer in (row for row in rows if row["stage"] == LAYER and row["tp"] == str(self.tp)):
            place = {name: layer[name] for name in KEYS if name != "stage"}
            key, own = place | {"stage": TOKEN}, [row for row in rows if row.items() >= place.items()]
            # Weights cost nothing by their values, so a head over others will do.
            heads = [row for row in rows if row["stage"] == HEAD and row["sharding"] == layer["sharding"]]
            heads.sort(key=lambda row: row["weights"] == layer["weights"])
            stages = {row["stage"]: row for row in [*heads, *own]}
            if self.steps.has(key) or not {EMBEDDING, LAYER, HEAD} <= set(stages):
                continue
            head = {name: stages[HEAD][name] for name in KEYS}
            norm = next(int(op["cycles"]) for op in self.ops.rows if op.items() >= head.items())
            if group is not None:
                own = [op for op in self.ops.rows if op.items() >= (place | {"stage": LAYER}).items()]
                replaced = replaced_by_all_reduces([op["op"] for op in own])
                group["replaced"] = sum(int(op["cycles"]) for op, there in zip(own, replaced, strict=True) if there)
            token = token_of(stages, norm, self.config.num_hidden_layers, pieces // self.tp, group)
            self.steps.append([{**key, **dict.fromkeys(ERRORS), "cores": layer["cores"], **token}])
            print(f"{key}: {token}", flush=True)


def report(key: Mapping[str, Any], ops: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> str:
    """Return a stage as text: every program, the sum, the values."""
    told = [*({name: op[name] for name in OP_VALUES} for op in ops), dict.fromkeys(OP_VALUES) | {"op": "all"}]
    told[-1] |= sums_of(ops)
    errors = ", ".join(f"{name} {value:.6g}" for name, value in values.items() if value is not None)
    return "\n".join([", ".join(f"{name} {value}" for name, value in key.items()), markdown(told), errors])


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tp", type=int, default=1, help="run the part of one of so many chips")
    add("--contexts", type=int, nargs="+", default=[1024], metavar="TOKENS")
    add("--shardings", nargs="+", choices=DECODE_SHARDINGS, default=list(DECODE_SHARDINGS))
    stages = (LAYER, HEAD, PREFILL)
    add("--stages", nargs="+", choices=stages, default=[LAYER, HEAD], help="(default: layer head)")
    add("--weights", choices=WEIGHTS, default=RANDOM, help="blank: for cycles (default: %(default)s)")
    add("--csv", type=Path, default=STEPS, help="where the rows are, and go (default: %(default)s)")


def answer(options: argparse.Namespace) -> tuple[list[Row], str]:
    """Add the rows that the file lacks, and return none. Raises ValueError for what no chip holds, before any work."""
    config = preset("llama-3.1-8b")
    if PREFILL in options.stages and options.weights != BLANK:
        raise ValueError(f"--stages {PREFILL} is for its cycles alone: it needs --weights {BLANK}")
    for context, sharding in product(options.contexts, options.shardings):
        check_fits(part_of(config, options.tp), context, sharding)
    rows = Rows(options.csv, config, options.tp, {"command": "python -m perf.step layer", "commit": commit()})
    rows.measure_all(options.contexts, options.shardings, options.stages, options.weights)
    return [], f"rows are in {options.csv}"
