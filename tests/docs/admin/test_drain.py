"""The page on draining a server, run as written; then SIGTERM, as it says."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.docs.admin import SECONDS, page
from tests.docs.admin.test_compose import wait_until_answering
from tests.support.full import only_in_full
from tests.support.hosts import free_port
from tests.support.howto_pages import Recipe, account, serving, shells
from tests.support.outside_parts import require_part

pytestmark = pytest.mark.timeout(420)


@only_in_full
def test_page_is_run_as_written(tmp_path: Path) -> None:
    require_part("curl")
    port, admin = free_port(), account(tmp_path / "admin")
    places = {"8888": str(port), "serve --gateway": "serve --allow-root --gateway"}
    start, *steps = Recipe(page("drain"), None, places).steps()
    with serving(start.line, admin, tmp_path, port) as host:
        wait_until_answering(port)
        with shells({"admin": admin}, tmp_path) as type_in:
            for step in steps:
                type_in(step)
        host.process.send_signal(signal.SIGTERM)
        assert host.process.wait(SECONDS) == 0
        assert "drained for at most 120 s" in host.log_text()
