"""Gate of a server whose policies have a mistake: answers every request with 503."""

from __future__ import annotations

from jupyter_server.base.handlers import APIHandler

from ..auth.caller import Caller
from ..errors import ExecError, PoliciesInvalid
from .gate import Gate

_FOR_OTHERS = (
    "the policies of this server have a mistake, so it runs no code; its log names the file and the field, for the "
    "server's owner to correct"
)


class ClosedGate:
    """Gate that lets no request in, and names the mistake to the server's owner.

    Every route, also one for a path that does not exist, authenticates at the gate before its body is read.

    Parameters
    ----------
    gate : Gate
        The host's own gate, which recognises the owner.
    problem : str
        The mistake in the policies.
    """

    def __init__(self, gate: Gate, problem: str) -> None:
        self._gate = gate
        self._problem = problem

    async def authenticate(self, handler: APIHandler) -> Caller:
        """Raise `PoliciesInvalid`, with the mistake if the caller is the server's owner."""
        try:
            caller = await self._gate.authenticate(handler)
        except ExecError:  # no token, a wrong one, or any scoped token: its policy is not known
            raise PoliciesInvalid(_FOR_OTHERS) from None
        raise PoliciesInvalid(
            f"{self._problem} (correct it and restart the server)" if caller.is_owner else _FOR_OTHERS
        )

    async def preflight(self, handler: APIHandler) -> None:
        """Answer as usual, so that a page that may ask can read the 503."""
        await self._gate.preflight(handler)


def closed_if(problem: str, gate: Gate) -> Gate:
    """Return a closed gate if the policies have a mistake, else the gate itself."""
    return ClosedGate(gate, problem) if problem else gate
