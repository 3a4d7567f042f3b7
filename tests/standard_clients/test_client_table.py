"""The page's table of clients: each row has a test, which enters what it says."""

from __future__ import annotations

from pathlib import Path

from tests.standard_clients.__main__ import CLIENTS
from tests.standard_clients.client_table import read_table

#: The clients that put the token in the URL, and know no other way.
IN_URL = {"smolagents", "smolagents_docker", "jupyter_konsole", "open_webui", "jupyterlab_services"}


def test_each_row_has_a_client_and_each_client_a_row() -> None:
    assert [client.row for client in CLIENTS.values()] == list(read_table())
    for name, client in CLIENTS.items():
        assert read_table()[client.row].is_in_url is (name in IN_URL), name


def test_each_client_has_a_test_that_names_its_row() -> None:
    for name, client in CLIENTS.items():
        text = Path(__file__).with_name(f"test_{name}.py").read_text()
        assert client.row in text, name
