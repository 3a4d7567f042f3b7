"""Egress of isolated kernels by rules: one filtering proxy process of the server, and the server's side of it."""
