"""Fixtures of the engine's tests, for clients of an engine in this process."""

from __future__ import annotations

from tests.engine.conftest import engine, make_engine, manager

__all__ = ["engine", "make_engine", "manager"]
