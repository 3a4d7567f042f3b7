from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.mcp.places import HOST_BEHIND_NGINX, Hosts, Place, behind_nginx, place_of
from tests.support.full import IS_FULL

# The extra `mcp` brings the SDK.
collect_ignore_glob = [] if find_spec("mcp") else ["test_*.py"]


@pytest.fixture(scope="module", params=["server", "gateway", "hub", "nginx"] if IS_FULL else ["server"])
def place(request: pytest.FixtureRequest, hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Each place in turn in full, and a Jupyter Server otherwise."""
    if request.param == "nginx":
        with behind_nginx(hosts[HOST_BEHIND_NGINX], tmp_path_factory.mktemp("nginx")) as place:
            yield place
    else:
        yield place_of(hosts[str(request.param)])
