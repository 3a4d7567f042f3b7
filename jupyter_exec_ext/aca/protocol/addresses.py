"""Addresses of the ACA sessions' protocol: api-versions, session identifiers, URLs and their queries.

ACA is Azure Container Apps (dynamic sessions). Two families of the protocol are in use. In the *envelope* family
(api-version 2024-02-02-preview) the fields of requests and answers stand below ``properties``. In the *flat* family
(2024-10-02-preview and later) they stand at the top, under other paths and names. `run_format`, `file_format`,
`session_format` and `error_format` hold the bodies.

Sources: the data-plane specification (Azure/azure-rest-api-specs, ``specification/app/data-plane/DynamicSessions``)
and, for the envelope family, the traffic that Microsoft recorded as tests of its command line. Where both are silent,
this code is tolerant in what it reads and strict in what it sends. ``docs/reference/aca.md`` lists these cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from urllib.parse import quote, unquote_to_bytes, urlencode, urlsplit

from ...errors import InvalidRequest

SCOPE = "https://dynamicsessions.io/.default"  # of the access token that Azure wants
DATA_DIRECTORY = "/mnt/data"
MAX_UPLOAD_BYTES = 128 * 1024 * 1024
MAX_RUN_SECONDS = 220  # Azure stops a Python run after this time, whatever timeout was requested

# The specification's pattern. Microsoft's guide allows fewer characters; its clients send hexadecimal digits only.
_IDENTIFIER = re.compile(r"""[A-Za-z0-9_|{}\[\]:";'<>?/.,@#$%^&*()\-+=!~`]{4,128}""")
# Where an access token may be sent: Azure's own pools, and this machine. *.azurecontainerapps.io is left out, since
# every customer of Azure has hosts there.
ALLOWED_HOSTS = ("*.dynamicsessions.io", "localhost", "127.0.0.1", "::1")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?|[0-9a-f:.]+")
_PYTHON_EXECUTE = "/python/execute"  # endpoints written down for the first preview end like this
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MAX_SKIP_DIGITS = 9


class Family(str, Enum):
    """Form of requests and answers."""

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
SESSION_API_VERSION = "2025-10-02-preview"  # the envelope family cannot end a session; its clients use this version


def family_of(api_version: str) -> Family:
    """Return the family that an api-version belongs to.

    Raises
    ------
    InvalidRequest
        If the version is unknown; the message names the known ones.
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
        If the specification forbids it. It is never shortened or repaired, or two users could share a session.
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
        If it is not an ``http`` or ``https`` address, or has a user name, a query or a fragment.
    """
    address = endpoint.strip().rstrip("/").removesuffix(_PYTHON_EXECUTE)
    try:
        parts = urlsplit(address)
        # Reading `port` raises ValueError above 65535.
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    # A bare `?` or `#` counts, too: the paths of all operations would come after it.
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
        If its host is not allowed, or it is ``http`` to another machine.
    """
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    # Other characters, such as a backslash, are read differently by different programs.
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
        # The dot stays, or `evildynamicsessions.io` would be allowed, too.
        return host.endswith(allowed[1:]) and len(host) > len(allowed) - 1
    return host == allowed


# The first four are positional only, because `path` is also a parameter of queries.
def session_url(endpoint: str, path: str, identifier: str | None, api_version: str, /, **query: str) -> str:
    """Return the address of one operation.

    Parameters
    ----------
    endpoint : str
        As `check_endpoint` returns it.
    path : str
        Relative to the endpoint, already quoted.
    identifier : str or None
        Of the session; None for operations on the pool.
    query : str
        Further parameters.
    """
    fields = {"api-version": api_version}
    if identifier is not None:
        fields = {"identifier": check_identifier(identifier), **fields}
    # `quote` writes a space as %20. The default is a plus sign, which only forms read as a space.
    return f"{endpoint}/{path}?{urlencode({**fields, **query}, quote_via=quote, safe='')}"


def query_from_text(query: str) -> dict[str, str]:
    """Parse a query so that two identifiers can never be taken for one another.

    Clients write the parameters in any order, quoted or not. A plus sign stands for a space, as in forms; identifiers
    have none.

    Parameters
    ----------
    query : str
        As it stands in the address, with Latin-1 for bytes that are not ASCII.

    Raises
    ------
    InvalidRequest
        If it could mean two things: a parameter comes twice, an escape is broken, or bytes are not UTF-8.
    """
    found: dict[str, str] = {}
    for field in filter(None, query.split("&")):
        name, _, value = field.partition("=")
        name = _decode_query(name)
        if name in found:
            raise InvalidRequest(f"the query has {name[:64]!r} twice")
        found[name] = _decode_query(value)
    return found


def identifier_of(query: Mapping[str, str]) -> str:
    """Return the session's identifier; raises `InvalidRequest` if it is missing or the specification forbids it."""
    identifier = query.get("identifier")
    if identifier is None:
        raise InvalidRequest("the query has no 'identifier', which names the session")
    return check_identifier(identifier)


def api_version_of(query: Mapping[str, str]) -> str:
    """Return the api-version; raises `InvalidRequest` if it is missing or unknown.

    The specification demands one. It is also a safeguard: a client that does not quote the identifier sends only what
    is before a ``#`` in it. If the api-version comes after the identifier, its absence shows that.
    """
    api_version = query.get("api-version")
    if api_version is None:
        raise InvalidRequest("the query has no 'api-version'; was a '#' in the identifier not written as '%23'?")
    family_of(api_version)
    return api_version


def family_asked(query: Mapping[str, str]) -> Family:
    """Return the family of the query's api-version; raises `InvalidRequest`."""
    return family_of(api_version_of(query))


def flag_of(query: Mapping[str, str], name: str) -> bool:
    """Return a boolean of the query, False if it is missing; raises `InvalidRequest`."""
    word = query.get(name, "false").lower()
    if word not in ("true", "false"):
        raise InvalidRequest(f"{name!r} must be true or false")
    return word == "true"


def skip_of(query: Mapping[str, str]) -> int:
    """Return how many items of a list to skip; raises `InvalidRequest`."""
    text = query.get("skip", "0")
    # `isdecimal` accepts the digits of all scripts, and `int` fails above 4,300 digits.
    if not text.isascii() or not text.isdecimal() or len(text) > _MAX_SKIP_DIGITS:
        raise InvalidRequest(f"'skip' must be a whole number with at most {_MAX_SKIP_DIGITS} digits")
    return int(text)


def _decode_query(text: str) -> str:
    if _BROKEN_ESCAPE.search(text):
        raise InvalidRequest("the query has a '%' that is not followed by two hexadecimal digits; write it as '%25'")
    try:
        # Plus signs go first: one that was written as %2B stays.
        return unquote_to_bytes(text.replace("+", " ").encode("latin-1")).decode()
    except UnicodeError:
        raise InvalidRequest("the query is not valid UTF-8") from None
