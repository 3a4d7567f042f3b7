"""The asynchronous client of `exec/v1`."""
