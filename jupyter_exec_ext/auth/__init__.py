"""Callers, scopes, policies and token formats: pure decisions, standard library only."""
