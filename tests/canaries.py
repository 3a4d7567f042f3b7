"""Looks for secrets where none may be: in logs, answers, the store, events and metrics.

Every secret that a test hands out is noted here; the shared hosts run with the most talkative log, and are searched
when the tests are over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import requests

from jupyter_exec_ext.auth.tokens import parse_token
from tests.hosts import CANARY, Host

_SECRETS: set[str] = {CANARY}
# Where Jupyter itself keeps what it needs to be found and to know its users again.
_JUPYTERS_OWN = ("jpserver-", "jpserver_", "jupyter_cookie_secret", "cookie_secret", "hub.sqlite", "jupyterhub")


def note(secret: str) -> str:
    """Take note of a secret that a test uses; of a scoped token, the part that must not be known."""
    token = parse_token(secret)
    _SECRETS.add(secret if token is None else token.secret)
    return secret


def forget(secret: str) -> str:
    """Look for a secret no more: the test puts it in URLs of Jupyter's own, which Jupyter logs."""
    token = parse_token(secret)
    _SECRETS.discard(secret if token is None else token.secret)
    return secret


def found_in(text: str) -> list[str]:
    """Return the secrets that a text holds."""
    return [secret for secret in _SECRETS if secret in text]


def look_through(host: Host) -> list[tuple[str, str]]:
    """Return each file of a host that holds a secret, with the secret's beginning."""
    return [
        (str(path), secret[:6])
        for path in _files(host)
        for secret in found_in(path.read_bytes().decode(errors="replace"))
    ]


def _files(host: Host) -> Iterator[Path]:
    for path in sorted(host.home.rglob("*")):
        if path.is_file() and not path.name.startswith(_JUPYTERS_OWN):
            yield path


def check_answer(answer: requests.Response) -> None:
    """Look for secrets in an answer of ours; a token's own is where it is created, and nowhere else."""
    path = answer.request.path_url.partition("?")[0]
    if answer.headers.get("Content-Type", "").startswith("text/html"):  # Jupyter's own pages hold its token
        return
    if "/exec/v1" not in path or (answer.request.method == "POST" and path.endswith(("/tokens", "/rotate"))):
        return
    assert not found_in(answer.text), f"{answer.request.method} {path} tells a secret"
    assert not found_in(json.dumps(dict(answer.headers))), f"{answer.request.method} {path} tells a secret in a header"
