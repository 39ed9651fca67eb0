# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Serve a Llama with vLLM's OpenAI server through vllm-tt-plugin. Options after -- are vLLM's.

The environment of vLLM is made on the first call, below the cache folder; see docs/serving.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runtime_patches.board.command_line import OneLineParser, run_command
from runtime_patches.board.runtime_root import project_cache_dir
from tt_kernels.common.page_table import BLOCKS

from .. import simulated, tiny
from ..config import PREDICTORS
from ..tt.mesh import MeshError, MeshShape
from ..tt.prefill import PREFILL_CHUNK
from .environment import ServingEnvironmentError, check_plugin, interpreter
from .on_simulator import SERVER
from .settings import SETTINGS, model_settings

PROG = "llama-alspec serve"
ROOT = Path(__file__).resolve().parents[3]
# For three kinds of decode steps.
TRACE_REGION_BYTES = 128 * 1024**2
EXTRA_MODELS = Path(__file__).resolve().parent / "extra_models"


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted; return the server's exit code, 2 for a refusal."""
    return run_command(PROG, lambda: _serve(_parse(argv)), (ValueError, ServingEnvironmentError))


def _serve(options: argparse.Namespace) -> int:
    plugin = check_plugin(options.plugin)
    overrides = {name: getattr(options, name) for name in SETTINGS if getattr(options, name, None) is not None}
    model_settings(overrides, None, options.users)
    cache = project_cache_dir() / "serving"
    python = interpreter(cache, plugin)
    model = str(options.model)
    if options.model is None:
        model = str(cache / f"tiny-{options.mesh}")
        tiny.write_checkpoint(Path(model), tiny.of_bytes(options.mesh.tp))
    return subprocess.call(command(python, model, options, overrides), env=environment(options.mesh))


def command(python: Path, model: str, options: argparse.Namespace, overrides: dict[Any, Any]) -> list[str]:
    """Return the command line of the server."""
    fabric = {"fabric_config": "FABRIC_1D"} if options.mesh.chips > 1 else {}
    tt = {"trace_region_size": TRACE_REGION_BYTES, **fabric, "sample_on_device_mode": "decode_only"}
    additional = json.dumps({"tt": tt})
    server = [
        *("--model", model, "--served-model-name", options.name, "--host", options.host, "--port", str(options.port)),
        *("--max-model-len", str(options.context), "--max-num-seqs", str(options.users)),
        *("--block-size", str(options.block_size)),
        # Of a prefill step: others decode between a long prompt's.
        *("--max-num-batched-tokens", str(min(PREFILL_CHUNK, options.context))),
    ]
    if overrides:
        server += ["--hf-overrides", json.dumps({"alspec": overrides})]
    server += options.vllm
    if options.device == "n150":
        return [str(python), *SERVER, "--additional-config", additional, *server]
    program = [str(python), "-m", f"{__package__}.on_simulator", additional, *server]
    return simulated.command(program, options.mesh.shape, "4x2", python=str(python))


def environment(mesh: MeshShape) -> dict[str, str]:
    """Return the server's environment: our class for LlamaForCausalLM, and the mesh that the plugin opens."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "EXTRA_MODELS_DIR": str(EXTRA_MODELS),
        "TT_VLLM_BUILTIN_MODELS": "0",
        "MESH_DEVICE": f"({mesh.sp}, {mesh.tp})",
    }


def _mesh(text: str) -> MeshShape:
    try:
        return MeshShape.parse(text)
    except MeshError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    arguments = list(sys.argv[1:] if argv is None else argv)
    vllm: list[str] = []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, vllm = arguments[:split], arguments[split + 1 :]
    parser = OneLineParser(
        prog=PROG, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--plugin", type=Path, required=True, metavar="DIR", help="a clone of vllm-tt-plugin")
    parser.add_argument("--device", choices=("n150", "sim"), default="n150", help="boards (default) or simulated chips")
    parser.add_argument("--mesh", type=_mesh, default=MeshShape(1, 1), metavar="RxC", help="chips (1x1)")
    parser.add_argument("--model", metavar="MODEL", help="a Hugging Face folder or hub id (default: a tiny random one)")
    parser.add_argument("--name", default="llama", help="what clients call the model (llama)")
    parser.add_argument("--context", type=int, default=512, metavar="N", help="positions per sequence (512)")
    parser.add_argument("--users", type=int, default=4, metavar="N", help="sequences decoded together, 1 to 32 (4)")
    parser.add_argument("--block-size", type=int, choices=BLOCKS, default=64, help="tokens of a cache block (64)")
    parser.add_argument("--attention", choices=("exact", "alspec"), help="of decode steps (exact)")
    parser.add_argument("--chunk-size", type=int, metavar="N", help="of alspec: tokens of the guess at either end")
    parser.add_argument("--threshold", type=float, metavar="X", help="of alspec: error up to which a guess is accepted")
    parser.add_argument("--predictor", choices=PREDICTORS, help="of alspec: what the guess reads (budget)")
    parser.add_argument("--budget", type=float, metavar="X", help="of the predictor budget: the weight it reads (0.98)")
    parser.add_argument("--precision", metavar="NAME", help="number formats (performance)")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="listen here (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="listen here (8000)")
    options = parser.parse_args(arguments)
    options.vllm = vllm
    return options


if __name__ == "__main__":
    sys.exit(main())
