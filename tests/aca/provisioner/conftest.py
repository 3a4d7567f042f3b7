from __future__ import annotations

from typing import Any

import pytest

from tests.support.hosts import Host


@pytest.fixture
def server(hosts: Any) -> Host:
    """A server that answers as a session pool."""
    host: Host = hosts["server"]
    return host
