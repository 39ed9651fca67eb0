# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of one layer on a pair of chips whose outcomes are drawn, each beside the same step of every chip alone; in a
worker (see sim_worker.py)."""

from __future__ import annotations

from tests.tt.speculation_programs import build_pair, load_cache


def attentions() -> tuple[type, type]:
    """(Pair, Alone), which need ttnn."""
    from models.llama31_8b.tt.attention import DecodeAttention
    from models.llama31_8b.tt.speculation import AttentionSpeculation
    from tt_kernels.speculative_flash_decode.op import speculative_flash_decode

    class Alone(DecodeAttention):
        """Either result of the op without a peer: every chip takes it. last: the residual behind the last layer."""

        def __init__(self, chunk_size: int, guess: bool) -> None:
            self.chunk_size, self.guess, self.last = chunk_size, guess, None

        def __call__(self, layer, q, keys, values, positions):
            decoded = speculative_flash_decode(
                q, keys, values, positions, chunk_size=self.chunk_size, threshold=0.0
            )
            return decoded.guess if self.guess else decoded.exact

        def end_step(self, residual):
            self.last = residual

    class Pair(AttentionSpeculation):
        """Keeps the residual behind the last exchange."""

        def end_step(self, residual):
            super().end_step(residual)
            self.last = residual

    return Pair, Alone


def forced(
    mesh, config, state, prefilled, chunk_size: int, capacity: int, start: int, tokens: list[int], hits: list[bool],
    layout: str = "simple",
) -> list[dict]:  # fmt: skip
    """A step a token from position `start`, all from four traces: of a hit, of a miss, and of either without a peer.

    Returns of each step the residual of both rows and of a chip alone, the priorities of both rows, and (hits, misses,
    bypassed) counted so far. prefilled: as of `load_cache`.
    """
    import ttnn

    from models.llama31_8b.tt.replay import Replay, why_no_trace

    Pair, Alone = attentions()
    options = {"capacity": capacity, "chunk_size": chunk_size, "layout": layout}
    model, pair = build_pair(mesh, config, state, attention=Pair, **options)
    load_cache(model, *prefilled)
    inputs = model.step_inputs(tokens[:1], [start])

    def replayed(attend, threshold: float | None = None) -> Replay:
        def once():
            if threshold is not None:
                attend.threshold = threshold
            model.attend = attend
            for layer in model.layers:
                layer.attention.attend = attend
            model.decode(inputs, whole=False)
            return attend.last

        return Replay(mesh, once, eager=why_no_trace(mesh) is not None)

    together = {True: replayed(pair, float("inf")), False: replayed(pair, 0.0)}
    alone = {guess: replayed(Alone(chunk_size, guess)) for guess in (True, False)}
    told = []
    for index, (token, hit) in enumerate(zip(tokens, hits, strict=True)):
        for there, value in zip(
            inputs, model.step_inputs([token], [start + index], on_device=False), strict=True
        ):
            ttnn.copy_host_to_device_tensor(value, there)
        rows = [ttnn.to_torch(part).float() for part in ttnn.get_device_tensors(together[hit]())]
        pair.check()
        counts = pair.outcomes().layers[0]
        told.append(
            {
                "rows": rows,
                "priorities": [row[0][0] for row in pair.last_priorities()],
                "counts": (counts.hits, counts.misses, counts.bypassed),
                "alone": ttnn.to_torch(ttnn.get_device_tensors(alone[hit]())[0]).float(),
            }
        )
    for step in (*together.values(), *alone.values()):
        step.release()
    return told
