"""Jupyter Server of ``jupyter exec serve``: calls back once it listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jupyter_server.serverapp import ServerApp

from .start_checks import refuse_policies, refuse_root


class ExecServerApp(ServerApp):
    """Jupyter Server that calls `on_listening` once it listens, and refuses to start in plain words."""

    on_listening: Callable[[ServerApp], None] | None = None

    def start_app(self) -> None:
        """Start, unless the user is root and that is not allowed, or the policies have a mistake."""
        if not self.allow_root:
            refuse_root()
        for app in self.extension_manager.extension_apps.get("jupyter_exec_ext", ()):
            if app.engine is not None:
                refuse_policies(app.engine.policy_problem)
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
