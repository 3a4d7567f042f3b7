"""Kernel Gateway application with ``exec/v1``: reports the port that it got, and stops its kernels first."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from kernel_gateway.gatewayapp import KernelGatewayApp
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

# An idle connection is closed after this time. Tornado's own default is an hour.
IDLE_CONNECTION_SECONDS = 600.0
# A peer that vanishes, such as a machine that was switched off, is noticed after two minutes. Otherwise its connection
# would be kept for the length of its stream or long poll.
KEEPALIVE_IDLE_SECONDS, KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_PROBES = 60, 15, 4


def notice_lost_peers(listening: socket.socket) -> None:
    """Have the operating system probe silent connections that a listening TCP socket accepts, and close dead ones."""
    if listening.family not in (socket.AF_INET, socket.AF_INET6):  # a Unix socket's peer is on this machine
        return
    # Accepted sockets inherit these options, so the listening one is enough.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))  # the latter on macOS
    settings = (
        (idle, KEEPALIVE_IDLE_SECONDS),
        (getattr(socket, "TCP_KEEPINTVL", None), KEEPALIVE_INTERVAL_SECONDS),
        (getattr(socket, "TCP_KEEPCNT", None), KEEPALIVE_PROBES),
    )
    for option, value in settings:
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


class ExecGatewayApp(KernelGatewayApp):
    """Kernel Gateway with ``exec/v1``.

    Unlike the stock application it accepts port 0 and then knows which port it got, and an interrupt stops it as a
    termination does: kernels first.
    """

    before_listening: Callable[[ExecGatewayApp], None] | None = None

    name = "jupyter-exec-gateway"
    description = "Kernel Gateway with the exec/v1 API"

    def initialize(self, argv: list[str] | None = None, new_httpserver: bool = True) -> None:
        """Use this package's personality, whatever is configured."""
        self.api = "jupyter_exec_ext.gateway"
        super().initialize(argv, new_httpserver)

    port: int  # a traitlet of the base class, which has no types

    def init_http_server(self) -> None:
        """Listen, and note the port."""
        if self.before_listening is not None:
            self.before_listening(self)
        # Instead of the stock method, which tries other ports if this one is taken, and notes 0 for a free one.
        ssl_options = self._build_ssl_options()
        self.http_server = HTTPServer(
            self.web_app,
            xheaders=self.trust_xheaders,
            ssl_options=ssl_options,
            idle_connection_timeout=IDLE_CONNECTION_SECONDS,
        )
        try:
            sockets = bind_sockets(self.port, self.ip)
        except OSError as error:
            self.log.critical("cannot listen on %s port %s: %s", self.ip, self.port, error)
            self.exit(1)
        self.port = sockets[0].getsockname()[1]
        for listening in sockets:
            notice_lost_peers(listening)
        self.http_server.add_sockets(sockets)

    def init_signal(self) -> None:
        """Stop on an interrupt without asking."""
        super().init_signal()
        signal.signal(signal.SIGINT, self._signal_stop)

    def _signal_stop(self, sig: int, frame: FrameType | None) -> None:
        # Logging in the handler raises RuntimeError if the signal came while a line of the log was being written.
        self.io_loop.add_callback_from_signal(self._stop_after_signal, sig)

    def _stop_after_signal(self, sig: int) -> None:
        self.log.critical("received signal %s, stopping", sig)
        self.stop()

    def stop_soon(self) -> None:
        """Stop from another thread."""
        self.io_loop.add_callback(self.stop)  # the one method of the loop that other threads may call


def launch(
    argv: list[str],
    config: Any,
    on_listening: Any,
    before_listening: Callable[[ExecGatewayApp], None] | None = None,
) -> None:
    """Run a gateway until it is stopped.

    Parameters
    ----------
    argv : list of str
        Further command-line options, as ``jupyter kernelgateway`` takes them.
    config : traitlets.config.Config
        Settings that do not belong on a command line, such as the token.
    on_listening : callable
        Called with the application once it listens.
    before_listening : callable, optional
        Called with the application before it opens its port. An exception ends the start.
    """
    app = ExecGatewayApp.instance(config=config)
    app.before_listening = before_listening
    app.initialize(argv)
    on_listening(app)
    app.start()
    sys.stdout.flush()
