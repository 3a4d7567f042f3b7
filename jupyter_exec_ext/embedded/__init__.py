"""Kernels of this process, behind the steps of the client: like a server without ``exec/v1``, and without a server.

The client's logic for such servers runs code, stops it, and tells how it ended. Here is only what carries its steps
out.
"""
