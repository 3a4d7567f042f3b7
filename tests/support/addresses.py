"""Requests that come from other addresses of this machine."""

from __future__ import annotations

from typing import Any

from requests.adapters import HTTPAdapter


class FromAddress(HTTPAdapter):
    """Connects from an address, such as ``127.0.0.2``."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **{**kwargs, "source_address": (self._address, 0)})
