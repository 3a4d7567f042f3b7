"""Looks for secrets where none may be: in logs, answers, the store, events and metrics.

Every secret that a test hands out is noted here; the shared hosts run with the most talkative log, and are searched
when the tests are over.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile

import requests

from jupyter_exec_ext.auth.token_format import parse_token
from tests.support.hosts import CANARY, Host

_SECRETS: set[str] = {CANARY}
_LONG_RUN = re.compile("[0-9A-Za-z]{32,}")
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
    # There are thousands of secrets and of answers: nearly all texts have nothing that is long enough for most of them.
    runs = " ".join(set(_LONG_RUN.findall(text)))
    return [secret for secret in _SECRETS if secret in (runs if _LONG_RUN.fullmatch(secret) else text)]


def look_through(host: Host) -> list[tuple[str, str]]:
    """Return each file of a host that holds a secret, with the secret's beginning."""
    with tempfile.NamedTemporaryFile("w") as patterns:
        patterns.write("".join(f"{secret}\n" for secret in _SECRETS if secret))
        patterns.flush()
        # One pass for all secrets; the files of a run have a gigabyte, and too many names for one command line.
        command = ["grep", "--recursive", "--only-matching", "--text", "--fixed-strings", "-H", "-Z"]
        command += [f"--exclude={name}*" for name in _JUPYTERS_OWN]
        done = subprocess.run([*command, "-f", patterns.name, "--", str(host.home)], capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    found = {tuple(line.split(b"\0", 1)) for line in done.stdout.splitlines()}
    return sorted((path.decode(), secret.decode()[:6]) for path, secret in found)


def check_answer(answer: requests.Response) -> None:
    """Look for secrets in an answer of ours; a token's own is where it is created, and nowhere else."""
    path = answer.request.path_url.partition("?")[0]
    if answer.headers.get("Content-Type", "").startswith("text/html"):  # Jupyter's own pages hold its token
        return
    if "/exec/v1" not in path or (answer.request.method == "POST" and path.endswith(("/tokens", "/rotate"))):
        return
    assert not found_in(answer.text), f"{answer.request.method} {path} tells a secret"
    assert not found_in(json.dumps(dict(answer.headers))), f"{answer.request.method} {path} tells a secret in a header"
