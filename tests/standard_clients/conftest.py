"""The host that the command has started for a client, see ``__main__``; without it, most of these are no tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.standard_clients.client_table import read_table
from tests.standard_clients.scoped_token import ScopedToken

URL = "EXEC_TEST_STANDARD_URL"
OWNER = "EXEC_TEST_STANDARD_OWNER"
# The tests' own environment has what these need.
_EACH_COMMIT = ("test_client_table.py", "test_jupyter_server.py")
if URL not in os.environ:
    collect_ignore = [path.name for path in Path(__file__).parent.glob("test_*.py") if path.name not in _EACH_COMMIT]


@pytest.fixture
def token(request: pytest.FixtureRequest) -> Iterator[ScopedToken]:
    if URL in os.environ:
        made = ScopedToken(os.environ[URL], os.environ[OWNER])
    else:
        info = request.getfixturevalue("hosts")["server"].info
        made = ScopedToken(info.url, info.token)
    yield made
    made.revoke()


@pytest.fixture
def entered(token: ScopedToken) -> Callable[[str], str]:
    """Return what the page has a user enter for a client, with this host's port."""
    rows = read_table()
    return lambda name: rows[name].entered.replace("8888", token.port)
