# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""What the verification ops do on the host, and wide numbers of their kernels; no device."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from tests.support.host_kernels import run_header
from tt_kernels.common.tensor_facts import TensorFacts, UnsupportedError
from tt_kernels.speculative_sampling.checks import check_problem, check_sigmoid, check_temperature
from tt_kernels.speculative_sampling.op import uniform_words


def test_uniforms_are_rounded_down():
    words = uniform_words(torch.tensor([0.0, 1 - 2.0**-53, 0.5], dtype=torch.float64))
    assert words.tolist() == [0, 2**32 - 1, 2**31]


def test_wide_numbers_of_the_kernel(tmp_path):
    """wide.hpp against Python's integers, borders included."""
    sums = [1, 2, 3, 2**31 - 1, 2**31, 2**31 + 1, 2**47 + 12345, 2**48 - 1, 987654321987]
    words = [0, 1, 2**16, 2**31, 2**32 - 1, 123456789]
    cases = list(itertools.product(words, words, words, sums, sums[::2]))
    body = """
        const auto draft = wide::scaled_draft(in[0], in[1], in[3]), target = wide::scaled_target(in[2], in[4]);
        const Number share = wide::share(in[0], in[3]);
        std::printf("%d %llu %u", wide::less(draft, target), share, wide::reciprocal(in[3]));
    """
    found = run_header(tmp_path, "tt_kernels/speculative_sampling/kernels/wide.hpp", 5, body, cases)
    for (u, q, p, s, t), numbers in zip(cases, found, strict=True):
        # The largest float32 not above 2^31 / s.
        scale = torch.tensor(math.ldexp((1 << s.bit_length() + 23) // s, 8 - s.bit_length())).view(torch.int32).item()
        assert numbers == [u * q * s < p * t << 32, u * s >> 32, scale]


GIVEN = {
    "tokens": TensorFacts((2, 3), "UINT32", "ROW_MAJOR"),
    "parents": TensorFacts((2, 3), "INT32", "ROW_MAJOR"),
    "target": TensorFacts((2, 3, 50), "BFLOAT16", "TILE"),
    "draft": TensorFacts((2, 3, 50), "BFLOAT16", "TILE"),
    "uniforms": TensorFacts((2, 3), "UINT32", "ROW_MAJOR"),
}


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"tokens": {"shape": (2, 4)}}, r"tokens must be UINT32 ROW_MAJOR \(2, 3\).*\(2, 4\)"),
        ({"parents": {"dtype": "UINT32"}}, "parents must be INT32.*UINT32"),
        ({"draft": {"layout": "ROW_MAJOR"}}, "must be alike"),
        ({"draft": {"dtype": "FLOAT32"}}, "draft_logits must be bfloat16.*FLOAT32"),
        ({"target": {"shape": (3, 50)}, "draft": None}, r"\(3, 50\)"),
        ({"target": {"shape": (2, 33, 50)}, "draft": None}, "nodes must be from 1 to 32, got 33"),
        ({"uniforms": {"on_device": False}}, "uniforms must be UINT32.* in host memory"),
    ],
)
def test_refused_tensors(changed, said):
    facts = GIVEN | {name: given and replace(GIVEN[name], **given) for name, given in changed.items()}
    with pytest.raises(UnsupportedError, match=said):
        check_problem(*facts.values())


def test_refused_sigmoids():
    for alpha, beta in ((0.0, 1.0), (-1.0, 0.0), (1.0, 2.0), (-1e6, 1.0), (-1.0, 1e6)):
        with pytest.raises(UnsupportedError, match="alpha < 0 < beta <= 100000"):
            check_sigmoid(alpha, beta)
    for value in (math.nan, -math.inf, "1", True):
        with pytest.raises(UnsupportedError, match="alpha must be a finite number"):
            check_sigmoid(value, 1.0)
    assert check_sigmoid(-1e3, 1e3) == (-1e3, 1e3)


def test_refused_numbers():
    for value in (0.0, -1.0, math.nan, math.inf, "1", True):
        with pytest.raises(UnsupportedError, match="temperature"):
            check_temperature(value)
