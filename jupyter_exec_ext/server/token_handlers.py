"""Handlers of scoped tokens, the kernels that are granted to them, and policies."""

from __future__ import annotations

from tornado import web

from ..auth.policy_parsing import policy_to_json
from ..protocol.records_json import issued_token_to_json, to_json
from ..protocol.request_parsing import grant_request_from_json, rotation_from_json, token_request_from_json
from .base_handler import ExecHandler


class TokensHandler(ExecHandler):
    """``/tokens``"""

    @web.authenticated
    async def get(self) -> None:
        """List tokens: all for the owner; for a token, itself and its descendants."""
        tokens = await self.engine.tokens.list(self.caller, ended=self.flag_argument("ended"))
        self.answer({"tokens": [to_json(token) for token in tokens]})

    @web.authenticated
    async def post(self) -> None:
        """Create a token. Only this answer has its secret."""
        issued = await self.engine.tokens.create(self.caller, token_request_from_json(self.json_body()))
        self.set_header("Location", self.exec_url(f"tokens/{issued.token.id}"))
        self.answer(issued_token_to_json(issued), 201)


class TokenHandler(ExecHandler):
    """``/tokens/{tid}``"""

    @web.authenticated
    async def get(self, token_id: str) -> None:
        """Read a token, without its secret."""
        self.answer(to_json(await self.engine.tokens.get(self.caller, token_id)))

    @web.authenticated
    async def delete(self, token_id: str) -> None:
        """Revoke a token and its descendants, and end their executions."""
        await self.engine.tokens.revoke(self.caller, token_id)
        self.answer_empty()


class TokenRotateHandler(ExecHandler):
    """``/tokens/{tid}/rotate``"""

    @web.authenticated
    async def post(self, token_id: str) -> None:
        """Replace a token's secret. Only this answer has the new one."""
        overlap_seconds, expires_in_seconds = rotation_from_json(self.json_body(if_none={}))
        issued = await self.engine.tokens.rotate(self.caller, token_id, overlap_seconds, expires_in_seconds)
        self.answer(issued_token_to_json(issued))


class GrantsHandler(ExecHandler):
    """``/grants``"""

    @web.authenticated
    async def get(self) -> None:
        """List grants of kernels: all for the owner; for a token, its own and those of its descendants."""
        grants = await self.engine.grants.list(self.caller, ended=self.flag_argument("ended"))
        self.answer({"grants": [to_json(grant) for grant in grants]})

    @web.authenticated
    async def post(self) -> None:
        """Grant a running kernel to a token."""
        grant = await self.engine.grants.create(self.caller, grant_request_from_json(self.json_body()))
        self.answer(to_json(grant), 201)


class GrantHandler(ExecHandler):
    """``/grants/{gid}``"""

    @web.authenticated
    async def delete(self, grant_id: str) -> None:
        """Revoke a grant, and end the token's sessions on its kernel."""
        await self.engine.grants.revoke(self.caller, grant_id)
        self.answer_empty()


class PoliciesHandler(ExecHandler):
    """``/policies``"""

    @web.authenticated
    async def get(self) -> None:
        """List the policies."""
        self.answer({"policies": [policy_to_json(policy) for policy in self.engine.tokens.policies.values()]})
