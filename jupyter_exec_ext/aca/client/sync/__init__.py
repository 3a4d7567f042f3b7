"""The synchronous client of an ACA session pool, generated from `aio/`."""
