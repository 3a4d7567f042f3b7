"""Code that says when it runs and then never ends, and who listens for it."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.models import Execution

_SECONDS = 60.0


class Doorbell:
    """Listens for code that rings."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(_SECONDS)

    @property
    def code(self) -> str:
        """Code that rings and never ends by itself."""
        address = self._listening.getsockname()
        return f"import socket\nsocket.create_connection({address}).close()\nwhile True:\n    pass"

    def wait(self) -> None:
        """Wait until it rings."""
        self._listening.accept()[0].close()

    async def wait_async(self) -> None:
        await asyncio.to_thread(self.wait)

    @contextmanager
    def interrupts_this_thread(self) -> Iterator[None]:
        """Have what is done here interrupted as by Ctrl-C, when it rings: by a signal, which also ends what waits."""

        def interrupt() -> None:
            self.wait()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        listener = threading.Thread(target=interrupt)
        listener.start()
        with pytest.raises(KeyboardInterrupt):
            yield
        listener.join()

    def close(self) -> None:
        self._listening.close()


def last_execution(client: ExecClient, session_id: str) -> Execution:
    """Return the newest execution of a session, once it has ended."""
    (newest,) = client.get_session(session_id).list_executions(1)
    return client.get_execution(newest.id).result(_SECONDS)
