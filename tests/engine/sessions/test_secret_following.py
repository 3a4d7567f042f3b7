"""Changes of secrets by other servers with the same store: they are still followed after any failure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.sessions import session_networks
from jupyter_exec_ext.errors import Conflict
from jupyter_exec_ext.isolation.network.access_decision import NetworkAccess
from jupyter_exec_ext.models import SecretRequest
from tests.support.waiting import until

ME = owner("me", {"username": "me"})


class Proxy:
    """Proxy that takes everything."""

    def check(self, access: NetworkAccess) -> None:
        pass

    async def change(self, session_id: str, access: NetworkAccess) -> None:
        pass

    async def close(self, session_id: str) -> None:
        pass

    async def stop(self) -> None:
        pass


async def test_deletion_arrives_after_failures_of_every_kind_which_are_logged_once_each(
    make_engine: Callable[..., ExecEngine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_networks, "_REFRESH_SECONDS", 0.001)
    here, there = make_engine(), make_engine()
    networks, refresh = here.networks, here.secrets.refresh
    monkeypatch.setattr(networks, "_make_proxy", lambda *_: Proxy())
    await here.secrets.put(ME, "A", SecretRequest("a-long-value", ["a.test"], "Authorization: Bearer {}"))
    failures: list[Exception] = [PermissionError(13, "denied")] * 3 + [Conflict("the key is bad")] * 2 + [KeyError("x")]

    async def fail_first(names: Collection[str]) -> Any:
        if failures:
            raise failures.pop(0)
        return await refresh(names)

    monkeypatch.setattr(here.secrets, "refresh", fail_first)
    network = networks.begin("ses_1", "me", NetworkAccess(()), ["A"])
    assert [each.value for each in network.access.secrets] == ["a-long-value"]
    await there.secrets.delete(ME, "A")
    await until(lambda: network.access.secrets == ())
    warnings = [record.getMessage() for record in caplog.records if "are not seen" in record.getMessage()]
    assert len(warnings) == 3, warnings
    assert "denied" in warnings[0] and "the key is bad" in warnings[1] and "KeyError" in warnings[2]
    networks.end("ses_1")
    await until(lambda: networks._refreshing is None)
