"""Clients of an ACA session pool, asynchronous and synchronous."""
