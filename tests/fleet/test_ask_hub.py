"""Questions of a pool to the Hub about tokens."""

from __future__ import annotations

import asyncio
import socket

import pytest

from jupyter_exec_ext.errors import Unavailable
from jupyter_exec_ext.fleet import pool


async def test_hub_that_hangs_is_unavailable_within_the_time_for_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_HUB_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        ask = pool.make_ask_hub(f"http://127.0.0.1:{silent.getsockname()[1]}/hub/api", "the pool's")
        with pytest.raises(Unavailable):
            await asyncio.wait_for(ask("a user's"), 10)
