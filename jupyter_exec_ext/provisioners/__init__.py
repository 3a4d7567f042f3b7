"""Kernel providers that any Jupyter application can use; leaves: they import nothing of ours but models and errors."""
