"""The asynchronous client of an ACA session pool."""
