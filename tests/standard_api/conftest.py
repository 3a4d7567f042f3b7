"""Engines in the tests' own process, as the engine's tests have them."""

from __future__ import annotations

from tests.engine.conftest import engine, make_engine, manager

__all__ = ["engine", "make_engine", "manager"]
