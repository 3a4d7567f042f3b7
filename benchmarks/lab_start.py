"""Time that the extension adds to the start of JupyterLab: ``python -m benchmarks.lab_start [--rounds N]``.

Two servers of the browser tests' environment, one of them with server extension and front end off, are opened in turns,
each time in a fresh profile. A start is the time from the address to the moment when the layout is restored. Beside it
is what the browser's main thread worked, which depends less on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.browser.__main__ import prepare
from tests.support.environments import ROOT

from .interleave import interleaved

NAME = "@jupyter-exec-ext/labextension"
GOAL_PERCENT = 3.0
WARM_UP = 2
_INSIDE = "BENCHMARK_LAB_START"
# Of the navigation, in milliseconds.
_RESTORED = """async () => { await window.jupyterapp.restored; return performance.now() }"""

Start = tuple[float, float]


def measure(rounds: int) -> dict[str, list[Start]]:
    """Return the starts with and without the extension: seconds until it is there, and of work."""
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import ARGUMENTS

    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {kind: stack.enter_context(_server(home / kind, kind == "with")) for kind in ("without", "with")}
        playwright = stack.enter_context(sync_playwright())
        executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        contenders: dict[str, Callable[[], Start]] = {
            kind: partial(_start, browser, *address) for kind, address in servers.items()
        }
        starts = interleaved(contenders, rounds, WARM_UP)
        browser.close()
        return starts


@contextmanager
def _server(home: Path, enabled: bool) -> Iterator[tuple[str, str]]:
    from tests.browser.servers import running_lab, write_configuration

    home.mkdir()
    write_configuration(home)
    options = []
    if not enabled:
        page = {"disabledExtensions": {NAME: True}}
        (home / "config" / "labconfig" / "page_config.json").write_text(json.dumps(page))
        options = ["--ServerApp.jpserver_extensions=jupyter_exec_ext=False"]
    with running_lab(home, options=options) as host:
        yield host.info.url, host.info.token or ""


def _start(browser: Any, url: str, token: str) -> Start:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    try:
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Performance.enable")
        page.goto(f"{url}lab?reset&token={token}")
        page.wait_for_function("() => window.jupyterapp !== undefined")
        seconds = page.evaluate(_RESTORED) / 1000
        metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        return seconds, metrics["TaskDuration"]
    finally:
        context.close()


def report(starts: dict[str, list[Start]]) -> float:
    """Print the medians; return by how many percent a start takes longer."""
    print(f"{len(starts['with'])} starts each, in turns; medians")
    later = []
    for index, what in enumerate(("until the layout is restored", "work of the main thread")):
        without, with_it = (statistics.median(each[index] for each in starts[kind]) for kind in ("without", "with"))
        later.append(100 * (with_it / without - 1))
        print(f"{what}: {without:.3f} s without, {with_it:.3f} s with: {later[-1]:+.1f} %")
    return later[0]


def main() -> int:
    """Run the benchmark in the environment of the browser tests; return 1 if the goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lab_start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="starts of each kind that count")
    args = parser.parse_args()
    if _INSIDE not in os.environ:
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {_INSIDE: "1"}
        command = [str(prepare()), "-m", "benchmarks.lab_start", f"--rounds={args.rounds}"]
        return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode
    return 0 if report(measure(args.rounds)) <= GOAL_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
