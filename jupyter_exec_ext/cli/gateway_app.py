"""A Kernel Gateway application with our personality, which knows the port it got and stops cleanly."""

from __future__ import annotations

import signal
import sys
from typing import Any

from kernel_gateway.gatewayapp import KernelGatewayApp
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets


class ExecGatewayApp(KernelGatewayApp):  # type: ignore[misc]  # kernel_gateway has no types
    """Kernel Gateway with ``exec/v1``.

    Unlike the stock application it accepts port 0 and then knows which port it got, and an interrupt stops it as a
    termination does: kernels first.
    """

    name = "jupyter-exec-gateway"
    description = "Kernel Gateway with the exec/v1 API"

    def initialize(self, argv: list[str] | None = None, new_httpserver: bool = True) -> None:
        """Use our personality, whatever else is configured."""
        self.api = "jupyter_exec_ext.gateway"
        super().initialize(argv, new_httpserver)

    port: int

    def init_http_server(self) -> None:
        """Listen, and note the port."""
        ssl_options = self._build_ssl_options()
        self.http_server = HTTPServer(self.web_app, xheaders=self.trust_xheaders, ssl_options=ssl_options)
        try:
            sockets = bind_sockets(self.port, self.ip)
        except OSError as error:
            self.log.critical("cannot listen on %s port %s: %s", self.ip, self.port, error)
            self.exit(1)
        self.port = sockets[0].getsockname()[1]
        self.http_server.add_sockets(sockets)

    def init_signal(self) -> None:
        """Stop on an interrupt without asking."""
        super().init_signal()
        signal.signal(signal.SIGINT, self._signal_stop)

    def stop_soon(self) -> None:
        """Stop from another thread."""
        self.io_loop.add_callback(self.stop)


def launch(argv: list[str], config: Any, on_listening: Any) -> None:
    """Run a gateway until it is stopped.

    Parameters
    ----------
    argv : list of str
        Further command-line options, as ``jupyter kernelgateway`` takes them.
    config : traitlets.config.Config
        Settings that do not belong on a command line, such as the token.
    on_listening : callable
        Called with the application once it listens.
    """
    app = ExecGatewayApp.instance(config=config)
    app.initialize(argv)
    on_listening(app)
    app.start()
    sys.stdout.flush()
