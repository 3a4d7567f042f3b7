"""Machines of tests: namespaces on one bridge, which can be cut off and joined again."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.namespaces import Network, process_in, running_network
from tests.support.waiting import wait_until

PORT = 8000
_ECHO = f"""
import socket
listener = socket.create_server(("0.0.0.0", {PORT}))
while True:
    listener.accept()[0].sendall(socket.gethostname().encode())
"""
pytestmark = pytest.mark.needs("network namespaces")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with running_network(tmp_path, ["node1", "node2"]) as network:
        yield network


def ask(address: str) -> str:
    try:
        with socket.create_connection((address, PORT), timeout=0.2) as connection:
            return connection.recv(100).decode()
    except OSError:
        return ""


def test_a_machine_is_reached_cut_off_joined_again_and_ended(network: Network) -> None:
    first, second = network.machines
    server = first.start([sys.executable, "-c", _ECHO])
    wait_until(lambda: ask(first.address) == "node1")
    assert process_in(server) in first.processes() and second.processes() == []
    assert second.run(sys.executable, "-c", f"import socket; print(socket.create_connection(('node1', {PORT})))")
    first.cut()
    assert ask(first.address) == ""
    first.join()
    wait_until(lambda: ask(first.address) == "node1")
    first.kill_all()
    assert server.wait(10) != 0 and first.processes() == []
    assert first.run("hostname") == "node1\n"


def test_nothing_of_a_network_is_left(tmp_path: Path) -> None:
    with running_network(tmp_path, ["node1"]) as network:
        (machine,) = network.machines
        started = machine.start(["sleep", "1000"])
        assert process_in(started).name() == "sleep"
    assert started.wait(10) != 0 and machine.link not in psutil.net_if_addrs()
