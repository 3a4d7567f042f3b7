"""The files of the page on monitoring: names and labels with a commit; Prometheus itself in the full run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import yaml
from prometheus_client import REGISTRY, Metric

from jupyter_exec_ext.audit import metrics_and_events
from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.errors import ExecError
from jupyter_exec_ext.fleet.metrics import PoolMetrics
from jupyter_exec_ext.models import ExecutionState
from tests.docs.admin import SECONDS, page
from tests.docs.blocks import DOCS
from tests.support.full import only_in_full
from tests.support.hosts import Host, free_port, running_host, stop
from tests.support.howto_pages import Recipe, account, shells
from tests.support.outside_parts import require_part

FILES = DOCS / "admin" / "monitoring"
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
RULES = yaml.safe_load((FILES / "alerts.yml").read_text())["groups"][0]["rules"]
#: Metrics that Prometheus makes for each target itself.
_OF_PROMETHEUS = {"up"}
_SUFFIXES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}
_METRIC = re.compile(r"\b(?:(?:jupyter|exec_pool|process|python|http)_\w+|up)\b")


def dashboard_queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def queries() -> list[str]:
    return [*dashboard_queries(), *(rule["expr"] for rule in RULES)]


def pool_metrics() -> list[Metric]:
    """Return the metrics of a pool without servers."""
    metrics = PoolMetrics()
    keeper: Any = SimpleNamespace(servers={}, count_free_places=lambda: 0, lost_servers=0, failed_starts=0)
    metrics.watch(keeper)
    return list(metrics.registry.collect())


def exported_names() -> set[str]:
    """Return the names of all series that a server with the extension, or a pool, exports."""
    assert metrics_and_events.EXECUTIONS  # its import registers them
    exported = [*REGISTRY.collect(), *pool_metrics()]
    return {f"{metric.name}{suffix}" for metric in exported for suffix in _SUFFIXES.get(metric.type, [])}


def metrics_in(text: str) -> set[str]:
    return set(_METRIC.findall(text))


def test_every_metric_in_dashboard_and_alerts_is_exported() -> None:
    assert metrics_in('rate(jupyter_exec_sessions{a="b"}[5m])') == {"jupyter_exec_sessions"}
    known = exported_names() | _OF_PROMETHEUS
    for query in queries():
        assert metrics_in(query), query
        assert metrics_in(query) <= known, query
    variable = DASHBOARD["templating"]["list"][1]["query"]
    assert metrics_in(variable) <= known


def test_dashboard_shows_every_metric_of_the_package() -> None:
    ours = {metric.name for metric in REGISTRY.collect() if metric.name.startswith("jupyter_exec_")}
    ours |= {metric.name for metric in pool_metrics()}
    shown = {name for query in dashboard_queries() for name in metrics_in(query)}
    for name in ours:
        assert any(one == name or one.startswith(f"{name}_") for one in shown), name


def test_reference_has_every_metric_of_a_pool() -> None:
    reference = (DOCS / "reference" / "metrics.md").read_text()
    named = set(re.findall(r"^\| `(exec_pool_\w+?)(?:_total)?(?:\{\w+\})?` \|", reference, re.MULTILINE))
    assert named == {metric.name for metric in pool_metrics()}


def test_every_label_value_is_one_that_can_occur() -> None:
    values = {
        "state": {state.value for state in ExecutionState if state.finished},
        "code": set(ExecError.codes()),
        "kernel": {"taken", "missed"},
    }
    for query in queries():
        for label, value in re.findall(r'\b(state|code|kernel)=~?"([^"]+)"', query):
            assert set(value.split("|")) <= values[label], query


def test_panels_of_the_dashboard_have_places_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_page_explains_every_alert() -> None:
    rows = re.findall(r"^\| `(JupyterExec\w+)` \|", page("monitoring"), re.MULTILINE)
    assert rows == [rule["alert"] for rule in RULES]
    assert all(rule["annotations"]["summary"] and rule["annotations"]["description"] for rule in RULES)


@only_in_full
def test_promtool_accepts_the_alerts_and_they_fire(tmp_path: Path) -> None:
    require_part("prometheus")
    shutil.copy(FILES / "alerts.yml", tmp_path)
    shutil.copy(Path(__file__).parent / "alerts_test.yml", tmp_path)
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@only_in_full
def test_prometheus_collects_what_the_page_says(tmp_path: Path) -> None:
    require_part("prometheus", "curl")
    port, etc, admin = free_port(), tmp_path / "etc", account(tmp_path / "admin")
    etc.mkdir()
    token = tmp_path / "lab" / ".jupyter" / "token"
    token.parent.mkdir(parents=True)
    with running_host("server", tmp_path / "host") as host:
        token.write_text(str(host.info.token))
        replaced = {
            "~lab": str(tmp_path / "lab"),
            "/etc/prometheus": str(etc),
            "127.0.0.1:8888": f"127.0.0.1:{host.info.port}",
            "127.0.0.1:9090": f"127.0.0.1:{port}",
        }
        clone = tmp_path / "docs" / "admin" / "monitoring"
        clone.mkdir(parents=True)
        for name in ("prometheus.yml", "alerts.yml"):
            text = (FILES / name).read_text().replace("interval: 15s", "interval: 1s")
            for old, new in replaced.items():
                text = text.replace(old, new)
            (clone / name).write_text(text)
        steps = iter(Recipe(page("monitoring"), None, replaced).steps())
        with shells({"admin": admin}, tmp_path) as type_in:
            for _ in range(4):
                type_in(next(steps))
            with ExecClient(host.info) as client, client.session() as session:
                session.run("1")
                with pytest.raises(requests.HTTPError):
                    requests.get(f"{host.info.url}metrics", timeout=SECONDS).raise_for_status()
                with running_prometheus(etc, tmp_path / "data", port) as url:
                    wait_for_samples(url, 'jupyter_exec_executions_total{job="jupyter-exec",state="ok"} == 1')
                    for step in steps:
                        type_in(step)
                    assert_every_query_has_an_answer(url, host)


def assert_every_query_has_an_answer(url: str, host: Host) -> None:
    """Evaluate each query of the dashboard; those that need no second sample or refusal have a result."""
    for query in dashboard_queries():
        if "exec_pool_" in query:  # there is no pool here; `tests/fleet/test_metrics.py` has one's figures
            continue
        exact = query.replace("$__rate_interval", "1m").replace("$instance", ".*")
        samples = ask(url, exact)
        if "rate(" not in query and "increase(" not in query:
            assert samples, f"{query}\n{host.log_text()[-2000:]}"


def ask(url: str, query: str) -> list[Any]:
    answer = requests.get(f"{url}/api/v1/query", params={"query": query}, timeout=SECONDS)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["data"]["result"])


def wait_for_samples(url: str, query: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not ask(url, query):
        assert time.monotonic() < deadline, query
        time.sleep(0.1)  # Prometheus announces no scrape


@contextmanager
def running_prometheus(etc: Path, data: Path, port: int) -> Iterator[str]:
    """Run Debian's Prometheus with the page's configuration, and yield its URL when it is ready."""
    url = f"http://127.0.0.1:{port}"
    options = [f"--config.file={etc}/prometheus.yml", f"--storage.tsdb.path={data}"]
    log = etc / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["prometheus", *options, f"--web.listen-address=127.0.0.1:{port}"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + SECONDS
        while not is_ready(url):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)  # it tells no parent that it listens
        yield url
    finally:
        stop(process)


def is_ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=SECONDS).status_code == 200
    except requests.ConnectionError:
        return False
