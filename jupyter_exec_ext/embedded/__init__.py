"""Embedded kernels: started by this process, and used through the client's logic for servers without ``exec/v1``.

The client's logic for such servers runs code, stops it, and reports how it ended. The driver here performs its steps.
"""
