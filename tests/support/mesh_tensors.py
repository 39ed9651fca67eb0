# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Host tensors on simulated meshes, in a worker (see sim_worker.py)."""

from __future__ import annotations


def on_chips(mesh, values, dtype, layout, mapper, memory=None):
    """`values` as of ttnn.from_torch with a mapper, converted by the host. ttnn would have every chip convert them, by
    programs that take the simulator longer than most tests."""
    import ttnn

    host = ttnn.from_torch(values, dtype=dtype, layout=layout, mesh_mapper=mapper)
    return ttnn.to_device(host, mesh, memory_config=memory or ttnn.DRAM_MEMORY_CONFIG)
