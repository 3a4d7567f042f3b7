"""Headers of requests to a session's port, and of its answers: pure.

A program in a session is hostile. It gets no credential of Jupyter, and cannot act on Jupyter's host name: its answers
there set no cookies and redirect to nothing but the port itself. `BROWSER` is the mode of the ports' own host names,
where an app is at home; `API` that of programs with a token, which use Jupyter's host name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from urllib.parse import unquote, urljoin, urlsplit

from tornado.httputil import HTTPHeaders

from ..auth.token_format import PREFIX

#: Cookie of the ports' host names by which a browser may use a port; with TLS, the prefix keeps others from setting it.
PASS_COOKIE, SECURE_PASS_COOKIE = "exec-port", "__Host-exec-port"
# Of one connection (RFC 9110, 7.6.1). Those that Connection names are removed, too.
_OF_CONNECTION = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "expect"),
    }
)
# A page on the ports' host name has no XSRF token of Jupyter's; what it sends is the app's own.
_NEVER_SENT = frozenset({"host", "authorization", "cookie", "x-real-ip", "forwarded", "referer", "x-request-id"})
_NOT_SENT_BY_PROGRAMS = frozenset({"x-xsrftoken", "x-csrftoken", "origin"})
_NEVER_RETURNED = frozenset(
    {
        *("set-cookie", "location", "server", "date", "alt-svc", "clear-site-data", "strict-transport-security"),
        "public-key-pins",
    }
)
# On Jupyter's host name an app must not change what browsers do there.
_NOT_RETURNED_TO_PROGRAMS = frozenset(
    {
        *("content-security-policy", "content-security-policy-report-only", "service-worker-allowed", "refresh"),
        *("www-authenticate", "cache-control", "x-content-type-options", "report-to", "nel", "link"),
        *("reporting-endpoints", "origin-agent-cluster", "x-request-id"),
    }
)
_JUPYTERS_COOKIES = re.compile(r"_xsrf|username-.*|jupyter.*", re.IGNORECASE | re.DOTALL)
_DOMAIN = re.compile(r";\s*domain\s*=[^;]*", re.IGNORECASE)
_PLAIN = re.compile(r"[\x21-\x5b\x5d-\x7e]*")  # printable ASCII but for the backslash, which browsers take for a slash


class PortMode(Enum):
    """Way on which a request has come to a port."""

    API = "api"
    BROWSER = "browser"


def headers_for_port(
    sent: HTTPHeaders, mode: PortMode, host: str, forwarded: dict[str, str], is_login_cookie: Callable[[str], bool]
) -> HTTPHeaders:
    """Return the headers that a program in a session gets.

    Parameters
    ----------
    sent : HTTPHeaders
        The client's.
    mode : PortMode
        The way on which the request has come.
    host : str
        The Host header for the program.
    forwarded : dict
        Our own ``X-Forwarded-*`` headers; the client's are removed.
    is_login_cookie : callable
        Returns whether a cookie of this name may be Jupyter's; those named as its usual ones are.
    """
    left_out = _NEVER_SENT | (_NOT_SENT_BY_PROGRAMS if mode is PortMode.API else frozenset())
    kept = _without(sent, left_out | _named_by_connection(sent), ("x-forwarded-", "x-jupyterhub-", "cf-access-"))
    kept["Host"] = host
    if mode is PortMode.BROWSER:
        cookies = [each for each in _cookies(sent) if not _is_ours(each) and not is_login_cookie(_name_of(each))]
        if cookies:
            kept["Cookie"] = "; ".join(cookies)
    for name, value in forwarded.items():
        kept[name] = value
    return kept


def headers_for_client(answered: HTTPHeaders, mode: PortMode) -> HTTPHeaders:
    """Return the headers of a program's answer that the client gets, but for the redirection."""
    left_out = _NEVER_RETURNED | (_NOT_RETURNED_TO_PROGRAMS if mode is PortMode.API else frozenset())
    prefixes = ("access-control-", "cross-origin-") if mode is PortMode.API else ()
    kept = _without(answered, left_out | _named_by_connection(answered), prefixes)
    if mode is PortMode.API:
        kept["Content-Security-Policy"] = "sandbox"
        kept["X-Content-Type-Options"] = "nosniff"
        kept["Cache-Control"] = "no-store"
        return kept
    for cookie in answered.get_list("Set-Cookie"):
        if not _is_ours(cookie.partition(";")[0]):
            # Without a domain, the cookie is for this host name alone.
            kept.add("Set-Cookie", _DOMAIN.sub("", cookie))
    return kept


def redirection_for_client(location: str, host: str, prefix: str, path: str) -> str | None:
    """Return the Location header for a program's client, which sends its token to the same host name again.

    Parameters
    ----------
    location : str
        The program's.
    host : str
        Jupyter's host name, as the client has it, without a port.
    prefix : str
        Path of the port on Jupyter's host name, without a slash at the end.
    path : str
        Path of the request below it.

    Returns
    -------
    str or None
        A path below `prefix`, or a URL of another host; None for one that may be read in several ways.
    """
    if not _PLAIN.fullmatch(location):
        return None
    try:
        there = urlsplit(urljoin(f"http://port.invalid{path}", location))
        name, own_name = (there.hostname or "").rstrip("."), host.lower().rstrip(".").strip("[]")
    except ValueError:
        return None
    if there.scheme not in ("http", "https"):
        return None
    if name not in ("port.invalid", own_name, "localhost", "127.0.0.1", "::1"):
        return there.geturl()
    segments = unquote(unquote(there.path)).replace("\\", "/").split("/")
    if "." in segments or ".." in segments:
        return None
    below = there.path if there.path.startswith("/") else f"/{there.path}"
    start = "" if below == prefix or below.startswith(f"{prefix}/") else prefix
    return start + below + (f"?{there.query}" if there.query else "")


def pass_cookies(headers: HTTPHeaders) -> list[str]:
    """Return the values of our cookie; there may be several, since pages of other host names can add theirs."""
    return [each.partition("=")[2].strip() for each in _cookies(headers) if _is_pass(each)]


def without_tokens(query: str, authorization: str) -> str:
    """Return a query without parameters that hold a scoped token, or the token of the Authorization header."""
    secret = authorization.rpartition(" ")[2]

    def is_token(parameter: str) -> bool:
        value = unquote(parameter.partition("=")[2])
        return value.startswith(PREFIX) or (bool(secret) and value == secret)

    return "&".join(each for each in query.split("&") if not is_token(each))


def _cookies(headers: HTTPHeaders) -> Iterable[str]:
    for header in headers.get_list("Cookie"):
        yield from filter(None, map(str.strip, header.split(";")))


def _name_of(cookie: str) -> str:
    return cookie.partition("=")[0].strip()


def _is_pass(cookie: str) -> bool:
    return _name_of(cookie) in (PASS_COOKIE, SECURE_PASS_COOKIE)


def _is_ours(cookie: str) -> bool:
    return _is_pass(cookie) or _JUPYTERS_COOKIES.fullmatch(_name_of(cookie)) is not None


def _named_by_connection(headers: HTTPHeaders) -> frozenset[str]:
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return _OF_CONNECTION | named


def _without(headers: HTTPHeaders, names: frozenset[str], prefixes: tuple[str, ...]) -> HTTPHeaders:
    kept = HTTPHeaders()
    for name, value in headers.get_all():
        if name.lower() not in names and not (prefixes and name.lower().startswith(prefixes)):
            kept.add(name, value)
    return kept
