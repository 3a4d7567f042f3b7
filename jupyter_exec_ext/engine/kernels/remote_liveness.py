"""Liveness of a kernel on another machine: alive, gone or unreachable.

A provisioner of such kernels may answer "ended" where the network is cut: gateway_provisioners 0.5 answers with exit
code 0. So that answer is checked at the kernel's own port, where libzmq greets each connection, also while code runs.
`supervisor` asks; `RemoteLiveness` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..ports import KernelExit

#: Timeout of one question, to the provisioner or to the kernel's port.
ANSWER_SECONDS = 3.0
# A proxy or firewall on the way refuses connections during a short cut, as a machine does whose kernel has ended.
_GONE_SECONDS = 5.0
#: How long a kernel may be unreachable before it counts as lost.
UNREACHABLE_LIMIT_SECONDS = 120.0
# The first byte that any version of libzmq sends.
_GREETING = b"\xff"


class Presence(Enum):
    """The answer to the question whether a kernel is there."""

    ALIVE = "alive"
    GONE = "gone"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to one question, to the provisioner or to the kernel's port.

    Parameters
    ----------
    presence : Presence
    exit_ : KernelExit or None
        How the kernel ended, where that is certain.
    greeted : bool
        Whether the kernel's port has shown that it lives.
    """

    presence: Presence
    exit_: KernelExit | None = None
    greeted: bool = False


class RemoteLiveness:
    """Decides from answers when a kernel counts as ended. Pure: times are given.

    Attributes
    ----------
    presence : Presence
        The last answer.
    """

    def __init__(self, now: float) -> None:
        self.presence = Presence.ALIVE
        self._since = self._lost_at = now

    def note(self, answer: Answer, now: float) -> KernelExit | None:
        """Take in an answer; return how the kernel ended, None while it may live."""
        if Presence.ALIVE in (answer.presence, self.presence):
            self._lost_at = now
        if answer.presence is not self.presence:
            self.presence, self._since = answer.presence, now
        if answer.exit_ is not None:
            return answer.exit_
        if self.presence is Presence.GONE and now - self._since >= _GONE_SECONDS:
            return KernelExit()
        if self.presence is not Presence.ALIVE and now - self._lost_at >= UNREACHABLE_LIMIT_SECONDS:
            return KernelExit(unreachable_seconds=UNREACHABLE_LIMIT_SECONDS)
        return None


async def probe_port(info: Mapping[str, Any]) -> Presence:
    """Connect to a kernel's shell port and wait for libzmq's greeting.

    Parameters
    ----------
    info : mapping
        The kernel's connection info, with ``transport`` ``"tcp"``.
    """
    try:
        connecting = asyncio.open_connection(str(info["ip"]), int(info["shell_port"]))
        reader, writer = await asyncio.wait_for(connecting, ANSWER_SECONDS)
    except ConnectionRefusedError:
        return Presence.GONE
    except (OSError, asyncio.TimeoutError):
        return Presence.UNREACHABLE
    try:
        greeting = await asyncio.wait_for(reader.read(1), ANSWER_SECONDS)
    except (ConnectionResetError, BrokenPipeError):
        return Presence.GONE
    except (OSError, asyncio.TimeoutError):
        return Presence.UNREACHABLE
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return Presence.ALIVE if greeting == _GREETING else Presence.GONE
