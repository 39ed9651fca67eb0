# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Compare the verification of drafted tokens with stock ops, in simulated cycles and bytes.

(a) the exact op and (b) the lossy sigmoid op, where all drafted tokens are accepted and where the first is rejected;
(c) the same from stock ttnn ops, as one writes it without own kernels: softmax of both, gather, the residual of all
    rows, its cumulative sum; the accepted length and the token would still be the host's work;
(d) reading the logits to the host: bytes alone.

Simulated cycles on a grid of cores, by default one: the cost model is deterministic and a floor, so ratios within one
run mean something, cycles do not. Bytes moved are those between DRAM and cores; peak bytes are what the way allocates
in DRAM beside its inputs. `--mock` prints bytes for 128256 ids, whose programs are built for a mock N150 and not run.
Last, how far the sigmoid approximation is from the target (total variation), and the paper's own table.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perf.lib.data_file import add_write_option, write
from perf.lib.measuring_process import answered, measure_apart

if TYPE_CHECKING:
    from runtime_patches.profiling.cycles import CoreCycles

TARGETS = {"exact": 0.67, "sigmoid": 0.4}
LOGIT_BYTES = 2
PIECE_BYTES = 32
FULL_VOCAB = 128256
WAYS = ("exact, accepted", "exact, rejected", "sigmoid, accepted", "sigmoid, rejected", "stock")
# Table 1 of the paper: target, draft, GPU time saved by its exact and sigmoid kernels over PyTorch's own.
PAPER = (
    ("Llama2 7B", "Sheared Llama 1.3B", "Xsum", 0.111, 0.836),
    ("Llama2 13B", "Sheared Llama 1.3B", "Xsum", 0.105, 0.457),
    ("Qwen 7B", "Qwen 0.5B", "Xsum", 0.078, 0.936),
    ("Gemma 7B", "Gemma 2B", "Xsum", 0.099, 0.635),
    ("Llama2 7B", "Sheared Llama 1.3B", "CNN/DM", 0.057, 0.780),
    ("Whisper Small.EN", "Distil-Whisper", "CV16", 0.104, 0.668),
)


class Ledger:
    """Runs stock ops and counts what they move and what they leave in DRAM. device: of all tensors."""

    def __init__(self, device):
        self.device, self.moved, self.peak = device, 0, 0
        self._start = self._allocated()

    def __call__(self, op, *tensors, **options):
        found = op(*tensors, **options)
        self.moved += sum(_tensor_bytes(tensor) for tensor in (*tensors, found))
        self.note()
        return found

    def note(self) -> None:
        self.peak = max(self.peak, self._allocated() - self._start)

    def _allocated(self) -> int:
        import ttnn

        view = ttnn.get_memory_view(self.device, ttnn.BufferType.DRAM)
        return int(view.total_bytes_allocated_per_bank) * int(view.num_banks)


def _tensor_bytes(tensor) -> int:
    import ttnn

    if not isinstance(tensor, ttnn.Tensor):
        return 0
    size = 2 if tensor.dtype == ttnn.bfloat16 else 4
    return math.prod(tensor.padded_shape) * size


def measure_case(
    device,
    users: int,
    drafted: int,
    vocab: int,
    *,
    ways: Sequence[str] = WAYS,
    cores: int | None = None,
    executed: bool = True,
) -> dict[str, dict]:
    """Return of each of `ways` its `cycles` (of the slowest core, summed over its programs), `peak` and `moved` bytes.
    executed: False where programs are built only. cores: a user's."""
    from runtime_patches.profiling.cycles import measure

    found = {}
    for name, run, moved in _ways(device, users, drafted, vocab, cores):
        if name not in ways:
            continue
        ledger = Ledger(device)

        def once(run=run, ledger=ledger):
            held = run(ledger)  # kept until the ledger has seen it
            ledger.note()
            return held

        if executed:
            counts = measure(device, once)
            found[name] = {"cycles": _slowest(counts)}
        else:
            once()
            found[name] = {}
        found[name] |= {"peak": ledger.peak, "moved": ledger.moved if moved is None else moved}
        print(
            f"{users} users, {drafted} drafted, {vocab} ids, {name}: {found[name]}",
            file=sys.stderr,
            flush=True,
        )
        del once, run  # and with them inputs, before the next ledger looks
    return found


def _slowest(counts: dict[tuple[int, int], CoreCycles]) -> int:
    return max(core.program.cycles for core in counts.values() if core.program is not None)


def _ways(device, users: int, drafted: int, vocab: int, cores: int | None):
    """Yield of each way its name, a function of a Ledger, and the bytes it moves, or None when the ledger counts
    them."""
    import torch

    generator = torch.Generator().manual_seed(0)
    nodes = drafted + 1
    target = (2 * torch.randn(users, nodes, vocab, generator=generator)).bfloat16()
    tokens = torch.randint(0, vocab, (users, nodes), generator=generator)
    # The drafted tokens are likely, or impossible, to the target.
    following = tokens.roll(-1, 1).unsqueeze(-1)
    draft = target.clone()
    rejected = target.scatter(-1, following, torch.tensor(-30.0).bfloat16().expand_as(following))
    moved = bytes_moved(users, drafted, vocab)
    for name, logits, uniform in (("accepted", target, 2**30), ("rejected", rejected, 2**32 - 1)):
        inputs = sampling_inputs(device, tokens, logits, draft, uniform) | {"cores_per_user": cores}
        for op in TARGETS:
            yield f"{op}, {name}", verification(op, inputs), moved[f"{op}, {name}"]
        del inputs
    yield "stock", _stock(device, tokens, target, draft), None


def _upload(device, values, dtype: str, layout: str = "TILE_LAYOUT"):
    import ttnn

    return ttnn.from_torch(values, dtype=getattr(ttnn, dtype), layout=getattr(ttnn, layout), device=device)


def sampling_inputs(device, tokens, target, draft, uniform: int) -> dict:
    import torch

    users, nodes = tokens.shape
    words = {
        "tokens": (tokens.to(torch.uint32), "uint32"),
        "parents": (torch.arange(-1, nodes - 1, dtype=torch.int32).expand(users, -1).contiguous(), "int32"),
        "uniforms": (torch.full((users, nodes), uniform).to(torch.uint32), "uint32"),
    }
    held = {name: _upload(device, values, dtype, "ROW_MAJOR_LAYOUT") for name, (values, dtype) in words.items()}
    logits = {"target_logits": target, "draft_logits": draft}
    return held | {name: _upload(device, values, "bfloat16") for name, values in logits.items()}


def verification(name: str, inputs: dict):
    from tt_kernels.speculative_sampling.op import lossy_sigmoid_sampling, speculative_sampling

    ops: dict[str, Callable] = {"exact": speculative_sampling, "sigmoid": lossy_sigmoid_sampling}
    op = ops[name]
    return lambda ledger: op(**inputs)


def _stock(device, tokens, target, draft):
    import torch
    import ttnn

    users, nodes = tokens.shape
    p_logits, q_logits = (_upload(device, logits, "bfloat16") for logits in (target, draft))
    indices = _upload(device, tokens.roll(-1, 1).unsqueeze(-1).to(torch.int32), "uint32")
    uniforms = _upload(device, torch.full((users, nodes, 1), 0.25), "bfloat16")

    def run(do: Ledger):
        """Run the ops as a careful user does: no tensor is kept longer than it is needed."""
        p, q = (do(ttnn.softmax, logits, dim=-1) for logits in (p_logits, q_logits))
        p_tokens, q_tokens = (do(ttnn.gather, part, -1, indices) for part in (p, q))
        accepted = do(ttnn.lt, do(ttnn.multiply, uniforms, q_tokens), p_tokens)
        residual = do(ttnn.clamp, do(ttnn.subtract, p, q), min=0.0)
        del p, q
        whole = do(ttnn.reciprocal, do(ttnn.sum, residual, dim=-1, keepdim=True))
        residual = do(ttnn.multiply, residual, whole)
        sums = do(ttnn.cumsum, residual, dim=-1)
        del residual
        return accepted, do(ttnn.sum, do(ttnn.le, sums, uniforms), dim=-1)

    return run


def bytes_moved(users: int, drafted: int, vocab: int) -> dict[str, int]:
    """Return the bytes of logits that the ops read, by way, and of reading all logits to the host."""
    row, piece = vocab * LOGIT_BYTES, 2 * PIECE_BYTES
    one_user = {
        "exact, accepted": (2 * drafted + 1) * row,
        "exact, rejected": 2 * row,
        "sigmoid, accepted": drafted * piece + row,
        "sigmoid, rejected": piece + 2 * row,
        "host": 2 * (drafted + 1) * row,
    }
    return {name: users * count for name, count in one_user.items()}


def total_variation(target: Sequence[float], draft: Sequence[float], alpha: float, beta: float) -> dict[str, float]:
    """Return how far the next token of a chain of one drafted token is from the target's distribution, in float64: with
    the sigmoid approximation, and with the draft alone. target, draft: logits [vocab]."""
    import torch

    z, w = torch.as_tensor(target).double(), torch.as_tensor(draft).double()
    p, q = torch.softmax(z, 0), torch.softmax(w, 0)
    p_hat, q_hat = (torch.sigmoid((logits - alpha) / (beta - alpha)) for logits in (z, w))
    accepted = q * (p_hat / q_hat).clamp(max=1.0)
    residual = (p_hat - q_hat).clamp(min=0)
    drawn = residual / residual.sum() if residual.sum() > 0 else p
    found = accepted + (1 - accepted.sum()) * drawn
    return {
        "sigmoid": float((found - p).abs().sum() / 2),
        "draft": float((q - p).abs().sum() / 2),
        "accepted": float(accepted.sum()),
        "accepted, exact": float(torch.minimum(p, q).sum()),
    }


def table_rows(results: list[dict]) -> list[dict]:
    """Return the rows of a data file: the sizes of each case, and cycles, bytes and ratio to the stock ops by way."""
    rows = []
    for case in results:
        ways = {name: dict(way) for name, way in case["ways"].items()}
        for way in ways.values():
            if "cycles" in way and "stock" in ways:
                way["of_stock"] = way["cycles"] / ways["stock"]["cycles"]
        sizes = {name: case[name] for name in ("users", "drafted", "vocab")}
        rows.append(sizes | ways | {"host": bytes_moved(**sizes)["host"]})
    return rows


def report(results: list[dict]) -> str:
    """Return the results of `run` as text."""
    lines = ["users drafted  vocab  way                     cycles  of stock      bytes moved  peak DRAM bytes"]
    for case in results:
        sizes = tuple(case[name] for name in ("users", "drafted", "vocab"))
        ways = case["ways"]
        for name, way in ways.items():
            cycles, ratio = str(way.get("cycles", "-")), "-"
            if "cycles" in way and "stock" in ways:
                share = way["cycles"] / ways["stock"]["cycles"]
                limit = TARGETS.get(name.split(",")[0])
                ratio = f"{share:.3f}" + ("" if limit is None else " met" if share <= limit else " MISSED")
            lines.append(
                f"{sizes[0]:>5} {sizes[1]:>7} {sizes[2]:>6}  {name:<18} {cycles:>11}  {ratio:>9} {way['moved']:>15}"
                f"  {way['peak']:>15}"
            )
        host = bytes_moved(*sizes)["host"]
        lines.append(f"{sizes[0]:>5} {sizes[1]:>7} {sizes[2]:>6}  {'to the host':<18} {'-':>11}  {'-':>9} {host:>15}")
    targets = ", ".join(f"{name} at most {share}" for name, share in TARGETS.items())
    return "\n".join([*lines, f"Targets, of stock: {targets}."])


def variation_report(vocab: int = 2048) -> str:
    """Return the total variation of the sigmoid approximation for random logits, as text."""
    import torch

    generator = torch.Generator().manual_seed(0)
    lines = ["logits of target and draft     alpha, beta   TV of sigmoid  TV of draft alone  accepted (exact rule)"]
    for name, scale, apart in (("flat", 1.5, 0.5), ("sharp", 4.0, 1.0), ("unrelated", 2.0, None)):
        target = scale * torch.randn(vocab, generator=generator)
        noise = torch.randn(vocab, generator=generator)
        draft = scale * noise if apart is None else target + apart * noise
        for limit in (1e1, 1e3, 1e4):
            found = total_variation(target.tolist(), draft.tolist(), -limit, limit)
            lines.append(
                f"{name:<28} {-limit:>7g}, {limit:<7g} {found['sigmoid']:>8.4f} {found['draft']:>15.4f}"
                f" {found['accepted']:>16.4f} ({found['accepted, exact']:.4f})"
            )
    return "\n".join(lines)


def paper_report() -> str:
    """Return the rows of the paper's table 1, as shares of its baseline's time."""
    lines = ["The paper's table 1 (A100, PyTorch), time of its baseline's: exact, sigmoid"]
    lines += [f"{t}, {d}, {data}: {1 - e:.3f}, {1 - s:.3f}" for t, d, data, e, s in PAPER]
    return "\n".join(lines)


def run(
    cases: list[tuple[int, int, int]],
    grid: str | None = "1x1",
    ways: Sequence[str] = WAYS,
    cores: int | None = None,
) -> list[dict]:
    """Measure in a process of its own, on a simulated chip of that grid; grid None: bytes, on a mock chip."""
    from runtime_patches import sgdc
    from runtime_patches.profiling.cycles import CYCLE_VARIABLES, cycle_overlays
    from runtime_patches.simulated_n150.environment import (
        mock_environment,
        process_environment,
        simulated_environment,
    )

    if grid is None:
        variables = mock_environment((1, 1), sgdc.overlays())
    else:
        variables = simulated_environment(grid, {**sgdc.overlays(), **cycle_overlays()}) | CYCLE_VARIABLES
    asked = {"cases": cases, "executed": grid is not None, "ways": list(ways), "cores": cores}
    return measure_apart("perf.ops.bench_speculative_sampling", asked, process_environment(variables))


def _work(cases: list[list[int]], **options) -> list[dict]:
    """Measure the cases. options: of measure_case."""
    import ttnn

    from tt_kernels.compute_gate.op import clear_compute_gate

    device = ttnn.open_device(device_id=0)
    clear_compute_gate(device)
    results = []
    for users, drafted, vocab in cases:
        case = {"users": users, "drafted": drafted, "vocab": vocab}
        results.append(case | {"ways": measure_case(device, users, drafted, vocab, **options)})
    ttnn.close_device(device)
    return results


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.ops.bench_speculative_sampling", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--vocab", type=int, nargs="+", help="up to 32768, which takes half an hour (default 2048)")
    parser.add_argument("--users", type=int, nargs="+", default=[1])
    parser.add_argument("--drafted", type=int, nargs="+", default=[4])
    parser.add_argument("--grid", help="columns x rows of cores of the simulated chip (default 1x1)")
    parser.add_argument("--cores-per-user", "--cores-a-user", type=int, help="default: as the op chooses")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--mock", action="store_true", help=f"bytes alone, for {FULL_VOCAB} ids, on a mock chip")
    add_write_option(parser, "--json")
    options = parser.parse_args(argv)
    if options.mock and (options.vocab or options.grid):
        parser.error(f"--mock counts bytes for {FULL_VOCAB} ids on a whole chip, without --vocab and --grid")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    vocabularies = [FULL_VOCAB] if options.mock else options.vocab or [2048]
    cases = [(u, d, v) for v in vocabularies for u in options.users for d in options.drafted]
    grid = None if options.mock else options.grid or "1x1"
    results = run(cases, grid, options.ways, options.cores_per_user)
    if options.write:
        write(options.write, parser, argv, table_rows(results))
    print(report(results))
    print(f"\n{variation_report()}\n\n{paper_report()}")
    return 0


if __name__ == "__main__":
    sys.exit(0 if answered(_work) else main())
