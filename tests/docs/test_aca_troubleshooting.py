"""The messages on the page about troubleshooting ACA sessions are those of the program."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from jupyter_exec_ext import ACAClient, AccessToken, errors
from jupyter_exec_ext.aca.protocol.addresses import check_identifier
from tests.docs.blocks import DOCS

IN_A_PROGRAM = (DOCS / "aca" / "troubleshooting.md").read_text().partition("\n## In a notebook\n")[0]
POOL = "https://westeurope.dynamicsessions.io/subscriptions/s/resourceGroups/g/sessionPools/p"


class Credential:
    def get_token(self, *scopes: str, **options: object) -> AccessToken:
        return AccessToken("unused", 2**33)


def client(endpoint: str, **options: str) -> None:
    """Make a client, which checks its arguments and sends nothing."""
    ACAClient(endpoint, Credential(), api_version=options.get("api_version", "2025-10-02-preview")).close()


CAUSES: dict[str, Callable[[], object]] = {
    "the access token must not be sent to …": lambda: client("https://example.com/pool"),
    "the endpoint at … must be https": lambda: client(POOL.replace("https", "http")),
    "the pool management endpoint must be like …": lambda: client(f"{POOL}?query"),
    "the session identifier … must have 4 to 128 characters": lambda: check_identifier("ada"),
    "unknown api-version": lambda: client(POOL, api_version="2001-01-01"),
}


def test_the_page_has_every_message_of_the_causes() -> None:
    assert set(re.findall(r'^\| "([^"]+)" \|', IN_A_PROGRAM, re.MULTILINE)) == set(CAUSES)


@pytest.mark.parametrize("message", CAUSES)
def test_a_quoted_message_is_shown_by_its_cause(message: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=".*".join(map(re.escape, message.split("…")))):
        CAUSES[message]()


@pytest.mark.parametrize("name", re.findall(r"^\| `([A-Z]\w+)` \|", IN_A_PROGRAM, re.MULTILINE))
def test_an_error_of_the_page_exists(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.ExecError)
