"""Kernels of sessions: start, connection, supervision, health, death reports, and the warm pool."""
