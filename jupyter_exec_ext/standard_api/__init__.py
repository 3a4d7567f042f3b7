"""Jupyter's standard API of kernels for bearers of scoped tokens: each kernel is a session, each run an execution."""
