"""Embedded kernels: started by this process, and used through the client's logic for servers without ``exec/v1``.

The client's logic for such servers runs code, stops it, and tells how it ended. Here is only what carries its steps
out.
"""
