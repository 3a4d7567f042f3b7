"""Kernels in a sandbox of this machine."""
