"""Imports the framework once, so that what it warns of while it is imported fails no test."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import autogen  # noqa: F401
