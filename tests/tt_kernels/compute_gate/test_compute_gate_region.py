# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Which ops of ttnn count as cross-chip, and the gate's rule; read from the installed sources, without a
device."""

import re

import pytest

from runtime_patches.board.runtime_root import find_ttnn_dir
from tt_kernels.compute_gate.region import is_cross_chip

OPERATIONS = "ttnn/cpp/ttnn/operations"
USES_FABRIC = re.compile(rb"fabric/hw/inc|fabric_connection|WorkerToFabricEdmSender")
# Folders of kernel sources that several ops share, and one whose ops (ring_*) have names of their own.
NOT_OPS = {"common", "kernel_common", "kernels", "dit_fused_norm_common", "sdpa"}


def folders_that_use_the_fabric() -> set[str]:
    root = find_ttnn_dir() / OPERATIONS
    found = set()
    for path in root.rglob("*"):
        if path.suffix in (".cpp", ".hpp") and USES_FABRIC.search(path.read_bytes()):
            parts = path.relative_to(root).parts
            below = parts.index("device") if "device" in parts else len(parts) - 1
            folder = parts[:below]
            while folder and folder[-1] in ("host", "dataflow", "edm", "kernels"):
                folder = folder[:-1]
            found.add(folder[-1])
    return found


def test_every_op_whose_kernels_use_the_fabric_is_refused_in_a_region():
    folders = folders_that_use_the_fabric() - NOT_OPS - {"ccl"}
    assert len(folders) > 30
    missed = sorted(name for name in folders if not is_cross_chip(name))
    assert not missed, f"not recognised as cross-chip: {missed}"


@pytest.mark.parametrize(
    "name",
    [
        "ttnn.add",
        "ttnn.matmul",
        "ttnn.linear",
        "ttnn.gather",
        "ttnn.scatter",
        "ttnn.rms_norm",
        "ttnn.mesh_partition",
        "ttnn.rms_norm_pre_all_gather",
        "ttnn.layer_norm_post_all_gather",
        "ttnn.experimental.broadcast_to",
        "ttnn.experimental.dit_layernorm_pre_allgather",
        "ttnn.experimental.fast_reduce_nc",
        "ttnn.transformer.scaled_dot_product_attention_decode",
        "ttnn.generic_op",
        "ttnn.to_memory_config",
        "ttnn.experimental.reduce_scatter_minimal_async_create_intermediate_buffer",
    ],
)
def test_ops_of_one_chip_are_not(name):
    assert not is_cross_chip(name)
