"""Handlers of secrets: list, set and delete them, and replace the key that encrypts them."""

from __future__ import annotations

from tornado import web

from ..protocol.request_parsing import secret_request_from_json
from ..protocol.view_json import view_to_json
from .base_handler import ExecHandler


class SecretsHandler(ExecHandler):
    """``/secrets``"""

    @web.authenticated
    async def get(self) -> None:
        """List the secrets, without their values."""
        self.answer({"secrets": [view_to_json(secret) for secret in await self.engine.secrets.list()]})


class SecretHandler(ExecHandler):
    """``/secrets/{name}``"""

    @web.authenticated
    async def get(self, secret_name: str) -> None:
        """Read a secret, without its value."""
        self.answer(view_to_json(await self.engine.secrets.get(secret_name)))

    @web.authenticated
    async def put(self, secret_name: str) -> None:
        """Set a secret."""
        request = secret_request_from_json(self.json_body())
        self.answer(view_to_json(await self.engine.secrets.put(self.caller, secret_name, request)))

    @web.authenticated
    async def delete(self, secret_name: str) -> None:
        """Delete a secret."""
        await self.engine.secrets.delete(self.caller, secret_name)
        self.answer_empty()


class SecretKeyHandler(ExecHandler):
    """``/secret-key/rotate``"""

    @web.authenticated
    async def post(self) -> None:
        """Encrypt all secrets with a new key."""
        self.answer({"secrets": await self.engine.secrets.rotate_key(self.caller)})
