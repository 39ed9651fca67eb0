# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A made-up ttnn for what opens and closes meshes: its tests import no ttnn and open no chip."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace


class MadeUpTtnn(ModuleType):
    """ttnn on a machine with `chips` chips, `on_pcie` of them PCIe devices.

    links: whether a mesh opens; without them it raises RuntimeError, as ttnn does. fabric: every fabric that was set,
    in order, "on" or "off". closed: the meshes that were closed, each as open_mesh_device names it. options: of the
    last one that was opened.
    """

    def __init__(self, chips: int, on_pcie: int, links: bool) -> None:
        super().__init__("ttnn")
        self.get_num_devices, self.get_num_pcie_devices = lambda: chips, lambda: on_pcie
        self.FabricConfig = SimpleNamespace(FABRIC_1D="on", DISABLED="off")
        self.MeshShape = lambda *shape: shape
        self.device = SimpleNamespace(get_max_worker_l1_unreserved_size=lambda: 1 << 20)
        self.links = links
        self.fabric: list[str] = []
        self.closed: list[str] = []
        self.options: dict[str, int] = {}
        self.set_fabric_config, self.close_mesh_device = self.fabric.append, self.closed.append

    def open_mesh_device(self, shape: tuple[int, int], **options) -> str:
        if not self.links:
            raise RuntimeError(f"no links for {shape}")
        self.options = options
        return f"mesh {shape}"


def make_up_ttnn(monkeypatch, chips: int = 1, on_pcie: int | None = None, links: bool = True) -> MadeUpTtnn:
    """Put a made-up ttnn in place of the real one until the test ends. on_pcie: None is all chips."""
    made_up = MadeUpTtnn(chips, chips if on_pcie is None else on_pcie, links)
    monkeypatch.setitem(sys.modules, "ttnn", made_up)
    return made_up
