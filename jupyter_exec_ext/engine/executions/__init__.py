"""Executions: the run from request to verdict, its states, its log readers, idempotency keys."""
