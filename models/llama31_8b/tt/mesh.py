# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The axes of a mesh of N150: rows speculate (SP, sp_rank 0 and 1), the chips of a row split the model (TP)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_patches.board.environment import visible_boards

from ..config import LlamaConfig

if TYPE_CHECKING:
    import torch
    import ttnn


TILE = 32
MAX_USERS = 32  # decoded together, one core each
SP_AXIS, TP_AXIS = 0, 1
# 12 banks of 1 GiB (Wormhole); dram_budget.py reserves what traces and activations need.
DRAM_BYTES = 12 * 1024**3
SHAPES = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (2, 4), (1, 8), (2, 8))
SEMAPHORE_BYTES = 32 << 10  # of each core's L1, for ttnn's collectives
NAMES = {"N150": (1, 1), "N150X2": (1, 2), "N150X4": (1, 4), "N150X8": (1, 8)}
# MESH_DEVICE's names for other boards in tt-metal, and as many chips of N150 where that is a mesh.
OTHER_BOARDS = {"N300": "N150x2", "T3K": "N150x8"} | dict.fromkeys(("TG", "P100", "P150", "P150X4", "P150X8", "P300"))
SYSFS = Path("/sys/class/tenstorrent")
N150 = "n150"
WORMHOLE = "0x401e"
ARCHITECTURES = {"0xfaca": "Grayskull", WORMHOLE: "Wormhole", "0xb140": "Blackhole"}


class MeshError(ValueError):
    """The mesh does not exist or cannot split the model; the message names both numbers."""


@dataclass(frozen=True)
class MeshShape:
    """sp x tp chips, opened as a ttnn mesh of that shape. Every row is a TP group that holds the whole model.

    sp: 1, or the two rows of attention-level speculation. tp: chips that split heads, MLP and vocabulary.
    """

    sp: int = 1
    tp: int = 1

    def __post_init__(self) -> None:
        if (self.sp, self.tp) not in SHAPES:
            raise MeshError(f"no mesh {self.sp}x{self.tp}; supported: {', '.join(f'{r}x{c}' for r, c in SHAPES)}")

    @classmethod
    def parse(cls, text: str) -> MeshShape:
        """Parse ROWSxCOLUMNS, such as 1x8, or a name as in MESH_DEVICE (N150, N150x2, N150x4, N150x8). Raises
        MeshError."""
        upper = text.strip().upper()
        if upper in NAMES:
            return cls(*NAMES[upper])
        if upper in OTHER_BOARDS:
            same = OTHER_BOARDS[upper]
            raise MeshError(
                f"the mesh {text!r} is of other boards than N150, the only ones this runs on"
                + (f"; as many chips: {same}" if same else "")
            )
        # MESH_DEVICE is also given as a tuple, "(1, 2)".
        found = re.fullmatch(r"\(?\s*(\d+)\s*[X,]\s*(\d+)\s*\)?", upper)
        if not found:
            raise MeshError(f"cannot read the mesh {text!r}: give ROWSxCOLUMNS such as 1x2, or {', '.join(NAMES)}")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def choose(cls, mesh: str | None = None, environment: Mapping[str, str] | None = None) -> MeshShape:
        """Take --mesh, else MESH_DEVICE, else one chip. Raises MeshError, which names the source."""
        environment = os.environ if environment is None else environment
        source, text = ("--mesh", mesh) if mesh else ("MESH_DEVICE", environment.get("MESH_DEVICE") or "1x1")
        try:
            return cls.parse(text)
        except MeshError as error:
            raise MeshError(f"{source}: {error}") from error

    @property
    def chips(self) -> int:
        return self.sp * self.tp

    @property
    def shape(self) -> tuple[int, int]:
        return self.sp, self.tp

    @property
    def fabric(self) -> str | None:
        """Return the name of the ttnn.FabricConfig that connects the chips, None for one chip."""
        return "FABRIC_1D" if self.chips > 1 else None

    def __str__(self) -> str:
        return f"{self.sp}x{self.tp}"

    def check_model(self, config: LlamaConfig) -> None:
        """Raises MeshError if a TP group cannot split the model into whole heads and whole tiles."""
        tp = self.tp
        for name in ("num_attention_heads", "num_key_value_heads"):
            heads = getattr(config, name)
            if heads % tp:
                raise MeshError(f"{config.name} has {name} = {heads}, which {tp} chips (TP of {self}) cannot share")
        for name in ("hidden_size", "intermediate_size"):
            size = getattr(config, name)
            if size % (TILE * tp):
                raise MeshError(
                    f"{config.name} has {name} = {size}, which is not a multiple of {TILE} x {tp} (TP of {self})"
                )
        if config.head_dim not in (64, 128):
            raise MeshError(f"{config.name} has head_dim = {config.head_dim}; supported: 64 and 128")
        if config.num_attention_heads // tp > TILE:
            raise MeshError(
                f"{config.name} leaves {config.num_attention_heads // tp} query heads per chip on {self}; "
                f"a tile of {TILE} rows is the maximum"
            )

    def check_board(self, chips: int) -> None:
        """Raises MeshError if the machine has fewer chips."""
        if chips < self.chips:
            raise MeshError(f"mesh {self} needs {self.chips} chips, this machine has {chips}")

    def padded_vocab(self, config: LlamaConfig) -> int:
        """Return the columns of the LM head: the vocabulary padded to whole tiles on every chip."""
        step = TILE * self.tp
        return -(-config.vocab_size // step) * step

    def mapper(self, mesh: ttnn.MeshDevice, dim: int | None) -> Any:
        """Return a mapper that splits `dim` of a host tensor over the TP group, the same in every row; None replicates
        it."""
        import ttnn

        if dim is None:
            return ttnn.ReplicateTensorToMesh(mesh)
        return ttnn.ShardTensor2dMesh(mesh, mesh_shape=self.shape, dims=(None, dim))

    def put(
        self,
        mesh: ttnn.MeshDevice,
        values: torch.Tensor,
        dtype: str,
        layout: str = "TILE_LAYOUT",
        dim: int | None = None,
        *,
        on_device: bool = True,
        memory: ttnn.MemoryConfig | None = None,
    ) -> ttnn.Tensor:
        """Put host values on the chips, `dim` split as by `mapper`. memory: of a chip's part, DRAM by default.

        The host converts them: with a mapper and a device, ttnn.from_torch lets the chips do it, with programs for
        every shape that nothing else runs.
        """
        import torch
        import ttnn

        values = values.to(torch.bfloat16) if dtype == "bfloat16" else values
        host = ttnn.from_torch(
            values.contiguous(),
            dtype=getattr(ttnn, dtype),
            layout=getattr(ttnn, layout),
            mesh_mapper=self.mapper(mesh, dim),
        )
        return ttnn.to_device(host, mesh, memory_config=memory or ttnn.DRAM_MEMORY_CONFIG) if on_device else host

    def open(self, kernel_bytes: int | None = None, **options: Any) -> ttnn.MeshDevice:
        """Open the mesh, with the fabric for several chips, and clear the compute gate on every chip. Close it with
        `close`.

        At the first call of a collective ttnn writes its semaphores' first values, without waiting for the ops before,
        whose L1 they may have got: TP groups have a part of L1 for them alone.

        Args:
            kernel_bytes: L1 of each core for programs in flight, by default as much as ttnn leaves them.
            options: Of ttnn.open_mesh_device.

        Raises MeshError if ttnn finds too few chips or boards of several, and ttnn's RuntimeError.
        """
        import ttnn

        try:
            chips, on_pcie = ttnn.get_num_devices(), ttnn.get_num_pcie_devices()
        except RuntimeError as error:
            if "No chips detected" not in str(error):
                raise
            raise MeshError(
                "no board here; on simulated chips: python -m runtime_patches.simulated_n150 run "
                f"--patch runtime_patches.sgdc --mesh {self} --grid 2x2 -- PROGRAM"
            ) from None
        if chips > on_pcie:
            raise MeshError(f"ttnn finds {chips} chips on {on_pcie} PCIe devices; an N150 has one chip on its own")
        self.check_board(chips)
        if self.fabric is not None:
            ttnn.set_fabric_config(getattr(ttnn.FabricConfig, self.fabric))
        try:
            if kernel_bytes is not None:
                options["worker_l1_size"] = tensors_l1_bytes(kernel_bytes)
            if self.tp > 1:
                options = {"l1_small_size": SEMAPHORE_BYTES} | options
            mesh = ttnn.open_mesh_device(ttnn.MeshShape(*self.shape), **options)
        except BaseException:
            self._end_fabric()
            raise
        try:
            _open_gate(mesh)
        except BaseException:
            self.close(mesh)
            raise
        return mesh

    def close(self, mesh: ttnn.MeshDevice) -> None:
        import ttnn

        ttnn.close_mesh_device(mesh)
        self._end_fabric()

    def _end_fabric(self) -> None:
        import ttnn

        if self.fabric is not None:
            ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


class Site(NamedTuple):
    """Where a model runs: an open mesh, the rows and TP groups that it is split into, and the model's config."""

    mesh: ttnn.MeshDevice
    shape: MeshShape
    config: LlamaConfig

    @property
    def heads(self) -> int:
        """Return the query heads of a chip."""
        return self.config.num_attention_heads // self.shape.tp

    @property
    def kv_heads(self) -> int:
        return self.config.num_key_value_heads // self.shape.tp


def tensors_l1_bytes(kernel_bytes: int) -> int:
    """Return the L1 of a core that is left for tensors beside so much for programs in flight. Needs chips."""
    import ttnn

    return int(ttnn.device.get_max_worker_l1_unreserved_size()) - kernel_bytes


def _open_gate(mesh: ttnn.MeshDevice) -> None:
    """Clear the compute gate. L1 outlives a process, and one that ended in a gated region left a gate that would skip
    the model's ops."""
    from tt_kernels.compute_gate.op import clear_compute_gate, require_patched

    try:
        require_patched()
    except RuntimeError:  # its kernels have no gate, so nothing can be skipped
        return
    clear_compute_gate(mesh)


class Board(NamedTuple):
    """number: of its node in /dev/tenstorrent. kind: tt_card_type, None if the driver does not say. pci_device: such as
    0x401e, None if sysfs does not say."""

    number: int
    kind: str | None
    pci_device: str | None

    @property
    def may_be_n150(self) -> bool:
        """Return False if sysfs says that it is another board."""
        return (self.kind or N150) == N150 and (self.pci_device or WORMHOLE) == WORMHOLE

    def __str__(self) -> str:
        architecture = ARCHITECTURES.get(self.pci_device or "", f"PCI device {self.pci_device or 'unknown'}")
        return f"{self.number}: {self.kind or 'a board of unknown type'} ({architecture})"


def find_boards(
    devices: Path | None = None, sysfs: Path | None = None, environment: Mapping[str, str] | None = None
) -> list[Board]:
    """Return the boards this process may open, by number: `visible_boards`, as described by sysfs (default: SYSFS).

    tt-kmd names a board's type in `/sys/class/tenstorrent/tenstorrent!N/tt_card_type` (n150, n300, galaxy-wormhole,
    p100, p150a and so on; unknown), if driver and firmware have telemetry; the PCI device id always tells the
    architecture.
    """
    found = []
    for number in visible_boards(devices, environment):
        folder = (sysfs or SYSFS) / f"tenstorrent!{number}"
        kind = sysfs_text(folder / "tt_card_type")
        found.append(Board(number, None if kind == "unknown" else kind, sysfs_text(folder / "device" / "device")))
    return found


def sysfs_text(path: Path) -> str | None:
    """Return what a file of the driver says, in small letters; None for nothing, and for no such file."""
    try:
        return path.read_text(encoding="ascii").strip().lower() or None
    except (OSError, UnicodeDecodeError):
        return None


def check_boards(boards: list[Board]) -> list[Board]:
    """Return the boards that sysfs does not tell from an N300. Raises MeshError, with what was found, if one is
    certainly not an N150."""
    if others := [str(board) for board in boards if not board.may_be_n150]:
        raise MeshError(
            f"N150 boards are needed, /dev/tenstorrent has {', '.join(others)}; if there are N150 too, choose them by "
            "number with TT_VISIBLE_DEVICES"
        )
    return [board for board in boards if board.kind is None]
