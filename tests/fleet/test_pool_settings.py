"""Settings of a pool."""

from __future__ import annotations

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_exec_ext.fleet.pool_settings import ExecPool


def test_settings_come_from_the_configuration() -> None:
    pool = ExecPool(config=Config(ExecPool={"max_servers": 7, "tenancy": "own"}))
    assert (pool.max_servers, pool.tenancy, pool.policies) == (7, "own", {"custom:exec:run": "default"})


@pytest.mark.parametrize("values", [{"min_servers": 5}, {"min_servers": 3, "max_servers": 2}])
def test_more_servers_at_least_than_at_most_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(TraitError, match="less than ExecPool"):
        ExecPool(config=Config(ExecPool=values))
