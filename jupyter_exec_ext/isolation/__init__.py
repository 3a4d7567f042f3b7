"""Isolated kernels: provisioners that hold a kernel in a sandbox, or by Landlock, for any Jupyter application."""
