# SPDX-FileCopyrightText: © 2026 The llama-alspec authors
# SPDX-License-Identifier: Apache-2.0
"""The connection to the host program against the nng library at the other end."""

from __future__ import annotations

import socket
import threading

import pytest

from runtime_patches.simulated_n150.simulator.host.pair import HostConnection, address_of

MESSAGES = [b"a", bytes(range(256)) * 40, bytes(3 << 20), b"last"]


@pytest.fixture
def both_ends():
    pynng = pytest.importorskip("pynng", reason="part of the simulator's installation")
    with pynng.Pair1(recv_timeout=20_000, send_timeout=20_000) as host:
        address = str(host.listen("tcp://127.0.0.1:0").local_address)
        connection = HostConnection(f"tcp://{address}")
        yield host, connection
        connection.close()


def test_messages_of_all_sizes_arrive_whole_and_in_order(both_ends):
    host, connection = both_ends
    for message in MESSAGES:
        connection.send(message)
    assert [host.recv() for _ in MESSAGES] == MESSAGES


def test_what_was_sent_before_is_there_at_once(both_ends):
    """Without waiting: what the host has sent when it goes on is seen before anything it sends elsewhere later."""
    host, connection = both_ends
    for round_ in range(200):
        sent = [bytes([round_]) * length for length in (0, 3, 5000, 70_000)]
        for message in sent:
            host.send(message)
        got = connection.received()
        assert list(got) == sent
        got.clear()


def test_the_end_of_the_host_program_is_noticed(both_ends):
    host, connection = both_ends
    host.send(b"bye")
    host.close()
    while not connection.ended:
        connection.received()
    assert list(connection.received()) == [b"bye"]


def test_one_message_after_the_other_is_waited_for(both_ends):
    host, connection = both_ends

    def send():
        for message in MESSAGES:
            host.send(message)
        assert host.recv() == b"all seen"
        host.close()

    thread = threading.Thread(target=send)
    thread.start()
    assert [connection.next() for _ in MESSAGES] == MESSAGES
    connection.send(b"all seen")
    assert connection.next() is None, "the host program has ended"
    thread.join()


def test_what_is_no_host_program_is_refused():
    for address in ("ipc:///a", "tcp://here", "tcp://:1", "tcp://here:x"):
        with pytest.raises(ValueError, match="tcp://host:port"):
            address_of(address)
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.listen()

        def answer():
            peer, _ = other.accept()
            peer.sendall(b"HTTP/1.1")
            peer.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionError, match="no nng pair1"):
            HostConnection(f"tcp://127.0.0.1:{other.getsockname()[1]}")
        thread.join()
