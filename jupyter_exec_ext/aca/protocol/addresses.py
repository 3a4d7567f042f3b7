"""Azure Container Apps (ACA) dynamic sessions on the wire: api-versions, session identifiers, addresses.

Two families of the protocol are in use. In the *envelope* family (api-version 2024-02-02-preview) what is asked and
answered stands below ``properties``; in the *flat* family (2024-10-02-preview and later) it stands at the top, under
other paths and names. Requests, results, files and errors have modules of their own: `aca_requests`, `aca_results`,
`aca_files`, `aca_errors`.

Sources: the data-plane specification (Azure/azure-rest-api-specs, ``specification/app/data-plane/DynamicSessions``)
and, for the envelope family, which has none, the traffic that Microsoft recorded as tests of its command line. Where
neither says anything we are tolerant in what is read and strict in what is sent: ``docs/aca.md`` lists it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from urllib.parse import quote, urlencode, urlsplit

from ...errors import InvalidRequest

SCOPE = "https://dynamicsessions.io/.default"  # of the access token that Azure wants
DATA_DIRECTORY = "/mnt/data"
MAX_UPLOAD_BYTES = 128 * 1024 * 1024
MAX_RUN_SECONDS = 220  # Azure ends a run of Python after that, whatever was asked for

# The specification's pattern. Microsoft's guide allows fewer characters, clients send no others than hexadecimal.
_IDENTIFIER = re.compile(r"""[A-Za-z0-9_|{}\[\]:";'<>?/.,@#$%^&*()\-+=!~`]{4,128}""")
# Where an access token may be sent: Azure's own pools, and this machine. Not *.azurecontainerapps.io, where pools of
# custom containers are: every customer of Azure has hosts there.
ALLOWED_HOSTS = ("*.dynamicsessions.io", "localhost", "127.0.0.1", "::1")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?|[0-9a-f:.]+")
_PYTHON_EXECUTE = "/python/execute"  # the tail of endpoints that were written down for the first preview


class Family(str, Enum):
    """Which of the two forms requests and answers have."""

    ENVELOPE = "envelope"
    FLAT = "flat"

    __str__ = str.__str__


API_VERSIONS = {
    "2024-02-02-preview": Family.ENVELOPE,
    "2024-08-02-preview": Family.ENVELOPE,
    "2024-10-02-preview": Family.FLAT,
    "2025-02-02-preview": Family.FLAT,
    "2025-10-02-preview": Family.FLAT,
}
DEFAULT_API_VERSION = "2025-10-02-preview"
SESSION_API_VERSION = "2025-10-02-preview"  # the envelope family cannot end a session; its clients ask like this


def family_of(api_version: str) -> Family:
    """Return the family that an api-version belongs to.

    Raises
    ------
    InvalidRequest
        If there is no such version, naming those there are.
    """
    try:
        return API_VERSIONS[api_version]
    except KeyError:
        known = ", ".join(API_VERSIONS)
        raise InvalidRequest(f"unknown api-version {api_version[:64]!r}; known are {known}") from None


def check_identifier(identifier: str) -> str:
    """Return a session identifier that Azure accepts, unchanged.

    Raises
    ------
    InvalidRequest
        Where the specification forbids it; it is never shortened or repaired, or two users could share a session.
    """
    if _IDENTIFIER.fullmatch(identifier) is None:
        raise InvalidRequest(
            f"the session identifier {identifier[:140]!r} must have 4 to 128 characters, each an ASCII letter, a digit"
            " or one of _|{}[]:\";'<>?/.,@#$%^&*()-+=!~`"
        )
    return identifier


def check_endpoint(endpoint: str) -> str:
    """Return a pool's management endpoint without a slash at its end, and without the tail of the first preview.

    Raises
    ------
    InvalidRequest
        If it is no ``http`` or ``https`` address, or holds a user name, a query or a fragment.
    """
    address = endpoint.strip().rstrip("/").removesuffix(_PYTHON_EXECUTE)
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.username is not None or parts.query or parts.fragment or "?" in address or "#" in address:
        raise InvalidRequest(
            "the pool management endpoint must be like"
            " https://REGION.dynamicsessions.io/subscriptions/…/resourceGroups/…/sessionPools/POOL, without a user"
            " name or a query"
        )
    return address


def check_host(endpoint: str, allowed_hosts: Sequence[str] = ALLOWED_HOSTS) -> str:
    """Return an endpoint to which an access token may be sent, unchanged.

    Parameters
    ----------
    endpoint : str
        As `check_endpoint` returns it.
    allowed_hosts : sequence of str
        Names and addresses; ``*.`` stands for one or more labels before the rest.

    Raises
    ------
    InvalidRequest
        If its host is none of them, or it is not ``https`` and leads off this machine.
    """
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    # Whatever else stands there, such as a backslash, is read differently by different programs.
    if _HOST.fullmatch(host) is None or not any(_is_host(host, allowed.lower()) for allowed in allowed_hosts):
        raise InvalidRequest(
            f"the access token must not be sent to {host[:200]!r}; allowed are {', '.join(allowed_hosts) or 'none'}"
            " (allowed_hosts)"
        )
    if parts.scheme != "https" and host not in _LOOPBACK:
        raise InvalidRequest(f"the endpoint at {host[:200]!r} must be https: http is for this machine only")
    return endpoint


def _is_host(host: str, allowed: str) -> bool:
    if allowed.startswith("*."):
        return host.endswith(allowed[1:]) and len(host) > len(allowed) - 1
    return host == allowed


def session_url(endpoint: str, path: str, identifier: str | None, api_version: str, /, **query: str) -> str:
    """Return the address of one operation.

    Parameters
    ----------
    endpoint : str
        As `check_endpoint` returns it.
    path : str
        Relative to it, quoted already.
    identifier : str or None
        Of the session; None where the operation is not one of a session.
    query : str
        Further parameters.
    """
    fields = {"api-version": api_version}
    if identifier is not None:
        fields = {"identifier": check_identifier(identifier), **fields}
    return f"{endpoint}/{path}?{urlencode({**fields, **query}, quote_via=quote, safe='')}"
