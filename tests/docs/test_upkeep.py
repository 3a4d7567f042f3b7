"""The page on backups: its lines on a real store, of a server that runs, is destroyed, and comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

from jupyter_exec_ext import ExecClient
from tests.support.hosts import free_port, wait_until_ready
from tests.support.howto_pages import Recipe, account, serving, shells

PAGE = (Path(__file__).parent.parent.parent / "docs" / "howto" / "upkeep.md").read_text()
SERVE = "jupyter exec serve --port {port} --token-file token"


def test_backup_of_a_running_server_is_restored(tmp_path: Path) -> None:
    home, port = tmp_path / "lab", free_port()
    lab = account(home)
    (home / "token").write_text("s3cret-of-this-test")
    line = f"{SERVE.format(port=port)} --allow-root"
    backup, restore = (Recipe(PAGE, title, {}).steps() for title in ("Back up", "Restore"))
    store = Path(lab.get("XDG_DATA_HOME", home / ".local" / "share")) / "jupyter" / "jupyter_exec_ext"
    with shells({"lab": lab}, home) as type_in:
        with serving(line, lab, home, port) as host:
            host.info.token = "s3cret-of-this-test"
            wait_until_ready(host)
            with ExecClient(host.info) as client, client.session() as session:
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
        with serving(line, lab, home, port) as host:
            host.info.token = "s3cret-of-this-test"
            wait_until_ready(host)
            with ExecClient(host.info) as client:
                assert client.get_execution(kept.id).record.stdout == "kept\n"
                assert len(client.get_execution(long.id).record.stdout) == 100_001
                assert client.get_session(session.id).record.state == "ended"
                assert lost.id not in {one.id for one in client.get_session(session.id).list_executions()}
                assert client.tokens.get(token.token.id).active  # as the page says
            type_in(restore[-1])
