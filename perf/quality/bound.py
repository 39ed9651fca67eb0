# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The error bounds of the ALSpec paper's appendix A, and what of them holds.

Notation: N layers; delta[i] bounds the error that a taken guess adds to the residual stream in layer i; alpha is the
Lipschitz constant of norm and MLP, phi that of norm and attention (the paper's f(R) beta, f for attention and beta for
what stands before it). Indices here start at 0, the paper's at 1.

Slips of the paper's text that matter to who reads it beside this code:
- Triangle inequality (A.1): printed as ||X - Y|| + ||X - Z|| <= ||X - Z||; meant is ... >= ||Y - Z||.
- Equation 2: a plus is missing before delta_i: (1 + alpha)((1 + phi) ||H - H~|| + delta).
- NormMLP(A_i) and A_i + NormMLP(A_i) leave out the residual: the argument is H_i + A_i.
- Equation 3 bounds the state behind the last layer, H_(N+1) in the paper's count, not its H_N.
- Linear approximation (A.2): the first power N - i + 1 becomes N - i, and the last line turns the sum of
  1 + (N - i) x into (N + N^2 / 2) x. For x = 0 the sum is N; the printed form is 0, below any real error. Nor is a
  linearised bound a bound: it lies below equation 3.
- High-probability bound (A.3): E[H~_(i+1) - H_(i+1) | H~_i] = 0 makes the errors of the layers the differences of a
  martingale only if later layers pass them on unchanged (alpha = phi = 0). The constant c is not given, so the claim
  that the bound "is much closer to 0.1" cannot be checked; with Pinelis' inequality for Hilbert spaces (1994, theorem
  3.5), P(||M_N|| >= e) <= 2 exp(-e^2 / (2 sum r_i^2)), it can, and is 1.5 at N = 32, lambda = 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def _check(alpha: float, phi: float, delta: Sequence[float]) -> None:
    for name, values in (("alpha", (alpha,)), ("phi", (phi,)), ("delta", tuple(delta))):
        wrong = [value for value in values if not (value >= 0 and math.isfinite(value))]
        if wrong:
            raise ValueError(f"{name} must be finite and at least 0, got {wrong[0]}")
    if not delta:
        raise ValueError("delta is empty: a bound needs at least one layer")


def propagated(alpha: Sequence[float], phi: Sequence[float], delta: Sequence[float]) -> float:
    """Equation 2 from layer to layer, each with its own constants: the error behind the last layer.

    Raises ValueError for constants of different lengths, or that are negative or infinite.
    """
    if not len(alpha) == len(phi) == len(delta):
        raise ValueError(f"{len(alpha)} alpha, {len(phi)} phi and {len(delta)} delta: one of each a layer")
    error = 0.0
    for a, f, d in zip(alpha, phi, delta):
        _check(a, f, (d,))
        error = (1 + a) * ((1 + f) * error + d)
    return error


def worst_case(alpha: float, phi: float, delta: Sequence[float]) -> float:
    """Equation 3: sum over i = 1..N of (1 + alpha)^(N - i + 1) (1 + phi)^(N - i) delta_i.

    Raises ValueError for constants that are negative or infinite, and for no layer.
    """
    _check(alpha, phi, delta)
    count = len(delta)
    return sum((1 + alpha) ** (count - i) * (1 + phi) ** (count - i - 1) * d for i, d in enumerate(delta))


def linear_printed(alpha: float, phi: float, delta: float, layers: int) -> float:
    """The last line of A.2 as it is printed: (N + N^2 / 2) (alpha + phi) delta."""
    _check(alpha, phi, (delta,) * layers)
    return (layers + layers**2 / 2) * (alpha + phi) * delta


def linear(alpha: float, phi: float, delta: float, layers: int) -> float:
    """The first order of equation 3 in alpha and phi: sum of (1 + (N - i + 1) alpha + (N - i) phi) delta, which is
    (N + N (N + 1) / 2 alpha + N (N - 1) / 2 phi) delta. An approximation from below."""
    _check(alpha, phi, (delta,) * layers)
    return (layers + layers * (layers + 1) / 2 * alpha + layers * (layers - 1) / 2 * phi) * delta


def high_probability(threshold: float, layers: int, c: float, failure: float = 0.05) -> float:
    """The end of A.3: with probability 1 - failure, ||H~ - H|| / ||H|| is at most
    threshold * sqrt((4 - ln failure) N / c), the paper's threshold * sqrt(7 N / c) at 5 %. c: the universal constant of
    Naor (2012), which neither paper states. Raises ValueError for c <= 0, failure outside (0, 1), threshold < 0."""
    _check_probability(threshold, layers, failure)
    if not c > 0:
        raise ValueError(f"c must be above 0, got {c}")
    return threshold * math.sqrt((4 - math.log(failure)) * layers / c)


def high_probability_hilbert(threshold: float, layers: int, failure: float = 0.05) -> float:
    """The same from Pinelis' inequality, whose constants are known: threshold * sqrt(2 N ln(2 / failure))."""
    _check_probability(threshold, layers, failure)
    return threshold * math.sqrt(2 * layers * math.log(2 / failure))


def _check_probability(threshold: float, layers: int, failure: float) -> None:
    if not (threshold >= 0 and math.isfinite(threshold)):
        raise ValueError(f"threshold must be finite and at least 0, got {threshold}")
    if layers < 1:
        raise ValueError(f"layers must be at least 1, got {layers}")
    if not 0 < failure < 1:
        raise ValueError(f"failure must be a probability between 0 and 1, got {failure}")
