"""JupyterLab's own client, `@jupyterlab/services` from npm, under Node.js."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.standard_clients.scoped_token import ScopedToken

DRIVER = Path(__file__).with_name("services_driver.cjs")


def test_kernels_and_sessions_work_until_the_token_is_revoked(
    token: ScopedToken, entered: Callable[[str], str]
) -> None:
    with subprocess.Popen(
        ["node", str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as driver:
        assert driver.stdin is not None and driver.stdout is not None
        output = driver.stdout

        def tell(request: dict[str, Any]) -> Any:
            assert driver.stdin is not None
            driver.stdin.write(json.dumps(request) + "\n")
            line = output.readline()
            assert line, "the driver has ended"
            return json.loads(line)

        tell({"settings": entered("`@jupyterlab/services`").replace("TOKEN", json.dumps(token.text))})
        assert "python3" in tell({"do": "kernelspecs"})
        tell({"do": "start"})
        assert tell({"run": "n = 20\nprint('made')"}) == ["ok", "made\n"]
        assert tell({"run": "n + 1"}) == ["ok", "21"]
        assert tell({"run": "1 / 0"}) == ["error", "ZeroDivisionError"]
        assert token.executions() == [("n = 20\nprint('made')", "ok"), ("n + 1", "ok"), ("1 / 0", "error")]
        assert tell({"do": "interrupt"}) == ["error", "KeyboardInterrupt"]
        tell({"do": "restart"})
        assert tell({"run": "n"}) == ["error", "NameError"]
        tell({"do": "shutdown"})
        assert token.sessions() == []
        tell({"do": "start"})

        def run_after() -> Any:
            if (answer := tell({"do": "run_or_wait"})) == "not sent":
                raise ConnectionError
            return answer

        token.check_end(run_after, (ConnectionError,))
        assert tell({"do": "list_status"}) == 401
        driver.stdin.close()
