"""The synchronous client of `exec/v1`, generated from `aio/`."""
