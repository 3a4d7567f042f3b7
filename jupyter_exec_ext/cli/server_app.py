"""Jupyter Server of ``jupyter exec serve``: calls back once it listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jupyter_server.serverapp import ServerApp

from .root_check import refuse_root


class ExecServerApp(ServerApp):
    """Jupyter Server that calls `on_listening` once it listens, and refuses to run as root in plain words."""

    on_listening: Callable[[ServerApp], None] | None = None

    def start_app(self) -> None:
        """Start, unless the user is root and that is not allowed."""
        if not self.allow_root:
            refuse_root()
        if self.on_listening is not None:
            # After the callback that binds the port, which `initialize` has added.
            self.io_loop.add_callback(self.on_listening, self)
        super().start_app()


def launch_server(argv: Sequence[str], config: Any, on_listening: Callable[[ServerApp], None]) -> None:
    """Run a Jupyter Server until it is stopped.

    Parameters
    ----------
    argv : sequence of str
        Further command-line options, as ``jupyter server`` takes them.
    config : traitlets.config.Config
        Settings that do not belong on a command line, such as the token.
    on_listening : callable
        Called with the application once it listens.
    """
    ExecServerApp.on_listening = staticmethod(on_listening)
    ExecServerApp.launch_instance(argv=list(argv), config=config)
