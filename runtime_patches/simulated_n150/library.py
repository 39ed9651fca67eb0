# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Run on a release library of ttsim, Tenstorrent's own simulator, in place of this one.

ttsim simulates single chips, agrees with the RTL bit for bit by its own claim, and counts no cycles. Its Wormhole
library is `libttsim_wh.so` of https://github.com/tenstorrent/ttsim/releases; nothing here downloads it. The stock ttnn
wheel loads the library that TT_METAL_SIMULATOR names, and reads `soc_descriptor.yaml` from the same folder.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path

DESCRIPTOR = Path("tt_metal/soc_descriptors/wormhole_b0_80_arch.yaml")  # in the ttnn package
WORMHOLE = 0x401E1E52  # device and vendor of a Wormhole's PCI configuration
_NEEDED = b"libttsim_init"
_ASK_TIMEOUT_S = 60.0

# Instructions of ttnn's own kernels that ttsim 1.10 refuses: a piece of its message, and what stops there.
STOCK_COMPLAINTS = {
    "tensix_unpacr: cfg_context_id": "ttnn unpacks 32-bit tiles to Dst (float32 copies, sums and intermediates)",
    "tensix_unpacr: unpack_to_dst": "ttnn unpacks 32-bit tiles to Dst (float32 copies, sums and intermediates)",
    "tensix_sfpswap": "ttnn's stable top-k swaps index registers",
    "tensix_sfploadmacro": "ttnn schedules vector instructions with SFPLOADMACRO",
}


def check_library(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a ttsim library for Wormhole.

    Raises:
        ValueError: `path` is no readable file, no shared library, not ttsim's, or simulates another chip. The message
            names the path and what was found.
    """
    library = Path(path).expanduser().resolve()
    if not library.is_file():
        raise ValueError(f"--simulator {path}: no such file; it takes libttsim_wh.so of a ttsim release")
    if not os.access(library, os.R_OK):
        raise ValueError(f"--simulator {path}: the file cannot be read")
    with library.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            raise ValueError(f"--simulator {path}: not a shared library; it takes libttsim_wh.so of a ttsim release")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(_NEEDED) < 0:
                raise ValueError(f"--simulator {path}: a library without {_NEEDED.decode()}, so not one of ttsim's")
    return library


def check_chip(library: Path) -> None:
    """Ask the library, in a process of its own, which chip it simulates.

    Raises:
        ValueError: the library does not load, does not answer, or simulates another chip than Wormhole.
    """
    command = [sys.executable, "-c", _ASK, str(library)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"--simulator {library}: did not answer within {_ASK_TIMEOUT_S:g} s") from error
    found = done.stdout.split()[-1:] if done.returncode == 0 else []
    if not found:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise ValueError(f"--simulator {library}: the library does not start: {said[0]}")
    if int(found[0], 16) != WORMHOLE:
        raise ValueError(f"--simulator {library}: simulates the chip {found[0]}, not Wormhole ({WORMHOLE:#x})")


_ASK = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.libttsim_init()
library.libttsim_pci_config_rd32.restype = ctypes.c_uint32
print(hex(library.libttsim_pci_config_rd32(0, 0)), flush=True)
__import__("os")._exit(0)
"""


def version(library: Path) -> str:
    """Return what identifies a library, which exports no version: the first 12 hex digits of its SHA-256."""
    return hashlib.sha256(library.read_bytes()).hexdigest()[:12]


def prepared(library: Path, ttnn_dir: Path, cache: Path) -> Path:
    """Return a link to the library in a folder of the cache that also holds ttnn's description of the chip.

    The folder is keyed by the contents of both, so a replaced library or wheel gets another one.
    """
    descriptor = ttnn_dir / DESCRIPTOR
    key = hashlib.sha256(library.read_bytes() + descriptor.read_bytes() + bytes(library)).hexdigest()[:16]
    folder = cache / "simulators" / f"ttsim-{key}"
    link = folder / "libttsim.so"
    if not link.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(descriptor, folder / "soc_descriptor.yaml")
        link.unlink(missing_ok=True)
        link.symlink_to(library)
    return link


def complaint(output: str) -> str | None:
    """Return what of ttnn's own kernels the library has refused, by the end of a program's output; else None."""
    return next((what for piece, what in STOCK_COMPLAINTS.items() if piece in output), None)
