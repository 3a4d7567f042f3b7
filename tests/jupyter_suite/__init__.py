"""Jupyter Server's own tests, run on this package: its standard API under a scoped token, and the owner's stock API."""
