"""Connections to a gateway that this package starts: idle ones and those of lost peers end."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_exec_ext.cli import gateway_app
from tests.support.full import only_in_full
from tests.support.hosts import clean_environment

# A gateway whose idle connections end soon; prints its port.
GATEWAY = """
import sys
from traitlets.config import Config
from jupyter_exec_ext.cli import gateway_app
gateway_app.IDLE_CONNECTION_SECONDS = 1.0
gateway_app.launch(
    ["--KernelGatewayApp.port=0"],
    Config({"KernelGatewayApp": {"auth_token": "t"}}),
    lambda app: print(app.port, flush=True),
)
"""


@only_in_full
def test_a_connection_without_a_request_is_closed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY],
        env=clean_environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as gateway:
        try:
            assert gateway.stdout is not None
            port = int(gateway.stdout.readline())
            request = b"GET /exec/v1/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: token t\r\n\r\n"
            for sent in (b"", b"GET /exec", request):  # no request, half of one, none after the first
                with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                    connection.sendall(sent)
                    answer = b""
                    while piece := connection.recv(65536):  # which ends when the gateway closes it
                        answer += piece
                assert answer.startswith(b"HTTP/1.1 200") == (sent == request)
        finally:
            gateway.terminate()
            gateway.wait(60)


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="the system has other names for it")
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_accepted_connections_are_probed(family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as listening:
        listening.bind((address, 0))
        listening.listen()
        gateway_app.notice_lost_peers(listening)
        with socket.socket(family) as client:
            client.connect(listening.getsockname())
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert [
                    accepted.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                ] == [60, 15, 4]


def test_a_unix_socket_has_no_lost_peers(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        gateway_app.notice_lost_peers(listening)
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


# A gateway that gets SIGTERM while it is writing a line of its log.
GATEWAY_SIGNALLED_WHILE_LOGGING = """
import io, logging, os, signal, sys
from traitlets.config import Config
from jupyter_exec_ext.cli import gateway_app

class Log(io.RawIOBase):
    signalled = False

    def writable(self):
        return True

    def write(self, line):
        if not self.signalled:
            self.signalled = True
            os.kill(os.getpid(), signal.SIGTERM)
        return len(line)

def write_line(app):
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(Log()), line_buffering=True)
    app.log.addHandler(logging.StreamHandler(sys.stderr))
    app.io_loop.add_callback(app.log.warning, "a line")

gateway_app.launch(["--KernelGatewayApp.port=0"], Config({"KernelGatewayApp": {"auth_token": "t"}}), write_line)
"""


def test_gateway_stops_on_signal_that_comes_while_it_writes_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GATEWAY_SIGNALLED_WHILE_LOGGING]
    subprocess.run(command, env=clean_environment(tmp_path), cwd=tmp_path, timeout=30, check=True, capture_output=True)
