"""Sessions and executions on real kernels. Knows jupyter_client and traitlets; no HTTP, no SQL, no Jupyter server."""
