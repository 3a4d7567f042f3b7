"""The page on upkeep: backup and restore, an upgrade from an earlier state and the way back, and the removal."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.auth import policy_parsing
from jupyter_exec_ext.auth.built_in_policies import BUILT_IN
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.auth.policy_parsing import read_policies
from jupyter_exec_ext.errors import InvalidRequest, StoreUnavailable
from jupyter_exec_ext.store import database
from jupyter_exec_ext.store.migrations import MIGRATIONS
from tests.support.environments import environment
from tests.support.full import only_in_full
from tests.support.hosts import Host, free_port, wait_until_ready
from tests.support.howto_pages import Recipe, account, serving, shells

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "howto" / "upkeep.md").read_text()
#: A store as the version of 2026-11-26 wrote it, whose database had this many migrations.
EARLIER = Path(__file__).parent / "upgrade"
EARLIER_MIGRATIONS = 7
TOKEN = "s3cret-of-this-test"
_FOR_EVER = "c.ExecStore.max_age_seconds = c.ExecStore.max_audit_age_seconds = 1e9\n"


@contextmanager
def lab_server(home: Path, env: dict[str, str]) -> Iterator[Host]:
    """Run the server whose data the page is about."""
    port = free_port()
    (home / "token").write_text(TOKEN)
    with serving(f"jupyter exec serve --port {port} --token-file token --allow-root", env, home, port) as host:
        host.info.token = TOKEN
        wait_until_ready(host)
        yield host


def store_of(home: Path, env: dict[str, str]) -> Path:
    return Path(env.get("XDG_DATA_HOME", home / ".local" / "share")) / "jupyter" / "jupyter_exec_ext"


@only_in_full
def test_backup_of_a_running_server_is_restored(tmp_path: Path) -> None:
    home = tmp_path / "lab"
    lab = account(home)
    backup, restore = (Recipe(PAGE, title, {}).steps() for title in ("Back up", "Restore"))
    store = store_of(home, lab)
    with shells({"lab": lab}, home) as type_in:
        with lab_server(home, lab) as host, ExecClient(host.info) as client, client.session() as session:
            kept = session.run("print('kept')")
            long = session.run("print('x' * 100_000)")
            token = client.tokens.create("agent", ["executions:read"])
            for step in backup:
                type_in(step)
            lost = session.run("print('after the backup')")
            client.tokens.revoke(token.token.id)
        shutil.rmtree(store / "logs")  # what a backup is for
        (store / "executions.db").write_bytes(b"not a database")
        for step in restore[:-1]:
            type_in(step)
        with lab_server(home, lab) as host:
            with ExecClient(host.info) as client:
                assert client.get_execution(kept.id).record.stdout == "kept\n"
                assert len(client.get_execution(long.id).record.stdout) == 100_001
                assert client.get_session(session.id).record.state == "ended"
                assert lost.id not in {one.id for one in client.get_session(session.id).list_executions()}
                assert client.tokens.get(token.token.id).active  # as the page says
            type_in(restore[-1])


# --- upgrade ----------------------------------------------------------------------------------------------------


def lay_earlier_store(store: Path) -> None:
    """Write the earlier version's store, as if it were a month old, with tokens that have not expired since."""
    store.mkdir(mode=0o700, parents=True)
    shutil.copytree(EARLIER / "logs", store / "logs")
    with closing(sqlite3.connect(store / "executions.db")) as connection:
        connection.executescript((EARLIER / "schema_7.sql").read_text())
        connection.execute("UPDATE tokens SET expires_at = ?", (time.time() + 3600,))
        connection.execute("UPDATE executions SET finished_at = ?", (time.time() - 30 * 24 * 3600,))
        connection.commit()


def migrations_of(store: Path) -> int:
    with closing(sqlite3.connect(store / "executions.db")) as connection:
        return int(connection.execute("SELECT max(version) FROM migrations").fetchone()[0])


def test_store_of_an_earlier_version_is_upgraded_and_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "lab"
    lab = account(home)
    store = store_of(home, lab)
    lay_earlier_store(store)
    (home / ".jupyter").mkdir()
    (home / ".jupyter" / "jupyter_server_config.py").write_text(_FOR_EVER)
    backup, restore = (Recipe(PAGE, title, {}).steps() for title in ("Back up", "Restore"))
    with shells({"lab": lab}, home) as type_in:
        for step in backup:
            type_in(step)
        with lab_server(home, lab) as host, ExecClient(host.info) as client:
            assert_the_earlier_records_are_there(client)
            assert client.run("print('new')").stdout == "new\n"
        assert migrations_of(store) == len(MIGRATIONS) > EARLIER_MIGRATIONS
        with monkeypatch.context() as earlier_version:
            earlier_version.setattr(database, "MIGRATIONS", MIGRATIONS[:EARLIER_MIGRATIONS])
            with pytest.raises(StoreUnavailable, match="newer version"):
                database.Database(store / "executions.db")
            for step in restore:
                type_in(step)
            opened = database.Database(store / "executions.db")
            assert opened.execute("SELECT count(*) FROM executions").fetchone()[0] == 3
            opened.close()
        assert migrations_of(store) == EARLIER_MIGRATIONS


def assert_the_earlier_records_are_there(client: ExecClient) -> None:
    """Look for what the earlier version ran: a short run, one with a log file, an error, and two tokens."""
    (session,) = [one for one in client.list_sessions(ended=True) if one.name == ""]
    runs = {one.state: one for one in client.get_session(session.id).list_executions()}
    assert set(runs) == {"ok", "error"}
    records = [client.get_execution(one.id).record for one in client.get_session(session.id).list_executions()]
    assert sorted(len(record.stdout) for record in records) == [0, 5, 20_001]
    tokens = {token.name: token for token in client.tokens.list(ended=True)}
    assert tokens["agent"].active and not tokens["gone"].active


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Policy) if field.name != "name"])
def test_policy_with_a_field_that_a_version_does_not_know_is_refused(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version without the field has today's parser, which reads the fields of its `Policy`."""
    value = json.loads(json.dumps(policy_parsing.policy_to_json(BUILT_IN["default"])[field]))
    assert read_policies({"mine": {field: value}})
    known = tuple(one for one in dataclasses.fields(Policy) if one.name != field)
    monkeypatch.setattr(policy_parsing, "fields", lambda _: known)
    with pytest.raises(InvalidRequest, match=f"policy 'mine': unknown field '{field}'"):
        read_policies({"mine": {field: value}})


# --- removal ----------------------------------------------------------------------------------------------------


def wanted_paths(home: Path, env: dict[str, str]) -> dict[str, Path]:
    """Return what the page's table says that stays, by the first words of its rows; images are the engine's."""
    data, config = store_of(home, env), home / ".jupyter"
    return {
        "executions, tokens, the audit trail": data / "executions.db",
        "settings, policies, profiles": config / "jupyter_server_config.py",
        "files of sessions": data / "work",
    }


@only_in_full
def test_package_is_removed_as_the_page_says(tmp_path: Path) -> None:
    python = environment(tmp_path / "environment", [str(ROOT)])
    home = tmp_path / "lab"
    lab = account(home)
    lab["PATH"] = f"{python.parent}:{lab['PATH']}"
    (home / ".jupyter").mkdir()
    (home / ".jupyter" / "jupyter_server_config.py").write_text(_FOR_EVER)
    with lab_server(home, lab) as host, ExecClient(host.info) as client, client.session() as session:
        session.run("open('mine', 'w').write('kept')", check=True)
    run(["jupyter", "exec", "kernelspec", "install", "--fork"], lab)
    with shells({"lab": lab}, home) as type_in:
        for step in Recipe(PAGE, "Uninstall", {}).steps():
            type_in(step)
    assert "jupyter_exec_ext" not in run([str(python), "-m", "pip", "list"], lab).replace("-", "_")
    assert "jupyter_exec_ext" not in run(["jupyter", "server", "extension", "list"], lab)
    assert list(json.loads(run(["jupyter", "kernelspec", "list", "--json"], lab))["kernelspecs"]) == ["python3"]
    assert_jupyter_still_runs_code(python, lab)
    rows = wanted_paths(home, lab)
    assert all(f"| {words} |" in PAGE for words in rows)
    assert [words for words, path in rows.items() if not path.exists()] == []


def run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def assert_jupyter_still_runs_code(python: Path, env: dict[str, Any]) -> None:
    code = (
        "from jupyter_client.manager import run_kernel\nwith run_kernel() as c: c.execute_interactive('print(6 * 7)')"
    )
    assert run([str(python), "-c", code], env).startswith("42\n")
