# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""A gate that a killed run or a failed test left closed is opened before anything else runs on the chip."""

import pickle
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from models.llama31_8b.tt.mesh import MeshShape
from runtime_patches import sgdc
from runtime_patches.board.runtime_root import find_ttnn_dir
from runtime_patches.simulated_n150.testing import worker as sim_worker
from tests.support.made_up_ttnn import make_up_ttnn
from tt_kernels.compute_gate import op

PLACES = {
    "a board": {},
    "the simulator": {"TT_METAL_SIMULATOR": "/sim", "TT_METAL_MOCK_CLUSTER_DESC_PATH": "/one.yaml"},
    "a mock mesh": {"TT_METAL_MOCK_CLUSTER_DESC_PATH": "/two.yaml"},
}


def add(device, x):
    import ttnn

    on_device = ttnn.from_torch(x, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    return ttnn.to_torch(ttnn.add(on_device, on_device))


def close_gate(device) -> None:
    import ttnn

    from tt_kernels.common.priority import YIELDED, priority_row

    row = priority_row(YIELDED)
    priority = ttnn.from_torch(row, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)
    op.set_compute_gate(priority, users=1)


def fails_with_the_gate_closed(device, x):
    close_gate(device)
    raise ArithmeticError("added" if torch.equal(add(device, x), x + x) else "skipped")


def opens_the_mesh_of_the_model(device, x):
    """The device as a killed run left it, opened by the model."""
    import ttnn

    close_gate(device)
    skipped = not torch.equal(add(device, x), x + x)
    with (
        mock.patch.object(ttnn, "open_mesh_device", lambda shape: device),
        mock.patch.object(ttnn, "get_num_devices", lambda: 1),
    ):
        MeshShape().open()
    return skipped, add(device, x)


def numbers(seed: int) -> torch.Tensor:
    return torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)).bfloat16()


@pytest.mark.sim
def test_the_gate_is_open_after_a_body_that_failed_with_it_closed(sim_device):
    device = sim_device("1x1", overlays=sgdc.overlays())
    with pytest.raises(ArithmeticError, match="skipped"):
        device.run(fails_with_the_gate_closed, numbers(1))
    x = numbers(2)
    assert torch.equal(device.run(add, x), x + x)


@pytest.mark.sim
def test_the_gate_is_open_when_the_model_opens_its_mesh(sim_device):
    x = numbers(3)
    skipped, found = sim_device("1x1", overlays=sgdc.overlays()).run(opens_the_mesh_of_the_model, x)
    assert skipped and torch.equal(found, x + x)


@pytest.fixture
def opened(monkeypatch) -> list:
    """The devices whose gate was opened, by a compute_gate that needs no device."""
    devices = []
    monkeypatch.setattr(op, "clear_compute_gate", devices.append)
    for name in ("TT_METAL_RUNTIME_ROOT", *PLACES["the simulator"], "TT_METAL_EMULE_MODE"):
        monkeypatch.delenv(name, raising=False)
    return devices


def run_on(root, monkeypatch) -> None:
    monkeypatch.setenv("TT_METAL_RUNTIME_ROOT", str(root))


def body_fails(device):
    raise ValueError("the body")


def served(bodies) -> list[tuple]:
    """What a worker of a device called "chip" answers when it is opened and runs `bodies`."""
    requests = [("open", sys.path, {"recover": "tests.support.gate:open_gate"})]
    requests += [("run", sys.path, __name__, __file__, body.__name__, pickle.dumps(((), {}))) for body in bodies]
    todo, answers = [pickle.dumps(request) for request in requests], []

    def next_request():
        if not todo:
            raise EOFError
        return todo.pop(0)

    sim_worker._serve(SimpleNamespace(recv_bytes=next_request, send_bytes=answers.append))
    return [pickle.loads(answer) for answer in answers]


@pytest.mark.parametrize("patched", [True, False])
@pytest.mark.parametrize(("place", "times"), [("a board", 2), ("the simulator", 1), ("a mock mesh", 0)], ids=str)
def test_when_a_worker_opens_the_gate(place, times, patched, opened, monkeypatch):
    """On a board with the device, and everywhere but on a mock mesh after a failure."""
    run_on(sgdc.build_patched_root() if patched else find_ttnn_dir(), monkeypatch)
    for name, value in PLACES[place].items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sim_worker, "_open", lambda: ("chip", lambda: None))
    (first, *_), (kind, error, _) = served([body_fails])
    assert first == "result" and kind == "error" and str(error) == "the body"
    assert opened == ["chip"] * (times if patched else 0)


def test_a_gate_that_cannot_be_opened_ends_the_worker(opened, monkeypatch):
    run_on(sgdc.build_patched_root(), monkeypatch)
    monkeypatch.setenv("TT_METAL_SIMULATOR", "/sim")
    monkeypatch.setattr(sim_worker, "_open", lambda: ("chip", lambda: None))
    monkeypatch.setattr(op, "clear_compute_gate", broken)
    with pytest.raises(ArithmeticError, match="no program runs"):
        served([body_fails])


def broken(device):
    raise ArithmeticError("no program runs")


def test_a_runtime_without_a_gate_opens_the_mesh_alone(opened, monkeypatch):
    run_on(find_ttnn_dir(), monkeypatch)
    ttnn = make_up_ttnn(monkeypatch)
    assert MeshShape().open() == "mesh (1, 1)" and opened == [] and ttnn.closed == []


def test_a_mesh_whose_gate_cannot_be_opened_is_closed(opened, monkeypatch):
    run_on(sgdc.build_patched_root(), monkeypatch)
    ttnn = make_up_ttnn(monkeypatch)
    monkeypatch.setattr(op, "clear_compute_gate", broken)
    with pytest.raises(ArithmeticError, match="no program runs"):
        MeshShape().open()
    assert ttnn.closed == ["mesh (1, 1)"]
