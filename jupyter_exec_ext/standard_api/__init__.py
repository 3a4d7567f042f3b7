"""Jupyter's kernels API for scoped tokens: each kernel is a session, and each run of code an execution."""
