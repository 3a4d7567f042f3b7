"""Runs of MCP's conformance suite against a server, with the result of each of its checks."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.mcp.node_clients import CLIENTS, NODE, install_clients

#: Revisions whose requirements the suite has frozen.
REVISIONS = ("2025-11-25", "2026-07-28")
_TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
#: By revision: scenarios that do not count, and fail on the SDK's own transport, with the reason.
FAILING_NOT_SCORED: dict[str, dict[str, str]] = {
    "2025-11-25": {"server-sse-polling": "the SDK's transport resumes no stream unless it is given an event store"},
    "2026-07-28": dict.fromkeys(_TASKS, "an extension that neither the SDK nor the fixture server has"),
}
#: Checks of tasks that fail with the endpoint's own tasks (`tests.mcp.task_tools`), with the reason.
FAILING_TASK_CHECKS = {
    "tasks-lifecycle:sep-2663-tasks-get-status-failed": "no call ends in an error of the protocol once it is a task",
    "tasks-mrtr-input:tasks-mrtr-partial-fulfillment": "code asks one question at a time",
    "tasks-required-task-error:sep-2663-server-returns-missing-capability-when-required": "no tool needs tasks",
}
#: By revision: checks that count, and fail on the SDK's own transport (mcp 2.3), with the reason.
FAILING_WITH_SDK: dict[str, dict[str, str]] = {revision: {} for revision in REVISIONS}
_PACKAGE = CLIENTS / "node_modules" / "@modelcontextprotocol" / "conformance"
_DIRECTORY = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\dZ-]+")
_SECONDS = 600.0


@dataclass(frozen=True)
class Report:
    """What a run found; checks have names such as ``tools-list:tools-name-format``.

    Parameters
    ----------
    passed, failed : frozenset of str
        Checks of the scenarios that count. A warning is a failure.
    not_run : frozenset of str
        Scenarios that count and left no result.
    passed_not_scored, failed_not_scored : frozenset of str
        Checks of other scenarios.
    """

    passed: frozenset[str]
    failed: frozenset[str]
    not_run: frozenset[str]
    passed_not_scored: frozenset[str]
    failed_not_scored: frozenset[str]

    @property
    def failing_not_scored(self) -> frozenset[str]:
        """Scenarios with failures that do not count."""
        return frozenset(map(_scenario_of, self.failed_not_scored))


def run_conformance(url: str, revision: str, results: Path, token: str = "") -> Report:
    """Run the scenarios that a revision requires, and read what they left in `results`.

    Parameters
    ----------
    url : str
        The endpoint.
    revision : str
        One of `REVISIONS`.
    results : Path
        Empty or missing directory for what the suite writes.
    token : str
        Bearer token for every request.
    """
    install_clients()
    command = [NODE, "--import", str(CLIENTS / "bearer.mjs"), str(_PACKAGE / "dist" / "index.js"), "server"]
    arguments = ["--url", url, "--requirements", revision, "--output-dir", str(results)]
    environment = {**os.environ, "MCP_TOKEN": token}
    subprocess.run([*command, *arguments], env=environment, timeout=_SECONDS, check=False, stdout=subprocess.DEVNULL)
    return _read_report(results, _required_scenarios(revision))


def _required_scenarios(revision: str) -> frozenset[str]:
    requirements = yaml.safe_load((_PACKAGE / "requirements" / f"{revision}.yaml").read_text())
    return frozenset(requirements["server"])


def _read_report(results: Path, required: frozenset[str]) -> Report:
    statuses: dict[str, str] = {}
    ran: set[str] = set()
    for path in results.glob("server-*/checks.json"):
        match = _DIRECTORY.fullmatch(path.parent.name)
        assert match is not None, path
        ran.add(match["scenario"])
        for check in json.loads(path.read_text()):
            name = f"{match['scenario']}:{check['id']}"
            if statuses.get(name) not in ("FAILURE", "WARNING"):  # an id may occur more than once
                statuses[name] = check["status"]
    failed = {name for name, status in statuses.items() if status in ("FAILURE", "WARNING")}
    passed = {name for name, status in statuses.items() if status == "SUCCESS"}
    scored = {name for name in statuses if _scenario_of(name) in required}
    return Report(
        passed=frozenset(passed & scored),
        failed=frozenset(failed & scored),
        not_run=frozenset(required - ran),
        passed_not_scored=frozenset(passed - scored),
        failed_not_scored=frozenset(failed - scored),
    )


def _scenario_of(check: str) -> str:
    return check.partition(":")[0]
