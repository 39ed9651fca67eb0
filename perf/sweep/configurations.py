# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What a sweep runs: families of ops with their options, cross products of them, and the built-in suites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from models.llama31_8b.tt.mesh import DRAM_BYTES, TILE, MeshShape
from models.llama31_8b.tt.precision import PRECISIONS, TILE_BYTES
from models.llama31_8b.tt.sharding import DECODE_SHARDINGS

SOURCES = ("n150", "sim")
Value = int | str
DECODE_OPS = (
    "norm", "unshard", "create_heads", "rotate", "update_cache", "shard", "concat_heads", "add", "gated_product"
)  # fmt: skip

# Every option with its default (Llama 3.1 8B's shape), and the values that are allowed where they are few.
FAMILIES: dict[str, dict[str, Value]] = {
    "matmul": {"role": "wo", "k": 4096, "n": 4096, "m": 1, "dtype": "bfloat8_b", "layout": "dram_sharded", "cores": 32},
    "flash_decode": {
        "variant": "exact", "context": 1024, "chunk_size": 128, "heads": 32, "kv_heads": 8, "head_dim": 128,
        "users": 1, "workers": 0, "dtype": "bfloat8_b",
    },
    "tree_attention": {
        "context": 1024, "nodes": 16, "heads": 32, "kv_heads": 8, "head_dim": 128, "workers": 0, "dtype": "bfloat8_b"
    },
    "collective": {"op": "all_gather", "mesh": "1x2", "columns": 4096},
    "long_rows": {"op": "all_gather", "mesh": "1x2", "rows": 512, "columns": 4096, "dtype": "bfloat8_b"},
    "decode_op": {"op": "norm", "tp": 1, "context": 1024},
    "sampling": {"method": "argmax", "vocab": 128256, "drafted": 3, "users": 1},
    "decode": {
        "mesh": "1x1", "context": 1024, "users": 1, "chunk_size": 256, "attention": "stock", "plan": "interleaved",
        "precision": "performance", "layers": 2, "model": "llama-3.1-8b",
    },
    "prefill": {
        "mesh": "1x1", "tokens": 2048, "start": 0, "plan": "sharded", "precision": "performance", "layers": 2,
        "model": "llama-3.1-8b",
    },
}  # fmt: skip
VARIANTS = ("stock", "exact", "guess", "speculative")  # of flash decode
ALLOWED: dict[str, dict[str, tuple[str, ...]]] = {
    "matmul": {"dtype": tuple(TILE_BYTES), "layout": ("dram_sharded", "interleaved")},
    "flash_decode": {"variant": VARIANTS, "dtype": ("bfloat16", "bfloat8_b")},
    "tree_attention": {"dtype": ("bfloat16", "bfloat8_b")},
    "collective": {"op": ("all_gather", "reduce_scatter", "all_reduce")},
    "long_rows": {"op": ("all_gather", "reduce_scatter"), "dtype": ("bfloat16", "bfloat8_b")},
    "decode_op": {"op": DECODE_OPS},
    "sampling": {"method": ("argmax", "topk", "exact", "sigmoid")},
    "decode": {
        "attention": ("stock", "exact", "speculative"), "plan": DECODE_SHARDINGS, "precision": PRECISIONS,
        "model": ("llama-3.1-8b", "tiny"),
    },
    "prefill": {"plan": DECODE_SHARDINGS, "precision": PRECISIONS, "model": ("llama-3.1-8b", "tiny")},
}  # fmt: skip
AT_LEAST_ZERO = ("workers", "drafted", "start")


@dataclass(frozen=True)
class Configuration:
    """A family and all of its options. Two with the same name are the same."""

    family: str
    options: tuple[tuple[str, Value], ...]

    @classmethod
    def make(cls, family: str, **options: Value) -> Configuration:
        """Make one with the family's defaults. Raises ValueError for sizes that make no sense, with the value."""
        chosen = FAMILIES[family] | options
        for name, value in chosen.items():
            least = 0 if name in AT_LEAST_ZERO else 1
            if isinstance(value, int) and value < least:
                raise ValueError(f"{family}.{name} must be at least {least}, got {value}")
        MeshShape.parse(str(chosen.get("mesh", "1x1")))
        if "kv_heads" in chosen and (size := cache_bytes(chosen)) > DRAM_BYTES:
            raise ValueError(
                f"{family}: keys and values of context={chosen['context']} take {size / 2**30:.1f} GiB, a chip has "
                f"{DRAM_BYTES / 2**30:.0f}"
            )
        return cls(family, tuple(chosen.items()))

    @property
    def name(self) -> str:
        return " ".join([self.family, *(f"{key}={value}" for key, value in self.options)])

    def __getitem__(self, option: str) -> Any:
        return dict(self.options)[option]

    def get(self, option: str, default: Any = None) -> Any:
        return dict(self.options).get(option, default)

    @property
    def mesh(self) -> MeshShape:
        """The mesh; one chip for an op without a mesh."""
        return MeshShape.parse(self.get("mesh", "1x1"))


def combinations(
    assignments: Sequence[str], defaults: Mapping[str, Any], choices: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """Return all options of every combination, with values of the types of their defaults.

    Args:
        assignments: each "OPTION=VALUE[,VALUE...]"; the first one varies slowest.
        defaults: every option that there is.
        choices: the values of those that have few.

    Raises:
        ValueError: for another option, or a value of another type or that is no choice.
    """
    lists: dict[str, list[Any]] = {}
    for text in assignments:
        name, sign, values = text.partition("=")
        if not sign or name not in defaults:
            raise ValueError(f"cannot read {text!r}: OPTION=VALUE[,VALUE...] of {', '.join(defaults)}")
        lists[name] = [_value(name, value, defaults[name]) for value in values.split(",")]
        for value in lists[name] if name in choices else ():
            if value not in choices[name]:
                raise ValueError(f"{name} must be one of {', '.join(map(str, choices[name]))}, got {value}")
    return [{**defaults, **dict(zip(lists, one, strict=True))} for one in product(*lists.values())]


def _value(name: str, text: str, like: Any) -> Any:
    if isinstance(like, bool):
        if text not in ("True", "False"):
            raise ValueError(f"{name} must be True or False, got {text!r}")
        return text == "True"
    if isinstance(like, str):
        return text
    if not text.isdigit():
        raise ValueError(f"{name} must be a whole number, got {text!r}")
    return int(text)


def cache_bytes(chosen: Mapping[str, Any] | Configuration) -> int:
    """Return the bytes of the keys and values of an attention op's options."""
    tiles = chosen.get("users", 1) * chosen["kv_heads"] * -(-chosen["context"] // TILE) * -(-chosen["head_dim"] // TILE)
    return 2 * tiles * TILE_BYTES[chosen["dtype"]]


def from_file(path: Path) -> list[Configuration]:
    """Return the configurations of a file of lines, see `from_lines`. Raises ValueError with the path."""
    try:
        return unique(from_lines(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def unique(configurations: Iterable[Configuration]) -> list[Configuration]:
    """Return them in their order, each once. Raises ValueError for none."""
    found = list(dict.fromkeys(configurations))
    if not found:
        raise ValueError("no configuration")
    return found


# A line: a family and options, whose lists are multiplied out.
_OPS = """\
flash_decode variant=stock,exact,guess,speculative context=1024,4096,32768,131072 chunk_size=128,256
flash_decode variant=stock,exact context=1024 users=4,8
tree_attention context=1024,4096 nodes=4,16,64
collective op=all_gather,reduce_scatter,all_reduce mesh=1x2,1x4,1x8
sampling method=argmax,topk,exact,sigmoid
"""
_DECODE = """\
decode mesh=1x1,1x2,1x4,1x8 context=1024,4096,32768,131072 plan=interleaved,sharded
decode mesh=1x1 users=8,32
decode mesh=2x1,2x2,2x4 attention=speculative context=1024,4096,32768,131072 chunk_size=128,256
"""
_PREFILL = """\
prefill mesh=1x1,1x2,1x4,1x8 tokens=128,512,1024,2048
prefill mesh=1x1,1x2,1x4,1x8 start=14336,63488
long_rows op=all_gather,reduce_scatter mesh=1x2,1x4,1x8 rows=128,512,2048 dtype=bfloat16,bfloat8_b
"""
_TINY = """\
matmul k=64 n=64,128 dtype=bfloat16 layout=interleaved cores=1
flash_decode variant=stock,exact,speculative context=128,256 chunk_size=32 heads=4 kv_heads=1 head_dim=64 workers=1 \
dtype=bfloat16
tree_attention context=128 nodes=4 heads=4 kv_heads=1 head_dim=64 workers=1 dtype=bfloat16
collective mesh=1x2 columns=64
sampling method=argmax,exact,sigmoid vocab=1024 drafted=1
decode model=tiny context=128,256 chunk_size=32 attention=stock,exact precision=bfloat16
decode model=tiny mesh=2x1 context=256 chunk_size=32 attention=speculative precision=bfloat16
"""
PAPER_CONTEXTS = (1024, 4096, 16384, 65536, 131072)  # of its flash decode


def from_lines(text: str) -> list[Configuration]:
    """Return the configurations of lines "FAMILY OPTION=VALUE[,VALUE...] ...", as names are. Raises ValueError."""
    found = []
    for family, *assignments in map(str.split, text.strip().splitlines()):
        if family not in FAMILIES:
            raise ValueError(f"no family {family!r}: {', '.join(FAMILIES)}")
        chosen = combinations(assignments, FAMILIES[family], ALLOWED[family])
        found += [Configuration.make(family, **options) for options in chosen]
    return found


def _matmuls(tp: int, layouts: str) -> list[Configuration]:
    """Return the products of Llama 3.1 8B on one of `tp` chips, the activation on as many cores as tt_transformers'."""
    head = min(128256 // tp, 32064)
    return from_lines(f"""\
matmul role=qkv k=4096 n={6144 // tp} dtype=bfloat8_b layout={layouts} cores=32
matmul role=wo k={4096 // tp} n=4096 dtype=bfloat8_b layout={layouts} cores={32 // tp}
matmul role=ff1 k=4096 n={14336 // tp} dtype=bfloat4_b layout={layouts} cores={64 // tp}
matmul role=ff2 k={14336 // tp} n=4096 dtype=bfloat8_b layout={layouts} cores={64 // tp}
matmul role=lm_head k=4096 n={head} dtype=bfloat8_b layout={layouts} cores=64
""")


def _paper() -> list[Configuration]:
    """Return the ops of the ALSpec paper's tables 4 to 6, context 1K, its flash decode at longer ones, and what
    layouts beside each other need besides: flash decode of a chip of two and of eight, a gather over eight.

    A simulated chip takes seconds for a small op and minutes for a matmul or a long context: those come last.
    """
    found: list[Configuration] = []
    for tp in (1, 2, 4):
        heads = f"heads={32 // tp} kv_heads={8 // tp}"
        found += from_lines(f"decode_op op={','.join(DECODE_OPS)} tp={tp}")
        found += from_lines(f"flash_decode variant=stock,exact chunk_size=256 {heads}")
    found += from_lines("collective op=all_gather,reduce_scatter mesh=1x2,1x4")
    matmuls = [c for tp in (1, 2, 4) for c in _matmuls(tp, "dram_sharded")]
    found += sorted(matmuls, key=lambda c: c["k"] * c["n"])
    contexts = ",".join(map(str, PAPER_CONTEXTS))
    found += from_lines(f"flash_decode context={contexts} variant={','.join(VARIANTS)} chunk_size=256")
    found += from_lines("collective op=all_gather mesh=1x8")
    for heads in ("heads=16 kv_heads=4", "heads=8 kv_heads=2", "heads=4 kv_heads=1"):
        found += from_lines(f"flash_decode context={contexts} variant=exact chunk_size=256 {heads}")
    return list(dict.fromkeys(found))


def suites() -> dict[str, list[Configuration]]:
    """Return the suites by name. ops, decode, prefill: Llama 3.1 8B's shapes, for boards; paper: the ALSpec
    paper's tables, for simulated chips too; tiny: for simulated chips of few cores."""
    matmuls = [c for tp in (1, 2, 4, 8) for c in _matmuls(tp, "dram_sharded,interleaved")]
    found = {"ops": matmuls + from_lines(_OPS), "decode": from_lines(_DECODE), "prefill": from_lines(_PREFILL)}
    found["paper"] = _paper()
    return {name: unique(suite) for name, suite in (found | {"tiny": from_lines(_TINY)}).items()}
