# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What verifying a drafted chain costs, in simulated cycles: `python -m perf.bench_speculative_sampling`.

(a) the op, where all drafted tokens are accepted (it reads most) and where the first is rejected;
(b) the same from stock ttnn ops, as one writes it without own kernels: softmax of both, gather, the residual of all
    rows, its cumulative sum; the accepted length and the token would still be the host's work;
(c) bytes: what (a) reads, what reading the logits to the host would move.

All on one core. The simulator's cost model is deterministic and a floor: ratios within one run mean something, cycles
do not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = 0.67
WORKER = "--worker"
GRID = "1x1"
LOGIT_BYTES = 2


def measure_case(device, users: int, drafted: int, vocab: int) -> dict[str, int]:
    """Cycles of core (0, 0) from launch to end, summed over the programs of each way."""
    import torch

    from runtime_patches.cycles import measure

    generator = torch.Generator().manual_seed(0)
    nodes = drafted + 1
    target = (2 * torch.randn(users, nodes, vocab, generator=generator)).bfloat16()
    tokens = torch.randint(0, vocab, (users, nodes), generator=generator)
    # The drafted tokens are likely, or impossible, to the target.
    following = tokens.roll(-1, 1).unsqueeze(-1)
    draft = target.clone()
    rejected = target.scatter(-1, following, torch.tensor(-30.0).bfloat16().expand_as(following))
    ways = {
        "op, all accepted": _op(device, tokens, target, draft),
        "op, first rejected": _op(device, tokens, rejected, draft),
        "stock": _stock(device, tokens, target, draft),
    }
    found = {}
    for name, run in ways.items():
        run()  # compiled before it is measured
        found[name] = measure(device, run)[0, 0].program.cycles
    return found


def _upload(device, values, dtype: str, layout: str = "TILE_LAYOUT"):
    import ttnn

    return ttnn.from_torch(values, dtype=getattr(ttnn, dtype), layout=getattr(ttnn, layout), device=device)


def _op(device, tokens, target, draft):
    import torch

    from tt_kernels.speculative_sampling.op import speculative_sampling

    users, nodes = tokens.shape
    words = {
        "tokens": (tokens.to(torch.uint32), "uint32"),
        "parents": (torch.arange(-1, nodes - 1, dtype=torch.int32).expand(users, -1).contiguous(), "int32"),
        "uniforms": (torch.full((users, nodes), 2**30).to(torch.uint32), "uint32"),
    }
    held = {
        name: _upload(device, values, dtype, "ROW_MAJOR_LAYOUT") for name, (values, dtype) in words.items()
    }
    logits = {
        "target_logits": _upload(device, target, "bfloat16"),
        "draft_logits": _upload(device, draft, "bfloat16"),
    }
    return lambda: speculative_sampling(**held, **logits)


def _stock(device, tokens, target, draft):
    import torch
    import ttnn

    users, nodes = tokens.shape
    p_logits, q_logits = (_upload(device, logits, "bfloat16") for logits in (target, draft))
    indices = _upload(device, tokens.roll(-1, 1).unsqueeze(-1).to(torch.int32), "uint32")
    uniforms = _upload(device, torch.full((users, nodes, 1), 0.25), "bfloat16")

    def run():
        p, q = (ttnn.softmax(ttnn.multiply(logits, 1.0), dim=-1) for logits in (p_logits, q_logits))
        p_tokens, q_tokens = (ttnn.gather(part, -1, indices) for part in (p, q))
        ttnn.lt(ttnn.multiply(uniforms, q_tokens), p_tokens)
        residual = ttnn.clamp(ttnn.subtract(p, q), min=0.0)
        residual = ttnn.multiply(residual, ttnn.reciprocal(ttnn.sum(residual, dim=-1, keepdim=True)))
        sums = ttnn.cumsum(residual, dim=-1)
        return ttnn.sum(ttnn.le(sums, uniforms), dim=-1)

    return run


def bytes_moved(users: int, drafted: int, vocab: int) -> dict[str, int]:
    """Bytes of logits: read by the op at the most, when all is accepted; and read to the host."""
    rows = users * (2 * drafted + 1)
    return {"op": rows * vocab * LOGIT_BYTES, "host": 2 * users * (drafted + 1) * vocab * LOGIT_BYTES}


def report(results: list[dict]) -> str:
    """The results of `run` as text."""
    lines = [
        f"{'users':>6}{'drafted':>9}{'vocab':>8}  cycles: op all accepted, first rejected, stock ops; ratios"
    ]
    for case in results:
        cycles, moved = case["cycles"], case["bytes"]
        accepted, rejected, stock = cycles.values()
        verdict = "met" if max(accepted, rejected) <= TARGET * stock else "missed"
        lines.append(
            f"{case['users']:>6}{case['drafted']:>9}{case['vocab']:>8}  {accepted}, {rejected}, {stock}; "
            f"{accepted / stock:.2f}, {rejected / stock:.2f} (target {TARGET}: {verdict}); "
            f"bytes {moved['op']}, to the host {moved['host']}"
        )
    return "\n".join(lines)


def run(cases: list[tuple[int, int, int]]) -> list[dict]:
    """Measure in a process of its own, on a simulated chip."""
    from runtime_patches import sgdc
    from runtime_patches.cycles import CYCLE_VARIABLES, cycle_overlays
    from runtime_patches.simulated_n150.environment import process_environment, simulated_environment

    variables = simulated_environment(GRID, {**sgdc.overlays(), **cycle_overlays()}) | CYCLE_VARIABLES
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "results.json"
        command = [
            sys.executable,
            "-m",
            "perf.bench_speculative_sampling",
            WORKER,
            str(answer),
            json.dumps(cases),
        ]
        done = subprocess.run(
            command, env=process_environment(variables), stdout=subprocess.DEVNULL, check=False
        )
        if done.returncode or not answer.exists():
            raise SystemExit(f"the measuring process ended with status {done.returncode}")
        return json.loads(answer.read_text())


def _work(answer: Path, cases: list[list[int]]) -> None:
    import ttnn

    from tt_kernels.compute_gate.op import clear_compute_gate

    device = ttnn.open_device(device_id=0)
    clear_compute_gate(device)
    results = []
    for users, drafted, vocab in cases:
        case = {"users": users, "drafted": drafted, "vocab": vocab}
        results.append(case | {"cycles": measure_case(device, **case), "bytes": bytes_moved(**case)})
    answer.write_text(json.dumps(results))
    ttnn.close_device(device)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.bench_speculative_sampling", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--vocab", type=int, nargs="+", default=[2048], help="32768 takes a quarter of an hour"
    )
    parser.add_argument("--users", type=int, nargs="+", default=[1])
    parser.add_argument("--drafted", type=int, nargs="+", default=[4])
    options = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    cases = [(u, d, v) for v in options.vocab for u in options.users for d in options.drafted]
    print(report(run(cases)))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == [WORKER]:
        _work(Path(sys.argv[2]), json.loads(sys.argv[3]))
        sys.exit(0)
    sys.exit(main())
