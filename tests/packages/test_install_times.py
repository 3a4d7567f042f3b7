"""Times of installations: by the API, first and from the cache, and as typed, side by side with plain pip."""

from __future__ import annotations

import shutil
import site
import statistics
import subprocess
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from jupyter_exec_ext.client import ExecClient
from tests.support.bearers import Bearer
from tests.support.full import only_in_full
from tests.support.hosts import Host
from tests.support.wheels import make_wheel

pytestmark = [only_in_full, pytest.mark.needs("sandbox")]
_ROUNDS = 7


def timed(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def test_small_wheel_is_installed_within_3_s_and_in_a_second_session_within_1_s(
    host: Host, agent: Bearer, wheelhouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first: list[float] = []
    second: list[float] = []
    with ExecClient(host.info.url, token=agent.token) as client:
        for number in range(_ROUNDS):
            make_wheel(wheelhouse, f"fresh{number}")
            for times in (first, second):
                with client.session() as session:
                    session.run("print()")
                    times.append(timed(partial(session.install, f"fresh{number}")))
    with capsys.disabled():
        found = [round(statistics.median(times), 2) for times in (first, second)]
        print(f"\n{host.name}: medians of first and second installations: {found} s")
    assert statistics.median(first) <= 3.0
    assert statistics.median(second) <= 1.0


def test_typed_pip_takes_at_most_half_more_than_plain_pip(
    agent: Bearer, wheelhouse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain pip is in a virtual environment of its own from which it sees the same packages."""
    venv.create(tmp_path / "plain", symlinks=True)
    (packages,) = (tmp_path / "plain").glob("lib/python*/site-packages")
    (packages / "environment.pth").write_text("\n".join(site.getsitepackages()))
    plain = [str(tmp_path / "plain/bin/python"), "-m", "pip"]
    session = agent.session()
    seconds: dict[str, list[float]] = {"plain": [], "!pip": [], "%pip": []}

    def typed(line: str) -> None:
        answer = agent.run(session, line).json()
        assert "Successfully" in answer["stdout"], answer

    install = [*plain, "install", "--no-index", f"--find-links={wheelhouse}", "small==1.0"]
    for _ in range(_ROUNDS):
        seconds["plain"].append(timed(partial(subprocess.run, install, check=True, capture_output=True)))
        subprocess.run([*plain, "uninstall", "-y", "small"], check=True, capture_output=True)
        for command in ("!pip", "%pip"):
            seconds[command].append(timed(partial(typed, f"{command} install small==1.0")))
            typed("!pip uninstall -y small")
    shutil.rmtree(tmp_path / "plain")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    with capsys.disabled():
        print(f"\ntyped pip: {medians}, ratios {[round(value / medians['plain'], 2) for value in medians.values()]}")
    assert medians["!pip"] <= 1.5 * medians["plain"]
    assert medians["%pip"] <= 1.5 * medians["plain"]
