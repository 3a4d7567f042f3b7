"""The HTTP face inside a Jupyter Server (and, through `gateway`, a Kernel Gateway)."""
