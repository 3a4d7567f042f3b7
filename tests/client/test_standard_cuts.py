"""Servers without ``exec/v1`` behind a proxy that cuts connections or is away for some time, while code runs."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_exec_ext.models import ExecutionState, InputRequestEvent
from tests.support.hosts import Host
from tests.support.tcp_proxies import OutageProxy
from tests.support.waiting import wait_until

PRINTS_WHILE_ASKED = """\
import threading
threading.Timer(0.5, print, ["background " + "output"], {"flush": True}).start()
"""


@pytest.mark.parametrize("before", ["", PRINTS_WHILE_ASKED], ids=["quiet", "with unread output"])
def test_input_answered_after_connection_was_closed_reaches_code(host: Host, connect: Any, before: str) -> None:
    """A server closes a connection on which its pings are not answered, as while a user thinks."""
    with OutageProxy(host.info) as proxy, connect(proxy.info).standard_session() as session:

        def answer(request: InputRequestEvent) -> str:
            wait_until(lambda: not before or b"background output" in proxy.answers)
            proxy.cut()
            return "Ada"

        code = f"{before}names = input('name? '), input('name? ')\nprint(names)"
        result = session.run(code, timeout_seconds=20, on_input=answer)
    assert (result.state, "('Ada', 'Ada')" in result.stdout) == (ExecutionState.OK, True)
