"""Gate of a server whose policies have a mistake: answers every request with 503."""

from __future__ import annotations

from typing import Any

from jupyter_server.base.handlers import APIHandler

from ..auth.caller import Caller
from ..errors import ExecError, PoliciesInvalid, PolicyDenied
from .gate import Gate, authorize

_FOR_OTHERS = (
    "the policies of this server have a mistake, so exec/v1 runs no code; the server's log names the file and the "
    "field, for its owner to correct"
)


class ClosedGate:
    """Gate that refuses every request with credentials, and names the mistake to the server's owner.

    Every route but `GET /ready`, also one for a path that does not exist, authenticates before its body is read.

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
        """Raise `PoliciesInvalid`, with the mistake if the caller is an owner who may read from the server.

        Its cause is the refusal of the host's own gate or authorizer, for the audit trail.
        """
        try:
            caller = await self._gate.authenticate(handler)
            state: Any = handler
            state.caller = caller  # the record of a refusal by the authorizer names the user
            if caller.is_owner:
                await authorize(handler, "read", "kernels")  # as for the server's own description
        except PolicyDenied:  # a valid scoped token: without any policy, its own is not known
            raise PoliciesInvalid(_FOR_OTHERS) from None
        except ExecError as refusal:
            raise PoliciesInvalid(_FOR_OTHERS) from refusal
        raise PoliciesInvalid(
            f"{self._problem} (correct it and restart the server)" if caller.is_owner else _FOR_OTHERS
        )

    async def preflight(self, handler: APIHandler) -> None:
        """Answer as usual, so that a page that may ask can read the 503."""
        await self._gate.preflight(handler)

    def check_site(self, handler: APIHandler) -> None:
        """Check as usual: `GET /ready` says that the server is not."""
        self._gate.check_site(handler)


def close_gate_if_invalid(problem: str, gate: Gate) -> Gate:
    """Return a closed gate if the policies have a mistake, else the gate itself."""
    return ClosedGate(gate, problem) if problem else gate
