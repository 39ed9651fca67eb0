# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What coarse long rows cost a trained model beside the formats of the weights, with the errors of simulated chips, in
transformers' Llama."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch
from loguru import logger
from torch import Tensor, nn

from models.llama31_8b.checkpoint.load import resolve_source
from models.llama31_8b.reference.load import load_model
from tests.support.tt_programs import of_chips, put, read

STORY = Path(__file__).parents[3] / "perf/studies/quality/texts/story.txt"
# What chips make of random rows in bfloat8_b: a factor, and the rest of the error over the norm of 16 neighbours. Of
# norms, and of a line of eight chips' sums by reduce_scatter.
NORMS, SUMS_OF_EIGHT = (1.0015, 0.0083), (1.0174, 0.0175)


def rounded(x: Tensor, bits: int) -> Tensor:
    """Round to what 16 neighbours with a common exponent hold in `bits` bits."""
    blocks = x.unflatten(-1, (-1, 16))
    step = 2.0 ** (blocks.abs().amax(-1, keepdim=True).clamp_min(1e-30).log2().floor() + 1 - bits)
    return ((blocks / step).round().clamp(1 - 2**bits, 2**bits - 1) * step).flatten(-2)


def off(gain: float, noise: float) -> Callable[[Tensor], Tensor]:
    def made(x: Tensor) -> Tensor:
        blocks = x.unflatten(-1, (-1, 16))
        size = blocks.square().mean(-1, keepdim=True).sqrt()
        return (gain * blocks + noise * size * torch.randn_like(blocks)).flatten(-2)

    return made


def error_of(found: Tensor, exact: Tensor) -> tuple[float, float]:
    """Return the factor and the rest of the error."""
    found, exact = found.double(), exact.double()
    gain = float((found * exact).sum() / exact.square().sum())
    return gain, float((found - gain * exact).norm() / exact.norm())


def norms_of_chips(device) -> tuple[float, float]:
    """In the worker: the error of a norm of random rows."""
    from models.llama31_8b.tt.modules import RMSNorm

    torch.manual_seed(0)
    x, weight = put(device, torch.randn(1, 1, 64, 128)), put(device, torch.rand(1, 1, 1, 128) + 0.5)
    norm = RMSNorm(weight, 1e-5)
    norm.part = weight
    found, rows = read(norm.by_squares(x, norm.squares(x), "bfloat8_b")), read(x).double()
    return error_of(found, rows * rows.square().mean(-1, keepdim=True).rsqrt() * read(weight).double())


def sums_of_chips(mesh) -> tuple[float, float]:
    """In the worker: the error of the sums of random rows of each chip."""
    from models.llama31_8b.tt.layouts import reduce
    from models.llama31_8b.tt.mesh import MeshShape

    torch.manual_seed(0)
    shape = MeshShape(*mesh.shape)
    partial = shape.put(mesh, torch.randn(1, shape.tp, 32, 32 * shape.tp), "bfloat8_b", dim=1)
    exact = torch.stack(of_chips(partial)).double().sum(0)
    return error_of(torch.cat(of_chips(reduce(partial, shape)), -1), exact)


@pytest.mark.sim
def test_norms_of_chips_have_the_error_given_here(sim_device):
    found = sim_device("1x1").run(norms_of_chips)
    logger.info("norms: factor {:.4f}, {:.2%} off", *found)
    assert found == pytest.approx(NORMS, abs=2e-3)


@pytest.mark.sim
@pytest.mark.timeout(3600)
def test_sums_of_eight_chips_have_the_error_given_here(sim_mesh):
    found = sim_mesh((1, 8), "4x2").run(sums_of_chips, timeout=3500)
    logger.info("sums of eight: factor {:.4f}, {:.2%} off", *found)
    assert found == pytest.approx(SUMS_OF_EIGHT, abs=2e-3)


@contextmanager
def changed(modules: list[nn.Module], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Change what modules return."""
    hooks = [module.register_forward_hook(lambda _module, _given, out: change(out)) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.model
def test_coarse_rows_cost_little_beside_coarse_weights() -> None:
    """KL divergence from the float32 model, in the first 1,024 tokens of a story: of the weights of performance
    precision, and with coarse norms and sums of a line of eight chips too."""
    import transformers

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(resolve_source()[0], dtype=torch.float32).eval()
    ids = torch.tensor([load_model().tokenizer.encode(STORY.read_text(encoding="utf-8"))[:1024]])
    layers = model.model.layers
    norms = [norm for layer in layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)]
    sums = [product for layer in layers for product in (layer.self_attn.o_proj, layer.mlp.down_proj)]

    @torch.no_grad()
    def found() -> Tensor:
        return model(ids).logits[0].log_softmax(-1)

    exact = found()

    def divergence(what: str) -> float:
        kl = float((exact.exp() * (exact - found())).sum(-1).mean())
        logger.info("{}: KL {:.4f}", what, kl)
        return kl

    with ExitStack() as stack:
        stack.enter_context(changed(norms, off(*NORMS)))
        of_norms = divergence("norms")
        stack.enter_context(changed(sums, off(*SUMS_OF_EIGHT)))
        of_rows = divergence("norms and sums")
    for layer in layers:
        attention, mlp = layer.self_attn, layer.mlp
        for product in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj, mlp.down_proj):
            product.weight.data = rounded(product.weight.data.T, 7).T
        for product in (mlp.gate_proj, mlp.up_proj):
            product.weight.data = rounded(product.weight.data.T, 3).T
    of_weights = divergence("weights")
    with changed(norms, off(*NORMS)), changed(sums, off(*SUMS_OF_EIGHT)):
        of_both = divergence("weights, norms and sums")
    assert 0 < of_norms < of_rows < of_weights / 8
    assert of_weights < of_both < 1.2 * of_weights
