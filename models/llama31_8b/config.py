# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Shape of a Llama-architecture checkpoint, read from a Hugging Face config or named by a preset."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SUPPORTED_ARCHITECTURES = ("LlamaForCausalLM",)
SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3")
_LARGEST = 1e300  # of a number in a config.json; JSON has integers that no float holds
_ROPE_FIELDS = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_ORIGINAL = _ROPE_FIELDS[-1]
_NEEDED = {"linear": _ROPE_FIELDS[:1], "llama3": _ROPE_FIELDS}
_REQUIRED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_SIZES = (*_REQUIRED, "num_key_value_heads", "head_dim", "max_position_embeddings")

# What alspec's guess reads: the first and the last S keys; or one tile of first keys, the last S ones, and between them
# the tiles that held most of the attention weight before, this part of it by default.
PREDICTORS = ("ends", "budget")
DEFAULT_PREDICTOR = "budget"
BUDGET = 0.98
LARGEST_CHUNK = 2**30  # keys that a guess reads at an end


def check_budget(budget: object) -> float:
    """Return a budget as a float. Raises ValueError unless it is a number between 0 and 1, both excluded."""
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 < budget < 1:
        raise ValueError(f"budget must be a number between 0 and 1, got {budget!r}")
    return float(budget)


class ModelLoadError(ValueError):
    """A checkpoint that this project cannot run, or whose files are missing, damaged or out of reach; the message names
    the field and its value, or the file."""


class ContextLengthError(ValueError):
    """More tokens than the model's context or the cache can hold; the message names both figures."""


class ChatTemplateError(ValueError):
    """A model has no chat template, or its template fails on these messages."""


@dataclass(frozen=True)
class RopeScaling:
    """RoPE frequency scaling. `linear` divides all frequencies by `factor`; `llama3` blends by wavelength
    (Llama 3.1 release notes; fields named as in Hugging Face's `rope_scaling`)."""

    rope_type: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    def __post_init__(self) -> None:
        if self.rope_type not in SUPPORTED_ROPE_TYPES:
            raise ModelLoadError(
                f"RoPE scaling type {self.rope_type!r} is not supported; supported: {', '.join(SUPPORTED_ROPE_TYPES)}"
            )
        if not 1.0 <= self.factor < math.inf:
            raise ModelLoadError(f"RoPE scaling factor must be finite and at least 1, got {self.factor}")
        if self.rope_type == "llama3" and not self.low_freq_factor > 0:
            raise ModelLoadError(f"low_freq_factor must be above 0, got {self.low_freq_factor}")
        if self.original_max_position_embeddings < 1:
            raise ModelLoadError(
                "original_max_position_embeddings must be a positive integer, got "
                f"{self.original_max_position_embeddings}"
            )
        if self.rope_type == "llama3" and self.high_freq_factor <= self.low_freq_factor:
            raise ModelLoadError(
                f"llama3 RoPE scaling needs high_freq_factor > low_freq_factor, "
                f"got {self.high_freq_factor} and {self.low_freq_factor}"
            )


@dataclass(frozen=True)
class LlamaConfig:
    """Shapes and constants of one checkpoint. Field names are Hugging Face's.

    `head_dim` is explicit (Llama 3.2 1B has hidden 2048 and 32 heads of 64). `eos_token_ids` may hold several
    ids: Llama 3.1 Instruct ends a turn with three different ones.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling = field(default_factory=RopeScaling)
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    name: str = "llama"

    def __post_init__(self) -> None:
        for key in _SIZES:
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ModelLoadError(f"{key} must be a positive integer, got {value!r}")
        for key in ("rms_norm_eps", "rope_theta"):
            if not 0 < getattr(self, key) < math.inf:
                raise ModelLoadError(f"{key} must be finite and above 0, got {getattr(self, key)}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ModelLoadError(
                f"num_attention_heads ({self.num_attention_heads}) is not a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})"
            )
        if self.head_dim % 2:
            raise ModelLoadError(f"head_dim must be even for RoPE, got {self.head_dim}")

    def with_layers(self, num_hidden_layers: int) -> LlamaConfig:
        """Return the same shapes at another depth, for tests of large models at small cost."""
        return replace(self, num_hidden_layers=num_hidden_layers)

    @classmethod
    def from_hf_dict(cls, data: Mapping[str, Any], name: str = "llama") -> LlamaConfig:
        """Read the mapping of a Hugging Face `config.json`.

        Raises ModelLoadError for another architecture, biases, another activation, or a RoPE scaling
        that is not implemented, and for missing fields.
        """
        if not isinstance(data, Mapping):
            raise ModelLoadError(f"the config of {name} is not an object but {_shown(data)}")
        architectures = data.get("architectures") or []
        if not isinstance(architectures, list):
            raise ModelLoadError(f"architectures must be a list of names, got {_shown(architectures)}")
        unsupported = [str(a) for a in architectures if a not in SUPPORTED_ARCHITECTURES]
        if unsupported or (not architectures and data.get("model_type") != "llama"):
            raise ModelLoadError(
                f"architecture {', '.join(unsupported) or data.get('model_type')!r} is not supported; "
                f"supported: {', '.join(SUPPORTED_ARCHITECTURES)}"
            )
        for flag in ("attention_bias", "mlp_bias"):
            if data.get(flag):
                raise ModelLoadError(f"{flag}={data[flag]} is not supported: Llama has no biases")
        if data.get("hidden_act", "silu") != "silu":
            raise ModelLoadError(f"hidden_act={data['hidden_act']!r} is not supported; supported: 'silu'")
        for key in ("sliding_window", "attention_chunk_size"):
            if data.get(key) is not None:
                raise ModelLoadError(f"{key}={_shown(data[key])} is not supported: Llama attends to every token")
        if quantisation := data.get("quantization_config") or data.get("compression_config"):
            method = quantisation.get("quant_method") if isinstance(quantisation, Mapping) else None
            raise ModelLoadError(
                f"quantization_config: weights quantised by {method or _shown(quantisation)} are not supported; load "
                "the model's own weights in bfloat16 or float16"
            )
        missing = [key for key in _REQUIRED if key not in data]
        if missing:
            raise ModelLoadError(f"config lacks {', '.join(missing)}")
        for key in _REQUIRED:
            if isinstance(data[key], bool) or not isinstance(data[key], int) or data[key] < 1:
                raise ModelLoadError(f"{key} must be a positive integer, got {_shown(data[key])}")
        scaling, theta = _rope(data)
        tied = data.get("tie_word_embeddings")
        if tied is not None and not isinstance(tied, bool):
            raise ModelLoadError(f"tie_word_embeddings must be true or false, got {_shown(tied)}")
        if isinstance(data.get("bos_token_id"), list):
            raise ModelLoadError(f"bos_token_id must be one id, got {_shown(data['bos_token_id'])}")
        kv_heads, head_dim = data.get("num_key_value_heads"), data.get("head_dim")
        return cls(
            **{key: data[key] for key in _REQUIRED},
            num_key_value_heads=data["num_attention_heads"] if kv_heads is None else kv_heads,
            head_dim=data["hidden_size"] // data["num_attention_heads"] if head_dim is None else head_dim,
            max_position_embeddings=data.get("max_position_embeddings", 2048),
            rms_norm_eps=_number({"rms_norm_eps": 1e-6, **data}, "rms_norm_eps"),
            rope_theta=theta,
            rope_scaling=scaling,
            tie_word_embeddings=bool(tied),
            bos_token_id=next(iter(token_ids(data, "bos_token_id")), None),
            eos_token_ids=token_ids(data, "eos_token_id"),
            name=name,
        )

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> LlamaConfig:
        """Read the `config.json` in a local Hugging Face folder.

        Raises FileNotFoundError, and ModelLoadError as from_hf_dict does; both name the file.
        """
        path = Path(folder) / "config.json"
        if not path.is_file():
            raise FileNotFoundError(f"no config.json in {folder}: not a Hugging Face model folder")
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:  # of the syntax, the encoding, a number or nesting too large
            raise ModelLoadError(f"{path} is not valid JSON: {error}") from error
        try:
            return cls.from_hf_dict(data, name=Path(folder).name)
        except ModelLoadError as error:
            raise ModelLoadError(f"{path}: {error}") from error

    def to_hf_dict(self) -> dict[str, Any]:
        """Return a `config.json` mapping that both this class and transformers read back."""
        scaling = self.rope_scaling
        kept = _NEEDED.get(scaling.rope_type, ())
        rope = {"rope_type": scaling.rope_type, **{name: getattr(scaling, name) for name in kept}} if kept else None
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            **{key: getattr(self, key) for key in _SIZES},
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": rope,
            "tie_word_embeddings": self.tie_word_embeddings,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": list(self.eos_token_ids) or None,
        }


def _rope(data: Mapping[str, Any]) -> tuple[RopeScaling, float]:
    """Return the scaling and theta of a config.json. transformers 5 keeps both in `rope_parameters`, older files have
    `rope_scaling` and `rope_theta`. Raises ModelLoadError where a file has both generations and they differ."""
    found = []
    for name in ("rope_parameters", "rope_scaling"):
        if rope := data.get(name):
            found.append((name, _rope_scaling(rope, data), rope.get("rope_theta")))
    if len(found) == 2 and found[0][1] != found[1][1]:
        raise ModelLoadError(f"rope_parameters give {found[0][1]}, but rope_scaling gives {found[1][1]}")
    thetas = [("rope_theta", data["rope_theta"])] if data.get("rope_theta") is not None else []
    thetas += [(f"{name}.rope_theta", theta) for name, _, theta in found if theta is not None]
    numbers = {_number({name: value}, name) for name, value in thetas} or {10000.0}
    if len(numbers) > 1:
        said = " but ".join(f"{name} is {value}" for name, value in thetas)
        raise ModelLoadError(f"{said}: which of them holds?")
    return found[0][1] if found else RopeScaling(), numbers.pop()


def _rope_scaling(rope: Mapping[str, Any], data: Mapping[str, Any]) -> RopeScaling:
    """Return one of the two fields as scaling. data: the whole file, which may hold a part of it."""
    if not isinstance(rope, Mapping):
        raise ModelLoadError(f"rope_scaling must be an object or null, got {_shown(rope)}")
    for place in (rope, data):
        if place.get("partial_rotary_factor") not in (None, 1):
            raise ModelLoadError(
                f"partial_rotary_factor={_shown(place['partial_rotary_factor'])} is not supported: RoPE is on all of a "
                "head"
            )
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type in ("default", None):
        return RopeScaling()
    fields = {name: rope[name] for name in _ROPE_FIELDS if name in rope}
    for name in fields:
        _number(rope, name)
    outside = data.get(_ORIGINAL)
    if outside is not None and fields.setdefault(_ORIGINAL, outside) != outside:
        raise ModelLoadError(f"{_ORIGINAL} is {_shown(outside)}, but that of the RoPE scaling {fields[_ORIGINAL]}")
    if (positions := fields.get(_ORIGINAL)) is not None:
        if positions != int(_number(fields, _ORIGINAL)):
            raise ModelLoadError(f"{_ORIGINAL} must be a positive integer, got {_shown(positions)}")
        fields[_ORIGINAL] = int(positions)
    if missing := [name for name in _NEEDED.get(str(rope_type), ()) if name not in fields]:
        raise ModelLoadError(f"RoPE scaling of type {rope_type} lacks {', '.join(missing)}")
    return RopeScaling(rope_type=rope_type, **fields)


def _number(data: Mapping[str, Any], key: str) -> float:
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ModelLoadError(f"{key} must be a number, got {_shown(value)}")
    if not abs(value) < _LARGEST:  # NaN too
        raise ModelLoadError(f"{key} must be a finite number, got {_shown(value)}")
    return float(value)


def token_ids(data: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """Return the ids that a JSON file gives `key`: one, a list or none. Raises ModelLoadError for others."""
    value = data.get(key)
    ids = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in ids):
        raise ModelLoadError(f"{key} must be token ids of at least 0, got {_shown(value)}")
    return tuple(ids)


def _shown(value: Any) -> str:
    """Shorten a value of a JSON file for a message of one line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _llama3(
    name: str, hidden: int, ffn: int, layers: int, heads: int, head_dim: int, rope_factor: float, tied: bool = False
) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=128256,
        hidden_size=hidden,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=head_dim,
        max_position_embeddings=131072,
        rope_theta=500000.0,
        rope_scaling=RopeScaling("llama3", factor=rope_factor),
        tie_word_embeddings=tied,
        bos_token_id=128000,
        eos_token_ids=(128001, 128008, 128009),
        name=name,
    )


_SMOLLM2 = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    head_dim=64,
    max_position_embeddings=8192,
    rope_theta=100000.0,
    tie_word_embeddings=True,
    bos_token_id=1,
    eos_token_ids=(2,),
    name="smollm2-135m",
)
PRESETS = {
    config.name: config
    for config in (
        _llama3("llama-3.1-8b", 4096, 14336, 32, 32, 128, 8.0),
        _llama3("llama-3.1-70b", 8192, 28672, 80, 64, 128, 8.0),
        _llama3("llama-3.2-1b", 2048, 8192, 16, 32, 64, 32.0, tied=True),
        _llama3("llama-3.2-3b", 3072, 8192, 28, 24, 128, 32.0, tied=True),
        _SMOLLM2,
    )
}


def preset(name: str) -> LlamaConfig:
    """Return a preset by name. Raises ValueError listing what exists."""
    if name not in PRESETS:
        raise ValueError(f"no preset named {name!r}; presets: {', '.join(PRESETS)}")
    return PRESETS[name]


def inverse_frequencies(config: LlamaConfig) -> torch.Tensor:
    """Return the frequencies of rotary position embedding, float32 [head_dim / 2], radians per position.

    `linear` scaling divides every frequency by the factor. `llama3` keeps wavelengths below
    original / high_freq_factor, divides those above original / low_freq_factor, and blends between.
    """
    import torch

    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    scaling = config.rope_scaling
    if scaling.rope_type == "linear":
        return frequencies / scaling.factor
    if scaling.rope_type == "llama3":
        turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)  # rotations in the old context
        blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        blend = blend.clamp(0.0, 1.0)
        return (1 - blend) * frequencies / scaling.factor + blend * frequencies
    return frequencies
