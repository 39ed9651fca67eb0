# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Choose where the studies in torch run, and in which precision: `--torch-device cuda --dtype bfloat16`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from models.llama31_8b.checkpoint.load import LoadedModel, load_model

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def add_torch_options(add: Callable[..., object]) -> None:
    """Add --torch-device and --dtype by `add`, a parser's add_argument."""
    add(
        "--torch-device",
        type=torch_device,
        default=torch.device("cpu"),
        metavar="DEVICE",
        help="cpu (default), cuda or cuda:N",
    )
    add("--dtype", choices=DTYPES, default="float32", help="of weights and activations (float32)")


def torch_device(text: str) -> torch.device:
    """Return the device of that name. Raises argparse.ArgumentTypeError for one that is not here."""
    try:
        device = torch.device(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"must be cpu, cuda or cuda:N, got {text!r}") from error
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= count:
        raise argparse.ArgumentTypeError(f"{text!r} is not here: torch sees {torch.cuda.device_count()} CUDA devices")
    return device


@contextmanager
def loaded_on(device: torch.device, dtype: str, source: str | Path | None) -> Iterator[LoadedModel]:
    """Yield the reference model of `source` on a device, which is torch's default one while it is in use.

    Its name in results ends with the dtype, unless that is float32. Raises as load_model does.
    """
    with torch.device(device):
        loaded = load_model(source, DTYPES[dtype], device=device)
        name = loaded.config.name if dtype == "float32" else f"{loaded.config.name} {dtype}"
        yield replace(loaded, config=replace(loaded.config, name=name))
