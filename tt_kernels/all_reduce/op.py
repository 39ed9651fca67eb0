# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""Add up a TP group's partial results on each of its chips, add the residual, and take the RMS norm of the sum.

In each layer:

    all_reduce = AllReduce(mesh, users=1, columns=4096)
    reduced = all_reduce(partial, residual=x, norm=weight)      # sum and norm, the same bits on all chips of a TP group
    reduced = all_reduce(partial, residual=x, norm=weight, multiply=(matrix, memory))   # and a product of the norm
    all_reduce.check()                                          # when the host wants to know: did a chip give up?
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tt_kernels.common.circular_buffers import TILE_BYTES, Buffer, circular_buffer
from tt_kernels.common.cores import Core, check_on_device, core_set, grid_cores, noc_core_of
from tt_kernels.common.device_state import l1_words
from tt_kernels.common.kernel import Values, float_bits, kernel_descriptor, program_of, semaphores_on
from tt_kernels.common.lazy_ttnn import ttnn
from tt_kernels.common.peer import DEFAULT_TIMEOUT_S
from tt_kernels.common.tensor_facts import UnsupportedError, check_tiles
from tt_kernels.common.tp_group import TpChips
from tt_kernels.compute_gate.region import refuse_in_region
from tt_kernels.decode_product.op import Product, bank_cores

KERNELS = Path(__file__).parent / "kernels"
MAX_USERS, TILE = 32, 32
ROW_BYTES, FACE_ROWS = 32, 16  # of bfloat16 tiles
MAX_WORKERS, MAX_DENSE_WORKERS = 32, 8
_WORKER, _LINK = "worker", "link"
_LINE = 64  # bytes of which packets are multiples
_SEMAPHORES = {"packed_semaphore": 0, "decision_semaphore": 1, "squares_semaphore": 2, "rows_semaphore": 3}
_AHEAD_BYTES = 384 * 1024  # of a weight on each core: what a bank sends while eight chips wait for each other


class Reduced(NamedTuple):
    """sum: bfloat16 [1, 1, users, columns], TILE. normed: its RMS norm, of the same kind, or None. product: that of the
    norm, bfloat16 [1, 1, users, outputs], or None."""

    sum: Any
    normed: Any
    product: Any = None


class AllReduce(TpChips):
    """The all-reduce of every TP group along `tp_axis` of a mesh, for rows one tile high; it keeps their counters and
    the buffers in which the other chips' rows land.

    users: rows in use, 1 to MAX_USERS. columns: of a row, a multiple of 32.
    timeout_s: how long a chip waits for another, in seconds at 1 GHz.
    multiplies: whether calls may multiply the norm, by the cores beside the DRAM banks. All others are free: the link
        core is the last of the grid, workers are the first ones, row by row. Chips send over the Ethernet links between
        two chips in turn, in the order of their ranks.

    Needs FABRIC_1D. Errors: ValueError for another fabric or another shape.
    """

    STATE_WORDS = 16  # sizeof(tp::Calls), rounded up to 64 bytes
    REASONS = {
        1: "TP rank {silent} sent no rows",
        2: "the fabric link took no packet",
        3: "TP rank {silent} is in another call",
    }
    defines = (("PEER_LINK_FABRIC", "1"),)

    def __init__(
        self,
        mesh: ttnn.MeshDevice,
        users: int,
        columns: int,
        tp_axis: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        multiplies: bool = False,
    ) -> None:
        if type(users) is not int or not 1 <= users <= MAX_USERS:
            raise ValueError(f"users must be 1 to {MAX_USERS}, not {users!r}")
        if type(columns) is not int or columns < TILE or columns % TILE:
            raise ValueError(f"columns must be a positive multiple of {TILE}, not {columns!r}")
        grid = mesh.compute_with_storage_grid_size()
        taken = bank_cores(mesh) if multiplies else []
        *free, core = [each for each in grid_cores(mesh) if each not in taken]
        if not free:
            raise ValueError(f"an all-reduce needs a core beside its link core; the grid is {grid.x}x{grid.y}")
        self.multiplies = multiplies
        super().__init__(mesh, tp_axis, core, timeout_s)
        self.links = self._links_between_neighbours()
        self.users, self.columns = users, columns
        most = min(len(free), MAX_DENSE_WORKERS if users == 1 else MAX_WORKERS)
        count = max(n for n in range(1, most + 1) if columns // TILE % n == 0)
        self.workers, self.tiles = free[:count], columns // TILE // count
        # One user's columns lie packed in one tile of a worker, and the workers' sums of squares in the rows of a face.
        self.dense = users == 1 and self.tiles <= TILE
        whole = users > FACE_ROWS
        self.pieces, self.piece_bytes = (1, TILE_BYTES["BFLOAT16"]) if whole else (2, users * ROW_BYTES)
        self.chunk_bytes = self.tiles * self.pieces * self.piece_bytes
        # Chunks of so many workers share a packet; one that fits none is cut into equal packets.
        most = ttnn.get_tt_fabric_max_payload_size_bytes()
        shares = [n for n in range(1, count + 1) if count % n == 0 and n * self.chunk_bytes <= most]
        self.together = max(shares, default=1)
        landing = self.together * self.chunk_bytes
        self.packet_bytes = max(n for n in range(_LINE, most + 1, _LINE) if landing % n == 0)
        # Two slots of every chip's packets, in L1 of the workers of every chip that packets go to. What has landed in
        # an earlier call must not be read: no chip begins a call before both are there on all.
        cores, words = self.workers[:: self.together], 2 * self.chips * landing // 4
        self._landing = l1_words(mesh, core_set(*cores), len(cores), words)

    def __call__(
        self,
        partial: ttnn.Tensor,
        *,
        residual: ttnn.Tensor | None = None,
        norm: ttnn.Tensor | None = None,
        epsilon: float = 1e-5,
        multiply: tuple[ttnn.Tensor, ttnn.MemoryConfig] | None = None,
    ) -> Reduced:
        """Return the sum over each TP group, and with `norm` its RMS norm, both in the memory of `partial`, and with
        `multiply` a product of that.

        Args:
            partial: each chip's partial sums, bfloat16 [1, 1, users, columns], TILE, interleaved or sharded.
            residual: is added to the sum; as `partial`, the same on all chips of a TP group.
            norm: weights of the norm, bfloat16 [1, 1, 1, columns], TILE, interleaved or sharded.
            epsilon: is added to the mean of the squares.
            multiply: weight and memory of the result, with `norm` as `decode_product` takes them. The weight is read
                while the chips wait for each other.

        The chips' parts are added in chip order, then the residual, in float32, and rounded once; so all chips of a
        group have the same bits. The norm is that of the sum before it was rounded. Padding rows of the results are
        undefined. A chip that gave up once does nothing until `reset()`, and leaves its results undefined.

        Errors: ValueError, and GatedRegionError inside a skip_compute whose gate the group does not share.
        """
        refuse_in_region("all_reduce", self.tp_axis)
        self._check(partial, residual, norm, epsilon)
        if multiply is not None and (norm is None or not self.multiplies):
            raise ValueError(f"multiply needs norm, and an all-reduce that multiplies: {self.multiplies}")
        form = (list(partial.shape), ttnn.bfloat16, ttnn.TILE_LAYOUT, self.device, partial.memory_config())
        total, normed = ttnn.empty(*form), None if norm is None else ttnn.empty(*form)
        product = None if normed is None or multiply is None else Product(normed, *multiply, ahead=_AHEAD_BYTES)
        out = Reduced(total, normed, None if product is None else product.result)
        tensors = {"partial": partial, "residual": residual, "weights": norm, "sum": total, "normed": normed}
        given = [tensor for tensor in (partial, residual, norm, multiply and multiply[0]) if tensor is not None]
        results = [tensor for tensor in reversed(out) if tensor is not None]
        ttnn.generic_op([*given, self._landing, *results], self.mesh_program(tensors, epsilon, product))
        return out

    def mesh_program(self, tensors: dict[str, Any], epsilon: float, product: Product | None = None) -> Any:
        """Return the ttnn.MeshProgramDescriptor of a call. tensors: by their names in the kernels."""
        programs = ttnn.MeshProgramDescriptor()
        multipliers = [] if product is None else product.cores
        for place in self.coordinates():
            here = ttnn.MeshCoordinate(*place)
            cores = core_set(*self.workers, self.core, *multipliers)
            program = program_of((), semaphores=semaphores_on(cores, *(0 for _ in _SEMAPHORES)))
            links = self.link_args(place, program, self.tp_rank(place) % self.links)
            self._fill(program, tensors, epsilon, self.tp_rank(place), links, multipliers)
            if product is not None:
                makers = 2 * len(self.workers)
                program.kernels = [*program.kernels, *product.kernels(makers, _SEMAPHORES["rows_semaphore"])]
                program.cbs = [*program.cbs, *product.circular_buffers()]
            programs[ttnn.MeshCoordinateRange(here, here)] = program
        return programs

    def buffers(self, has_residual: bool, has_norm: bool) -> dict[str, Buffer]:
        """Return the circular buffers of a call by their names in the kernels."""
        blocks, workers = 1 if self.dense else self.tiles, len(self.workers)
        both, own = frozenset({_WORKER, _LINK}), frozenset({_WORKER})
        sizes = [
            # On workers too, so that they know its address.
            ("cb_packed", "BFLOAT16", workers * self.chunk_bytes, 1, both),
            ("cb_parts", "BFLOAT16", None, self.chips * blocks, own),
            ("cb_residual", "BFLOAT16", None, blocks * has_residual, own),
            ("cb_sum", "BFLOAT16", None, blocks, own),
            ("cb_weights", "BFLOAT16", None, blocks * has_norm, own),
            ("cb_normed", "BFLOAT16", None, blocks * has_norm, own),
            ("cb_exact", "FLOAT32", None, blocks, own),
            ("cb_own_square", "FLOAT32", None, 1, own),
            ("cb_all_squares", "FLOAT32", None, has_norm * (1 if self.dense else workers), own),
            ("cb_scale", "FLOAT32", None, has_norm and not self.dense, own),
        ]
        return {
            name: Buffer(index, dtype, TILE_BYTES[dtype] if page is None else page, pages, roles)
            for index, (name, dtype, page, pages, roles) in enumerate(sizes)
        }

    def _fill(
        self,
        program: Any,
        tensors: dict[str, Any],
        epsilon: float,
        rank: int,
        links: list[int],
        multipliers: Sequence[Core],
    ) -> None:
        """Give `program` the kernels and buffers of a chip."""
        has_residual, has_norm = tensors["residual"] is not None, tensors["weights"] is not None
        buffers = self.buffers(has_residual, has_norm)
        constants = {name: buffer.index for name, buffer in buffers.items()} | _SEMAPHORES
        constants |= {
            "multipliers": len(multipliers),
            "chips": self.chips,
            "workers": len(self.workers),
            "users": self.users,
            "dense": int(self.dense),
            "tiles": self.tiles,
            "pieces": self.pieces,
            "piece_bytes": self.piece_bytes,
            "has_residual": int(has_residual),
            "has_norm": int(has_norm),
            "together": self.together,
            "packet_bytes": self.packet_bytes,
        }
        # Those that are absent stand for the first, and are not touched.
        there = {name: tensors["partial"] if tensor is None else tensor for name, tensor in tensors.items()}
        address = {name: tensor.buffer_address() for name, tensor in there.items()}
        noc_core, landing = noc_core_of(self.device), self._landing.buffer_address()
        worker_cores = [part for core in self.workers for part in noc_core(core)]
        link_x, link_y = noc_core(self.core)
        told = {"multipliers": [x | y << 16 for x, y in map(noc_core, multipliers)]}
        # Both move tiles of the partial sums and of the norm.
        mover: dict[str, Any] = {"rank": rank, "link_x": link_x, "link_y": link_y}
        read, written = ("partial", "sum", "normed"), ("partial", "residual", "weights", "normed")
        reader = mover | {name: address[name] for name in read}
        writer = mover | {name: address[name] for name in written} | {"worker_cores": worker_cores}

        def lands(worker: int) -> dict[str, Any]:
            x, y = noc_core(self.workers[worker - worker % self.together])
            return {"worker": worker, "landing": landing, "landing_x": x, "landing_y": y}

        link: Values = {
            "rank": rank,
            "state": self.state.buffer_address(),
            "timeout": self.timeout,
            "landing": landing,
            "worker_cores": worker_cores,
            "links": links,
        }
        # Sums are float32, and float32 operands go straight to the registers.
        compute = ttnn.ComputeConfigDescriptor(math_fidelity=ttnn.MathFidelity.HiFi3, fp32_dest_acc_en=True)
        modes = [ttnn.UnpackToDestMode.Default] * 32
        for name in ("cb_exact", "cb_all_squares", "cb_scale"):
            modes[buffers[name].index] = ttnn.UnpackToDestMode.UnpackToDestFp32
        compute.unpack_to_dest_mode = modes
        kernel = partial(kernel_descriptor, constants=constants, defines=self.defines)
        program.kernels = [
            kernel(
                KERNELS / "worker_reader.cpp",
                "Reader",
                accessors={name: there[name] for name in read},
                common=told,
                per_core={core: lands(n) | reader for n, core in enumerate(self.workers)},
            ),
            kernel(
                KERNELS / "worker_writer.cpp",
                "Writer",
                accessors={name: there[name] for name in written},
                common=told,
                per_core={core: {"worker": n} | writer for n, core in enumerate(self.workers)},
            ),
            kernel(
                KERNELS / "worker_compute.cpp",
                compute,
                cores=core_set(*self.workers),
                common={"per_column": float_bits(1 / self.columns), "epsilon": float_bits(epsilon)},
            ),
            kernel(KERNELS / "link.cpp", "Writer", per_core={self.core: link}),
        ]
        cores = {_WORKER: self.workers, _LINK: [self.core]}
        program.cbs = [circular_buffer(buffer, cores) for buffer in buffers.values() if buffer.pages > 0]

    def _links_between_neighbours(self) -> int:
        """Return the fewest Ethernet links between two neighbours along the axis."""

        def node(place: tuple[int, ...], steps: int) -> Any:
            there = list(place)
            there[self.tp_axis] += steps
            return self.device.get_fabric_node_id(ttnn.MeshCoordinate(*there))

        first = [place for place in self.coordinates() if self.tp_rank(place) + 1 < self.chips]
        return min(len(ttnn.get_forwarding_link_indices(node(place, 0), node(place, 1))) for place in first)

    def _check(self, partial: Any, residual: Any, norm: Any, epsilon: Any) -> None:
        """Raise ValueError for tensors that cannot be reduced."""
        row = (1, 1, self.users, self.columns)
        weights = (1, 1, 1, self.columns)
        given = (("partial", partial, row), ("residual", residual, row), ("norm", norm, weights))
        for name, tensor, shape in given:
            if tensor is None and name != "partial":
                continue
            if (found := check_tiles(name, tensor)).shape != shape:
                raise UnsupportedError(f"{name} must be {shape}, it is {found}")
            check_on_device(name, tensor, self.device)
        number = isinstance(epsilon, (int, float)) and not isinstance(epsilon, bool)
        if not number or not (math.isfinite(epsilon) and epsilon > 0):
            raise ValueError(f"epsilon is a positive, finite number, not {epsilon!r}")
