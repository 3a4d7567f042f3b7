"""Records of sessions' network: the rules, and the requests that were allowed or refused by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NetworkActivity:
    """A request of a session's programs to the network.

    Parameters
    ----------
    at : str
        When it had ended, in UTC.
    host : str
        Host that was asked for; empty if the request could not be read.
    port : int
        Its port; 0 if the request could not be read.
    method, path : str
        Method, and path without its query, where the proxy reads requests. ``CONNECT`` or ``SOCKS`` for a tunnel.
    verdict : str
        ``allowed``, ``refused``, or ``failed`` for an allowed one that could not be carried out to its end.
    rule : str
        Rule that allowed it.
    reason : str
        Why it was refused or failed.
    wanted_rule : str
        Rule that would have allowed it; empty if it was allowed, or no rule alone would do.
    bytes_sent, bytes_received : int
        Bytes to and from the host.
    seconds : float
        Time from its beginning to its end.
    secrets : sequence of str
        Names of the secrets that the proxy added.
    """

    at: str
    host: str
    port: int
    method: str
    path: str
    verdict: str
    rule: str
    reason: str
    bytes_sent: int
    bytes_received: int
    seconds: float
    wanted_rule: str = ""
    secrets: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SessionNetwork:
    """Network of a session: its rules, and its newest requests.

    Parameters
    ----------
    session_id : str
        The session.
    network : str
        ``none``, ``rules``, or ``host`` for the network of the machine on which its kernel runs.
    rules : sequence of str
        The rules of its policies. Under policies of several levels a request needs a rule of each.
    added_rules : sequence of str
        Rules that the owner has added for this session.
    requests : sequence of NetworkActivity
        The newest requests, oldest first.
    """

    session_id: str
    network: str
    rules: Sequence[str] = ()
    added_rules: Sequence[str] = ()
    requests: Sequence[NetworkActivity] = ()
