"""Executions: the run from request to verdict, its states and its log."""
