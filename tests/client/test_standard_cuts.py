"""Servers without ``exec/v1`` behind a proxy that cuts connections or is away for some time, while code runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.models import ExecutionState, InputRequestEvent, OutputEvent, StreamEvent
from tests.support.hosts import Host
from tests.support.tcp_proxies import OutageProxy
from tests.support.waiting import wait_until

# Longer than the retries of a server that has never answered.
OUTAGE_SECONDS = 3.0
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


def test_run_outlives_outage_of_proxy(host: Host, connect: Any, tmp_path: Path) -> None:
    back = tmp_path / "back"
    wait = f"while not os.path.exists({str(back)!r}): time.sleep(0.1)"
    code = f"import os, time\nprint('go', flush=True)\n{wait}\nprint('done')"
    with OutageProxy(host.info) as proxy, connect(proxy.info).standard_session() as session:

        def come_back() -> None:
            proxy.come_back()
            back.touch()

        outage = threading.Timer(OUTAGE_SECONDS, come_back)

        def begin_outage(event: OutputEvent) -> None:
            if isinstance(event, StreamEvent) and event.text.startswith("go"):
                proxy.go_down()
                outage.start()

        result = session.run(code, timeout_seconds=60, on_event=begin_outage)
        outage.join()
    assert (result.state, result.stdout) == (ExecutionState.OK, "go\ndone\n")


def test_run_whose_server_stays_away_after_its_time_limit_ends_as_connection_lost(host: Host) -> None:
    """The code may still run, so nobody is told that its kernel was restarted."""
    goes_on = "import time\nwhile True:\n try:\n  time.sleep(60)\n except KeyboardInterrupt:\n  print('on', flush=True)"
    with OutageProxy(host.info) as proxy, ExecClient(proxy.info, outage_seconds=0.5) as client:
        session = client.standard_session()

        def go_down(event: OutputEvent) -> None:
            if isinstance(event, StreamEvent):
                proxy.go_down()

        result = session.run(goes_on, timeout_seconds=1.0, on_event=go_down)
        proxy.come_back()
        session.close()
    assert result.error is not None
    assert (result.state, result.error.name) == (ExecutionState.ERROR, "ConnectionLost")


def test_run_whose_server_stays_away_ends_as_connection_lost(host: Host) -> None:
    with OutageProxy(host.info) as proxy, ExecClient(proxy.info, outage_seconds=0.5) as client:
        session = client.standard_session()

        def go_down(event: OutputEvent) -> None:
            if isinstance(event, StreamEvent):
                proxy.go_down()

        result = session.run("print('go', flush=True)\nwhile True: pass", on_event=go_down)
        proxy.come_back()
        session.close()
    assert result.error is not None
    assert (result.state, result.error.name) == (ExecutionState.ERROR, "ConnectionLost")
